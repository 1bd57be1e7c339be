"""Graph classification and regression, labels, values and links: trained, scored and packed."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import RandomLinkSplit

import bignn
from bignn.config import Settings
from bignn.errors import InputError
from bignn.train.graph_sets import GraphSet, GraphSetProblem
from bignn.train.links import LinkProblem, pairs_of
from bignn.train.tasks import Task, area_under_curve, task_of

QUICK = Settings(lr=0.01, epochs=15, patience=15)


def make_graphs(count: int, targets: Callable[[int, Tensor], Tensor]) -> list[Data]:
    """Small graphs of two kinds, which differ in their features; some have no edges."""
    generator = torch.Generator().manual_seed(1)
    graphs = []
    for number in range(count):
        size = int(torch.randint(1, 9, (1,), generator=generator))
        x = torch.randn(size, 12, generator=generator)
        x[:, :6] += 1.5 * (number % 2)
        edges = torch.randint(size, (2, number % 4 * size), generator=generator)
        graphs.append(Data(x=x, edge_index=edges, y=targets(number, x)))
    return graphs


def classes(number: int, x: Tensor) -> Tensor:
    return torch.tensor([number % 2])


class Pooled(nn.Module):
    """Two convolutions, a pooling and a linear map."""

    def __init__(self, pool: Any, num_outputs: int = 2) -> None:
        super().__init__()
        network = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 16))
        self.first, self.second = pyg.GINConv(network), pyg.GCNConv(16, 16)
        self.pool, self.lin = pool, nn.Linear(16, num_outputs)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Outputs of graphs."""
        h = self.second(self.first(x, edge_index).relu(), edge_index)
        out: Tensor = self.lin(self.pool(h, batch))
        return out


class OfData(nn.Module):
    """The same, called with a Data."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Pooled(pyg.global_mean_pool)

    def forward(self, data: Any) -> Tensor:
        """Outputs of graphs."""
        out: Tensor = self.inner(data.x, data.edge_index, data.batch)
        return out


@pytest.mark.parametrize(
    "pool",
    [
        *(pyg.global_mean_pool, pyg.global_add_pool, pyg.global_max_pool),
        *(pyg.MeanAggregation(), pyg.SumAggregation(), pyg.MaxAggregation()),
    ],
)
def test_graph_classification_trains_packs_and_predicts_as_torch(pool: Any) -> None:
    graphs = make_graphs(60, classes)
    torch.manual_seed(0)
    model = Pooled(pool)
    assert bignn.binarize_(model).obstacle is None
    result = bignn.fit(model, graphs[:40], QUICK, val=graphs[40:], test=graphs, progress=False)
    assert result.metric == "accuracy"
    assert result.test_acc is not None
    assert result.test_acc > 80
    batch = Batch.from_data_list(graphs)
    with torch.no_grad():
        expected = model(batch.x, batch.edge_index, batch.batch).numpy()
    packed = bignn.pack(model)
    for graph in (graphs, batch, bignn.pack_graph(graphs, like=packed, order="locality")):
        assert np.array_equal(packed.predict(graph), expected.argmax(axis=1))
        assert np.allclose(packed.predict(graph, output="values"), expected, atol=1e-5)
        some = packed.predict(graph, [7, 3, 7], output="values")
        assert np.allclose(some, expected[[7, 3, 7]], atol=1e-5)
    assert np.array_equal(packed.predict(graphs[5]), expected[5:6].argmax(axis=1))
    with pytest.raises(InputError, match=r"'nodes' must be numbers of graphs in 0\.\.59, got 60"):
        packed.predict(batch, [60])


def test_models_called_with_a_data_and_loaders_train() -> None:
    graphs = make_graphs(48, classes)
    loaders = [DataLoader(part, batch_size=8, shuffle=True) for part in (graphs[:32], graphs[32:])]
    torch.manual_seed(0)
    model = OfData()
    bignn.binarize_(model)
    result = bignn.fit(model, loaders[0], QUICK, val=loaders[1], progress=False)
    assert result.val_acc > 80
    assert result.test_acc is None
    packed = bignn.pack(model)
    with torch.no_grad():
        expected = model(Batch.from_data_list(graphs)).argmax(dim=1)
    assert np.array_equal(packed.predict(graphs), expected.numpy())


def test_packed_sets_of_graphs_are_saved_and_opened(tmp_path: Any) -> None:
    graphs = make_graphs(9, classes)
    model = Pooled(pyg.global_max_pool)
    bignn.binarize_(model)
    bignn.fit(model, graphs, Settings(epochs=1), val=0.3, progress=False)
    packed = bignn.pack(model)
    made = bignn.pack_graph(graphs, like=packed)
    assert made.num_graphs == 9
    made.save(tmp_path / "many.bigraph")
    packed.save(tmp_path / "pool.bignn")
    again = bignn.PackedModel.open(tmp_path / "pool.bignn")
    opened = bignn.PackedGraph.open(tmp_path / "many.bigraph")
    values = packed.predict(made, output="values")
    assert np.array_equal(again.predict(opened, output="values"), values)
    assert [len(part) for _, part in again.stream(opened, block=4)] == [4, 4, 1]


@pytest.mark.filterwarnings("ignore:the model has MAE")  # so few epochs
def test_graph_regression_learns_values_and_a_teacher_can_help() -> None:
    graphs = make_graphs(60, lambda number, x: x.mean(dim=0)[:1] * 2)
    torch.manual_seed(0)
    teacher = Pooled(pyg.global_mean_pool, 1)
    taught = bignn.fit(teacher, graphs, QUICK, val=0.3, progress=False)
    assert taught.metric == "mae"
    spread = float(torch.cat([graph.y for graph in graphs]).std())
    model = Pooled(pyg.global_mean_pool, 1)
    bignn.binarize_(model)
    result = bignn.fit(model, graphs, QUICK, val=0.3, teacher=teacher, progress=False)
    assert max(taught.val_score, result.val_score) < spread
    again = Pooled(pyg.global_mean_pool, 1)
    bignn.binarize_(again)
    few = {"epochs": 2}
    assert bignn.fit(again, graphs, few, val=0.3, teacher=teacher, progress=False).epochs == 4
    with pytest.raises(InputError, match="the score of this run is 'mae', not 'accuracy'"):
        _ = result.val_acc


def node_data(y: Tensor) -> Data:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(len(y), 10, generator=generator)
    x[:, : y.shape[-1] if y.ndim > 1 else 1] += 2 * (y if y.ndim > 1 else y[:, None]).nan_to_num()
    edges = torch.randint(len(y), (2, 2 * len(y)), generator=generator)
    data = Data(x=x, edge_index=edges, y=y)
    order = torch.arange(len(y))
    data.train_mask, data.val_mask, data.test_mask = (order % 3 == part for part in range(3))
    return data


def test_labels_and_values_of_nodes_train_and_pack(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    labels = (torch.rand(90, 3, generator=generator) > 0.5).float()
    labels[0, 0] = torch.nan  # unknown
    values = torch.randn(90, generator=generator)
    for y, metric, least in ((labels, "micro_f1", 60.0), (values, "mae", 0.0)):
        data = node_data(y)
        torch.manual_seed(0)
        model = pyg.GraphSAGE(10, 16, 2, 3 if y.ndim > 1 else 1)
        bignn.binarize_(model)
        result = bignn.fit(model, data, QUICK, progress=False)
        assert result.metric == metric
        assert result.test_score is not None
        assert result.test_score > least
        packed = bignn.pack(model)
        with torch.no_grad():
            expected = model(data.x, data.edge_index).numpy()
        assert np.allclose(packed.predict(data, output="values"), expected, atol=1e-4)
        packed.save(tmp_path / "model.bignn")
        again = bignn.PackedModel.open(tmp_path / "model.bignn")
        assert again.output == ("labels" if y.ndim > 1 else "values")
        for some in (packed, again):
            usual = some.predict(data, output=some.output)
            assert usual.dtype == (np.bool_ if y.ndim > 1 else np.float32)
            assert np.array_equal(some.predict(data), usual)
            assert np.array_equal(some.predict(data, [5, 2]), usual[[5, 2]])
            assert np.array_equal(np.concatenate([v for _, v in some.stream(data)]), usual)
            assert np.array_equal(some.live(data).predict([5]), usual[[5]])
            assert some.predict(data, output="classes").dtype == np.int64
        del model._bignn_output
        assert bignn.pack(model).output == ("classes" if y.ndim > 1 else "values")
    assert np.array_equal(packed.predict(data, output="labels"), expected > 0)
    sigmoid = packed.predict(data, [3, 1], output="label_probabilities")
    assert np.allclose(sigmoid, 1 / (1 + np.exp(-expected[[3, 1]])), atol=1e-4)


def test_links_are_learned_and_scored() -> None:
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(60) % 3
    x = torch.randn(60, 10, generator=generator) + 2 * nn.functional.one_hot(group, 10)
    pairs = torch.randint(60, (2, 900), generator=generator)
    edges = pairs[:, (group[pairs[0]] == group[pairs[1]]) & (pairs[0] != pairs[1])]
    data = Data(x=x, edge_index=torch.cat([edges, edges.flip(0)], dim=1))
    for negatives in (True, False):
        torch.manual_seed(0)
        split = RandomLinkSplit(
            is_undirected=True, add_negative_train_samples=negatives, num_val=0.2, num_test=0.2
        )
        train, val, test = split(data)
        model = pyg.GCN(10, 16, 2, 8)
        bignn.binarize_(model)
        result = bignn.fit(model, train, QUICK, val=val, test=test, progress=False)
        assert result.metric == "auc"
        assert result.test_score is not None
        assert result.test_score > 70
    student = pyg.GCN(10, 16, 2, 8)
    bignn.binarize_(student)
    short = {"epochs": 3}
    taught = bignn.fit(student, train, short, val=val, teacher=model, progress=False)
    assert taught.epochs == 6  # three with its teacher, and three without
    packed = bignn.pack(model)
    with torch.no_grad():
        z = model(train.x, train.edge_index)
    source, target = test.edge_label_index
    expected = (z[source] * z[target]).sum(dim=-1).numpy()
    scores = packed.score_pairs(train, test.edge_label_index)
    assert np.allclose(scores, expected, atol=1e-4)
    with pytest.raises(InputError, match=r"'pairs' must be node ids \[2, n\], got shape \[3\]"):
        packed.score_pairs(train, [1, 2, 3])
    with pytest.raises(InputError, match=r"'pairs' must be node ids in 0\.\.59, got 60"):
        packed.score_pairs(train, [[1], [60]])


def test_tasks_follow_the_targets_or_the_loss() -> None:
    whole, flags = torch.tensor([0, 2, 1]), torch.tensor([[0.0, 1.0], [1.0, torch.nan]])
    for y, loss, kind, num_outputs in (
        (whole, None, "classes", 3),
        (whole, "mse", "values", 1),
        (flags, None, "labels", 2),
        (flags, "l1", "values", 2),
        (flags[:, 0], None, "values", 1),
        (flags[:, 0], "bce", "labels", 1),
        (torch.tensor([[1, 0], [0, 0]]), None, "labels", 2),
        (torch.randn(3, 2), None, "values", 2),
    ):
        task = task_of(y, loss)  # type: ignore[arg-type]
        assert (task.kind, task.num_outputs) == (kind, num_outputs)
    with pytest.raises(InputError, match=r"'loss' must be a function or one of .*, got 'hinge'"):
        task_of(whole, "hinge")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'y' must be a whole number per row for classes"):
        task_of(flags, "cross_entropy")


def test_scores_are_those_of_their_definitions() -> None:
    scores, y = torch.tensor([0.1, 0.4, 0.4, 0.8]), torch.tensor([0.0, 1.0, 0.0, 1.0])
    assert area_under_curve(scores, y) == 3.5 / 4
    assert area_under_curve(scores, torch.ones(4)) == 0.5
    out = torch.tensor([[1.0, -1.0], [1.0, 1.0]])
    known = torch.tensor([[1.0, 1.0], [0.0, torch.nan]])
    part, whole = Task("labels", 2).score_parts(out, known)
    assert part / whole == 100 * 2 / 4  # one hit, two said, two held
    loss = Task("values", 2).loss(out, known, None)
    assert float(loss) == pytest.approx((0 + 4 + 1) / 3)
    weighed = Task("values", 2).loss(out, known, torch.tensor([1.0, 3.0]))
    assert float(weighed) == pytest.approx(2 + 3)
    given = Task("values", 2, lambda out, y: out.sum())
    assert float(given.loss(out, known, None)) == 2


def test_masks_choose_the_nodes_of_a_list_of_graphs() -> None:
    """Labels outside of the masks count in no loss and in no score."""
    data = bignn.to_pyg(bignn.load("cora"))
    other = data.clone()
    other.y = torch.where(data.train_mask | data.val_mask, data.y, (data.y + 1) % 7)

    def trained(graph: Any, **options: Any) -> tuple[bignn.FitResult, Tensor]:
        torch.manual_seed(0)
        model = pyg.GCN(1433, 8, 2, 7)
        found = bignn.fit(model, graph, Settings(epochs=3), progress=False, **options)
        return found, next(iter(model.parameters())).detach()

    found, weights = trained([data], val=[data], test=[data])
    again, same = trained([other], val=[other])
    assert torch.equal(weights, same)
    assert found.val_loss == again.val_loss
    assert found.test_acc is not None
    assert found.test_acc * int(data.test_mask.sum()) / 100 == pytest.approx(
        round(found.test_acc * int(data.test_mask.sum()) / 100)
    )
    bare = data.clone()
    del bare.train_mask
    with pytest.raises(InputError, match="'train_mask' must be of all graphs, got that of some"):
        trained([data, bare], val=[data])
    bare.train_mask = torch.zeros_like(data.train_mask)
    with pytest.raises(InputError, match="'train_mask' has no True in any graph of 'graph'"):
        trained([bare], val=[data])
    bare.train_mask = data.train_mask.long()
    with pytest.raises(InputError, match=r"'train_mask' must be one boolean per node .*got int64"):
        trained([bare], val=[data])
    with pytest.raises(
        InputError, match=r"'val' must be given for a list of one graph, .*call fit"
    ):
        trained([data])


def test_what_many_graphs_lack_is_said_in_one_line() -> None:
    graphs = make_graphs(8, classes)
    model = Pooled(pyg.global_mean_pool)
    bare = [Data(x=graph.x, edge_index=graph.edge_index) for graph in graphs]
    flat = make_graphs(8, lambda number, x: torch.zeros(3))
    loader = DataLoader(graphs, batch_size=4)
    wide = graphs[0].clone()
    wide.x = torch.cat([wide.x, wide.x], dim=1)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (bare, {}, "graph 0: 'graph' has a Data without y"),
        (flat, {}, r"'y' must be one target per graph .*, got shape \[\d+\]; give every Data"),
        ([], {}, "'graph' must be at least one graph, got none"),
        (loader, {}, "'val' must be given for a loader, got None"),
        (loader, {"val": 0.5}, "'val' must be graphs for a loader, got 0.5"),
        (graphs, {"val": 0.01}, "'val' must be a share, as 0.2, that leaves some of 8 graphs"),
        (graphs, {"val": 2}, "'val' must be a share, as 0.2, .* on both sides, got 2"),
        (graphs, {"val": math.nan}, "'val' must be a share, as 0.2, .* on both sides, got nan"),
        ([*graphs, wide], {}, r"graph 8: 'x' must be as wide .* first graph \(\d+ features\), got"),
        (graphs, {"val": [3]}, "'val' must be of PyG Data, got int"),
        (graphs, {"batches": [graphs]}, "'batches' must be left out for many graphs"),
        (graphs, {"batch_size": 0}, "'batch_size' must be a number of graphs"),
        (bignn.load("cora"), {"val": graphs}, "'val' must be left out for the nodes of one graph"),
    ]
    for graph, options, message in wrong:
        with pytest.raises(InputError, match=message) as error:
            bignn.fit(model, graph, Settings(epochs=1), progress=False, **options)
        assert "\n" not in str(error.value)


def test_every_graph_of_a_list_is_checked_and_named() -> None:
    graphs = make_graphs(12, classes)
    model = Pooled(pyg.global_mean_pool)
    bignn.binarize_(model)
    bignn.fit(model, graphs, Settings(epochs=1), progress=False)
    packed = bignn.pack(model)
    outside, unknown, empty = (graphs[7].clone() for _ in range(3))
    outside.edge_index = torch.tensor([[0], [graphs[7].num_nodes + 1]])
    unknown.x = torch.full_like(unknown.x, torch.nan)
    empty.x, empty.edge_index = empty.x[:0], empty.edge_index[:, :0]
    for bad, message in (
        (outside, r"'edge_index' must be a node id in 0\.\."),
        (unknown, "'x' must be finite, got nan"),
        (empty, "'x' must be at least one node, got zero nodes"),
    ):
        wrong = [*graphs[:7], bad, *graphs[8:]]
        with pytest.raises(InputError, match=f"^graph 7: {message}"):
            bignn.fit(model, wrong, Settings(epochs=1), progress=False)
        with pytest.raises(InputError, match=rf"^val\[7\]: {message}"):
            bignn.fit(model, graphs, Settings(epochs=1), val=wrong, progress=False)
        with pytest.raises(InputError, match=f"^graph 7: {message}"):
            packed.predict(wrong)
    # Batched already, the id is that of a node of the next graph.
    batched = [*graphs[:7], outside, *graphs[8:]]
    message = "'edge_index' must be edges within one graph each, .* of graphs 7 and [89]; before"
    with pytest.raises(InputError, match=message):
        packed.predict(Batch.from_data_list(batched))
    with pytest.raises(InputError, match=message):
        loader = DataLoader(batched, batch_size=12)
        bignn.fit(model, loader, Settings(epochs=1), val=graphs, progress=False)


def test_what_fit_cannot_train_is_refused_with_a_remedy() -> None:
    data = bignn.to_pyg(bignn.load("cora"))
    with pytest.raises(InputError, match=r"nothing to learn: no type of nodes has labels; set da"):
        bignn.fit(Pooled(pyg.global_mean_pool), HeteroData(), progress=False)
    del data.y
    with pytest.raises(InputError, match=r"^data: training needs y; y is"):
        bignn.fit(pyg.GCN(1433, 8, 2, 7), data, progress=False)
    del data.val_mask
    with pytest.raises(InputError, match=r"^data: training needs y, val_mask; y is"):
        bignn.fit(pyg.GCN(1433, 8, 2, 7), data, progress=False)

    class OfEdges(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
            return x

    with pytest.raises(
        InputError, match=r"forward takes 'edge_attr', a row .*; set data.edge_attr"
    ):
        bignn.fit(OfEdges(), bignn.load("cora"), Settings(epochs=1), progress=False)


def test_a_run_on_many_graphs_is_resumed_exactly(tmp_path: Any) -> None:
    graphs = make_graphs(24, classes)

    def trained(epochs: int, **options: Any) -> tuple[bignn.FitResult, Tensor]:
        torch.manual_seed(0)
        model = Pooled(pyg.global_mean_pool)
        settings = Settings(lr=0.01, epochs=epochs, patience=9)
        result = bignn.fit(model, graphs, settings, val=0.25, progress=False, **options)
        return result, model.lin.weight.detach()

    path = tmp_path / "run.safetensors"

    def stop(epoch: int, *_: Any) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(6, checkpoint_path=path, save_every=0, on_epoch=stop)
    resumed, weights = trained(6, checkpoint_path=path, resume=True)
    whole, expected = trained(6)
    assert (resumed.val_loss, resumed.val_acc) == (whole.val_loss, whole.val_acc)
    assert torch.equal(weights, expected)


class Relational(nn.Module):
    """Two relational convolutions; outputs of graphs where it is given which node is whose."""

    def __init__(self, num_outputs: int) -> None:
        super().__init__()
        self.first = pyg.RGCNConv(12, 16, 3)
        self.second = pyg.RGCNConv(16, num_outputs, 3)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_type: Tensor, batch: Tensor | None = None
    ) -> Tensor:
        """Outputs of graphs, or of nodes."""
        h = self.second(self.first(x, edge_index, edge_type).relu(), edge_index, edge_type)
        out: Tensor = h if batch is None else pyg.global_mean_pool(h, batch)
        return out


def test_relations_reach_models_of_many_graphs_and_of_links() -> None:
    torch.manual_seed(0)
    quick = Settings(lr=0.01, epochs=2, patience=2)
    graphs = make_graphs(20, classes)
    for graph in graphs:
        graph.edge_type = torch.arange(graph.num_edges) % 3
    model = Relational(2)
    bignn.binarize_(model)
    assert 0 <= bignn.fit(model, graphs, quick, progress=False).val_score <= 100
    digests = []
    for step in (1, 2):
        for graph in graphs:
            graph.edge_type = step * torch.arange(graph.num_edges) % 3
        parts = GraphSet(graphs, "graph", 8, torch.device("cpu"))
        digests.append(GraphSetProblem(parts, parts, None, None, torch.device("cpu")).digest())
    assert digests[0] != digests[1]

    whole = Data(torch.randn(30, 12), torch.randint(30, (2, 90)), edge_type=torch.arange(90) % 3)
    whole.edge_label_index = whole.edge_index
    val = whole.clone()
    val.edge_label_index, val.edge_label = torch.randint(30, (2, 10)), torch.arange(10) % 2
    model = Relational(8)
    bignn.binarize_(model)
    assert 0 <= bignn.fit(model, whole, quick, val=val, progress=False).val_score <= 100


def test_no_node_is_drawn_as_a_pair_with_itself() -> None:
    torch.manual_seed(0)
    data = Data(torch.randn(4, 3), torch.tensor([[0, 1], [1, 0]]))
    data.edge_label_index = torch.tensor([[0] * 200, [1] * 200])
    pairs = pairs_of(data, "data", torch.device("cpu"))
    world: Any = None
    batches, _ = LinkProblem(pairs, pairs, None, None).batches(None, nn.Identity(), QUICK, world)
    (batch,) = batches
    drawn = batch.pairs[:, 200:]
    assert drawn.shape[1] > 150
    assert bool((drawn[0] != drawn[1]).all())


def test_classes_that_are_floats_are_advised_to_be_whole() -> None:
    data = node_data(torch.arange(30.0) % 3)
    with pytest.raises(InputError, match=r"as many outputs as 'y' \(1\), got 3; .*y\.long\(\)"):
        bignn.fit(pyg.GCN(data.num_features, 8, 2, 3), data, QUICK, progress=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_models_of_other_numbers_and_frozen_ones_are_refused(dtype: torch.dtype) -> None:
    data = Data(torch.randn(9, 4), torch.randint(0, 9, (2, 20)), y=torch.arange(9) % 2)
    data.train_mask = data.val_mask = torch.ones(9, dtype=torch.bool)
    model = pyg.GCN(4, 8, 2, 2).to(dtype)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(InputError, match=f"'model' must be one of float32 .*, got {name}; call mo"):
        bignn.fit(model, data, {"epochs": 1})
    model = pyg.GCN(4, 8, 2, 2).requires_grad_(False)
    with pytest.raises(InputError, match=r"got none that do; call model.requires_grad_\(\)"):
        bignn.fit(model, data, {"epochs": 1})


def test_link_models_return_embeddings() -> None:
    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lin = nn.Linear(4, 4)

        def forward(self, x: Tensor, edge_index: Tensor, edge_label_index: Tensor) -> Tensor:
            z = self.lin(x)
            scores: Tensor = (z[edge_label_index[0]] * z[edge_label_index[1]]).sum(-1)
            return scores

    data = Data(torch.randn(9, 4), torch.randint(0, 9, (2, 20)))
    data.edge_label_index, data.edge_label = torch.randint(0, 9, (2, 6)), torch.arange(6) % 2
    with pytest.raises(InputError, match=r"a row per node, got \[6\]; return the embeddings"):
        bignn.fit(Scores(), data, {"epochs": 1}, val=data)


def test_values_far_from_what_binary_layers_begin_with_are_warned_of() -> None:
    values = 100 + 20 * torch.randn(90, generator=torch.Generator().manual_seed(3))
    for y, is_far in ((values, True), (values / 20, True), ((values - 100) / 20, False)):
        model = pyg.GraphSAGE(10, 16, 2, 1)
        bignn.binarize_(model)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            bignn.fit(model, node_data(y), QUICK, progress=False)
        told = [str(warning.message) for warning in said if "values of 'y'" in str(warning.message)]
        assert len(told) == is_far
        assert all("train on (y - " in line for line in told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        bignn.fit(pyg.GraphSAGE(10, 16, 2, 1), node_data(values), QUICK, progress=False)
