"""Evaluation leaves every module in the mode it was in."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import bignn
from bignn.graph import Graph
from bignn.nn import GCN
from bignn.nn.evaluation import evaluating
from bignn.train.batches import full_batch
from bignn.train.checks import check_model
from bignn.train.distill import soft_targets
from bignn.train.tasks import class_task


def partly_frozen(graph: Graph) -> tuple[GCN, nn.Module]:
    """A model in training mode but for its batch normalisation."""
    model = GCN(graph.num_features, 8, 2, graph.num_classes, norm="batch")
    model.fit_input(torch.from_numpy(graph.dense_x()))
    model.train()
    norm = model.norms[0].eval()
    return model, norm


def predict(model: GCN, graph: Graph) -> None:
    model.predict(torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index))


def teach(model: GCN, graph: Graph) -> None:
    student = GCN(graph.num_features, 8, 2, graph.num_classes)
    bignn.fit(student, graph, bignn.Settings(epochs=1), teacher=model, progress=False)


def opine(model: GCN, graph: Graph) -> None:
    soft_targets([model], full_batch(graph, torch.device("cpu")), 1.0)


def check(model: GCN, graph: Graph) -> None:
    check_model(model, full_batch(graph, torch.device("cpu")), class_task(graph.num_classes))


def advise(model: GCN, graph: Graph) -> None:
    bignn.recommend_width(model, graph)


def test_what_was_frozen_stays_frozen(graph: Graph) -> None:
    use: Callable[[GCN, Graph], None]
    for use in [predict, teach, opine, check, advise]:
        model, norm = partly_frozen(graph)
        use(model, graph)
        assert not norm.training
        assert model.training
        assert all(conv.training for conv in model.convs)


def test_modes_come_back_after_an_error_too(graph: Graph) -> None:
    model, norm = partly_frozen(graph)
    with pytest.raises(KeyError), evaluating(model):
        assert not any(module.training for module in model.modules())
        raise KeyError
    assert model.training
    assert not norm.training
