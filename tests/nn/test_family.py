"""The convolutions beside GCN's: PyG's own when not binary, the written formulas when binary."""

import copy
import itertools
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

import bignn
from bignn.binarize import binarize_features, binarize_weight
from bignn.config import BinarizeMode
from bignn.errors import InputError
from bignn.nn import (
    GAT,
    GCN,
    GNN,
    GATConv,
    GCNConv,
    GINConv,
    GraphSAGE,
    JumpingHead,
    Linear,
    SAGEConv,
    SGConv,
)
from bignn.nn.adjacency import Aggregation, normalized_adjacency, receptive_field
from bignn.nn.attention import softmax_of_rows, weighted_sum
from bignn.nn.gnn import Conv
from bignn.nn.sparse import SparseMatrix

MODES: list[BinarizeMode] = ["none", "features", "weights", "both"]

# Directed, with self-loops, a duplicate edge and an isolated node (4).
EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 0], [1, 0, 1, 3, 3, 2, 2]])


def features(num_features: int = 6) -> Tensor:
    return torch.randn(5, num_features, generator=torch.Generator().manual_seed(0))


def copied(ours: torch.nn.Module, theirs: torch.nn.Module) -> None:
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())


def test_unbinarized_convs_equal_pyg_with_its_weights() -> None:
    pairs: list[tuple[Conv, Any]] = [
        (SAGEConv(6, 3), pyg.SAGEConv(6, 3)),
        (SAGEConv(6, 3, bias=False), pyg.SAGEConv(6, 3, bias=False)),
        (GATConv(6, 3), pyg.GATConv(6, 3)),
        (GATConv(6, 3, heads=4), pyg.GATConv(6, 3, heads=4)),
        (GATConv(6, 3, heads=2, concat=False), pyg.GATConv(6, 3, heads=2, concat=False)),
        (SGConv(6, 3, K=2), pyg.SGConv(6, 3, K=2)),
        (SGConv(6, 3, K=3), pyg.SGConv(6, 3, K=3)),
    ]
    for ours, theirs in pairs:
        copied(ours, theirs)
        x = features().requires_grad_()
        out, expected = ours(x, EDGES), theirs(x, EDGES)
        assert torch.allclose(out, expected, atol=1e-5)
        pull = torch.randn_like(out)
        mine = torch.autograd.grad((out * pull).sum(), [x, *ours.parameters()])
        names = [name for name, _ in ours.named_parameters()]
        there = dict(theirs.named_parameters())
        other = torch.autograd.grad((expected * pull).sum(), [x, *(there[name] for name in names)])
        for a, b in zip(mine, other, strict=True):
            assert torch.allclose(a, b, atol=1e-4)


def test_models_equal_pyg_with_its_weights() -> None:
    """PyG's state_dict loads as it is, jumping knowledge included."""
    jk: Any
    for jk in [None, "cat"]:
        x = features()
        pairs = [
            (GCN(6, 8, 3, 4, jk=jk, normalize_rows=False), pyg.GCN(6, 8, 3, 4, jk=jk)),
            (GraphSAGE(6, 8, 3, 4, jk=jk, normalize_rows=False), pyg.GraphSAGE(6, 8, 3, 4, jk=jk)),
            # PyG's hidden_channels are those of all heads, and its last layer has as many heads.
            (
                GAT(6, 4, 3, 4, heads=2, out_heads=2, jk=jk, normalize_rows=False),
                pyg.GAT(6, 8, 3, 4, heads=2, jk=jk),
            ),
        ]
        for ours, theirs in pairs:
            copied(ours, theirs)
            assert set(ours.state_dict()) == set(theirs.state_dict())
            for mode in (True, False):  # without dropout, which is 0 by default in both
                out, expected = ours.train(mode)(x, EDGES), theirs.train(mode)(x, EDGES)
                assert torch.allclose(out, expected, atol=1e-4), type(ours)


def written(conv: Conv, x: Tensor, aggr: Aggregation) -> Tensor:
    """The formula of a binary layer in float64, neighbour by neighbour."""

    def z(lin: Linear) -> Tensor:
        signs, beta = binarize_features(x.double())
        columns, alpha = binarize_weight(lin.weight.detach().double())
        return beta * (signs @ columns.t()) * alpha.t()

    neighbours: list[list[int]] = [
        [s for s, t in EDGES.t().tolist() if t == node] for node in range(5)
    ]
    if aggr != "mean":
        neighbours = [[s for s in some if s != i] + [i] for i, some in enumerate(neighbours)]
    rows = []
    bias = conv.lin_l.bias if isinstance(conv, SAGEConv) else conv.bias
    assert isinstance(bias, Tensor)
    for node, some in enumerate(neighbours):
        if isinstance(conv, SAGEConv):
            mean = z(conv.lin_l)[some].mean(dim=0) if some else torch.zeros(3)
            rows.append(z(conv.lin_r)[node] + mean + bias)
        elif isinstance(conv, GATConv):
            h = z(conv.lin).view(5, conv.heads, -1)
            score = (h[some] * conv.att_src + h[node] * conv.att_dst).sum(dim=-1)
            score = torch.where(score > 0, score, 0.2 * score).softmax(dim=0)
            rows.append((score.unsqueeze(-1) * h[some]).sum(dim=0).flatten() + bias)
        else:
            assert isinstance(conv, GCNConv)
            rows.append(z(conv.lin)[some].mean(dim=0) + bias)
    return torch.stack(rows)


def test_binary_convs_compute_the_written_formula() -> None:
    convs: list[Conv] = [
        SAGEConv(6, 3, binarize="both", edge_bits=None),
        GATConv(6, 3, heads=2, binarize="both", edge_bits=None),
        GCNConv(6, 3, aggr="mean_self", binarize="both", edge_bits=None),
    ]
    for conv in convs:
        x = features()
        for parameter in conv.parameters():
            torch.nn.init.normal_(parameter)
        expected = written(conv, x, conv.aggr)
        assert torch.allclose(conv(x, EDGES).double(), expected, atol=1e-5)
        with torch.no_grad():  # by bits
            assert torch.allclose(conv(x, EDGES).double(), expected, atol=1e-5)


@pytest.mark.parametrize("conv", ["gcn", "mean-gcn", "sage", "gat", "sgc"])
def test_every_model_trains_in_every_mode(conv: Any) -> None:
    """A step changes every parameter, and a call with matrices gives the same."""
    torch.manual_seed(0)
    x = features(20)
    jk: Any
    for mode, jk in itertools.product(MODES, (None, "cat")):
        model = GNN(
            20, 4, 2, 3, conv=conv, heads=2 if conv == "gat" else 1, jk=jk,
            binarize_head=True, binarize=mode, norm="batch", dropout=0.0,
        )  # fmt: skip
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        for _ in range(2):
            model(x, EDGES).logsumexp(dim=-1).sub(model(x, EDGES)[:, 0]).mean().backward()
        optimizer.step()
        for name, parameter in model.named_parameters():
            # A target's own score matters only where it bends LeakyReLU's sums apart.
            assert "att_dst" in name or not torch.equal(parameter, before[name]), name
        model.eval()
        out = model(x, EDGES)
        matrix = model.adjacency(EDGES, None, 5)
        assert torch.allclose(model(x, matrix), out, atol=1e-5)
        assert torch.allclose(model(x, (matrix, matrix)), out, atol=1e-5)


def test_binary_attention_starts_even() -> None:
    for binarize in ("both", "weights", "features", "none"):
        conv = GATConv(6, 4, heads=2, binarize=binarize)
        starts_even = binarize in ("both", "weights")
        for vector in (conv.att_src, conv.att_dst):
            assert (not vector.any()) == starts_even


def test_compiled_attention_is_the_same() -> None:
    model = GAT(6, 4, 2, 3, heads=2, normalize_rows=False).eval()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert torch.allclose(compiled(features(), EDGES), model(features(), EDGES), atol=1e-5)


def test_rows_of_the_matrices() -> None:
    counts = torch.zeros(5, 5)
    for source, target in EDGES.t().tolist():
        counts[target, source] += 1
    looped = counts.clone().fill_diagonal_(1)
    degree = looped.sum(dim=1)
    expected: dict[Aggregation, Tensor] = {
        "gcn": looped / (degree[:, None] * degree).sqrt(),
        "mean": counts / counts.sum(dim=1).clamp(min=1)[:, None],
        "mean_self": looped / degree[:, None],
        "ones_self": looped,
        "sum": counts,
    }
    for aggr, matrix in expected.items():
        dense = normalized_adjacency(EDGES, None, 5, aggr=aggr).matrix.to_dense()
        assert torch.allclose(dense, matrix), aggr


def test_attention_sums_have_the_right_gradients() -> None:
    torch.manual_seed(0)
    pattern = normalized_adjacency(EDGES, None, 5, torch.float64, aggr="ones_self")
    scores = torch.randn(len(pattern.rows), 2, dtype=torch.float64, requires_grad=True)
    z = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)
    weights = softmax_of_rows(pattern, scores)
    total = torch.zeros(5, 2, dtype=torch.float64).index_add(0, pattern.rows, weights)
    assert torch.allclose(total, torch.ones_like(total))
    assert torch.autograd.gradcheck(
        lambda s, h: weighted_sum(pattern, softmax_of_rows(pattern, s), h), (scores, z)
    )


def test_rectangular_matrices_make_the_first_rows() -> None:
    """Layers of a sampled batch make fewer rows than they read."""
    x = features()
    for conv in (SAGEConv(6, 3), GATConv(6, 3, heads=2), GCNConv(6, 3)):
        whole = normalized_adjacency(EDGES, None, 5, aggr=conv.aggr)
        row, column, values = whole.entries()
        kept = row < 3
        part = SparseMatrix.from_entries(row[kept], column[kept], values[kept], (3, 5))
        assert torch.allclose(conv(x, part), conv(x, whole)[:3], atol=1e-6)
        corner = whole.corner(3, 5)
        assert torch.equal(corner.matrix.to_dense(), whole.matrix.to_dense()[:3])
        assert torch.equal(corner.transposed.to_dense(), corner.matrix.to_dense().t())
        order = torch.tensor([4, 1, 1])
        assert torch.equal(whole.take_rows(order).matrix.to_dense(), whole.matrix.to_dense()[order])


def test_the_head_of_jumping_models_is_a_product_of_blocks() -> None:
    mode: BinarizeMode
    for mode in MODES:
        torch.manual_seed(0)
        head = JumpingHead(6, 2, 3, binarize=mode)
        torch.nn.init.normal_(head.bias)  # type: ignore[arg-type]
        layers = [torch.randn(5, 6), 10 * torch.randn(5, 6)]
        blocks = layers
        if mode in ("features", "both"):
            blocks = [signs * beta for signs, beta in map(binarize_features, layers)]
        weight: Tensor = head.weight
        if mode in ("weights", "both"):
            signs, alpha = binarize_weight(weight)
            weight = signs * alpha
        assert head.bias is not None
        expected = torch.cat(blocks, dim=1) @ weight.t() + head.bias
        assert torch.allclose(head(layers), expected, atol=1e-4)


def test_wrong_arguments_are_told_in_one_line() -> None:
    with pytest.raises(InputError, match="'conv' must be 'gcn' in a GCN"):
        GCN(3, 3, 2, conv="sage")
    for arguments, name in (
        ({"conv": "cat"}, "conv"),
        ({"jk": "lstm"}, "jk"),
        ({"activation": "tanh"}, "activation"),
        ({"heads": 0}, "heads"),
        ({"conv": "sage", "heads": 2}, "heads"),
        ({"conv": "gat", "attention_dropout": 1.0}, "attention_dropout"),
        ({"conv": "sgc", "K": 0}, "K"),
    ):
        with pytest.raises(InputError, match=f"'{name}' must be"):
            GNN(3, 3, 2, **arguments)
    with pytest.raises(InputError, match="aggr"):
        GCNConv(3, 3, aggr="mean")


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_values_of_a_sparse_adjacency_are_not_dropped_silently() -> None:
    adjacency = torch.eye(5).mul(2).to_sparse_csr()
    for conv in (SAGEConv(6, 3), GATConv(6, 3), GCNConv(6, 3, aggr="mean_self")):
        with pytest.raises(InputError, match="'edge_index' must be a sparse adjacency of ones"):
            conv(features(), adjacency)
        conv(features(), torch.eye(5).to_sparse_csr())
    GCNConv(6, 3)(features(), adjacency)


def test_reach_goes_by_edges_not_by_their_weights() -> None:
    edges = torch.tensor([[1, 2, 3], [0, 1, 2]])
    matrix = normalized_adjacency(edges, torch.tensor([-0.5, 1.0, -0.2]), 4)
    assert receptive_field(matrix, torch.tensor([0]), 2).tolist() == [0, 1, 2]


@pytest.mark.parametrize("conv", ["gcn", "sage", "gat", "sgc"])
def test_double_and_half_precision(conv: Any) -> None:
    """Models in any precision keep it, forward and backward, with dense and sparse features."""
    sparse = torch.eye(5, 6)
    for mode in ("none", "both"):
        model = GNN(6, 4, 2, 3, conv=conv, binarize=mode, jk="cat", norm="batch", dropout=0.2)
        model.fit_input(features())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            model(features(), EDGES).float().sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        for dtype in (torch.float64, torch.bfloat16, torch.float16):
            other = copy.deepcopy(model).to(dtype)
            other.zero_grad()
            for x in (features(), sparse):
                out = other.train()(x.to(dtype), EDGES)
                assert out.dtype == dtype, (mode, dtype)
                out.float().sum().backward()
                with torch.no_grad():
                    assert other.eval()(x.to(dtype), EDGES).dtype == dtype
            assert all(p.grad is not None and p.grad.dtype == dtype for p in other.parameters())


@pytest.mark.parametrize("conv", ["gcn", "sage", "gat"])
def test_rounded_weights_in_double_and_half_precision(conv: Any) -> None:
    """Half precision does not hold whole numbers, and sums floats."""
    model = GNN(6, 4, 2, 3, conv=conv, binarize="both", norm="batch", edge_bits=7)
    model.fit_input(features())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(features(), EDGES).sum().backward()
    double = copy.deepcopy(model).double()
    double.zero_grad()
    for mode in (True, False):
        out = double.train(mode)(features().double(), EDGES)
        assert out.dtype == torch.float64
        out.sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float64 for p in double.parameters())
    half = model.bfloat16()(features().bfloat16(), EDGES)
    assert half.dtype == torch.bfloat16
    assert torch.isfinite(half).all()


def test_inputs_that_layers_cannot_read_say_so() -> None:
    x, meta = features(), features().to("meta")
    rest = torch.nn.Identity()
    for mode in MODES:
        for conv in (
            GCNConv(6, 3, binarize=mode),
            SAGEConv(6, 3, binarize=mode),
            GATConv(6, 3, binarize=mode),
            SGConv(6, 3, binarize=mode),
            GINConv(Linear(6, 3, binarize=mode), rest, torch.tensor(0.0)),
        ):
            wrong: list[tuple[Any, Any, str]] = [
                ((x, x), EDGES, r"'x' must be a tensor .* got a tuple; pairs \(x_s, x_t\) are not"),
                ((x, None), EDGES, "'x' must be a tensor .* got a tuple"),
                (None, EDGES, "'x' must be a tensor .* got a NoneType"),
                (x[:, :5], EDGES, "'x' must be 6 features per node, got 5"),
                (x.long(), EDGES, "'x' must be of a floating-point dtype, got torch.int64"),
                (meta, EDGES, "'x' must be a tensor on the weights' device, cpu, got one on the m"),
                (x, EDGES.to("meta"), "'edge_index' must be a tensor with values"),
                (x, None, "'edge_index' must be an integer tensor .* got NoneType"),
            ]
            for given, edges, line in wrong:
                with pytest.raises(InputError, match=line) as caught:
                    conv(given, edges)
                assert "\n" not in str(caught.value)
    model = GCN(6, 4, 2, 3, binarize="both")
    with pytest.raises(InputError, match="'x' must be a tensor with values, got one on the meta"):
        model(meta, EDGES)
    model.to("meta")
    for call in (lambda: bignn.pack(model), lambda: model(x, EDGES), lambda: model.fit_input(x)):
        with pytest.raises(InputError, match="'model' must be one with values"):
            call()
