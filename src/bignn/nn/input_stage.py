"""The input stage of models in torch: raw features become the first layer's input.

The arithmetic is :mod:`bignn.runtime.input_stage`'s, so that training and deployment see the same
numbers, bit for bit. The statistics belong to the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from bignn.binarize import sign
from bignn.config.input_bits import SIGN, parse_input_bits
from bignn.errors import InputError, input_error
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.learned_directions import LearnedDirections
from bignn.nn.tensor_cache import TensorCache
from bignn.runtime.encoders import Encoder, encoder_of
from bignn.runtime.input_bits import (
    NUM_DIAGONALS,
    compared,
    hadamard_matrix,
    rotated,
    rotation_matrix,
    rotation_scale,
    rotation_scales,
    rotation_size,
)
from bignn.runtime.input_stage import InputSpec, constant_statistics, normalized, row_scales

#: Computes mean, deviation and largest magnitude of columns, and the first row, in float64.
Moments = Callable[[Tensor], tuple[Tensor, Tensor, Tensor, Tensor]]


#: Entries of a block of rows that steps are applied to at once.
_ENTRIES_AT_ONCE = 1 << 18


class InputStage(nn.Module):
    r"""Normalises rows, standardises columns, encodes, binarizes; each step where it is wanted.

    1. ``x_i <- x_i / ||x_i||_1`` (rows of zeros stay): as usual for bag-of-words features.
    2. ``x_k <- (x_k - mean_k) * scale_k``, ``scale_k = 1 / std_k``: the paper's batch
       normalisation of the input, with zero mean, unit variance and no affine part, which keeps +1
       and -1 in balance. The numbers of a constant column are just below 0
       (:func:`bignn.runtime.input_stage.constant_statistics`). The statistics are taken once, from
       the training input, and kept with the weights, since unseen nodes need them. Columns that
       are mixed, by learned directions or rotations, have one scale together
       (:func:`bignn.runtime.input_bits.rotation_scales`).
    3. More bits than one per feature, where ``input_bits`` asks for them: directions that are
       trained with the weights (:class:`bignn.nn.learned_directions.LearnedDirections`), random
       rotations, drawn when the module is built, or thresholds, quantiles of the training input
       (:mod:`bignn.runtime.input_bits`). They are kept with the weights too.
    4. The sign and β of every row, as :class:`bignn.nn.features.BinaryRows`. Float features that
       are mostly 0 become :class:`bignn.nn.features.SparseFeatures` instead.

    The result is cached for as long as x lives (:class:`bignn.nn.tensor_cache.TensorCache`). An x
    that requires a gradient leaves the stage as a tensor, and so does all that learned directions
    make in training; the first layer binarizes it.

    Args:
        num_features: d.
        normalize_rows: whether there is step 1.
        standardize: whether there is step 2.
        binarize: whether there is step 4.
        dense: return a tensor always, without step 4.
        input_bits: step 3: ``"sign"`` for none, ``"learned:K"``, ``"rotate:K"`` or
            ``"threshold:K"``.

    """

    mean: Tensor
    scale: Tensor
    diagonals: Tensor
    hadamard: Tensor
    thresholds: Tensor
    is_fitted: Tensor

    def __init__(
        self,
        num_features: int,
        *,
        normalize_rows: bool,
        standardize: bool,
        binarize: bool,
        dense: bool = False,
        input_bits: str = SIGN,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        self.encoder = parse_input_bits(input_bits, num_features)
        if self.encoder is not None and not standardize:
            raise input_error("input_bits", f"'{SIGN}' without 'standardize'", repr(input_bits))
        self.num_features = num_features
        self.normalize_rows = normalize_rows
        self.standardize = standardize
        self.binarize = binarize
        self.dense = dense
        # The buffer travels in the state; its copy is a bool that compiled code can branch on.
        self._has_statistics = not standardize
        if standardize:
            self.register_buffer("mean", torch.zeros(num_features))
            self.register_buffer("scale", torch.ones(num_features))
            self.register_buffer("is_fitted", torch.tensor(False))
        kind = None if self.encoder is None else self.encoder.kind
        if kind in ("rotate", "learned"):
            shape = (self._per_feature, NUM_DIAGONALS, rotation_size(num_features))
            diagonals = 1 - 2 * torch.randint(2, shape, dtype=torch.int8)
            hadamard = torch.from_numpy(hadamard_matrix(num_features))
        if kind == "rotate":
            self.register_buffer("diagonals", diagonals)
            self.register_buffer("hadamard", hadamard, persistent=False)
        elif kind == "learned":  # begin as random rotations
            matrix = rotation_matrix(diagonals.double(), hadamard.double(), num_features)
            self.learned = LearnedDirections(matrix.t() * rotation_scale(num_features))
        elif kind == "threshold":
            self.register_buffer("thresholds", torch.zeros(num_features, self._per_feature))
        self._made = TensorCache()

    @property
    def num_bits(self) -> int:
        """Columns of the first layer's input."""
        return (
            self.num_features if self.encoder is None else self.encoder.num_bits(self.num_features)
        )

    @property
    def input_bits(self) -> str:
        """The option that the stage was made with."""
        return SIGN if self.encoder is None else str(self.encoder)

    @property
    def _per_feature(self) -> int:
        return 1 if self.encoder is None else self.encoder.per_feature

    @property
    def _mixes(self) -> bool:
        """Whether bits are made of several features."""
        return self.encoder is not None and self.encoder.kind != "threshold"

    @property
    def is_learned(self) -> bool:
        """Whether bits are made by directions that learn."""
        return self.encoder is not None and self.encoder.kind == "learned"

    @property
    def has_statistics(self) -> bool:
        """Whether the statistics have been taken, or none are needed."""
        return self._has_statistics

    @torch.no_grad()
    def fit(self, x: Tensor, moments: Moments | None = None) -> None:
        """Take the column statistics, and thresholds, from x [N, d].

        ``moments`` computes them where x is a part of the rows; thresholds need all rows.
        """
        self._check(x)
        if not self.standardize:
            return
        if len(x) == 0:
            fix = "train on a graph with nodes first, or call model.fit_input(x)"
            raise input_error("x", "of at least one node, to take statistics of", "zero nodes", fix)
        if not bool(torch.isfinite(x).all()):
            raise input_error(
                "x", "finite", "NaN or infinite features", "clean or impute them first"
            )
        if moments is not None and self.encoder is not None and self.encoder.kind == "threshold":
            fix = "take 'learned:K', 'rotate:K' or 'sign'"
            raise input_error("input_bits", "no quantiles of a graph in parts", self.encoder, fix)
        rows = torch.empty(x.shape, dtype=torch.float64, device=x.device)
        for some, to in zip(_blocks(x, x.shape[1]), _blocks(rows, x.shape[1]), strict=True):
            to.copy_(self._normalized(some, with_statistics=False))
        mean, deviation, largest, first = (moments or column_moments)(rows)
        # A constant column has no spread to scale by; rounding must not make one up.
        constant = deviation <= 1e-7 * largest
        if self._mixes:  # a constant column adds nothing to a mixture
            spread = torch.where(constant, 0.0, deviation).cpu().numpy()
            self.mean.copy_(torch.where(constant, first, mean))
            self.scale.copy_(torch.from_numpy(rotation_scales(spread)))
        else:
            own_mean, own_scale = constant_statistics(first)
            self.mean.copy_(torch.where(constant, own_mean, mean))
            self.scale.copy_(torch.where(constant, own_scale, 1.0 / deviation))
        if self.encoder is not None and self.encoder.kind == "threshold":
            in_order = self._normalized(x).sort(dim=0).values
            count = self._per_feature
            places = torch.arange(1, count + 1, device=x.device) * len(x) // (count + 1)
            bounds = torch.where(constant, 0.0, in_order[places])  # just above constant columns
            self.thresholds.copy_(bounds.t())
        self.is_fitted.fill_(True)
        self._has_statistics = True

    @torch.no_grad()
    def load_spec(self, spec: InputSpec) -> None:
        """Take the statistics of a packed input stage of the same steps."""
        same = (
            spec.num_features == self.num_features
            and spec.input_bits == self.input_bits
            and spec.normalize_rows == self.normalize_rows
            and (spec.mean is not None) == self.standardize
            and spec.binarize == self.binarize
        )
        if not same:
            expected = f"{self.num_features} features as {self.num_bits} bits ('{self.input_bits}')"
            got = f"{spec.num_features} features as {spec.num_columns} bits ('{spec.input_bits}')"
            raise input_error("store", f"one of {expected}, as the model reads", got)
        if spec.mean is not None and spec.scale is not None:
            self.mean.copy_(torch.from_numpy(spec.mean))
            self.scale.copy_(torch.from_numpy(spec.scale))
        if spec.encoder is not None and spec.encoder.kind == "learned":
            self.learned.load(spec.encoder.arrays)
        elif spec.encoder is not None:
            for name, values in spec.encoder.arrays.items():
                getattr(self, name).copy_(torch.from_numpy(values))
        if self.standardize:
            self.is_fitted.fill_(True)
        self._has_statistics = True

    def forward(self, x: Tensor) -> Tensor | BinaryRows | SparseFeatures:
        """Compute the first layer's input."""
        self._check(x)
        if not self._has_statistics:
            if not self.training or torch.compiler.is_compiling():
                raise InputError(
                    "the model has no input statistics yet; train it (bignn.fit, or a call in "
                    "training), load a trained state, or call its fit_input(x), if it has one"
                )
            self.fit(x)
        if self.is_learned and self.training and torch.is_grad_enabled():
            learning: Tensor = self.learned(self._normalized(x))
            return learning
        if torch.compiler.is_compiling() or x.requires_grad:
            # The first layer binarizes it, and passes gradients on to x.
            return self._encoded(self._normalized(x), self._matrix())
        statistics = [self.mean, self.scale] if self.standardize else []
        if self.is_learned:
            # Not kept: a replayed epoch changes directions without torch's counting it.
            with torch.no_grad():
                return self._as_constant(x)
        if self.encoder is not None:
            statistics.append(self.diagonals if self.encoder.kind == "rotate" else self.thresholds)
        return self._made.get(x, statistics, None, lambda: self._as_constant(x))

    def packed_encoder(self) -> Encoder | None:
        """Return the encoder of step 3 as packed models have it."""
        if self.encoder is None:
            return None
        kind = self.encoder.kind
        if kind == "learned":
            arrays = self.learned.arrays()
        else:
            numbers = self.diagonals if kind == "rotate" else self.thresholds
            name = "diagonals" if kind == "rotate" else "thresholds"
            arrays = {name: numbers.cpu().numpy()}
        return encoder_of(kind, self.num_features, arrays)

    def _check(self, x: Tensor) -> None:
        if x.ndim != 2 or x.shape[1] != self.num_features:
            raise input_error(
                "x",
                f"[nodes, {self.num_features}] (features per node as in 'in_channels')",
                f"shape {list(x.shape)}",
            )
        if x.is_meta:
            raise input_error("x", "a tensor with values", "one on the meta device")
        if self.standardize and self.mean.is_meta:
            raise input_error("model", "one with values", "parameters on the meta device")

    def _normalized(self, x: Tensor, *, with_statistics: bool = True) -> Tensor:
        standardize = self.standardize and with_statistics
        made: Tensor = normalized(
            x,
            normalize_rows=self.normalize_rows,
            mean=self.mean if standardize else None,
            scale=self.scale if standardize else None,
            absolute_sums=_absolute_sums,
        )
        return made

    def _matrix(self) -> Tensor | None:
        """Compute the matrix of rotations or of whole directions, if there are any."""
        found: Tensor | None = None
        if self.encoder is not None and self.encoder.kind == "rotate":
            found = rotation_matrix(
                self.diagonals.double(), self.hadamard.double(), self.num_features
            )
        elif self.is_learned:
            found = self.learned.whole_matrix()
        return found

    def _encoded(self, x: Tensor, matrix: Tensor | None) -> Tensor:
        """Apply step 3 to standardised features; gradients pass its rounding straight through."""
        made: Tensor
        if self.encoder is None:
            return x
        if self.encoder.kind == "threshold":
            made = compared(x, self.thresholds)
            return made
        assert matrix is not None
        if self.is_learned:
            made = self.learned.exactly(x.detach(), matrix)
        else:
            made = rotated(x.detach(), matrix, Tensor.double, lambda some: some.to(x.dtype))
        if not x.requires_grad:
            return made
        # Away from the bounds of its rounding an encoder is linear.
        if self.is_learned:
            linear = self.learned(x)
        else:
            linear = x @ (matrix * rotation_scale(self.num_features)).to(x.dtype)
        passed: Tensor = made + (linear - linear.detach())
        return passed

    def _as_constant(self, x: Tensor) -> Tensor | BinaryRows | SparseFeatures:
        matrix = self._matrix()
        if self.binarize and not self.dense:
            blocks = (
                self._encoded(self._normalized(some), matrix)
                for some in _blocks(x, max(self.num_features, self.num_bits))
            )
            made = [(sign(some), row_scales(some, _absolute_sums)) for some in blocks]
            signs, beta = (torch.cat(parts) for parts in zip(*made, strict=True))
            return BinaryRows(signs, beta)
        x = self._encoded(self._normalized(x), matrix)
        return SparseFeatures(x) if not self.dense and SparseFeatures.pays_for(x) else x

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if self.standardize and (prefix + "is_fitted") in state_dict:
            self._has_statistics = bool(state_dict[prefix + "is_fitted"])


@contextmanager
def without_statistics(model: nn.Module) -> Iterator[None]:
    """Let a model be called for a trial before its input stages have any statistics."""
    stages = [some for some in model.modules() if isinstance(some, InputStage)]
    waiting = [stage for stage in stages if not stage.has_statistics]
    for stage in waiting:
        stage._has_statistics = True
    try:
        yield
    finally:
        for stage in waiting:
            stage._has_statistics = False


def column_moments(rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute mean, deviation and largest magnitude of columns, and the first row."""
    return rows.mean(dim=0), rows.std(dim=0, correction=0), rows.abs().amax(dim=0), rows[0]


def _blocks(x: Tensor, width: int) -> tuple[Tensor, ...]:
    """Split x into blocks of rows that stay in a cache while they become up to ``width`` wide."""
    blocks: tuple[Tensor, ...] = x.split(max(1, _ENTRIES_AT_ONCE // max(1, width)))
    return blocks


def _absolute_sums(x: Tensor) -> Tensor:
    """Sum the absolute values of each row in float64, rounded to x's dtype: [N, d] -> [N, 1]."""
    return x.abs().sum(dim=1, keepdim=True, dtype=torch.float64).to(x.dtype)
