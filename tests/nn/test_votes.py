"""Votes: parts of the hidden neurons that predict, whose mean is the model's output."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays
from torch import Tensor

import bignn
from bignn import InputError
from bignn.config import BinarizeMode, ConvName, NormMode
from bignn.graph import from_arrays
from bignn.nn import GNN

WIDTH, CLASSES = 50, 3
MODES: Sequence[BinarizeMode] = ("none", "features", "weights", "both")


def made(conv: ConvName = "gcn", **options: Any) -> tuple[GNN, Tensor, Tensor]:
    graph = from_arrays(make_arrays(), "toy")
    data = bignn.to_pyg(graph)
    torch.manual_seed(0)
    model = GNN(graph.num_features, WIDTH, 2, CLASSES, conv=conv, **options)
    model.fit_input(data.x)
    return model, data.x, data.edge_index


@pytest.mark.parametrize("conv", ["gcn", "mean-gcn", "sage"])
@pytest.mark.parametrize("binarize", MODES)
@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("num_voters", [1, 3, 4, WIDTH])
def test_the_mean_of_votes_is_the_output(
    conv: ConvName, binarize: BinarizeMode, norm: NormMode, num_voters: int
) -> None:
    """Weighed by their columns; 50 neurons make voters of different sizes."""
    model, x, edges = made(conv, binarize=binarize, norm=norm)
    votes = model.train().votes(x, edges, num_voters=num_voters)
    ends = np.arange(num_voters + 1) * WIDTH // num_voters
    weights = torch.from_numpy(np.diff(ends) / WIDTH).float()
    assert votes.shape == (num_voters, len(x), CLASSES)
    expected = model(x, edges)
    assert torch.allclose((weights[:, None, None] * votes).sum(dim=0), expected, atol=1e-5)
    again = model(x, edges)  # all columns count again
    assert torch.equal(again, expected)


def test_a_vote_teaches_its_own_neurons_alone() -> None:
    model, x, edges = made(binarize="both", scale_gradient=False)
    model.train().votes(x, edges, num_voters=2)[1].square().sum().backward()
    first: Any = model.layers[0]
    gradient = first.lin.weight.grad
    assert torch.count_nonzero(gradient[: WIDTH // 2]) == 0
    assert torch.count_nonzero(gradient[WIDTH // 2 :]) > 0


@pytest.mark.parametrize("conv", ["gcn", "sage"])
def test_a_model_that_voted_in_training_packs_as_any_other(conv: ConvName) -> None:
    graph = from_arrays(make_arrays(), "toy")
    model, x, edges = made(conv, binarize="both", dropout=0.2)
    alone, _, _ = made(conv, binarize="both", dropout=0.2)
    settings = bignn.Settings(epochs=20, lr=0.01)
    result = bignn.fit(alone, graph, settings, progress=False)
    voted = bignn.fit(model, graph, settings.changed({"voters": 4}), progress=False)
    assert voted.val_loss != result.val_loss
    with torch.no_grad():
        expected = model.eval()(x, edges)
    logits = bignn.pack(model).predict(graph, output="values")
    assert np.array_equal(logits, expected.numpy())


def test_a_teacher_teaches_every_voter() -> None:
    graph = from_arrays(make_arrays(), "toy")
    teacher, _, _ = made()
    model, x, edges = made(binarize="both")
    changes = {"epochs": 3, "voters": 2, "distill_mix": 1.0}
    before = model.votes(x, edges, num_voters=2).detach()
    bignn.fit(model, graph, changes, teacher=teacher, progress=False)
    after = model.votes(x, edges, num_voters=2).detach()
    assert all(not torch.equal(one, other) for one, other in zip(before, after, strict=True))


def test_voters_are_refused_where_there_are_none() -> None:
    graph = from_arrays(make_arrays(), "toy")
    d = graph.num_features
    jumping = GNN(d, 8, 2, CLASSES, conv="sage", jk="cat")
    for model, line in (
        (GNN(d, 8, 1, CLASSES), r"'voters' must be 1, got 2 for a model of 1 layer of 'gcn'"),
        (jumping, r"got 2 for a model of 2 layers of 'sage' with jk='cat'; voters are for"),
        (GNN(d, 8, 2, CLASSES, conv="gat"), "got 2 for a model of 2 layers of 'gat'"),
        (torch.nn.Linear(d, CLASSES), "got 2 for a Linear"),
    ):
        with pytest.raises(InputError, match=line):
            bignn.fit(model, graph, {"voters": 2}, progress=False)
    with pytest.raises(InputError, match=r"'voters' must be at most the 8 hidden neurons, got 9"):
        bignn.fit(GNN(d, 8, 2, CLASSES), graph, {"voters": 9}, progress=False)
    with pytest.raises(InputError, match="'voters' must be a whole number, at least 1, got 0"):
        bignn.Settings(voters=0)
