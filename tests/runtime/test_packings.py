"""Raw graphs given to a packed model: packed once, again when they change, forgotten with them."""

import gc
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_graph, make_packed_model
from torch_geometric.data import Data

from bignn import Graph, InputError, PackedGraph, PackedModel, pack_graph
from bignn.graph import to_pyg
from bignn.runtime import packings


@pytest.fixture
def model() -> PackedModel:
    return make_packed_model([30, 9, 3])


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The graphs that predictions had packed."""
    found: list[Any] = []

    def counted(graph: Graph, *, like: PackedModel) -> PackedGraph:
        found.append(graph)
        return pack_graph(graph, like=like)

    monkeypatch.setattr(packings, "pack_graph", counted)
    return found


def weighted_graph() -> Graph:
    raw = make_graph(40, 30)
    weights = np.random.default_rng(0).random(raw.num_edges, dtype=np.float32)
    return Graph(raw.x, raw.edge_index, weights, y=np.arange(40) % 3)


def logits_of(model: PackedModel, graph: Any) -> bytes:
    return model.predict(graph, output="logits").tobytes()


@pytest.mark.parametrize("kind", ["Graph", "Data"])
def test_a_raw_graph_is_packed_once(kind: str, model: PackedModel, packed: list[Any]) -> None:
    graph: Any = weighted_graph()
    expected = model.predict(pack_graph(graph, like=model), output="logits")
    if kind == "Data":
        graph = to_pyg(graph)
    assert logits_of(model, graph) == expected.tobytes()
    assert logits_of(model, graph) == expected.tobytes()
    some = model.predict(graph, [5, 3, 5], output="logits")
    assert some.tobytes() == expected[[5, 3, 5]].tobytes()
    blocks = [values for _, values in model.stream(graph, output="logits", block=7)]
    assert np.concatenate(blocks).tobytes() == expected.tobytes()
    assert len(model.explain(graph).layers) == 2
    assert packed == [graph]
    # Another model has other statistics, and packings of its own.
    other = make_packed_model([30, 9, 3], seed=1)
    assert logits_of(other, graph) == logits_of(other, pack_graph(graph, like=other))
    assert packed == [graph, graph]


def test_a_data_that_changed_is_packed_again(model: PackedModel, packed: list[Any]) -> None:
    data = to_pyg(weighted_graph())
    expected = logits_of(model, data)

    def check(count: int, *, changes: bool = True) -> None:
        nonlocal expected
        before, expected = expected, logits_of(model, pack_graph(data, like=model))
        assert (before != expected) == changes
        for _ in range(2):
            assert logits_of(model, data) == expected
        assert len(packed) == count

    check(1, changes=False)
    data.x = torch.randn(40, 30)
    check(2)
    data.x.mul_(-1)
    check(3)
    data.x[:, 3] += 100
    check(4)
    data.edge_index = data.edge_index.flip(0)
    check(5)
    data.edge_index[0].zero_()  # a view counts as what it views
    check(6)
    data.edge_weight.mul_(torch.rand(len(data.edge_weight)))
    check(7)
    data.edge_weight = None
    check(8)
    data.y = torch.zeros(40, dtype=torch.long)  # labels travel with the packing
    check(9, changes=False)
    again: Any = model._packings.of(data)
    assert again.labels["y"].sum() == 0
    data.comment = "nothing that a prediction reads"
    check(9, changes=False)


def test_changes_that_torch_does_not_count_are_noticed(
    model: PackedModel, packed: list[Any]
) -> None:
    graph = weighted_graph()
    x: Any = graph.x
    shared = Data(x=torch.from_numpy(x), edge_index=torch.from_numpy(graph.edge_index))
    with torch.inference_mode():
        inferred = to_pyg(weighted_graph())

    def check(some: Any, change: Callable[[], Any]) -> None:
        before, count = logits_of(model, some), len(packed)
        assert logits_of(model, some) == before
        assert len(packed) == count
        change()
        assert logits_of(model, some) == logits_of(model, pack_graph(some, like=model)) != before
        assert len(packed) == count + 1

    check(shared, lambda: shared.x.data.mul_(-1))
    check(shared, lambda: np.negative(x, out=x))
    check(graph, lambda: np.negative(x, out=x))
    check(graph, lambda: graph.edge_index[0].fill(0))
    with torch.inference_mode():
        check(inferred, lambda: inferred.x.mul_(-1))


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_coo])
def test_sparse_features_are_compared_as_they_are_stored(
    layout: torch.layout,
    model: PackedModel,
    packed: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = to_pyg(weighted_graph())
    with warnings.catch_warnings():  # torch calls CSR tensors new
        warnings.simplefilter("ignore")
        data.x = data.x.to_sparse(layout=layout)
    before = logits_of(model, data)
    with monkeypatch.context() as patched:
        patched.setattr(torch.Tensor, "to_dense", lambda *_: pytest.fail("made dense again"))
        assert logits_of(model, data) == before
    assert packed == [data]
    (data.x.values() if layout is torch.sparse_csr else data.x._values()).mul_(-1)
    assert logits_of(model, data) != before
    assert packed == [data, data]


def test_a_change_while_packing_is_noticed(
    model: PackedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = weighted_graph()

    def interrupted(graph: Any, *, like: PackedModel) -> PackedGraph:
        packed: PackedGraph = pack_graph(graph, like=like)
        np.negative(graph.x, out=graph.x)
        return packed

    monkeypatch.setattr(packings, "pack_graph", interrupted)
    logits_of(model, graph)
    monkeypatch.undo()
    assert logits_of(model, graph) == logits_of(model, pack_graph(graph, like=model))


def test_graphs_without_weak_references_are_packed_every_time(
    model: PackedModel, packed: list[Any]
) -> None:
    class Slotted:
        __slots__ = ("edge_index", "x")
        x: Any
        edge_index: Any

    usual, some = to_pyg(weighted_graph()), Slotted()
    usual.edge_weight = None
    some.x, some.edge_index = usual.x, usual.edge_index
    assert logits_of(model, some) == logits_of(model, some) == logits_of(model, usual)
    assert packed == [some, some, usual]


def test_packings_go_with_their_graphs(model: PackedModel) -> None:
    makers: list[Callable[[], Any]] = [weighted_graph, lambda: to_pyg(weighted_graph())]
    for make in makers:
        graph = make()
        model.predict(graph)
        kept = weakref.ref(model._packings.of(graph))
        assert kept() is not None
        del graph
        gc.collect()
        assert kept() is None
        assert not model._packings._known
        assert not len(model._runner.cpu._idle)
        assert not len(model._runner.cpu._plans)


def test_models_go_though_graphs_stay() -> None:
    graph, model = weighted_graph(), make_packed_model([30, 9, 3])
    model.predict(graph)
    kept = weakref.ref(model)
    del model
    gc.collect()
    assert kept() is None


def test_a_graph_may_be_collected_while_another_is_remembered(
    model: PackedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is forgotten by the thread that remembers the other, which must not wait for itself."""
    data = to_pyg(weighted_graph())
    data.itself = [data]  # only the garbage collector finds it
    model.predict(data)
    del data

    class Collecting(dict[int, Any]):
        def __setitem__(self, key: int, value: Any) -> None:
            gc.collect()
            super().__setitem__(key, value)

    monkeypatch.setattr(model._packings, "_known", Collecting(model._packings._known))
    other = weighted_graph()
    thread = threading.Thread(target=model.predict, args=(other,), daemon=True)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(model._packings._known) == 1


def test_what_is_no_graph_is_refused_in_one_line(model: PackedModel, packed: list[Any]) -> None:
    wrong: list[tuple[Any, str]] = [
        ({"x": 1}, r"^'graph' must be a bignn\.Graph, .* a list .*, got dict; see bignn\.load"),
        (None, r"^'graph' must be .*, got NoneType"),
        (torch.ones(3, 30), r"^'graph' must be .*, got Tensor"),
        (Data(edge_index=torch.zeros(2, 0, dtype=torch.long)), "'data' has no node features x"),
        (Data(x=torch.ones(3, 30)), "'data' has no edge_index"),
        (make_graph(9, 31), r"^'graph' must be one with 30 features per node, got 31"),
    ]
    for graph, match in wrong:
        with pytest.raises(InputError, match=match) as error:
            model.predict(graph)
        assert "\n" not in str(error.value)
    assert not model._packings._known
