"""Rounded edge weights: torch takes the packed engine's whole numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import bignn
from bignn import Graph, InputError
from bignn.binarize import sign
from bignn.config import BinarizeMode, ConvName, Sampling, Settings
from bignn.kernels import attention, edge_rounding, reference
from bignn.kernels.attention import Attention
from bignn.nn import GCN, GNN, GATConv, GCNConv, SAGEConv
from bignn.nn.adjacency import factored_adjacency, normalized_adjacency
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.edge_rounding import round_row_weights, rounded_edges
from bignn.nn.features import BinaryRows
from bignn.nn.packed_arithmetic import attention_of_scores, exp_of_negative, mean_in_order
from bignn.nn.sparse import SparseMatrix
from bignn.train.batches import full_batch, reachable


def random_rows(rng: np.random.Generator, num_rows: int = 200) -> tuple[Any, Any, Any]:
    """Offsets, ids and weights of rows: empty, zero, huge, tiny, overflowing, halves."""
    degree = rng.integers(0, 12, num_rows)
    degree[5] = 300
    offsets = np.concatenate([[0], np.cumsum(degree)])
    ids = rng.integers(0, 50, offsets[-1])
    weights = rng.random(offsets[-1]).astype(np.float32) * 4
    sizes = np.float32(2.0) ** rng.integers(-70, 90, num_rows).astype(np.float32)
    weights *= np.repeat(sizes, degree)
    weights[rng.random(len(weights)) < 0.1] = 0
    weights[offsets[8] : offsets[9]] = 0
    weights[offsets[9] : offsets[10]] = 1e-30
    weights[offsets[10] : offsets[11]] = 3e38  # overflows
    weights[offsets[11] : offsets[12]] = np.float32(2) - np.float32(2**-23)  # rounds up to 2^b
    return offsets, ids, weights


def pattern_of(offsets: Any, ids: Any, weights: Any, **factors: Tensor | None) -> SparseMatrix:
    row = torch.from_numpy(np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)))
    column = torch.from_numpy(ids)
    order = torch.argsort(row * 1000 + column, stable=True)
    size = (len(offsets) - 1, 50)
    return SparseMatrix.from_entries(
        row, column[order], torch.from_numpy(weights)[order], size, **factors
    )


@pytest.fixture(params=["native", "torch"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounding on the CPU, by native code or by torch as on a GPU."""
    if request.param == "torch":
        monkeypatch.setattr("bignn.nn.edge_rounding._is_native", lambda *_: False)


@pytest.mark.usefixtures("form")
def test_weights_are_rounded_as_the_reference_rounds_them() -> None:
    rng = np.random.default_rng(0)
    offsets, ids, weights = random_rows(rng)
    beta = (rng.random(50).astype(np.float32) + np.float32(0.01)) * 3
    beta[7] = np.finfo(np.float32).tiny
    row_factor = rng.random(len(offsets) - 1).astype(np.float32)
    scale = rng.random(50).astype(np.float32)
    pattern = pattern_of(
        offsets, ids, weights,
        row_factor=torch.from_numpy(row_factor), column_factor=torch.from_numpy(scale),
    )  # fmt: skip
    sorted_ids = pattern.matrix.col_indices().numpy()
    sorted_weights = pattern.matrix.values().numpy()
    assert len(np.unique(pattern.matrix.crow_indices().numpy() - offsets)) == 1
    for bits in range(2, 9):
        q, row_scale = edge_rounding.round_edge_weights(
            offsets, sorted_ids, sorted_weights, scale * beta, row_factor, bits
        )
        mine = rounded_edges(
            pattern, None, torch.from_numpy(beta[:, None]), "gcn", bits, is_constant=False
        )
        assert np.array_equal(mine.q.numpy(), q), bits
        assert np.array_equal(mine.row_scale.numpy(), row_scale), bits
        assert 2 ** (bits - 1) <= q.max() < 2**bits, bits
        row = torch.tensor([2 - 2.0**-23, 1, 0.5])  # whose first would round up to 2^b
        one = SparseMatrix.from_entries(torch.zeros(3).long(), torch.arange(3), row, (1, 3))
        assert round_row_weights(one, row, None, bits).q.tolist()[:2] == [
            2**bits - 1,
            2 ** (bits - 1),
        ]
        assert (q[offsets[8] : offsets[10]] == 0).all(), bits


def test_long_rows_have_fewer_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    # Rows of 2^23 entries are too long for a test: sums are to stay below 2^14 instead of 2^31,
    # which native code cannot be told.
    monkeypatch.setattr("bignn.nn.edge_rounding._is_native", lambda *_: False)
    monkeypatch.setattr("bignn.nn.edge_rounding.TOTAL_BITS", 14)
    monkeypatch.setattr(edge_rounding, "TOTAL_BITS", 14)
    rng = np.random.default_rng(1)
    offsets, ids, weights = random_rows(rng)
    pattern = pattern_of(offsets, ids, weights)
    x = edge_rounding.bounded(pattern.matrix.values().numpy())
    ones = np.ones(len(offsets) - 1, dtype=np.float32)
    q, row_scale = edge_rounding.round_row_weights(offsets, x, ones, 8)
    mine = round_row_weights(pattern, torch.from_numpy(x), None, 8)
    assert np.array_equal(mine.q.numpy(), q)
    assert np.array_equal(mine.row_scale.numpy(), row_scale)
    assert q[offsets[5] : offsets[6]].max() < 2**6
    heads = torch.from_numpy(np.stack([x, x[::-1]], axis=1))
    both = round_row_weights(pattern, heads, torch.ones(len(ones), 2), 8)
    assert np.array_equal(both.q[:, 0].numpy(), q)


def test_scales_and_attention_are_the_references() -> None:
    rng = np.random.default_rng(2)
    for columns in (1, 15, 16, 17, 64, 100):
        h = rng.standard_normal((40, columns)).astype(np.float32)
        expected = reference.binarize(h)[1]
        assert np.array_equal(mean_in_order(torch.from_numpy(h))[:, 0].numpy(), expected), columns
    t = -np.abs(rng.standard_normal(5000)).astype(np.float32) * 40
    t[:3] = [0, -64, -100]
    assert np.array_equal(
        exp_of_negative(torch.from_numpy(t)).numpy(), attention.exp_of_negative(t)
    )
    offsets, ids, weights = random_rows(rng, num_rows=50)
    pattern = pattern_of(offsets, ids, weights)
    scores = rng.standard_normal((4, 50)).astype(np.float32) * 5
    scored = Attention(2, False, 0.2, np.empty(0), np.empty(0), np.empty(0))  # type: ignore[arg-type]
    source, target = torch.from_numpy(scores).t().split(2, dim=1)
    p, share = attention_of_scores(pattern, source.contiguous(), target.contiguous(), 0.2)
    ones = np.ones(50, dtype=np.float32)
    for head in range(2):
        expected, expected_share = attention.weights(
            scored, head, scores, offsets, pattern.matrix.col_indices().numpy(), None, ones
        )
        assert np.array_equal(p[:, head].numpy(), expected)
        assert np.array_equal(share[:, head].numpy(), expected_share)


def test_gradients_are_those_of_the_formula() -> None:
    # Three sources with β of 1, 0.5 and 0.3; the mean over rows {0, 1, 2} and {2}, 2 bits.
    edges = torch.tensor([[0, 1, 2, 2], [0, 0, 0, 1]])
    beta = torch.tensor([[1.0], [0.5], [0.3]])
    rounded = rounded_edges(edges, None, beta, "mean", 2, is_constant=False)
    # Largest 1: e = 1, so 2, 1, rint(0.6) = 1. Largest 0.3: e = 3, so rint(2.4) = 2.
    assert rounded.q.tolist() == [2, 1, 1, 2]
    third = np.float32(1) / np.float32(3)
    assert rounded.row_scale.tolist() == [third / 2, 1 / 8, 1]
    dots = torch.tensor([[3.0], [-1.0], [5.0]], requires_grad=True)
    for num_inputs in (None, 5, 1 << 24):
        dots.grad = None
        out = rounded.sums(dots, num_inputs=num_inputs)
        assert torch.allclose(out[:, 0], torch.tensor([10 / 6, 10 / 8, 0]), rtol=1e-6)
        out.backward(torch.tensor([[6.0], [8.0], [1.0]]))
        assert dots.grad is not None
        expected = torch.tensor([[2.0], [1.0], [1.0 + 2.0]])
        assert torch.allclose(dots.grad, expected, atol=1e-6)


def test_attention_learns_through_the_weights_before_rounding() -> None:
    torch.manual_seed(0)
    x, edges = torch.randn(12, 20), torch.randint(0, 12, (2, 40))
    grads = []
    for edge_bits in (None, 8):
        torch.manual_seed(1)
        conv = GATConv(20, 4, heads=2, binarize="both", edge_bits=edge_bits)
        torch.nn.init.normal_(conv.att_src)
        torch.nn.init.normal_(conv.att_dst)
        conv(x, edges).square().sum().backward()
        grads.append([p.grad for p in (conv.att_src, conv.att_dst, conv.lin.weight)])
    for plain, rounded in zip(*grads, strict=True):
        assert plain is not None
        assert rounded is not None
        assert 0 < float((plain - rounded).abs().max()) < 0.05 * float(plain.abs().max())


def test_receptive_fields_have_the_outputs_and_gradients_of_the_whole_graph(graph: Graph) -> None:
    rng = np.random.default_rng(3)
    weights = rng.random(graph.edge_index.shape[1], dtype=np.float32)
    convs: tuple[ConvName, ...] = ("gcn", "mean-gcn", "sage", "gat")
    for conv in convs:
        assert graph.train_idx is not None
        few = replace(
            graph,
            edge_weight=np.asarray(weights) if conv == "gcn" else None,
            train_idx=graph.train_idx[:2],
        )
        torch.manual_seed(0)
        model = GNN(20, 8, 2, 2, conv=conv, binarize="both", edge_bits=6)
        model.fit_input(torch.from_numpy(graph.dense_x()))
        whole = full_batch(few, torch.device("cpu"))
        part = reachable(whole, model)
        assert len(part.y) < len(whole.y)
        results = []
        for batch in (whole, part):
            model.zero_grad()
            logits = batch.logits(model)[batch.loss_nodes]
            logits.square().sum().backward()
            grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
            results.append((logits.detach(), grads))
        assert torch.equal(results[0][0], results[1][0]), conv
        for one, other in zip(results[0][1], results[1][1], strict=True):
            assert torch.allclose(one, other, rtol=1e-4, atol=1e-5), conv


def test_all_forms_of_edges_give_the_same(graph: Graph) -> None:
    torch.manual_seed(0)
    x, edges = torch.randn(60, 20), torch.from_numpy(graph.edge_index)
    weight = torch.rand(edges.shape[1])
    plain = SparseMatrix.from_entries(edges[1], edges[0], torch.ones(edges.shape[1]), (60, 60))
    weighted = SparseMatrix.from_entries(edges[1], edges[0], weight, (60, 60))
    layers: list[tuple[GCNConv | SAGEConv | GATConv, SparseMatrix, Tensor | None]] = [
        (GCNConv(20, 8, binarize="both", edge_bits=7), weighted, weight),
        (GCNConv(20, 8, aggr="mean_self", binarize="both", edge_bits=7), plain, None),
        (SAGEConv(20, 8, binarize="both", edge_bits=7), plain, None),
        (GATConv(20, 8, binarize="both", edge_bits=7), plain, None),
    ]
    for layer, matrix, given in layers:
        layer.eval()
        with torch.no_grad():
            out = layer(x, edges, given)
            assert torch.equal(layer(x, matrix.matrix), out)
            if isinstance(layer, GATConv):
                continue
            factored = factored_adjacency(edges, given, 60, layer.aggr)
            assert torch.equal(layer(x, factored), out)
            # A matrix without factors: rounded apart, by at most half a unit of a row's largest.
            ready = normalized_adjacency(edges, given, 60, aggr=layer.aggr)
            assert torch.allclose(factored @ x, ready @ x, atol=1e-5)
            assert torch.equal(factored.entries()[1], ready.entries()[1])
            assert torch.allclose(factored.entries()[2], ready.entries()[2])
            difference = (layer(x, ready) - out).abs().max()
            assert difference < 0.05 * out.abs().max()
            rows = torch.tensor([5, 0, 17])
            taken = factored.take_rows(rows)
            assert torch.equal(taken @ x, (factored @ x)[rows])


def test_nothing_changes_without_edge_bits_or_without_bits(graph: Graph) -> None:
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    modes: tuple[BinarizeMode, ...] = ("none", "features", "weights")
    for binarize in modes:
        outputs = []
        for edge_bits in (None, 3):
            torch.manual_seed(0)
            model = GCN(20, 8, 2, 2, binarize=binarize, edge_bits=edge_bits)
            assert [conv.edge_bits for conv in model.layers] == [None, None]
            model.fit_input(x)
            outputs.append(model(x, edges))
        assert torch.equal(*outputs)
    other = GNN(20, 8, 2, 2, conv="sgc", binarize="both", edge_bits=3)
    assert not any(hasattr(conv, "edge_bits") for conv in other.layers)


@pytest.mark.parametrize("wrong", [1, 9, 2.5, True, "7"])
def test_other_numbers_are_refused(wrong: Any) -> None:
    import torch_geometric.nn as pyg

    match = r"^'edge_bits' must be a whole number from 2 to 8, or none for float weights, got "
    for make in (GCNConv, SAGEConv, GATConv):
        with pytest.raises(InputError, match=match):
            make(4, 3, binarize="both", edge_bits=wrong)
    with pytest.raises(InputError, match=match):
        GCN(4, 3, 2, 2, edge_bits=wrong)
    with pytest.raises(InputError, match=match):
        bignn.binarize_(pyg.GCN(4, 3, 2, 2), edge_bits=wrong)


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_where_nothing_can_be_rounded_sums_are_floats() -> None:
    torch.manual_seed(0)
    x, edges = torch.randn(5, 4), torch.tensor([[0, 1, 3, 4], [1, 2, 2, 2]])
    for make in (GCNConv, SAGEConv, GATConv):
        rounded, plain = (make(4, 3, binarize="both", edge_bits=bits) for bits in (2, None))
        plain.load_state_dict(rounded.state_dict())
        assert not torch.equal(rounded(x, edges), plain(x, edges)), make
        compiled = torch.compile(rounded, backend="eager", fullgraph=True)
        assert torch.allclose(compiled(x, edges), plain(x, edges), atol=1e-6), make
        norm = BatchNorm(3).eval()
        half = rounded.bfloat16().eval()(x.bfloat16(), edges, norm=norm.bfloat16())
        expected = norm(plain.bfloat16().eval()(x.bfloat16(), edges))
        assert torch.equal(half, expected), make
    weight = torch.rand(4, requires_grad=True)
    rounded, plain = (GCNConv(4, 3, binarize="both", edge_bits=bits) for bits in (2, None))
    plain.load_state_dict(rounded.state_dict())
    out = rounded(x, edges, weight)
    assert torch.equal(out, plain(x, edges, weight))
    (gradient,) = torch.autograd.grad(out.sum(), weight)
    assert gradient.abs().sum() > 0


def test_weights_below_zero_are_refused_not_rounded_to_nothing() -> None:
    x, edges, weight = torch.randn(5, 4), torch.tensor([[0, 1], [1, 2]]), torch.tensor([-2.0, 1.0])
    match = r"^'edge_weight' must be non-negative where 'edge_bits' rounds weights, got -2\.0; "
    model = GCN(4, 3, 2, 2, binarize="both")
    model.fit_input(x)
    for made in (GCNConv(4, 3, binarize="both"), model):
        with pytest.raises(InputError, match=match):
            made(x, edges, weight)
    conv = GCNConv(4, 3, aggr="weighted_sum", binarize="both", edge_bits=None)
    flipped = conv(x, edges, torch.tensor([2.0, 1.0]))
    assert torch.equal(conv(x, edges, weight)[1], -flipped[1])


@pytest.mark.parametrize("slope", [-1.0, -0.5, 0.0, 0.2, 1.0])
def test_attention_of_any_slope_is_a_softmax(slope: float) -> None:
    torch.manual_seed(0)
    x, edges = torch.randn(20, 30), torch.randint(0, 20, (2, 60))
    rounded, plain = (
        GATConv(30, 5, negative_slope=slope, binarize="both", edge_bits=bits) for bits in (8, None)
    )
    with torch.no_grad():
        for vector in (rounded.att_src, rounded.att_dst):
            vector.normal_(std=60)
        plain.load_state_dict(rounded.state_dict())
        out, expected = rounded.eval()(x, edges), plain.eval()(x, edges)
    assert torch.allclose(out, expected, atol=0.02 * float(expected.abs().max()))


@pytest.mark.parametrize("kind", ["neighbor", "walk", "layer"])
def test_models_train_on_samples(graph: Graph, kind: Any) -> None:
    fan_outs = {"neighbor": (3, 3), "layer": (20, 20)}.get(kind, ())
    sampling = Sampling(kind, 10, fan_outs=fan_outs)
    losses = []
    for edge_bits in (None, 7):
        torch.manual_seed(0)
        model = GCN(20, 16, 2, 2, binarize="both", edge_bits=edge_bits)
        losses.append(bignn.fit(model, graph, Settings(epochs=20, sampling=sampling)).val_loss)
    assert losses[1] < 0.69
    assert abs(losses[0] - losses[1]) < 0.05


def test_first_layers_keep_their_rounded_weights(graph: Graph) -> None:
    edges = torch.from_numpy(graph.edge_index)
    beta = torch.rand(graph.num_nodes, 1)
    made = [
        rounded_edges(edges, None, beta, "gcn", bits, is_constant=constant)
        for bits, constant in [(7, True), (7, True), (6, True), (6, False)]
    ]
    assert made[0] is made[1]
    assert made[1] is not made[2]
    assert made[2] is not made[3]
    beta.mul_(2)
    assert rounded_edges(edges, None, beta, "gcn", 6, is_constant=True) is not made[2]


@pytest.mark.parametrize("largest", [1, 1 << 17])
def test_native_sums_are_those_of_torch(monkeypatch: pytest.MonkeyPatch, largest: int) -> None:
    rng = np.random.default_rng(5)
    offsets, ids, weights = random_rows(rng)
    pattern = pattern_of(offsets, ids, weights)
    beta = torch.rand(50, 1)
    # Whole numbers, whose sums do not depend on how they are added up.
    start = torch.randint(-largest, largest + 1, (50, 33)).float()
    gradient = torch.randint(-3, 4, (200, 33)).float()
    results = []
    for is_native in (True, False):
        if not is_native:
            monkeypatch.setattr("bignn.nn.sparse._is_native", lambda *_: False)
            monkeypatch.setattr("bignn.nn.edge_rounding._is_native", lambda *_: False)
        rounded = rounded_edges(pattern, None, beta, "gcn", 7, is_constant=False)
        assert rounded.is_wide(largest) == (largest > 1)
        dots = start.clone().requires_grad_()
        pattern.weighted(rounded.q, dots).backward(gradient)
        with torch.no_grad():
            results.append([dots.grad, rounded.sums(dots, num_inputs=largest)])
        dots = start.clone().requires_grad_()
        in_training = rounded.sums(dots, num_inputs=None)
        in_training.backward(gradient)
        results[-1] += [in_training.detach(), dots.grad]
    for place, (mine, other) in enumerate(zip(*results, strict=True)):
        assert mine is not None
        assert other is not None
        if place < 2:
            assert torch.equal(mine, other), place
        else:
            assert torch.allclose(mine, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))


def test_evaluation_is_the_same_without_native_code(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    convs: tuple[ConvName, ...] = ("gcn", "mean-gcn", "sage", "gat")
    for conv in convs:
        torch.manual_seed(0)
        model = GNN(20, 16, 3, 2, conv=conv, binarize="both", norm="batch").eval()
        model.fit_input(x)
        with monkeypatch.context() as plain, torch.no_grad():
            native_logits = model(x, edges)
            for module in ("sparse", "edge_rounding"):
                plain.setattr(f"bignn.nn.{module}._is_native", lambda *_: False)
            plain.setattr(
                "bignn.nn.features.BinaryRows.of_values",
                lambda h: BinaryRows(sign(h), mean_in_order(h)),
            )
            assert torch.equal(model(x, edges), native_logits), conv
