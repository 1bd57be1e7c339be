"""Training on samples: batches are right on average, protocols keep what they promise."""

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from conftest import make_arrays
from torch import Tensor
from torch_geometric.loader import DataLoader

import bignn
from bignn.errors import InputError
from bignn.graph import Graph, from_arrays
from bignn.graph.pyg import to_pyg
from bignn.loaders import LayerLoader, NeighborLoader, SaintRandomWalkLoader
from bignn.nn import GNN
from bignn.nn.features import BinaryRows
from bignn.nn.linear import FeaturesLike
from bignn.nn.sparse import SparseMatrix, csr_with_values
from bignn.train.batches import Batch, as_batch, full_batch, training_subgraph
from bignn.train.optimizer import adam
from bignn.train.recipes import MANY_LABELS, RECIPES, Settings, recipe, settings_for
from bignn.train.run import TrainingRun
from bignn.train.sampled_batches import SampledBatches, Sampling

CPU = torch.device("cpu")
CONVS = ["gcn", "mean-gcn", "sage", "gat"]


def model_of(graph: Graph, **options: Any) -> GNN:
    torch.manual_seed(0)
    heads = 2 if options.get("conv") == "gat" else 1
    model = GNN(
        graph.num_features, 6, 2, graph.num_classes, heads=heads, normalize_rows=False, **options
    )
    model.fit_input(torch.from_numpy(graph.dense_x()))
    return model.eval()


@pytest.fixture
def dense() -> Graph:
    """A graph whose nodes can be told apart by their features, their signs too."""
    arrays = make_arrays(60, 20)
    arrays["x"] = np.random.default_rng(0).standard_normal((60, 20)).astype(np.float32)
    return from_arrays(arrays)


def rows(x: FeaturesLike) -> Tensor:
    return x.signs * x.beta if isinstance(x, BinaryRows) else x  # type: ignore[return-value]


def numbers(batches: SampledBatches, batch: Batch) -> Tensor:
    """The batch's nodes, found by their features."""
    distance = torch.cdist(rows(batch.x).double(), rows(batches.x).double())
    assert float(distance.min(dim=1).values.max()) < 1e-5
    return distance.argmin(dim=1)


def test_all_neighbours_give_the_whole_graphs_output(dense: Graph) -> None:
    for conv, binarize in product(CONVS, ("none", "both")):
        # A batch's matrices have no factors apart, and their weights would be rounded otherwise.
        model = model_of(dense, conv=conv, binarize=binarize, edge_bits=None)
        whole = full_batch(dense, CPU)
        expected = whole.logits(model)
        batches = SampledBatches(Sampling("neighbor", 7, fan_outs=(-1, -1)), model, whole)
        seen: list[int] = []
        for batch in batches:
            nodes = numbers(batches, batch)[: len(batch.y)]
            assert torch.allclose(batch.logits(model), expected[nodes], atol=1e-5)
            assert torch.equal(batch.y, whole.y[nodes])
            seen += nodes.tolist()
        assert sorted(seen) == sorted(whole.loss_nodes.tolist())
        assert len(batches) == -(-len(seen) // 7)


def test_sampled_neighbours_are_right_on_average(dense: Graph) -> None:
    """A layer's output, which is linear in the sampled weights, has the whole graph's as mean."""
    torch.manual_seed(0)
    model = GNN(20, 6, 1, 2, conv="gcn", normalize_rows=False).eval()
    whole = full_batch(dense, CPU)
    batches = SampledBatches(Sampling("neighbor", 1000, fan_outs=(2,)), model, whole)
    expected = whole.logits(model)
    total, square, count = torch.zeros_like(expected), torch.zeros_like(expected), 400
    with torch.no_grad():
        for _ in range(count):
            (batch,) = batches
            nodes = numbers(batches, batch)[: len(batch.y)]
            out = torch.zeros_like(expected).index_copy(0, nodes, batch.logits(model))
            total += out
            square += out**2
    mean = total / count
    error = ((square / count - mean**2).clamp(min=0) / count).sqrt()
    off = (mean - expected).abs()[whole.loss_nodes]
    assert (off <= 4.5 * error[whole.loss_nodes] + 1e-5).all()
    assert float(error.max()) > 0


def test_subgraphs_keep_the_weights_of_the_whole_graph(dense: Graph) -> None:
    for kind in ("walk", "node", "edge"):
        model = model_of(dense, conv="sage", jk="cat")
        whole = full_batch(dense, CPU)
        batches = SampledBatches(Sampling(kind, 20, coverage=20), model, whole)
        batch = next(iter(batches))
        assert isinstance(batch.edge_index, SparseMatrix)
        assert batch.loss_weight is not None
        nodes = numbers(batches, batch)
        assert torch.equal(batch.y, whole.y[nodes])
        learned = torch.isin(nodes, whole.loss_nodes).nonzero()[:, 0]
        assert torch.equal(batch.loss_nodes, learned)
        assert len(batch.loss_weight) == len(learned)
        # All edges among them, their own weights times 1/α.
        sampled = batch.edge_index.matrix.to_dense()
        own = batches.adjacency.matrix.to_dense()[nodes][:, nodes]
        assert torch.equal(sampled > 0, own > 0)
        row, column, _ = batches.adjacency.entries()
        norms = torch.zeros(60, 60)
        norms[row, column] = batches._loader.edge_norm
        assert torch.allclose(sampled, own * norms[nodes][:, nodes])


def test_subgraphs_are_right_on_average(dense: Graph) -> None:
    """Sums over neighbours, given that a node is drawn; labels' and teacher's losses."""
    torch.manual_seed(0)
    model = model_of(dense, conv="sage")
    whole = full_batch(dense, CPU)
    whole = replace(whole, targets=torch.full((60, 2), 0.5))
    batches = SampledBatches(Sampling("walk", 15, coverage=2000), model, whole)
    x = torch.randn(60, 1)
    exact = batches.adjacency @ x
    sums, met = torch.zeros(60, 1), torch.zeros(60, 1)
    of_labels, of_teacher, count = [], torch.zeros(60), 0
    for _ in range(250):
        for batch in batches:
            nodes = numbers(batches, batch)
            assert isinstance(batch.edge_index, SparseMatrix)
            assert batch.loss_weight is not None
            assert batch.target_weight is not None
            sums[nodes] += batch.edge_index @ x[nodes]
            met[nodes] += 1
            of_labels.append(float(batch.loss_weight.sum()))
            of_teacher[nodes] += batch.target_weight
            count += 1
    assert float((sums / met - exact).abs().max()) < 0.15
    assert np.mean(of_labels) == pytest.approx(1, abs=0.03)
    # Every node has the same part in what is learned from the teacher.
    assert torch.allclose(of_teacher / count, torch.full((60,), 1 / 60), rtol=0.25)


def test_attention_over_a_subgraph_is_weighed(dense: Graph) -> None:
    model = model_of(dense, conv="gat")
    matrix = model.adjacency(torch.from_numpy(dense.edge_index), None, 60)
    x = torch.from_numpy(dense.dense_x())
    plain = model.convs[0](x, matrix)
    doubled = replace(matrix, matrix=csr_with_values(matrix.matrix, 2 * matrix.matrix.values()))
    twice = model.convs[0](x, doubled)
    assert torch.allclose(twice, 2 * plain, atol=1e-5)


def test_the_training_part_has_the_training_nodes_and_no_others(graph: Graph) -> None:
    whole = full_batch(graph, CPU)
    part = training_subgraph(whole)
    nodes = np.sort(np.asarray(graph.train_idx))
    assert torch.equal(rows(part.x), rows(whole.x)[nodes])
    assert torch.equal(part.y, whole.y[nodes])
    assert sorted(part.loss_nodes.tolist()) == list(range(len(nodes)))
    assert isinstance(part.edge_index, Tensor)
    kept = {(int(s), int(t)) for s, t in nodes[part.edge_index.numpy()].T}
    inside = set(nodes.tolist())
    expected = {(s, t) for s, t in graph.edge_index.T.tolist() if s in inside and t in inside}
    assert kept == expected


SAMPLINGS = [
    None,
    Sampling("neighbor", 8, fan_outs=(3, 2)),
    Sampling("walk", 6, coverage=5),
    Sampling("layer", 8, fan_outs=(20, 20)),
]


def test_inductive_training_never_looks_at_other_nodes() -> None:
    """Other features and edges of nodes outside change nothing that was learned."""
    for sampling in SAMPLINGS:
        states = []
        arrays = make_arrays(90, 12)
        for disturbed in (False, True):
            changed = {key: value.copy() for key, value in arrays.items()}
            if disturbed:
                outside = np.setdiff1d(np.arange(90), arrays["train_idx"])
                changed["x"][outside] = np.random.default_rng(1).random((len(outside), 12))
                source, target = changed["edge_index"]
                inside = np.isin(source, arrays["train_idx"]) & np.isin(target, arrays["train_idx"])
                changed["edge_index"] = changed["edge_index"][:, inside]
            graph = from_arrays(changed)
            torch.manual_seed(0)
            model = GNN(12, 6, 2, 2, conv="sage" if sampling is None or sampling.kind != "layer"
                        else "gcn", binarize="both", norm="batch")  # fmt: skip
            # One epoch: which one is best is for validation, which does look.
            settings = Settings(epochs=1, inductive=True, sampling=sampling)
            bignn.fit(model, graph, settings, progress=False)
            states.append({name: value.clone() for name, value in model.state_dict().items()})
        for name, value in states[0].items():
            assert torch.equal(value, states[1][name]), name


def check_resumed(sampling: Sampling, graph: Graph, path: Path) -> None:
    def run(settings: Settings, **options: Any) -> tuple[bignn.FitResult, GNN]:
        torch.manual_seed(3)
        model = GNN(graph.num_features, 6, 2, 2, conv="gcn", binarize="both", dropout=0.2)
        return bignn.fit(model, graph, settings, seed=5, progress=False, **options), model

    settings = Settings(epochs=8, patience=100, lr=0.02, inductive=True, sampling=sampling)
    torch.manual_seed(123)
    first, model = run(settings)
    torch.manual_seed(321)
    again, _ = run(settings)
    assert replace(first, seconds=0) == replace(again, seconds=0)

    count = 0
    save = TrainingRun.save

    def save_and_stop(self: Any, where: Any) -> None:
        nonlocal count
        save(self, where)
        count += 1
        if count == 4:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainingRun, "save", save_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run(settings, checkpoint_path=path, save_every=0)
    resumed, other = run(settings, checkpoint_path=path, resume=True)
    assert replace(resumed, seconds=0) == replace(first, seconds=0)
    for name, value in model.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name


def test_sampled_training_is_deterministic_and_resumes_exactly(
    graph: Graph, tmp_path: Path
) -> None:
    for sampling in SAMPLINGS[1:]:
        assert sampling is not None
        check_resumed(sampling, graph, tmp_path / f"{sampling.kind}.safetensors")


def test_every_model_name_trains() -> None:
    """With few labels and with many."""
    for name in RECIPES:
        arrays = make_arrays(240, 20)
        many = from_arrays(arrays)
        few = from_arrays({**arrays, "train_idx": arrays["train_idx"][:12]})
        for graph in (many, few):
            chosen = recipe(name, graph=graph, epochs=30)
            assert chosen == replace(
                (MANY_LABELS if graph is many else RECIPES)[name],
                input_bits="sign",  # decided by the features, which are words
                settings=replace(
                    (MANY_LABELS if graph is many else RECIPES)[name].settings, epochs=30
                ),
            )
            torch.manual_seed(0)
            model = chosen.build(graph)
            result = bignn.fit(model, graph, chosen.settings, progress=False)
            assert result.test_acc is not None
            assert result.test_micro_f1 == result.test_acc
            if graph is many:
                assert result.test_acc > 70, name


def test_pyg_loaders_feed_the_loop(graph: Graph) -> None:
    """A user's own loaders, of ours or PyG's: Data with seeds, masks, or SAINT's norms."""
    data = to_pyg(graph)
    for loader in (
        NeighborLoader(data, [4, 4], batch_size=8, input_nodes=data.train_mask, shuffle=True),
        SaintRandomWalkLoader(data, 10, 2, num_steps=3, sample_coverage=5),
        [data],
    ):
        torch.manual_seed(0)
        model = GNN(graph.num_features, 8, 2, 2, conv="sage")
        result = bignn.fit(
            model, data, Settings(epochs=40, lr=0.02), batches=loader, progress=False
        )
        assert result.test_acc is not None
        assert result.test_acc > 70
    seeds = next(iter(NeighborLoader(data, [4, 4], batch_size=8)))  # of which few have labels
    assert as_batch(seeds, CPU).loss_nodes.tolist() == seeds.train_mask[:8].nonzero()[:, 0].tolist()
    del seeds.train_mask
    assert as_batch(seeds, CPU).loss_nodes.tolist() == list(range(8))
    masked = as_batch(data, CPU)
    assert masked.loss_nodes.tolist() == np.sort(np.asarray(graph.train_idx)).tolist()
    saint = next(iter(SaintRandomWalkLoader(data, 10, 2, sample_coverage=5)))
    batch = as_batch(saint, CPU)
    assert isinstance(batch, Batch)
    assert torch.equal(batch.edge_weight, saint.edge_norm)  # type: ignore[arg-type]
    assert torch.equal(batch.loss_weight, saint.node_norm[saint.train_mask])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'batches' must be of bignn batches, or PyG Data"):
        as_batch(3, CPU)
    graphs = next(iter(DataLoader([data], batch_size=1)))  # whose batch_size counts graphs
    assert torch.equal(as_batch(graphs, CPU).loss_nodes, masked.loss_nodes)
    both = next(iter(NeighborLoader(data, [4, 4], batch_size=60)))
    assert torch.equal(both.n_id[as_batch(both, CPU).loss_nodes].sort().values, masked.loss_nodes)
    del data.train_mask
    with pytest.raises(InputError, match="'batches' have neither a train_mask nor seed nodes"):
        as_batch(data, CPU)
    with pytest.raises(InputError, match="'batches' of a LayerLoader have a graph per layer"):
        as_batch(next(iter(LayerLoader(data, [5, 5], batch_size=8))), CPU)


def test_a_model_of_any_depth_has_settings(graph: Graph) -> None:
    model = GNN(graph.num_features, 6, 3, 2, conv="sage")
    bignn.fit(model, graph, replace(settings_for(model, graph), epochs=1), progress=False)


def test_matrices_decay_and_the_last_layers_have_their_own_rate() -> None:
    for options in ({"conv": "sage"}, {"conv": "gat"}, {"conv": "sage", "jk": "cat"}):
        model = GNN(5, 4, 2, 3, **options)  # type: ignore[arg-type]
        groups = adam(model, Settings(lr=1.0, last_layer_lr=0.5)).param_groups
        end = model.convs[-1] if model.lin is None else model.lin
        expected = {id(p) for p in end.parameters() if p.ndim == 2}
        assert {id(p) for g in groups if g["lr"] == 0.5 for p in g["params"]} == expected
        assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
    for options in ({"conv": "sage"}, {"conv": "gat"}, {"conv": "gcn", "norm": "batch"}):
        model = GNN(5, 4, 2, 3, **options)  # type: ignore[arg-type]
        groups = adam(model, Settings(weight_decay=0.25)).param_groups
        assert {g["weight_decay"] for g in groups} == {0.0, 0.25}
        decays = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
        for name, parameter in model.named_parameters():
            assert (decays[id(parameter)] == 0.25) == (parameter.ndim >= 2), name


def test_directions_of_the_input_are_no_last_layer() -> None:
    """Though they come last among the parameters of a module of the user's own."""

    class Backwards(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head, self.conv = pyg.GCNConv(16, 3), pyg.GCNConv(20, 16)

        def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.head(self.conv(x, edge_index).relu(), edge_index)
            return out

    model: Any = Backwards()
    bignn.binarize_(model, input_bits="learned:2", first="conv")
    matrices = [p for p in model.parameters() if p.ndim == 2]
    assert matrices[-1] is model.conv.input_stage.learned.directions
    groups = adam(model, Settings(lr=1.0, last_layer_lr=0.5)).param_groups
    slow = {id(p) for g in groups if g["lr"] == 0.5 for p in g["params"]}
    assert slow == {id(model.conv.lin.weight)}


def test_bad_samplings_are_refused_in_one_line(graph: Graph) -> None:
    model = model_of(graph)
    whole = full_batch(graph, CPU)
    with pytest.raises(InputError, match=r"'fan_outs' must be a number per layer \(2\), got \[5\]"):
        SampledBatches(Sampling("neighbor", 8, fan_outs=(5,)), model, whole)
    with pytest.raises(InputError, match="'batch_size' must be a whole number, at least 1, got 0"):
        recipe("sage", graph=graph, batch_size=0)
    with pytest.raises(InputError, match="'sampler' must be"):
        recipe("gcn", sampler="cluster")
    with pytest.raises(InputError, match="'batch_size' must be left out without a sampler"):
        recipe("gcn", batch_size=5)
    with pytest.raises(InputError, match="'fan_outs' must be left out with sampler 'walk'"):
        recipe("gcn", sampler="walk", fan_outs=(5, 5))
    with pytest.raises(InputError, match=r"'fan_outs' must be 1 or more each.*got \[5, 0\]"):
        recipe("gcn", fan_outs=(5, 0))
    assert recipe("gcn", fan_outs=(5, 5)).settings.sampling == Sampling(
        "neighbor", 1024, fan_outs=(5, 5)
    )
    for wrong_value in ({"settings": 3}, {"batches": 3}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong_value))}' must be"):
            bignn.fit(model, graph, **wrong_value)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'x' must be finite"):
        GNN(3, 3, 2, binarize="both").fit_input(torch.tensor([[1.0, 2.0, float("nan")]]))
    assert recipe("gcn", sampler="walk", walk_length=3).settings.sampling == Sampling(
        "walk", 1500, walk_length=3
    )
    assert recipe("sage", graph=graph, sampler="none").settings.sampling is None
    for conv, kind in (("sage", "layer"), ("mean-gcn", "layer"), ("sgc", "neighbor")):
        other = model_of(graph, conv=conv)
        with pytest.raises(InputError, match=r"'sampler' (must|cannot) be"):
            SampledBatches(Sampling(kind, 8, fan_outs=(5, 5)), other, whole)  # type: ignore[arg-type]
    own = torch.nn.Linear(3, 2)
    with pytest.raises(InputError, match=r"'model' must be a bignn\.nn\.GNN to be trained on sam"):
        SampledBatches(Sampling("walk", 8), own, whole)  # type: ignore[arg-type]


def test_graphs_without_edges_train() -> None:
    arrays = make_arrays(60, 12)
    arrays["edge_index"] = np.zeros((2, 0), dtype=np.int64)
    graph = from_arrays(arrays)
    for name in ("gcn", "bi-sage", "bi-saint", "bi-gat", "fastgcn", "sgc"):
        chosen = recipe(name, graph=graph, epochs=2)
        bignn.fit(chosen.build(graph), graph, chosen.settings, progress=False)
