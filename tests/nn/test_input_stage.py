"""The input stage: training sees, bit for bit, the numbers that deployment computes."""

import os
from copy import deepcopy

import numpy as np
import pytest
import torch

import bignn
from bignn.nn import InputStage
from bignn.nn.features import BinaryRows
from bignn.runtime.input_stage import InputSpec, absolute_sums, row_scales

GRAPHS = ["cora", "citeseer", "pubmed"]
if "BIGNN_DATA" in os.environ:
    GRAPHS += ["amazon-photo", "amazon-computers", "musae-github", "coauthor-cs"]


@pytest.mark.parametrize("name", GRAPHS)
def test_training_and_deployment_see_the_same_numbers(name: str) -> None:
    x = bignn.load(name).dense_x()
    given = torch.from_numpy(x)
    for normalize_rows in (True, False):
        stages = [
            InputStage(
                x.shape[1],
                normalize_rows=normalize_rows,
                standardize=True,
                binarize=not dense,
                dense=dense,
            )
            for dense in (True, False)
        ]
        for stage in stages:
            stage.fit(given)
        values, rows = (stage(given) for stage in stages)
        statistics = (stages[0].mean.numpy(), stages[0].scale.numpy())
        spec = InputSpec(x.shape[1], normalize_rows, *statistics, binarize=True)
        expected = spec.normalized(x)
        assert isinstance(values, torch.Tensor)
        np.testing.assert_array_equal(values.numpy().view(np.int32), expected.view(np.int32))
        assert isinstance(rows, BinaryRows)
        assert np.array_equal(rows.signs.numpy() > 0, expected >= 0)
        beta = row_scales(expected, absolute_sums)
        np.testing.assert_array_equal(rows.beta.numpy().view(np.int32), beta.view(np.int32))
    plain = InputStage(
        x.shape[1], normalize_rows=True, standardize=False, binarize=False, dense=True
    )
    spec = InputSpec(x.shape[1], True, None, None, binarize=False)
    assert np.array_equal(plain(given).numpy(), spec.normalized(x))


def test_zero_rows_and_constant_columns() -> None:
    """A row of zeros stays zero, and a constant column is just below it, as are usual words."""
    x = torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 1.0], [3.0, 0.0, 3.0]])
    stage = InputStage(3, normalize_rows=True, standardize=False, binarize=True)
    rows = stage(x)
    assert isinstance(rows, BinaryRows)
    assert rows.beta[:, 0].tolist() == [0.0, pytest.approx(1 / 3), pytest.approx(1 / 3)]
    assert rows.signs[0].tolist() == [1.0, 1.0, 1.0]
    stage = InputStage(3, normalize_rows=False, standardize=True, binarize=False, dense=True)
    constant = torch.cat([x[:, :2], torch.full((3, 1), 0.1)], dim=1)
    stage.fit(constant)
    out = stage(constant)
    assert isinstance(out, torch.Tensor)
    assert all(-0.01 < value < 0 for value in out[:, 2].tolist())
    assert out[:, :2].mean(dim=0).abs().max() < 1e-6
    for large in (0.0, -7.0, 1.7e9, 1e30):
        stage.fit(torch.full((4, 3), large))
        assert -0.01 < float(stage(torch.full((1, 3), large)).max()) < 0
        for dtype in (torch.float16, torch.bfloat16):
            if abs(large) < torch.finfo(dtype).max:
                narrow = deepcopy(stage).to(dtype)
                assert float(narrow(torch.full((1, 3), large, dtype=dtype)).max()) < 0
    encoded = InputStage(
        3, normalize_rows=False, standardize=True, binarize=True, input_bits="threshold:2"
    )
    encoded.fit(constant)
    assert (encoded(constant).signs[:, 4:] == -1).all()


def test_the_stage_is_computed_once_per_x() -> None:
    x = torch.rand(4, 3)
    stage = InputStage(3, normalize_rows=True, standardize=True, binarize=True)
    stage.fit(x)
    first = stage(x)
    assert stage(x) is first
    x.mul_(2)  # a change in place is noticed
    assert stage(x) is not first
    stage.fit(x)  # so are new statistics
    again = stage(x)
    stage.fit(torch.rand(4, 3))
    assert stage(x) is not again
