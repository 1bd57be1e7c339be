"""Input encoders in training: fitted, chosen, kept, distilled and packed as torch has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

import bignn
from bignn import Graph, InputError, Settings
from bignn.graph import from_arrays
from bignn.nn import GAT, GCN, GNN, GraphSAGE, InputStage
from bignn.nn.features import BinaryRows
from bignn.runtime.input_stage import InputSpec, absolute_sums, row_scales
from bignn.train.checkpoint import load_model
from bignn.train.recipes import recipe

ENCODERS = ["learned:3", "rotate:3", "threshold:3"]
SHORT = Settings(epochs=3)


def dense_arrays(num_features: int = 10, num_nodes: int = 90) -> dict[str, np.ndarray]:
    """Three classes with Gaussian features."""
    rng = np.random.default_rng(0)
    y = np.arange(num_nodes) % 3
    x = rng.standard_normal((num_nodes, num_features)) + rng.standard_normal((3, num_features))[y]
    nodes = rng.permutation(num_nodes)
    return {
        "x": x.astype(np.float32),
        "edge_index": rng.integers(0, num_nodes, (2, 4 * num_nodes)),
        "y": y,
        "train_idx": nodes[:30],
        "val_idx": nodes[30:60],
        "test_idx": nodes[60:],
    }


@pytest.fixture
def dense() -> Graph:
    return from_arrays(dense_arrays(), name="dense")


def make_stage(input_bits: str, num_features: int = 10) -> InputStage:
    torch.manual_seed(0)
    return InputStage(
        num_features, normalize_rows=False, standardize=True, binarize=True, input_bits=input_bits
    )


def spec_of(stage: InputStage) -> InputSpec:
    return InputSpec(
        stage.num_features,
        stage.normalize_rows,
        stage.mean.numpy(),
        stage.scale.numpy(),
        True,
        stage.packed_encoder(),
    )


@pytest.mark.parametrize("num_features", [1, 8, 100])
@pytest.mark.parametrize("input_bits", ENCODERS)
def test_training_and_deployment_see_the_same_bits(input_bits: str, num_features: int) -> None:
    """Of tails that are cut off, of ties, and of features whose numbers are far apart too."""
    rng = np.random.default_rng(1)
    x = rng.standard_cauchy((500, num_features)) * 10.0 ** rng.integers(-9, 9, num_features)
    x = x.astype(np.float32)
    x[1::2] = -x[::2]
    stage = make_stage(input_bits, num_features)
    given = torch.from_numpy(x)
    stage.fit(given)
    stage.eval()
    rows = stage(given)
    assert isinstance(rows, BinaryRows)
    assert rows.shape[1] == stage.num_bits == 3 * num_features
    expected = spec_of(stage).normalized(x)
    assert np.array_equal(rows.signs.numpy() > 0, expected >= 0)
    beta = row_scales(expected, absolute_sums)
    assert np.array_equal(rows.beta.numpy().view(np.int32), beta.view(np.int32))


def test_rotations_keep_the_size_of_numbers() -> None:
    stage = make_stage("rotate:4", 32)
    x = torch.randn(400, 32)
    stage.fit(x)
    plain = make_stage("sign", 32)
    plain.fit(x)
    assert stage(x).beta.mean() == pytest.approx(float(plain(x).beta.mean()), rel=0.02)
    signs = stage(x).signs
    assert 0.4 < float((signs > 0).float().mean()) < 0.6
    assert len(torch.unique(signs, dim=1)[0]) == 128  # no two bits are the same


def test_thresholds_are_quantiles() -> None:
    stage = make_stage("threshold:3", 2)
    x = torch.stack([torch.randperm(400).float(), torch.randn(400).exp()], dim=1)
    stage.fit(x)
    assert (stage(x).signs > 0).sum(dim=0).tolist() == [300, 200, 100] * 2


def test_gradients_reach_the_features() -> None:
    for input_bits in ENCODERS:
        stage = make_stage(input_bits)
        x = torch.randn(20, 10)
        stage.fit(x)
        stage.eval()
        y = stage(x.requires_grad_())
        assert isinstance(y, Tensor)
        assert np.array_equal(y.detach().numpy(), spec_of(stage).normalized(x.detach().numpy()))
        y[3, 7].backward()
        assert x.grad is not None
        moved = x.detach().clone()
        moved[3] += 0.5 * torch.randn(10)
        change = (stage(moved.requires_grad_()) - y)[3, 7].item()
        assert change == pytest.approx(((moved - x) * x.grad).sum().item(), abs=1e-3)


def test_directions_learn_as_the_formula_says() -> None:
    """Rounded numbers are what is computed with, and the latent ones get their gradients."""
    stage = make_stage("learned:3", 4)
    x = torch.randn(9, 4)
    stage.fit(x)
    with torch.no_grad():
        stage.learned.offsets.copy_(torch.randn(12))
        stage.learned.directions.mul_(torch.rand(12, 4))
    y = stage(x)
    arrays = stage.learned.arrays()
    steps = torch.from_numpy(arrays["direction_steps"])
    rounded = torch.from_numpy(arrays["directions"]) * steps[:, None]
    offsets = torch.from_numpy(arrays["direction_offsets"]) * steps / 4096
    latent = stage.learned.directions
    change = (rounded - latent.detach()).abs()
    assert float(change.max()) > 0
    assert bool((change <= steps[:, None] / 2).all())
    assert bool((torch.log2(steps) == torch.log2(steps).round()).all())
    largest = torch.from_numpy(arrays["directions"]).abs().amax(dim=1)
    assert int(largest.min()) >= 64
    z = (x - stage.mean) * stage.scale
    torch.testing.assert_close(y, z @ rounded.t() + offsets)
    weights = torch.randn(9, 12)
    (y * weights).sum().backward()
    assert latent.grad is not None
    assert stage.learned.offsets.grad is not None
    torch.testing.assert_close(latent.grad, weights.t() @ z)
    torch.testing.assert_close(stage.learned.offsets.grad, weights.sum(dim=0))


def test_learned_directions_stay_the_same_when_they_are_loaded() -> None:
    torch.manual_seed(3)
    for size in (1e-3, 1.0, 300.0):
        stage, other = make_stage("learned:2", 7), make_stage("learned:2", 7)
        stage.fit(torch.randn(30, 7))
        with torch.no_grad():
            stage.learned.directions.mul_(size * torch.rand(14, 1))
            stage.learned.offsets.copy_(torch.randn(14))
            stage.learned.directions[5] = 0
        other.load_spec(spec_of(stage))
        mine, theirs = stage.learned.arrays(), other.learned.arrays()
        assert all(np.array_equal(mine[name], theirs[name]) for name in mine)
        assert mine["directions"].any()
        assert spec_of(other).digest() == spec_of(stage).digest()
        assert other.has_statistics


def test_a_model_takes_a_stage_of_another_kind() -> None:
    """As of a store that was packed with other bits, though as many."""
    for theirs, mine in (("rotate:4", "learned:4"), ("learned:2", "rotate:4"), ("sign", "auto")):
        stage = make_stage(theirs, 7)
        stage.fit(torch.randn(30, 7))
        for rows in (stage.normalize_rows, not stage.normalize_rows):
            model = bignn.nn.GNN(7, 5, 2, 3, binarize="both", input_bits=mine, normalize_rows=rows)
            model.load_input_stage(spec_of(stage))
            assert model.config["input_bits"] == theirs
            assert spec_of(model.input_stage).digest() == spec_of(stage).digest()
            assert model.layers[0].lin.weight.shape[1] == stage.num_bits  # type: ignore[union-attr,index]
    before = dict(model.config)
    other = make_stage("rotate:2", 9)
    other.fit(torch.randn(30, 9))
    with pytest.raises(InputError, match="'store' must be one of 7 features per node, got 9"):
        model.load_input_stage(spec_of(other))
    assert model.config == before


@pytest.mark.parametrize("sampler", ["none", "neighbor", "walk"])
def test_training_changes_the_directions(sampler: str, dense: Graph) -> None:
    chosen = recipe("bi-sage", graph=dense, input_bits="learned:4", sampler=sampler, epochs=2)
    model = chosen.build(dense)
    before = model.input_stage.learned.directions.clone()
    bignn.fit(model, dense, chosen.settings, progress=False)
    moved = (model.input_stage.learned.directions - before).abs()
    assert float((moved > 0).float().mean()) > 0.9
    # What evaluation keeps of the features is of the directions of the moment.
    x, edges = torch.from_numpy(dense.dense_x()), torch.from_numpy(dense.edge_index)
    logits = model(x, edges)
    with torch.no_grad():
        model.input_stage.learned.directions.data.neg_()
    assert not torch.equal(model(x, edges), logits)


def test_encoders_need_standardised_features() -> None:
    with pytest.raises(InputError, match="'input_bits' must be 'sign' without 'standardize'"):
        InputStage(3, normalize_rows=False, standardize=False, binarize=True, input_bits="rotate:2")


@pytest.mark.parametrize("input_bits", ["auto", *ENCODERS])
@pytest.mark.parametrize("kind", [GCN, GraphSAGE, GAT])
def test_packed_models_predict_as_torch_does(
    kind: type[GNN], input_bits: str, dense: Graph, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    model = kind(10, 16, 2, 3, binarize="both", norm="batch", input_bits=input_bits)
    path = tmp_path / "run.safetensors"
    bignn.fit(model, dense, SHORT, progress=False, checkpoint_path=path)
    x, edges = torch.from_numpy(dense.dense_x()), torch.from_numpy(dense.edge_index)
    logits = model(x, edges).detach().numpy()
    again = load_model(path)
    assert again.config == model.config
    assert torch.equal(again(x, edges), model(x, edges))
    packed = bignn.pack(again)
    assert packed.num_features == 10
    assert packed.network.is_binary
    assert np.array_equal(packed.predict(dense, output="logits"), logits)
    assert np.array_equal(packed.predict(dense, [5, 70, 2]), logits.argmax(axis=1)[[5, 70, 2]])


def test_auto_is_decided_by_the_features(dense: Graph, graph: Graph) -> None:
    for some, is_wider in ((dense, True), (graph, False)):
        torch.manual_seed(0)
        model = GCN(some.num_features, 8, 2, 3, binarize="both")
        untouched = model.layers[0].lin.weight
        bignn.fit(model, some, SHORT, progress=False)
        assert (model.config["input_bits"] != "sign") == is_wider
        assert model.config["normalize_rows"] != is_wider
        assert model.input_stage.normalize_rows != is_wider
        assert (model.layers[0].lin.weight is untouched) != is_wider
        assert model.layers[0].lin.weight.shape[1] == model.input_stage.num_bits
        before = model.state_dict()["convs.0.lin.weight"].clone()
        chosen = model.config["input_bits"]
        model.fit_input(torch.randn(9, some.num_features))  # decided once
        assert model.config["input_bits"] == chosen
        assert torch.equal(model.layers[0].lin.weight, before)


def test_auto_leaves_weights_alone_that_came_from_elsewhere(dense: Graph) -> None:
    x = torch.from_numpy(dense.dense_x())
    edges = torch.from_numpy(dense.edge_index)
    loaded = GCN(10, 8, 2, 3, binarize="both")
    loaded.load_state_dict(GCN(10, 8, 2, 3, binarize="both").state_dict())
    looped = GCN(10, 8, 2, 3, binarize="both")
    looped(x, edges)
    for model in (loaded, looped):
        weight = model.layers[0].lin.weight
        model.fit_input(x)
        assert model.input_stage.num_bits == 10
        assert model.layers[0].lin.weight is weight
    floats = GCN(10, 8, 2, 3)
    floats.fit_input(x)
    assert floats.config["input_bits"] == "sign"


def test_recipes_choose_by_the_graph(dense: Graph, graph: Graph) -> None:
    assert recipe("bi-gcn", graph=dense).input_bits.startswith("learned:")
    assert recipe("bi-gcn", graph=dense, input_bits="sign").input_bits == "sign"
    assert not recipe("bi-gcn", graph=dense, input_bits="sign").normalize_rows
    assert recipe("bi-gcn", graph=dense, normalize_rows=True).normalize_rows
    assert recipe("bi-gcn", graph=graph).normalize_rows
    assert recipe("bi-gcn", graph=bignn.to_pyg(dense)).input_bits.startswith("learned:")
    assert recipe("bi-gcn", graph=graph).input_bits == "sign"
    assert recipe("bi-gcn").input_bits == "auto"
    assert recipe("gcn", graph=dense).input_bits == "sign"
    assert recipe("bi-gcn", graph=dense, paper="ogbn-arxiv").input_bits == "sign"


def test_statistics_are_those_of_training_nodes_in_inductive_runs(dense: Graph) -> None:
    model = GCN(10, 8, 2, 3, binarize="both", input_bits="threshold:3", normalize_rows=False)
    bignn.fit(model, dense, Settings(epochs=2, inductive=True), progress=False)
    stage = make_stage("threshold:3")
    assert dense.train_idx is not None
    stage.fit(torch.from_numpy(dense.dense_x()[np.sort(dense.train_idx)]))
    assert torch.equal(model.input_stage.thresholds, stage.thresholds)
    assert torch.equal(model.input_stage.mean, stage.mean)


def test_teachers_read_the_features_themselves(dense: Graph) -> None:
    seen = []

    class Watched(GCN):
        def forward(self, x, *edges):  # type: ignore[no-untyped-def]
            seen.append(x)
            return super().forward(x, *edges)

    teacher: nn.Module = Watched(10, 8, 2, 3)
    model = GCN(10, 8, 2, 3, binarize="both", input_bits="rotate:4")
    for settings in (SHORT, replace(recipe("bi-sage", graph=dense).settings, epochs=2)):
        bignn.fit(model, dense, settings, teacher=teacher, progress=False)
        assert seen
        for x in seen:
            assert isinstance(x, Tensor)
            rows = {tuple(row) for row in x.tolist()}
            assert rows <= {tuple(row) for row in dense.dense_x().tolist()}
        seen.clear()


@pytest.mark.parametrize("input_bits", ENCODERS)
def test_converted_models_read_more_bits(input_bits: str, dense: Graph) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(10, 16), pyg.GCNConv(16, 3)

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            out: Tensor = self.conv2(self.conv1(x, edge_index).relu(), edge_index)
            return out

    families = [pyg.GCN, pyg.GraphSAGE, pyg.GAT, pyg.GIN]
    for model in [*(family(10, 16, 2, 3) for family in families), Own()]:
        first = "conv1" if isinstance(model, Own) else None
        report = bignn.binarize_(model, input_bits=input_bits, first=first)
        assert any(f"10 features become 30 bits ({input_bits})" in note for note in report.notes)
        bignn.fit(model, dense, SHORT, progress=False)
        x, edges = torch.from_numpy(dense.dense_x()), torch.from_numpy(dense.edge_index)
        expected = model(x, edges).argmax(dim=1)
        packed = bignn.pack(model)
        assert packed.network.input.num_columns == 30
        assert np.array_equal(packed.predict(dense), expected.numpy())


def test_conversions_that_cannot_have_more_bits_say_so() -> None:
    def own(conv: nn.Module) -> nn.Module:
        model: nn.Module = pyg.Sequential("x, edge_index", [(conv, "x, edge_index -> x")])
        return model

    with pytest.raises(InputError, match=r"'sign' without 'first', got 'rotate:4'; name the layer"):
        bignn.binarize_(own(pyg.GCNConv(10, 3)), input_bits="rotate:4")
    other = own(pyg.TAGConv(10, 3))
    with pytest.raises(InputError, match="'sign' where 'module_0' is a TAGConv"):
        bignn.binarize_(other, input_bits="rotate:4", first="module_0")
    assert isinstance(next(other.children()), pyg.TAGConv)  # it is as it was


@pytest.mark.parametrize("input_bits", ENCODERS)
def test_new_and_changed_nodes_go_through_the_encoder(
    dense: Graph, tmp_path: Path, input_bits: str
) -> None:
    torch.manual_seed(0)
    model = GCN(10, 12, 2, 3, binarize="both", input_bits=input_bits)
    bignn.fit(model, dense, SHORT, progress=False)
    packed = bignn.pack(model)
    row = np.random.default_rng(1).standard_normal((1, 10)).astype(np.float32)
    edges = np.array([[90, 3], [3, 90]])
    x = np.concatenate([dense.dense_x(), row])
    larger = Graph(x, np.concatenate([dense.edge_index, edges], axis=1))
    expected = packed.predict(larger, output="logits")
    np.testing.assert_array_equal(
        packed.predict_new(dense, row, edges, output="logits"), expected[90:]
    )
    live = packed.live(dense)
    live.save(tmp_path / "graph.biglive")
    live.update(add_nodes=row, add_edges=edges)
    np.testing.assert_array_equal(live.predict(output="logits"), expected)
    live.update(nodes=[90, 5], x=x[[5, 90]])
    x[[90, 5]] = x[[5, 90]]
    swapped = packed.predict(replace(larger, x=x), output="logits")
    live.close()
    opened = bignn.LiveGraph.open(tmp_path / "graph.biglive")
    np.testing.assert_array_equal(opened.predict(output="logits"), swapped)
