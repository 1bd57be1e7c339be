"""What ``fit`` calls a model with, by the signature of its forward."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data

import bignn
from bignn.config import Settings
from bignn.errors import InputError
from bignn.nn.convert.converted_input import fit_inner_stage
from bignn.train.batches import Batch, as_batch
from bignn.train.forward import Forward
from bignn.train.ids import reads_ids

NODES, D, CLASSES = 80, 20, 3
QUICK = Settings(lr=0.01, epochs=2, patience=9)


@pytest.fixture
def data() -> Data:
    torch.manual_seed(0)
    made = Data(torch.randn(NODES, D), torch.randint(NODES, (2, 300)))
    made.y = torch.arange(NODES) % CLASSES
    made.train_mask, made.val_mask = torch.arange(NODES) % 2 == 0, torch.arange(NODES) % 2 == 1
    return made


class OfData(nn.Module):
    """A model that is called with a ``Data``, and reads more of it than features and edges."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(D, 16), pyg.GCNConv(16, CLASSES)
        self.seen: list[Any] = []

    def forward(self, data: Data) -> Tensor:
        if isinstance(data, Data):  # not while the forward is traced
            self.seen.append(data.pos)
        h = self.first(data.x, data.edge_index, data.edge_weight).relu()
        out: Tensor = self.second(h, data.edge_index, data.edge_weight)
        return out


@pytest.mark.filterwarnings("ignore:the model has acc")  # after two epochs
@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_of_data_is_fitted_and_packed(weighted: bool, data: Data) -> None:
    data.pos = torch.randn(NODES, 2)
    if weighted:
        data.edge_weight = torch.rand(data.num_edges)
    model = OfData()
    bignn.binarize_(model)
    bignn.fit(model, data, QUICK, progress=False)
    assert all(torch.equal(pos, data.pos) for pos in model.seen)
    expected = model(data).argmax(dim=1)
    assert np.array_equal(bignn.pack(model).predict(data), expected)
    teacher, student = OfData(), OfData()
    bignn.binarize_(student)
    bignn.fit(student, data, QUICK, teacher=teacher, progress=False)
    bignn.fit(student, data, Settings(lr=0.01, epochs=2, inductive=True), progress=False)
    assert any(len(pos) == NODES // 2 for pos in student.seen)


def test_a_model_of_data_takes_a_graph_and_a_loaders_batches(data: Data) -> None:
    model = OfData()
    bignn.fit(model, bignn.from_pyg(data), QUICK, progress=False)
    batches = [data.subgraph(torch.arange(NODES // 2)), data]
    bignn.fit(model, data, QUICK, batches=batches, progress=False)


def test_a_batch_stays_where_it_was(data: Data) -> None:
    found = as_batch(data, torch.device("cpu")).data
    found.x = None
    assert data.x is not None


def test_a_forward_is_given_what_it_names(data: Data) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(D + 2, CLASSES)

        def forward(
            self, x: Tensor, edge_index: Tensor, pos: Tensor, weights: Any = None, z: Any = None
        ) -> Tensor:
            assert weights is None
            assert z is None  # not known, and not needed
            out: Tensor = self.lin(torch.cat([x, pos], dim=1))
            return out

    data.z = torch.zeros(NODES)
    with pytest.raises(InputError, match=r"forward takes 'pos', which the graph .*; set data\.pos"):
        bignn.fit(Named(), data, QUICK, progress=False)
    data.pos = torch.randn(NODES, 2)
    bignn.fit(Named(), data, QUICK, progress=False)


def test_a_forward_may_take_features_alone(data: Data) -> None:
    for model in (pyg.MLP([D, 16, CLASSES]), nn.Sequential(nn.Linear(D, CLASSES))):
        bignn.fit(model, data, QUICK, progress=False)


def test_edge_attr_is_given_or_told_of(data: Data) -> None:
    data.edge_attr = torch.rand(data.num_edges, 4)
    for model in (pyg.GAT(D, 16, 2, CLASSES, edge_dim=4), pyg.GAT(D, 16, 2, CLASSES)):
        bignn.binarize_(model)
        bignn.fit(model, data, QUICK, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bignn.fit(OfData(), data, QUICK, progress=False)
    with pytest.warns(UserWarning, match="'edge_attr' is not used: the forward of 'model'"):
        bignn.fit(pyg.GCN(D, 16, 2, CLASSES), data, QUICK, progress=False)


def test_relations_that_a_graph_lacks_are_named(data: Data) -> None:
    class Relational(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.RGCNConv(D, CLASSES, 2)

        def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
            out: Tensor = self.conv(x, edge_index, edge_type)
            return out

    with pytest.raises(InputError, match=r"forward takes 'edge_type', the number of each edge's"):
        bignn.fit(Relational(), data, QUICK, progress=False)


@pytest.mark.parametrize("name", ["train_mask", "val_mask"])
@pytest.mark.parametrize("as_values", [False, True])
def test_masks_without_nodes_are_named(name: str, as_values: bool, data: Data) -> None:
    data[name] = torch.zeros(NODES, dtype=torch.bool)
    if as_values:
        data.y = torch.rand(NODES)
    with pytest.raises(
        InputError, match=rf"^'{name}' must be True at some nodes, got False at all"
    ):
        bignn.fit(pyg.GCN(D, 16, 2, 1 if as_values else CLASSES), data, QUICK, progress=False)


def test_weights_go_by_their_place_where_their_name_is_another() -> None:
    class Third(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, w: Any) -> Tensor:
            return x

    class Anything(nn.Module):
        def forward(self, *args: Any) -> Tensor:
            return torch.zeros(1)

    weight = torch.ones(2)
    parts = {"edge_weight": weight}
    assert Forward.of(Third()).named(parts.get) == {"w": weight}
    assert Forward.of(Anything()).num_leading == 2
    assert not Forward.of(Anything()).takes_data
    assert Forward.of(pyg.GCN(2, 2, 2)).named(parts.get) == {"edge_weight": weight}


def test_other_names_and_other_third_arguments(data: Data) -> None:
    """Features and edges by any names; a flag is no place for weights."""

    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = pyg.GCNConv(D, CLASSES)

        def forward(self, h: Tensor, adj: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv(h, adj)
            return out

    class WithFlag(Renamed):
        @property
        def predicts(self) -> str:
            return "prices"

        def forward(  # type: ignore[override]
            self, x: Tensor, edge_index: Tensor, return_hidden: bool = False
        ) -> Tensor:
            assert not return_hidden
            return super().forward(x, edge_index)

    bignn.fit(Renamed(), data, QUICK, progress=False)
    data.edge_weight = torch.rand(data.num_edges)
    with pytest.warns(UserWarning, match="'edge_weight' is not used"):
        bignn.fit(WithFlag(), data, QUICK, progress=False)

    class Graphs(nn.Module):
        def forward(self, data: Data, return_hidden: bool = False) -> None: ...

    assert Forward.of(Graphs()).takes_data


class OfIds(nn.Module):
    """Ids of nodes are embedded, as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(30, 16)
        self.first, self.second = pyg.GCNConv(16, 16), pyg.GCNConv(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(self.embed(x.squeeze(-1)), edge_index).relu()
        out: Tensor = self.second(h, edge_index)
        return out


@pytest.mark.parametrize("is_regression", [False, True])
def test_ids_reach_an_embedding_as_whole_numbers(is_regression: bool, data: Data) -> None:
    torch.manual_seed(0)
    data.x = torch.randint(30, (NODES, 1))
    if is_regression:
        data.y = torch.randn(NODES, CLASSES)
    model, teacher = OfIds(), OfIds()
    assert bignn.binarize_(model).obstacle is None
    bignn.fit(teacher, data, QUICK, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of learned values that are no dense features
        bignn.fit(model, data, QUICK, teacher=teacher, progress=False)
    with torch.no_grad():
        expected = model(data.x, data.edge_index).numpy()
    packed = bignn.pack(model)
    assert np.allclose(packed.predict(data, output="logits"), expected, atol=1e-4)
    # A model without an embedding takes the same numbers as floats.
    bignn.fit(pyg.GCN(1, 8, 2, CLASSES), data, QUICK, progress=False)


class OfRelations(nn.Module):
    """Relations are embedded; whole numbers that are no ids are features like any others."""

    def __init__(self) -> None:
        super().__init__()
        self.weigh = nn.Embedding(4, 1)
        self.first, self.second = pyg.GCNConv(8, 16), pyg.GCNConv(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor) -> Tensor:
        h = self.first(x, edge_index).relu()
        out: Tensor = self.second(h, edge_index, self.weigh(edge_type).sigmoid().view(-1))
        return out


@pytest.mark.parametrize("is_binary", [False, True])
def test_an_embedding_of_relations_leaves_features_floats(is_binary: bool, data: Data) -> None:
    data.x = torch.randint(2, (NODES, 8))
    data.edge_type = torch.randint(4, (data.num_edges,))
    model = OfRelations()
    if is_binary:
        bignn.binarize_(model, skip=["weigh"])
    bignn.fit(model, data, QUICK, progress=False)


class OfIdsAndNumbers(nn.Module):
    """One column is embedded, after a layer that has read the others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = pyg.GCNConv(7, 16), pyg.GCNConv(16, CLASSES)
        self.embed = nn.Embedding(30, 16)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(x[:, 1:].float(), edge_index).relu()
        out: Tensor = self.second(h + self.embed(x[:, 0]), edge_index)
        return out


@pytest.mark.parametrize("is_binary", [False, True])
def test_a_column_of_ids_reaches_an_embedding(is_binary: bool, data: Data) -> None:
    data.x = torch.randint(30, (NODES, 8))
    model = OfIdsAndNumbers()
    if is_binary:
        bignn.binarize_(model, first="first")
    bignn.fit(model, data, QUICK, progress=False)
    data.x[5, 0] = 30
    with pytest.raises(IndexError):  # of the embedding, not of floats that it refuses
        bignn.fit(model, data, QUICK, progress=False)


def test_whole_numbers_are_given_where_floats_are_refused(data: Data) -> None:
    class OneHot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(30, CLASSES)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.lin(nn.functional.one_hot(x[:, 0], 30).float())
            return out

    data.x = torch.randint(30, (NODES, 1))
    bignn.fit(OneHot(), data, QUICK, progress=False)


def test_large_ids_keep_all_their_digits(data: Data) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(2**24 + 2, 1)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.embed(x[:, 0].long())
            return out

    ids = torch.full((NODES, 1), 2**24 + 1)
    batch = Batch(ids.float(), data.edge_index, None, data.y, torch.arange(3))
    assert reads_ids(Cast(), batch, ids)


class AfterFloats(nn.Module):
    """A layer as wide as the features, which reads something else."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(D, D)
        self.first, self.second = pyg.GCNConv(D, 16), pyg.GCNConv(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.first(self.encode(x) + 5, edge_index).relu()
        out: Tensor = self.second(h, edge_index)
        return out


def test_a_layer_inside_is_standardised_by_what_it_reads(data: Data) -> None:
    torch.manual_seed(0)
    model: Any = AfterFloats()
    bignn.binarize_(model, skip=["encode"], first="first")
    with torch.no_grad():
        expected = (model.encode(data.x) + 5).mean(dim=0)
    bignn.fit(model, data, QUICK, progress=False)
    assert torch.allclose(model.first.input_stage.mean.float(), expected, atol=1e-4)


def test_an_inner_stage_is_fitted_however_it_is_called(data: Data) -> None:
    """Reading a stage by its method is a call too; a layer that is not reached is not fitted."""
    torch.manual_seed(0)
    model: Any = AfterFloats()
    bignn.binarize_(model, skip=["encode"], first="first")
    stage = model.first.input_stage
    assert not fit_inner_stage(model, lambda: None)
    assert not stage.has_statistics
    x = torch.randn(NODES, D)
    assert fit_inner_stage(model, lambda: stage.forward(x))
    assert torch.allclose(stage.mean, x.mean(dim=0), atol=1e-5)
    assert "forward" not in vars(stage)


def test_a_layer_of_training_alone_takes_no_statistics_of_features(data: Data) -> None:
    class Auxiliary(AfterFloats):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            h = self.encode(x) + 5
            h = self.first(h, edge_index) if self.training else h[:, :16]
            out: Tensor = self.second(h.relu(), edge_index)
            return out

    torch.manual_seed(0)
    model: Any = Auxiliary()
    bignn.binarize_(model, skip=["encode"], first="first")
    with torch.no_grad():
        expected = (model.encode(data.x) + 5).mean(dim=0)
    bignn.fit(model, data, QUICK, progress=False)
    assert torch.allclose(model.first.input_stage.mean.float(), expected, atol=1e-4)
