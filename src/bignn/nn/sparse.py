"""A sparse matrix that multiplies features, forward and backward."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bignn.errors import input_error
from bignn.kernels import default_backend, native
from bignn.kernels.compressed_rows import order_of_entries


@dataclass(frozen=True)
class SparseMatrix:
    """A constant sparse matrix A in compressed rows, ready for ``A @ x`` and its gradient.

    The backward pass multiplies with ``transposed``; for a symmetric matrix it is the same object.
    A may have factors of its rows and columns apart: ``A = diag(row_factor) matrix
    diag(column_factor)``. Rounding of edge weights needs them so (:mod:`bignn.nn.edge_rounding`).

    Attributes:
        matrix: CSR tensor.
        transposed: its transpose, a CSR tensor.
        row_factor: [rows], or None for all ones.
        column_factor: [columns], or None for all ones.

    """

    matrix: Tensor
    transposed: Tensor
    row_factor: Tensor | None = None
    column_factor: Tensor | None = None

    @classmethod
    def from_entries(
        cls,
        row: Tensor,
        column: Tensor,
        values: Tensor,
        shape: tuple[int, int],
        row_factor: Tensor | None = None,
        column_factor: Tensor | None = None,
    ) -> SparseMatrix:
        """Build a matrix of ``values[e]`` at ``(row[e], column[e])``; repeated entries add up."""
        matrix = _compressed_rows(row, column, values, shape)
        transposed = _compressed_rows(column, row, values, (shape[1], shape[0]))
        is_symmetric = shape[0] == shape[1] and all(
            torch.equal(mine, other)
            for mine, other in zip(_parts(matrix), _parts(transposed), strict=True)
        )
        return cls(matrix, matrix if is_symmetric else transposed, row_factor, column_factor)

    @property
    def shape(self) -> torch.Size:
        """[rows, columns]."""
        return self.matrix.shape

    def entries(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return ``(row, column, values)`` of all entries, factors included, in row order."""
        row, column, values = self.rows, self.matrix.col_indices(), self.matrix.values()
        if self.column_factor is not None:
            values = self.column_factor[column] * values
        if self.row_factor is not None:
            values = values * self.row_factor[row]
        return row, column, values

    @cached_property
    def rows(self) -> Tensor:
        """The row number of every entry."""
        return row_of_each_entry(self.matrix)

    @cached_property
    def has_ones_only(self) -> bool:
        """Whether all values, factors apart, are 1."""
        return bool((self.matrix.values() == 1).all())

    @cached_property
    def longest_row(self) -> int:
        """The number of entries of the row that has most."""
        return int(self.matrix.crow_indices().diff().max()) if len(self.rows) else 0

    @cached_property
    def _long_rows(self) -> dict[tuple[int, bool], tuple[Tensor, list[int]]]:
        return {}

    def long_rows(
        self, length: int, among: slice | None = None, *, of_transpose: bool = False
    ) -> Tensor:
        """Return those of the rows ``among`` that have more entries than ``length``.

        All of them are found once; after that no device is waited for.
        """
        key = length, of_transpose and self.transposed is not self.matrix
        if key not in self._long_rows:
            matrix = self.transposed if of_transpose else self.matrix
            found = (matrix.crow_indices().diff() > length).nonzero()[:, 0]
            self._long_rows[key] = found, found.tolist()
        rows, numbers = self._long_rows[key]
        if among is None:
            return rows
        return rows[bisect_left(numbers, among.start) : bisect_left(numbers, among.stop)]

    @cached_property
    def order(self) -> Tensor:
        """The position in the matrix of every entry of the transpose."""
        number = torch.arange(len(self.rows), dtype=torch.float64, device=self.rows.device)
        column = self.matrix.col_indices()
        size = (self.shape[1], self.shape[0])
        return _compressed_rows(column, self.rows, number, size).values().long()

    def weighted(self, values: Tensor, x: Tensor) -> Tensor:
        """Multiply x by a matrix of this pattern with other values [entries] and no factors.

        Gradients reach x, not the values.
        """
        out: Tensor = _Product.apply(self, values, x.to(values.dtype))  # type: ignore[no-untyped-call]
        return out.to(x.dtype)

    def take_rows(self, nodes: Tensor) -> SparseMatrix:
        """Take some of the rows, in the given order."""
        pointers, column, values = _parts(self.matrix)
        counts = (pointers[1:] - pointers[:-1])[nodes]
        row = torch.repeat_interleave(torch.arange(len(nodes), device=nodes.device), counts)
        first = torch.cumsum(counts, 0) - counts
        entry = torch.arange(len(row), device=nodes.device) + (pointers[nodes] - first)[row]
        size = (len(nodes), self.shape[1])
        return self.from_entries(
            row, column[entry], values[entry], size, _part(self.row_factor, nodes),
            self.column_factor,
        )  # fmt: skip

    def corner(self, num_rows: int, num_columns: int) -> SparseMatrix:
        """Take the first rows, whose entries must all be in the first columns."""
        pointers, column, values = _parts(self.matrix)
        last = int(pointers[num_rows])
        first = csr_tensor(
            pointers[: num_rows + 1], column[:last], values[:last], (num_rows, num_columns)
        )
        source, target = row_of_each_entry(self.transposed), self.transposed.col_indices()
        kept = (target < num_rows).nonzero()[:, 0]
        transposed = csr_tensor(
            _pointers(source[kept], num_columns),
            target[kept],
            self.transposed.values()[kept],
            (num_columns, num_rows),
        )
        return SparseMatrix(
            first,
            transposed,
            _part(self.row_factor, slice(num_rows)),
            _part(self.column_factor, slice(num_columns)),
        )

    def among(self, nodes: Tensor) -> SparseMatrix:
        """Take the square part whose rows and columns are ``nodes`` (unique ids), in order."""
        position = torch.full((self.shape[0],), -1, dtype=torch.int64, device=nodes.device)
        position[nodes] = torch.arange(len(nodes), device=nodes.device)
        row, column, values = self.rows, self.matrix.col_indices(), self.matrix.values()
        kept = (position[row] >= 0) & (position[column] >= 0)
        return self.from_entries(
            position[row[kept]],
            position[column[kept]],
            values[kept],
            (len(nodes), len(nodes)),
            _part(self.row_factor, nodes),
            _part(self.column_factor, nodes),
        )

    def __matmul__(self, x: Tensor) -> Tensor:
        # Half precision (autocast) is summed in the matrix's precision.
        wide = x.to(self.matrix.dtype)
        if self.column_factor is not None:
            wide = self.column_factor.unsqueeze(-1) * wide
        out: Tensor = _Product.apply(self, None, wide)  # type: ignore[no-untyped-call]
        if self.row_factor is not None:
            out = out * self.row_factor.unsqueeze(-1)
        return out.to(x.dtype)


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, pattern: SparseMatrix, values: Tensor | None, x: Tensor) -> Tensor:
        ctx.pattern, ctx.values = pattern, values
        return multiply(pattern.matrix, x, values=values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        pattern, values = ctx.pattern, ctx.values
        order = None if values is None else pattern.order
        return None, None, multiply(pattern.transposed, grads[0], values=values, order=order)


def multiply(
    matrix: Tensor,
    x: Tensor,
    *,
    values: Tensor | None = None,
    order: Tensor | None = None,
    scale: Tensor | None = None,
    largest: int = 0,
) -> Tensor:
    """Multiply a CSR tensor by a matrix x; natively where x is float32 on a CPU.

    Args:
        matrix: the places of the entries, and their values unless others are given.
        x: [columns, any].
        values: other values [entries].
        order: the position among ``values`` of every entry; None for their own order.
        scale: numbers [rows] that the sums, in float32, are multiplied by.
        largest: given for sums that need more digits than float32 has: the products are whole
            numbers of at most this size.

    """
    if matrix.shape[1] != len(x):
        raise input_error(
            "x", f"a matrix of {matrix.shape[1]} rows, one per node", f"{len(x)} rows"
        )
    values = matrix.values() if values is None else values
    if _is_native(matrix, values, x):
        places = matrix.crow_indices(), matrix.col_indices(), order
        arrays = as_arrays(*places, values, x, scale)
        return torch.from_numpy(native.sum_rows(*arrays, isa=default_backend(), largest=largest))
    values = values if order is None else values[order]
    if largest:
        values, x = values.double(), x.double()
    # A weight that is transposed by its strides alone takes cuSPARSE many times as long.
    x = x.contiguous()
    # Autocast would ask for a half-precision sparse product, which torch does not have.
    with torch.autocast(x.device.type, enabled=False):
        total = csr_with_values(matrix, values) @ x
    return total if scale is None else total.float() * scale.unsqueeze(-1)


def _is_native(matrix: Tensor, values: Tensor, x: Tensor) -> bool:
    """Whether native code can multiply: in float32 on a CPU, and nothing traces the model."""
    in_float32 = x.dtype == values.dtype == torch.float32 and x.ndim == 2
    is_plain = x.device.type == "cpu" and matrix.crow_indices().dtype == torch.int64
    # A backward pass that is itself differentiated needs operations of torch.
    is_recorded = torch.compiler.is_compiling() or (torch.is_grad_enabled() and x.requires_grad)
    return in_float32 and is_plain and native.is_available() and not is_recorded


def as_arrays(*tensors: Tensor | None) -> list[Any]:
    """Return tensors on the CPU as contiguous NumPy arrays, which native code reads."""
    return [None if t is None else t.detach().contiguous().numpy() for t in tensors]


def row_of_each_entry(matrix: Tensor) -> Tensor:
    """Compute the row number of every entry of a CSR tensor."""
    rows = torch.arange(matrix.shape[0], device=matrix.device)
    return torch.repeat_interleave(rows, matrix.crow_indices().diff())


def csr_with_values(matrix: Tensor, values: Tensor) -> Tensor:
    """Build a CSR tensor with other values at the same places."""
    return csr_tensor(matrix.crow_indices(), matrix.col_indices(), values, matrix.shape)


def _part(factor: Tensor | None, places: Tensor | slice) -> Tensor | None:
    return None if factor is None else factor[places]


def _parts(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return matrix.crow_indices(), matrix.col_indices(), matrix.values()


def _compressed_rows(row: Tensor, column: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    if row.device.type == "cpu":  # where torch's sort takes ten times as long
        by_row = order_of_entries(row.contiguous().numpy(), column.contiguous().numpy(), shape)
        pointers, order = (torch.from_numpy(part) for part in by_row)
    else:
        order = torch.argsort(row * shape[1] + column, stable=True)
        pointers = _pointers(row, shape[0])
    return csr_tensor(pointers, column[order], values[order], shape)


def _pointers(row: Tensor, num_rows: int) -> Tensor:
    pointers = torch.zeros(num_rows + 1, dtype=torch.int64, device=row.device)
    pointers[1:] = torch.bincount(row, minlength=num_rows).cumsum(0)
    return pointers


def csr_tensor(pointers: Tensor, column: Tensor, values: Tensor, shape: Any) -> Tensor:
    """Build a torch CSR tensor of parts known to fit together."""
    with warnings.catch_warnings():  # torch warns once per process that CSR is in beta
        warnings.filterwarnings("ignore", message="Sparse (CSR|invariant)", category=UserWarning)
        return torch.sparse_csr_tensor(pointers, column, values, shape, check_invariants=False)
