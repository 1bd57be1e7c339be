"""The result of a training run."""

from __future__ import annotations

from dataclasses import dataclass

from bignn.errors import InputError
from bignn.train.tasks import Metric


@dataclass(frozen=True)
class FitResult:
    """Scores of a run in its best epoch (``Settings.select_by``).

    Attributes:
        val_loss: loss on validation; of values the mean square, whose root is the RMSE.
        val_score: score on validation, in percent (a ``"mae"`` is an absolute error).
        test_score: score on the test set; None without one.
        best_epoch: the epoch that they are of.
        epochs: epochs trained.
        seconds: time spent training and validating.
        metric: the score: ``"accuracy"`` of classes, ``"micro_f1"`` of labels, ``"mae"`` of values,
            ``"auc"`` of links.
        exchanged: of a graph in parts, bytes of neighbours' rows that all processes sent forward
            since this run began or was resumed, of gradients that they sent back, and those of
            the same as float32; None of other graphs.

    """

    val_loss: float
    val_score: float
    test_score: float | None
    best_epoch: int
    epochs: int
    seconds: float
    metric: Metric = "accuracy"
    exchanged: dict[str, int] | None = None

    @property
    def val_acc(self) -> float:
        """Accuracy on validation in percent; an error if the score is another one."""
        self._check_metric("accuracy")
        return self.val_score

    @property
    def test_acc(self) -> float | None:
        """Accuracy on the test set in percent; an error if the score is another one."""
        self._check_metric("accuracy")
        return self.test_score

    @property
    def test_micro_f1(self) -> float | None:
        """Micro-averaged F1 on the test set in percent; of classes it is the accuracy.

        Every node has one class and gets one, so each error is one false positive and one false
        negative: precision, recall and F1 over all classes are the accuracy.
        """
        self._check_metric("accuracy", "micro_f1")
        return self.test_score

    def _check_metric(self, *metrics: Metric) -> None:
        if self.metric not in metrics:
            raise InputError(
                f"the score of this run is '{self.metric}', not '{metrics[-1]}'; read val_score or "
                "test_score"
            )
