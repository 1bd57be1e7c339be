"""Products of sparse matrices: derivatives of every order, and sizes that do not fit."""

import pytest
import torch

from bignn import InputError
from bignn.nn.sparse import SparseMatrix


def random_matrix() -> SparseMatrix:
    generator = torch.Generator().manual_seed(0)
    row, column = torch.randint(6, (2, 20), generator=generator).unique(dim=1)
    return SparseMatrix.from_entries(row, column, torch.rand(len(row), generator=generator), (6, 6))


def test_second_derivatives_are_those_of_a_dense_product() -> None:
    sparse = random_matrix()
    found = []
    for matrix in (sparse, sparse.matrix.to_dense()):
        x = torch.linspace(-1, 1, 12).view(6, 2).requires_grad_()
        loss = ((matrix @ x) ** 2).sum() + (x**3).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        (second,) = torch.autograd.grad((first**2).sum(), x)
        found.append((first.detach(), second))
    for mine, dense in zip(*found, strict=True):
        torch.testing.assert_close(mine, dense)


def test_other_numbers_of_rows_are_refused() -> None:
    for num_rows in (5, 7):
        with pytest.raises(InputError, match=rf"^'x' must be .* 6 rows.*, got {num_rows} rows$"):
            random_matrix() @ torch.ones(num_rows, 2)
