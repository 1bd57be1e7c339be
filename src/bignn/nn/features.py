"""Constant feature matrices in the forms that a first layer multiplies with fastest."""

from __future__ import annotations

import torch
from torch import Tensor

from bignn import ops
from bignn.nn.dropout import dropout
from bignn.nn.sparse import SparseMatrix, csr_tensor


class BinaryRows:
    """``H̃_i = β_i F_i``: the signs F of a feature matrix and their row scales β.

    A model's input does not change from epoch to epoch. Binarized once, training multiplies with
    the signs, and evaluation with the packed words, made when first asked for.

    Attributes:
        signs: ±1 as floats [N, d].
        beta: [N, 1].

    """

    def __init__(self, signs: Tensor, beta: Tensor) -> None:
        self.signs = signs
        self.beta = beta
        self._words: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        """[N, d]."""
        return self.signs.shape

    @property
    def words(self) -> Tensor:
        """The signs as packed rows (CPU only)."""
        if self._words is None:
            self._words = ops.pack_rows(self.signs)
        return self._words


class SparseFeatures:
    """A float feature matrix with few entries. Dropping a zero changes nothing, so dropout need
    only draw for the entries.
    """

    def __init__(self, x: Tensor) -> None:
        row, column = x.nonzero(as_tuple=True)
        shape = (x.shape[0], x.shape[1])
        self._all = SparseMatrix.from_entries(row, column, x[row, column], shape)
        # Where the entries of the matrix, counted in row order, stand in its transpose.
        numbers = torch.arange(len(row), device=x.device, dtype=torch.float64)
        self._order = (
            SparseMatrix.from_entries(row, column, numbers, shape).transposed.values().long()
        )

    @staticmethod
    def pays_for(x: Tensor) -> bool:
        """Whether x is sparse enough for this form to be the faster one."""
        return x.numel() > 0 and int(x.count_nonzero()) < 0.25 * x.numel()

    @property
    def shape(self) -> torch.Size:
        """[N, d]."""
        return self._all.shape

    def matmul(self, weight: Tensor, p: float, *, training: bool) -> Tensor:
        """``dropout(X) weight`` for a weight [d, d_out]."""
        if not training or p == 0:
            return self._all @ weight
        kept = dropout(self._all.matrix.values(), p, training=True)
        dropped = SparseMatrix(
            _with_values(self._all.matrix, kept),
            _with_values(self._all.transposed, kept[self._order]),
        )
        return dropped @ weight


def _with_values(matrix: Tensor, values: Tensor) -> Tensor:
    return csr_tensor(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)
