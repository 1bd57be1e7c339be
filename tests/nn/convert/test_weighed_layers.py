"""Edge weights: packed models read them if the layers did in training, and not otherwise."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D, Own, make_data
from torch import Tensor, nn
from torch_geometric.data import Data

import bignn
from bignn import InputError, PackedModel

WARNING = "'edge_weight' is not used"


class Unweighted(nn.Module):
    """A forward that takes no weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(D, 16), pyg.GCNConv(16, CLASSES)

    def forward(self, x: Tensor, ei: Tensor) -> Tensor:
        out: Tensor = self.conv2(self.conv1(x, ei).relu(), ei)
        return out


class Mixed(Unweighted):
    """A forward that gives weights to one of its layers."""

    def forward(self, x: Tensor, ei: Tensor, edge_weight: Tensor) -> Tensor:  # type: ignore[override]
        out: Tensor = self.conv2(self.conv1(x, ei, edge_weight).relu(), ei)
        return out


class Spread(nn.Module):
    """A convolution of PyG's that stays as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.lin, self.spread = nn.Linear(D, CLASSES), pyg.APPNP(2, 0.1)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        out: Tensor = self.spread(self.lin(x), edge_index, edge_weight)
        return out


def weighed_data() -> Data:
    data = make_data()
    generator = torch.Generator().manual_seed(0)
    data.edge_weight = torch.rand(data.num_edges, generator=generator) * 5
    return data


def trained(model: nn.Module, *args: Any) -> Tensor:
    """Convert a model, call it in training, and return its logits in evaluation."""
    bignn.binarize_(model)
    with torch.no_grad():
        model.train()(*args)
        out: Tensor = model.eval()(*args)
    return out


def assert_predicts(packed: PackedModel, graph: Any, expected: Tensor) -> None:
    logits = torch.from_numpy(packed.predict(graph, output="logits"))
    assert torch.allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("make", [Unweighted, Own, Spread, lambda: pyg.GCN(D, 16, 2, CLASSES)])
def test_weights_are_left_out_by_a_model_trained_without(make: Any) -> None:
    torch.manual_seed(0)
    data, model = weighed_data(), make()
    expected = trained(model, data.x, data.edge_index)
    packed = bignn.pack(model)
    assert packed.edge_weight == "ignored"
    with pytest.warns(UserWarning, match=WARNING):
        assert_predicts(packed, data, expected)
    with pytest.warns(UserWarning, match=WARNING):
        graph = bignn.pack_graph(data, like=packed)
    assert graph.weights is None
    assert_predicts(packed, graph, expected)


def test_weights_count_in_a_model_trained_with_them() -> None:
    torch.manual_seed(0)
    data, model = weighed_data(), Own()
    expected = trained(model, data.x, data.edge_index, data.edge_weight)
    assert_predicts(bignn.pack(model), data, expected)


def test_weights_count_where_nothing_is_known() -> None:
    model = Own()
    bignn.binarize_(model)
    model.fit_input(make_data().x)  # type: ignore[operator]
    assert bignn.pack(model).edge_weight == "used"
    without = Unweighted()
    bignn.binarize_(without)
    without.fit_input(make_data().x)  # type: ignore[operator]
    assert bignn.pack(without).edge_weight == "ignored"


def test_the_last_training_forward_counts() -> None:
    data, model = weighed_data(), Own()
    trained(model, data.x, data.edge_index)
    model.train()(data.x, data.edge_index, data.edge_weight)
    model.eval()(data.x, data.edge_index)
    assert bignn.pack(model).edge_weight == "used"


def test_a_sparse_adjacency_has_weights() -> None:
    torch.manual_seed(0)
    data, model = weighed_data(), Unweighted()
    indices = data.edge_index.flip(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of sparse tensors
        adjacency = torch.sparse_coo_tensor(indices, data.edge_weight, 2 * [data.num_nodes])
        trained(model, data.x, adjacency.to_sparse_csr())
    assert bignn.pack(model).edge_weight == "used"


def test_layers_that_differ_refuse_weights() -> None:
    torch.manual_seed(0)
    data, model = weighed_data(), Mixed()
    trained(model, data.x, data.edge_index, data.edge_weight)
    packed = bignn.pack(model)
    with pytest.raises(InputError, match="only some of the model's layers"):
        packed.predict(data)
    data.edge_weight = torch.ones(data.num_edges)
    assert_predicts(packed, data, model(data.x, data.edge_index, data.edge_weight))


def test_weights_are_refused_wherever_they_come_later(tmp_path: Any) -> None:
    torch.manual_seed(0)
    data, model, other = weighed_data(), Unweighted(), Own()
    trained(model, data.x, data.edge_index)
    trained(other, data.x, data.edge_index, data.edge_weight)
    bignn.pack(model).save(tmp_path / "m.bignn")
    packed = PackedModel.open(tmp_path / "m.bignn")
    assert packed.edge_weight == "ignored"
    with pytest.raises(InputError, match="packed without edge weights"):
        packed.predict(bignn.pack_graph(data, like=bignn.pack(other)))
    edges, new = np.array([[0], [data.num_nodes]]), data.x[:1].numpy()
    data.edge_weight = None
    with pytest.raises(InputError, match="'edge_weight' must be left out"):
        packed.predict_new(data, new, edges, edge_weight=[2.0])


def test_fit_calls_a_model_without_weights_it_does_not_take() -> None:
    data, model = weighed_data(), Unweighted()
    bignn.binarize_(model)
    with pytest.warns(UserWarning, match="the forward of 'model' takes none") as warned:
        bignn.fit(model, data, bignn.Settings(epochs=2), progress=False)
    assert sum(WARNING in str(some.message) for some in warned) == 1
    weighed = Mixed()
    seen: list[bool] = []
    weighed.conv1.register_forward_pre_hook(lambda _, args: seen.append(len(args) == 3))
    bignn.fit(weighed, data, bignn.Settings(epochs=1), progress=False)
    assert seen
    assert all(seen)


class Renamed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.c1, self.head = pyg.RGCNConv(D, 16, 2), nn.Linear(16, CLASSES)

    def forward(self, x: Tensor, ei: Tensor, et: Tensor) -> Tensor:
        out: Tensor = self.head(self.c1(x, ei, et).relu())
        return out


class Pooled(Unweighted):
    def forward(self, x: Tensor, ei: Tensor, graphs: Tensor) -> Tensor:  # type: ignore[override]
        out: Tensor = pyg.global_mean_pool(super().forward(x, ei), graphs)
        return out


def test_unknown_arguments_of_forward_are_named() -> None:
    model: nn.Module = Renamed()
    bignn.binarize_(model)
    expected = r"argument 'et' of forward is not known to packing; name it edge_type \(or edge_w"
    with pytest.raises(InputError, match=expected):
        bignn.pack(model)
    model = Pooled()
    bignn.binarize_(model)
    with pytest.raises(InputError, match=r"argument 'graphs' of forward .* name it batch"):
        bignn.pack(model)


def test_skip_takes_one_name() -> None:
    model = pyg.GCN(D, 16, 2, CLASSES)
    bignn.binarize_(model, skip="convs.1")
    assert type(model.convs[1]) is pyg.GCNConv
