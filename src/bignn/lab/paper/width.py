"""``bignn capacity``: how wide a float model and its binary twin must be, beside its entropy.

The paper's Sec. 7.3.4: both are trained at several widths, the narrowest float model that is good
enough is measured, and its bits are the bound that the binary one is compared with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bignn.capacity import layer_entropies
from bignn.capacity.width import ESTIMATES, EstimateName, LayerEntropy
from bignn.cost import estimate as cost_of
from bignn.errors import InputError, input_error
from bignn.files import atomic_path
from bignn.graph import Graph, load
from bignn.lab.paper.published import CAPACITY, Capacity
from bignn.lab.paper.rows import AS_PAPER_BINARY, AS_PAPER_FLOAT, WIDTHS, Changes, widths
from bignn.lab.study.run import Run
from bignn.lab.study.runs import do_runs
from bignn.train.averages import mean_and_std
from bignn.train.checkpoint import load_model
from bignn.train.recipes import TWINS, Recipe, recipe
from bignn.train.seeds import train_seeds

#: "At least 99 % performance of its best performance" makes a width a proper one.
PROPER = 0.99


@dataclass(frozen=True)
class Curve:
    """Mean and standard deviation of a model's test accuracy in percent at each width.

    ``of_seeds`` are the accuracies [widths, seeds] themselves.
    """

    widths: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float | None, ...]
    of_seeds: tuple[tuple[float, ...], ...] = ()

    @classmethod
    def of(cls, accuracies: Mapping[int, Sequence[float | None]]) -> Curve:
        """Make a curve of the test accuracies of all seeds at each width."""
        found = [mean_and_std(of_seeds) for of_seeds in accuracies.values()]
        means = tuple(mean for mean, _ in found if mean is not None)
        stds = tuple(std for _, std in found)
        assert len(means) == len(accuracies)
        seeds = tuple(tuple(one for one in of if one is not None) for of in accuracies.values())
        return cls(tuple(accuracies), means, stds, seeds)

    @property
    def peak_width(self) -> int:
        """The width of the best mean; the narrowest of equals."""
        return self.widths[self.mean.index(max(self.mean))]

    @property
    def min_width(self) -> int:
        """The paper's minimum proper width: the narrowest with 99 % of the best mean."""
        return next(width for width in self.widths if self.is_proper(width))

    def is_proper(self, width: int) -> bool:
        """Return whether the mean at this width is 99 % of the best or more."""
        return self.mean[self.widths.index(width)] >= PROPER * max(self.mean)

    def holds(self, bound: int, heads: int = 1) -> bool | None:
        """Return whether the first width with as many neurons as the bound is a proper one; None if
        no width has so many.
        """
        wide = [width for width in self.widths if width * heads >= bound]
        return self.is_proper(wide[0]) if wide else None


def share_that_holds(
    curve: Curve, bound: int, heads: int = 1, *, resamples: int = 1000, seed: int = 0
) -> float | None:
    """Return how often :meth:`Curve.holds` is true when the seeds of each width are resampled with
    replacement: near 0 or 1 it is sure, between it is luck. None where ``holds`` is None.
    """
    if curve.holds(bound, heads) is None:
        return None
    rng = np.random.default_rng(seed)
    values = np.array(curve.of_seeds)
    draws = rng.integers(0, values.shape[1], (resamples, *values.shape))
    means = np.take_along_axis(values[None], draws, axis=2).mean(axis=2)
    times = sum(
        bool(replace(curve, mean=tuple(mean.tolist())).holds(bound, heads)) for mean in means
    )
    return times / resamples


@dataclass(frozen=True)
class Study:
    """The settings of a study of widths.

    Attributes:
        dataset: a name or a path, as :func:`bignn.load` takes it.
        model: the float one, a value of ``recipes.TWINS``.
        swept: widths, ascending; per head where there are heads.
        seeds: number of seeds.
        bins: M of the entropies; None for the paper's choice on that graph, 200 on others.
        as_paper: whether both are trained as in the paper's citation experiments, not by our
            recipes.
        distill: whether the binary model learns from a float teacher.
        changes: to both recipes.

    """

    dataset: str
    model: str = "gcn"
    swept: tuple[int, ...] = WIDTHS
    seeds: int = 5
    bins: int | None = None
    as_paper: bool = False
    distill: bool = False
    changes: Changes = ()

    def __post_init__(self) -> None:
        floats = list(dict.fromkeys(TWINS.values()))
        if self.model not in floats:
            expected = f"a float model with a binary version, one of {floats}"
            raise input_error("model", expected, repr(self.model))
        ascending = list(self.swept) == sorted(set(self.swept))
        if not self.swept or self.swept[0] < 1 or not ascending:
            raise input_error(
                "widths", "numbers from 1 on, ascending", ",".join(map(str, self.swept))
            )
        if self.seeds < 1:
            raise input_error("seeds", "at least 1", self.seeds)
        if self.bins is not None and self.bins < 2:
            raise input_error("bins", "at least 2", self.bins)
        for binary in (False, True):  # refuses wrong values before the graph is read
            row = self.rows(binary)[0]
            recipe(row.model, distill=row.distill, **dict(row.changes))

    @property
    def name(self) -> str:
        """The name of its document and its figure."""
        kinds = [name for name in ("as_paper", "distill") if getattr(self, name)]
        words = [Path(self.dataset).stem, self.model, *kinds]
        return "-".join(words).replace("_", "-")

    @property
    def twin(self) -> str:
        """The binary model."""
        return f"bi-{self.model}"

    def rows(self, binary: bool) -> tuple[Run, ...]:
        """Return a run at each width, seed 0 standing for all."""
        of_paper = (AS_PAPER_BINARY if binary else AS_PAPER_FLOAT) if self.as_paper else ()
        changes = tuple({**dict(of_paper), **dict(self.changes)}.items())
        model = self.twin if binary else self.model
        rows = widths(self.dataset, model, self.swept, changes)
        return tuple(replace(row, distill=binary and self.distill) for row in rows)

    def published(self, graph: Graph) -> Capacity | None:
        """Return what the paper found on this graph, if anything."""
        return CAPACITY.get(graph.name, {}).get(self.model)

    def bins_on(self, graph: Graph) -> int:
        """Return M, the number of bins of the entropies on this graph."""
        published = self.published(graph)
        return self.bins or (200 if published is None else published.bins)

    def recipe(self, graph: Graph, width: int, binary: bool) -> Recipe:
        """Return the recipe of the model at this width."""
        return self.rows(binary)[self.swept.index(width)].recipe(graph)


def run(study: Study, out: Path, *, device: str = "cpu", jobs: int = 1) -> dict[str, Any]:
    """Train what ``out`` lacks, measure and compare; the report is returned and written to ``out``
    as ``capacity-NAME.json``.
    """
    graph = load(study.dataset)
    float_recipe, binary_recipe = (
        study.recipe(graph, study.swept[0], binary) for binary in (False, True)
    )
    if graph.test_idx is None:
        raise InputError(
            f"{graph.name}: widths are compared by test accuracy, and there is no test_idx; "
            "'bignn convert NEW.npz --graph FILE.npz --split 60,20,20' makes one"
        )
    if float_recipe.num_layers == 1 and float_recipe.jk is None:
        raise input_error("num_layers", "at least 2, so that there is a hidden layer", 1)
    floats, binary = _curves(study, out, device, jobs)
    bins = study.bins_on(graph)

    def measured(width: int) -> list[list[LayerEntropy]]:
        """Return the layers of the float model of this width, of every seed."""
        chosen = study.rows(binary=False)[study.swept.index(width)]
        trained = train_seeds(
            chosen.recipe(graph),
            graph,
            range(study.seeds),
            out / "measured" / chosen.key(graph)[0],
            device=device,
            resume=True,
            replace_unusable=True,
            jobs=jobs,
            label=chosen.row,
        )
        return [
            layer_entropies(load_model(path).to(device), graph, bins, estimates=ESTIMATES)
            for path in trained.checkpoints
        ]

    layers = measured(floats.min_width)
    published = study.published(graph)
    at_papers = None
    if published is not None and published.min_width in study.swept:
        is_ours = published.min_width == floats.min_width
        of_paper = layers if is_ours else measured(published.min_width)
        at_papers = _bound(of_paper, "independent", binary, _heads(binary_recipe))
    by_estimate = {name: _bound(layers, name, binary, _heads(binary_recipe)) for name in ESTIMATES}
    paper = by_estimate["independent"]
    sizes = [
        cost_of(study.recipe(graph, width, is_binary), graph).model_bytes
        for width, is_binary in ((floats.min_width, False), (binary.min_width, True))
    ]
    report = {
        "name": study.name,
        "dataset": study.dataset,
        "model": study.model,
        "bi_model": study.twin,
        "seeds": study.seeds,
        "bins": bins,
        "as_paper": study.as_paper,
        "distill": study.distill,
        "heads": _heads(float_recipe),
        "bi_heads": _heads(binary_recipe),
        "widths": list(study.swept),
        "epochs": dict(study.changes).get("epochs"),
        "float_acc": list(floats.mean),
        "float_std": list(floats.std),
        "bi_acc": list(binary.mean),
        "bi_std": list(binary.std),
        "min_width": floats.min_width,
        "peak_width": floats.peak_width,
        "entropy_bits": paper["bits"],
        "entropy_std": paper["std"],
        "lower_bound": paper["lower_bound"],
        "holds": paper["holds"],
        "holds_share": paper["holds_share"],
        "needed": binary.min_width * _heads(binary_recipe) >= paper["lower_bound"],
        "bi_min_width": binary.min_width,
        "bi_peak_width": binary.peak_width,
        "layers": _layers(layers),
        "estimates": by_estimate,
        "model_bytes": sizes[0],
        "bi_model_bytes": sizes[1],
        "size_ratio": sizes[0] / sizes[1],
        "paper": None if published is None else published._asdict(),
        "at_papers_width": at_papers,
    }
    with atomic_path(out / f"capacity-{study.name}.json") as temporary:
        temporary.write_text(json.dumps(report, allow_nan=False))
    return report


def _curves(study: Study, out: Path, device: str, jobs: int) -> tuple[Curve, Curve]:
    """Train all widths and return the curves of the float model and of the binary one."""
    # Seed by seed, so that what an interruption leaves is even.
    runs = {
        (binary, width, seed): replace(row, seed=seed)
        for seed in range(study.seeds)
        for binary in (False, True)
        for width, row in zip(study.swept, study.rows(binary), strict=True)
    }
    records = dict(
        zip(runs, do_runs(list(runs.values()), out, device=device, jobs=jobs), strict=True)
    )
    floats, binary = (
        Curve.of(
            {
                width: [records[kind, width, seed]["test_acc"] for seed in range(study.seeds)]
                for width in study.swept
            }
        )
        for kind in (False, True)
    )
    return floats, binary


def _heads(chosen: Recipe) -> int:
    return chosen.heads if chosen.conv == "gat" else 1


def _bound(
    layers: Sequence[Sequence[LayerEntropy]], name: EstimateName, binary: Curve, heads: int
) -> dict[str, Any]:
    """Return the bits of the largest hidden layer in each seed, and the bound from their mean."""
    bits = [max(la.estimates[name] for la in seed if la.is_hidden) for seed in layers]
    mean, std = mean_and_std(bits)
    assert mean is not None
    bound = max(1, math.ceil(mean))
    return {
        "bits": mean,
        "std": std,
        "bits_of_seeds": bits,
        "lower_bound": bound,
        "holds": binary.holds(bound, heads),
        "holds_share": share_that_holds(binary, bound, heads),
    }


def _layers(layers: Sequence[Sequence[LayerEntropy]]) -> list[dict[str, Any]]:
    """Return every layer, its estimates as mean and standard deviation over seeds."""
    rows = []
    for of_seeds in zip(*layers, strict=True):
        first = of_seeds[0]
        figures = {
            name: mean_and_std([layer.estimates[name] for layer in of_seeds])
            for name in first.estimates
        }
        rows.append(
            {
                "name": first.name,
                "width": first.width,
                "samples": first.samples,
                "bits": {name: mean for name, (mean, _) in figures.items()},
                "std": {name: std for name, (_, std) in figures.items()},
            }
        )
    return rows
