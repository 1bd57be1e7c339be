"""What happens to raw features before the first layer. The statistics belong to the model."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from bignn.binarize import binarize_features
from bignn.errors import InputError
from bignn.nn.adjacency import tensor_version
from bignn.nn.rows import BinaryRows, SparseRows


class InputNorm(nn.Module):
    r"""Normalises rows, standardises columns, binarizes; each step where the model wants it.

    1. ``x_i <- x_i / ||x_i||_1`` (rows of zeros stay): as usual for bag-of-words features.
    2. ``x_k <- (x_k - mean_k) * scale_k``, ``scale_k = 1 / std_k`` (1 for a constant column): the
       paper's batch normalisation of the input, with zero mean, unit variance and no affine part,
       which keeps +1 and -1 in balance. The statistics are taken once, from the training input,
       and kept with the weights, since unseen nodes need them.
    3. the sign and β of every row, as :class:`BinaryRows` (float features that are mostly 0 become
       :class:`SparseRows` instead).

    Args:
        num_features: d.
        normalize_rows: step 1.
        standardize: step 2.
        binarize: step 3.

    """

    mean: Tensor
    scale: Tensor
    is_fitted: Tensor

    def __init__(
        self, num_features: int, *, normalize_rows: bool, standardize: bool, binarize: bool
    ) -> None:
        super().__init__()
        self.num_features = num_features
        self.normalize_rows = normalize_rows
        self.standardize = standardize
        self.binarize = binarize
        if standardize:
            self.register_buffer("mean", torch.zeros(num_features))
            self.register_buffer("scale", torch.ones(num_features))
            self.register_buffer("is_fitted", torch.tensor(False))
        self._remembered = WeakIdKeyDictionary()

    @torch.no_grad()
    def fit(self, x: Tensor) -> None:
        """Takes the column statistics from x [N, d]."""
        if not self.standardize:
            return
        rows = self._rows(x).double()
        deviation = rows.std(dim=0, correction=0)
        # A constant column has no spread to scale by; rounding must not make one up.
        constant = deviation <= 1e-7 * rows.abs().amax(dim=0)
        self.mean.copy_(torch.where(constant, rows[0], rows.mean(dim=0)))
        self.scale.copy_(torch.where(constant, 1.0, 1.0 / deviation))
        self.is_fitted.fill_(True)
        self._remembered.clear()

    def forward(self, x: Tensor) -> Tensor | BinaryRows | SparseRows:
        """The first layer's input; remembered for as long as x lives and nothing changes."""
        if self.standardize and not torch.compiler.is_compiling() and not self.is_fitted:
            if not self.training:
                raise InputError(
                    "the model has no input statistics yet; call model.fit_input(x), "
                    "bignn.fit(model, graph), or load a trained state"
                )
            self.fit(x)
        if torch.compiler.is_compiling():
            return self._normalized(x)
        versions = (tensor_version(x),) + (
            (self.mean._version, self.scale._version) if self.standardize else ()
        )
        found = self._remembered.get(x)
        if x.requires_grad:
            return self._as_input(x)
        if found is None or found[0] != versions:
            found = (versions, self._as_input(x))
            self._remembered[x] = found
        result: Tensor | BinaryRows | SparseRows = found[1]
        return result

    def __getstate__(self) -> dict[str, Any]:
        # What is remembered belongs to tensors of this process: copies and pickles start empty.
        return {**self.__dict__, "_remembered": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._remembered = WeakIdKeyDictionary()

    def _rows(self, x: Tensor) -> Tensor:
        if not self.normalize_rows:
            return x
        total = x.abs().sum(dim=1, keepdim=True)
        return x / torch.where(total > 0, total, 1)

    def _normalized(self, x: Tensor) -> Tensor:
        x = self._rows(x)
        return (x - self.mean) * self.scale if self.standardize else x

    def _as_input(self, x: Tensor) -> Tensor | BinaryRows | SparseRows:
        x = self._normalized(x)
        if x.requires_grad:  # it passes through the first layer's own binarization
            return x
        if self.binarize:
            return BinaryRows(*binarize_features(x))
        return SparseRows(x) if SparseRows.pays_for(x) else x
