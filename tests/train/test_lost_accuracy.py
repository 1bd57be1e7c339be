"""A converted model that ends far behind its teacher, and one that does not."""

import re
import warnings
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch_geometric.data import Data

import bignn
from bignn.train.lost_accuracy import MOST_LOST, warn_of_lost_accuracy
from bignn.train.tasks import Task


def converted(**options: Any) -> pyg.GCN:
    model = pyg.GCN(8, 16, 4, 3)
    bignn.binarize_(model, **options)
    return model


def told(model: Any, own: float, teachers: float, *, was_improving: bool) -> str:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_of_lost_accuracy(model, Task("classes", 3), own, teachers, was_improving=was_improving)
    return " ".join(str(warning.message) for warning in caught)


@pytest.mark.parametrize("was_improving", [False, True])
def test_only_remedies_that_are_left_are_named(was_improving: bool) -> None:
    more = "more epochs, " if was_improving else ""
    text = told(converted(center=False), 40.0, 80.0, was_improving=was_improving)
    assert re.search(f"its teacher .*80.* try {more}binarize_\\(model, center=True\\), wider", text)
    text = told(converted(center=True), 40.0, 80.0, was_improving=was_improving)
    assert f"try {more}wider hidden layers, or skip=" in text
    assert "center=True" not in text


def test_a_small_loss_and_other_models_are_not_told_of() -> None:
    assert told(converted(), 75.0, 75.0 + MOST_LOST, was_improving=False) == ""
    assert told(converted(), 75.0, 75.1 + MOST_LOST, was_improving=False) != ""
    assert told(pyg.GCN(8, 16, 2, 3), 10.0, 90.0, was_improving=False) == ""


def test_a_teacher_that_is_far_behind_is_told_of() -> None:
    text = told(converted(), 80.0, 10.0, was_improving=False)
    assert re.search("the teacher has only .*10.* is it trained, with its outputs in", text)
    assert told(converted(), 80.0, 80.0 - MOST_LOST, was_improving=False) == ""


def test_more_input_bits_are_the_first_remedy_for_dense_features() -> None:
    model = converted(center=True)
    with pytest.warns(UserWarning, match=r"='learned:\d+'\), with 'rotate:\d+' where few"):
        model.fit_input(torch.randn(64, 8))
    assert "try more input bits, wider" in told(model, 40.0, 80.0, was_improving=False)


def test_errors_are_compared_as_such() -> None:
    def said(own: float, teachers: float) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warn_of_lost_accuracy(
                converted(), Task("values", 1), own, teachers, was_improving=False
            )
        return [str(warning.message) for warning in caught]

    assert said(1.0, 0.9) == []
    assert "MAE 2 on validation, its teacher MAE 0.9" in said(2.0, 0.9)[0]


def test_fit_measures_the_teacher() -> None:
    torch.manual_seed(0)
    y = torch.arange(120) % 2
    x = torch.randn(120, 20) + 4.0 * y[:, None]
    data = Data(x=x, edge_index=torch.randint(120, (2, 300)), y=y)
    data.train_mask = torch.arange(120) < 60
    data.val_mask = ~data.train_mask
    teacher = pyg.GCN(20, 16, 2, 2)
    bignn.fit(teacher, data, {"epochs": 60, "lr": 0.05}, progress=False)
    model = pyg.GCN(20, 16, 2, 2)
    bignn.binarize_(model)
    # One step that moves nothing: the model stays as it was drawn.
    with pytest.warns(UserWarning, match=r"its teacher acc [\d.]+%; try .*more epochs"):
        bignn.fit(model, data, {"epochs": 1, "lr": 1e-9}, teacher=teacher, progress=False)
