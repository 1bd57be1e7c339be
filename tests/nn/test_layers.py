"""Layers: equal to PyG's when not binary, equal to the written formula when binary."""

import copy
import gc
import pickle
import weakref

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor

from bignn.binarize import binarize_features
from bignn.config import BinarizeMode, SteRule
from bignn.errors import InputError
from bignn.graph import Graph
from bignn.graph.pyg import to_pyg
from bignn.kernels.gcn_degrees import gcn_degree_scale
from bignn.nn import GCN, GNN, GCNConv, InputStage, Linear
from bignn.nn.adjacency import edge_weights, normalized_adjacency, receptive_field
from bignn.nn.dropout import dropout
from bignn.nn.features import BinaryRows, SparseFeatures

MODES: list[BinarizeMode] = ["none", "features", "weights", "both"]


@pytest.fixture
def data(graph: Graph) -> tuple[Tensor, Tensor]:
    d = to_pyg(graph)
    return d.x, d.edge_index


def messy_graph() -> tuple[Tensor, Tensor, Tensor]:
    """Directed, with self-loops, a duplicate edge and an isolated node (4); weighted."""
    edge_index = torch.tensor([[0, 1, 1, 2, 2, 3, 0], [1, 0, 1, 3, 3, 2, 2]])
    weight = torch.tensor([1.0, 2.0, 0.5, 1.0, 1.0, 3.0, 0.25])
    torch.manual_seed(0)
    return torch.randn(5, 6), edge_index, weight


def test_unbinarized_conv_equals_pyg_with_its_weights() -> None:
    for weighted in [False, True]:
        x, edge_index, weight = messy_graph()
        theirs = pyg.GCNConv(6, 3)
        torch.nn.init.normal_(theirs.bias)
        ours = GCNConv(6, 3)
        ours.load_state_dict(theirs.state_dict())
        w = weight if weighted else None
        assert torch.allclose(ours(x, edge_index, w), theirs(x, edge_index, w), atol=1e-6)


def test_unbinarized_model_equals_pyg(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    theirs = pyg.GCN(x.shape[1], 8, 3, 4).eval()
    ours = GCN(x.shape[1], 8, 3, 4, normalize_rows=False).eval()
    ours.load_state_dict(theirs.state_dict())
    assert torch.allclose(ours(x, edge_index), theirs(x, edge_index), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_edge_list_and_sparse_adjacency_and_ready_matrix_agree() -> None:
    mode: BinarizeMode
    for mode in MODES:
        x, edge_index, weight = messy_graph()
        # A ready matrix has no factors apart, and its weights would be rounded otherwise.
        conv = GCNConv(6, 3, binarize=mode, edge_bits=None)
        # A sparse tensor holds each pair once; PyG's convention: rows are targets.
        merged = torch.sparse_coo_tensor(edge_index.flip(0), weight, (5, 5)).coalesce()
        edges, weights = merged.indices().flip(0), merged.values()
        expected = conv(x, edges, weights)
        assert torch.allclose(conv(x, merged.to_sparse_csr()), expected, atol=1e-6)
        assert torch.allclose(conv(x, normalized_adjacency(edges, weights, 5)), expected, atol=1e-6)


def test_permuting_the_nodes_permutes_the_output() -> None:
    mode: BinarizeMode
    for mode in MODES:
        x, edge_index, weight = messy_graph()
        conv = GCNConv(6, 3, binarize=mode)
        order = torch.tensor([3, 1, 4, 0, 2])
        position = torch.argsort(order)
        permuted = conv(x[order], position[edge_index], weight)
        assert torch.allclose(permuted, conv(x, edge_index, weight)[order], atol=1e-6)


def test_linear_computes_the_written_formula() -> None:
    mode: BinarizeMode
    for grad in [True, False]:
        for mode in MODES:
            torch.manual_seed(0)
            x = torch.randn(9, 70)
            x[0, 0] = 0.0
            layer = Linear(70, 5, binarize=mode)
            torch.nn.init.normal_(layer.bias)  # type: ignore[arg-type]
            h, w = x.double().numpy(), layer.weight.detach().double().numpy()
            if mode in ("features", "both"):
                h = np.where(h >= 0, 1, -1) * np.abs(h).mean(1, keepdims=True)
            if mode in ("weights", "both"):
                w = np.where(w >= 0, 1, -1) * np.abs(w).mean(1, keepdims=True)
            expected = h @ w.T + layer.bias.detach().double().numpy()  # type: ignore[union-attr]
            with torch.set_grad_enabled(grad):
                assert np.allclose(layer(x).detach().numpy(), expected, atol=1e-5)


def test_binary_columns_start_balanced() -> None:
    for size in [3, 64, 101, 1433]:
        torch.manual_seed(0)
        plus = (Linear(size, 40, binarize="both").weight >= 0).sum(1)
        assert ((plus - size / 2).abs() <= 0.5).all()


def test_tiny_binary_layers_start_with_something() -> None:
    for size in (1, 2):
        assert (Linear(size, 40, binarize="both").weight != 0).all()


def test_gradients_of_a_binary_layer_are_those_of_the_paper() -> None:
    """Algorithm 1, Eq. bp-H and Eq. bp-W in NumPy, in the paper's layout."""
    rules: list[SteRule] = ["input", "gradient"]
    for ste in rules:
        for scale_gradient in [True, False]:
            torch.manual_seed(0)
            x = torch.randn(9, 14, dtype=torch.float64, requires_grad=True)
            options = {"ste": ste, "scale_gradient": scale_gradient}
            layer = Linear(14, 5, binarize="both", bias=False, **options).double()  # type: ignore[arg-type]
            torch.nn.init.normal_(layer.weight)
            gradient = torch.randn(9, 5, dtype=torch.float64) * 0.5
            layer(x).backward(gradient)
            h, w, g = x.detach().numpy(), layer.weight.detach().numpy().T, gradient.numpy()
            b, alpha = np.where(w >= 0, 1, -1), np.abs(w).mean(0)
            f, beta = np.where(h >= 0, 1, -1), np.abs(h).mean(1, keepdims=True)
            to_h = g @ (b * alpha).T
            to_w = (f * beta).T @ g
            mask = np.abs(h) <= 1 if ste == "input" else np.abs(to_h) < 1
            assert 0 < mask.mean() < 1
            through_scale = b * (to_w * b).sum(0) / 14 if scale_gradient else 0
            expected = through_scale + alpha * to_w * (np.abs(w) < 1)
            assert x.grad is not None and layer.weight.grad is not None
            assert np.allclose(x.grad.numpy(), to_h * mask)
            assert np.allclose(layer.weight.grad.numpy().T, expected)


def test_prebinarized_and_sparse_input_give_the_same_products_and_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(12, 30) * (torch.rand(12, 30) < 0.2)
    assert SparseFeatures.pays_for(x)
    binary = BinaryRows(*binarize_features(x))
    forms = {
        "both": binary,
        "features": binary,
        "weights": SparseFeatures(x),
        "none": SparseFeatures(x),
    }
    for mode, rows in forms.items():
        layer = Linear(30, 4, binarize=mode)  # type: ignore[arg-type]
        target = torch.randn(12, 4)
        gradients = []
        for features in (x, rows):
            layer.zero_grad()
            out = layer(features)
            (out * target).sum().backward()
            assert layer.weight.grad is not None
            gradients.append((out.detach().clone(), layer.weight.grad.clone()))
        assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-5)
        assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-5)


def test_dropout_in_sparse_rows_keeps_forward_and_backward_together() -> None:
    """The gradient of dropout(X) W summed is the column sums of the very X that was used."""
    torch.manual_seed(0)
    x = torch.rand(50, 20) * (torch.rand(50, 20) < 0.2)
    weight = torch.ones(20, 1, requires_grad=True)
    out = SparseFeatures(x).matmul(weight, 0.5, training=True)
    out.sum().backward()
    assert weight.grad is not None
    assert torch.allclose(weight.grad.sum(), out.sum(), rtol=1e-5)
    assert not torch.allclose(out.sum(), x.sum(), rtol=1e-3)


def test_dropout_drops_and_scales_with_the_right_probability() -> None:
    for p in [0.1, 0.4, 0.75]:
        torch.manual_seed(0)
        x = torch.full((1000, 401), 2.0)
        out = dropout(x, p, training=True)
        kept = out != 0
        assert (
            abs(float(kept.float().mean()) - (1 - p))
            < 5 * (p * (1 - p) / x.numel()) ** 0.5 + 2**-16
        )
        assert torch.allclose(out[kept], torch.tensor(2 / (1 - p)), rtol=1e-4)
        # Neighbouring entries come from one draw: they must be independent all the same.
        flat = kept.flatten().float() - (1 - p)
        for lag in (1, 2, 3, 4):
            correlation = float((flat[lag:] * flat[:-lag]).mean()) / (p * (1 - p))
            assert abs(correlation) < 5 / x.numel() ** 0.5
        assert dropout(x, p, training=False) is x


def test_packed_and_float_products_are_equal_to_the_last_bit() -> None:
    torch.manual_seed(0)
    x, layer = torch.randn(40, 334), Linear(334, 17, binarize="both", bias=False)
    with torch.no_grad():
        packed = layer(x)
    trainable = layer(x)
    assert trainable.requires_grad
    assert not packed.requires_grad
    assert torch.equal(packed, trainable)
    assert (packed == 0).any()  # 334 is even, so some products cancel, exactly


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_model_gives_the_same(mode: BinarizeMode, data: tuple[Tensor, Tensor]) -> None:
    _, edge_index = data
    torch.manual_seed(0)
    x = torch.randn(60, 20)
    model = GCN(20, 8, 2, 2, binarize=mode, edge_bits=None)
    model.fit_input(x)
    model.eval()
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        assert torch.allclose(compiled(x, edge_index), model(x, edge_index), atol=1e-5)
    assert torch.allclose(compiled(x, edge_index), model(x, edge_index), atol=1e-5)


def test_custom_operations_pass_torchs_own_checks() -> None:
    from bignn import ops

    x = torch.randn(5, 70)
    words = ops.pack_rows(x)
    torch.library.opcheck(ops.pack_rows, (x,))
    torch.library.opcheck(ops.xnor_matmul, (words, words, 70))


def test_models_train_copy_pickle_and_reload(data: tuple[Tensor, Tensor]) -> None:
    mode: BinarizeMode
    for mode in MODES:
        x, edge_index = data
        model = GCN(x.shape[1], 8, 3, 2, binarize=mode, norm="batch")
        model.train()(x, edge_index).sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        model.eval()
        expected = model(x, edge_index)
        again = GNN(**model.config).eval()
        again.load_state_dict(model.state_dict())
        for copied in (
            again,
            copy.deepcopy(model),
            pickle.loads(pickle.dumps(model)),
            model.to("cpu"),
        ):
            assert torch.equal(copied(x, edge_index), expected)


def test_input_statistics_belong_to_the_model() -> None:
    x = torch.rand(50, 7)
    x[:, 3] = 0.25
    norm = InputStage(7, normalize_rows=False, standardize=True, binarize=False)
    norm.eval()
    with pytest.raises(InputError, match="no input statistics yet"):
        norm(x)
    norm.fit(x)
    out = norm(x)
    assert isinstance(out, Tensor)
    usual = torch.tensor([0.0, 0, 0, float(out[0, 3].detach()), 0, 0, 0])  # just below 0
    assert torch.allclose(out.mean(0), usual, atol=1e-5)
    assert torch.allclose(
        out.std(0, correction=0), torch.tensor([1.0, 1, 1, 0, 1, 1, 1]), atol=1e-5
    )
    unseen = norm(torch.full((1, 7), 0.25))
    assert -0.01 < float(unseen[0, 3]) < 0
    assert torch.allclose(unseen, (0.25 - norm.mean) * norm.scale)


def fitted(x: Tensor, mode: BinarizeMode = "both") -> GCN:
    model = GCN(x.shape[1], 8, 2, 2, binarize=mode)
    model.fit_input(x)
    return model.eval()


def test_a_changed_input_or_graph_is_noticed(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    model = fitted(x)
    before = model(x, edge_index)
    edge_index[:, : edge_index.shape[1] // 2] = edge_index[:, :1]
    rewired = model(x, edge_index)
    assert not torch.allclose(before, rewired)
    x.neg_()
    assert not torch.allclose(rewired, model(x, edge_index))


def test_inference_mode_leaves_no_trace(data: tuple[Tensor, Tensor]) -> None:
    mode: BinarizeMode
    for mode in MODES:
        x, edge_index = data
        model = fitted(x, mode)
        with torch.inference_mode():
            expected = model(x, edge_index)
        model.train()(x, edge_index).sum().backward()
        assert torch.equal(model.eval()(x, edge_index), expected)
        with torch.inference_mode():  # such tensors do not count their changes
            own = x.clone()
            before = model(own, edge_index)
            own.copy_(own.flip(0))
            assert not torch.equal(model(own, edge_index), before)


def test_other_statistics_are_noticed(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    model = fitted(x)
    before = model(x, edge_index)
    state = {k: v.clone() for k, v in model.state_dict().items()}
    state["input_stage.mean"] = -state["input_stage.mean"] - 1
    model.load_state_dict(state, assign=True)
    assert not torch.equal(model(x, edge_index), before)


def test_what_is_remembered_goes_with_its_tensor(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    for mode in MODES:
        for normalize_rows in (True, False):
            model = GCN(20, 8, 2, 2, binarize=mode, normalize_rows=normalize_rows)
            model.fit_input(x)
            own, edges = torch.rand(60, 20), edge_index.clone()
            model(own, edges)
            alive = weakref.ref(own), weakref.ref(edges)
            del own, edges
            gc.collect()
            assert alive[0]() is None
            assert alive[1]() is None


def test_double_precision_and_autocast(data: tuple[Tensor, Tensor]) -> None:
    mode: BinarizeMode
    for mode in MODES:
        x, edge_index = data
        model = fitted(x, mode)
        expected = model(x, edge_index)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert model.train()(x, edge_index).isfinite().all()
        model.double().eval()
        wide = model(x.double(), edge_index)
        assert wide.dtype == torch.float64
        if mode in ("none", "weights"):  # rounding may flip a sign on the way otherwise
            assert torch.allclose(wide.float(), expected, atol=1e-4)


def test_edge_weights_can_be_learned_as_in_pyg() -> None:
    x, edge_index, weight = messy_graph()
    theirs, ours = pyg.GCNConv(6, 3), GCNConv(6, 3)
    ours.load_state_dict(theirs.state_dict())
    gradients = []
    for conv in (theirs, ours):
        learned = weight.clone().requires_grad_()
        conv(x, edge_index, learned).square().sum().backward()
        assert learned.grad is not None
        gradients.append(learned.grad)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-5)


def test_compiling_without_statistics_is_refused(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    torch._dynamo.reset()
    model = torch.compile(GCN(20, 8, 2, 2, binarize="both").eval(), backend="aot_eager")
    with pytest.raises(InputError, match="no input statistics yet"):
        model(x, edge_index)
    torch._dynamo.reset()  # an error while it compiles leaves torch unable to compile other models


def test_gradients_reach_the_input(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    for mode in MODES:
        for num_layers in (1, 2):
            model = GCN(x.shape[1], 8, num_layers, 2, binarize=mode, dropout=0.0)
            model.fit_input(x)
            learned = x.clone().requires_grad_()
            out = model(learned, edge_index)
            out.sum().backward()
            assert learned.grad is not None
            assert learned.grad.abs().sum() > 0
            assert torch.allclose(out, model(x, edge_index), atol=1e-5)


def test_the_receptive_field_is_all_that_matters() -> None:
    x, edge_index, weight = messy_graph()
    adjacency = normalized_adjacency(edge_index, weight, 5)
    assert receptive_field(adjacency, torch.tensor([1]), 1).tolist() == [0, 1]
    assert receptive_field(adjacency, torch.tensor([3]), 2).tolist() == [0, 2, 3]
    assert receptive_field(adjacency, torch.tensor([4]), 3).tolist() == [4]
    nodes = receptive_field(adjacency, torch.tensor([3]), 2)
    part = adjacency.among(nodes)
    assert torch.allclose((part @ (part @ x[nodes]))[2], (adjacency @ (adjacency @ x))[3])


def test_degrees_of_isolated_and_looped_nodes() -> None:
    _, edge_index, weight = messy_graph()
    edge_weight, own = edge_weights("gcn", edge_index, weight, 5)
    assert own[4] == 1.0  # nothing but its own loop
    assert edge_weight[2] == 0.0  # the given loop of node 1 is in `own`
    degrees = torch.tensor([1 + 2.0, 0.5 + 1.0])
    assert torch.allclose(own[1], 0.5 / degrees[1])
    assert torch.allclose(edge_weight[0], 1 / (degrees[0] * degrees[1]).sqrt())


def test_bad_arguments_name_themselves(data: tuple[Tensor, Tensor]) -> None:
    x, edge_index = data
    with pytest.raises(InputError, match="'in_channels' must be a whole number, at least 1"):
        Linear(0, 3)
    with pytest.raises(InputError, match=r"'dropout' must be in \[0, 1\)"):
        Linear(3, 3, dropout=1.0)
    with pytest.raises(InputError, match="'num_layers' must be a whole number, at least 1"):
        GCN(3, 3, 0)
    with pytest.raises(InputError, match="'x' must be 7 features per node"):
        GCNConv(7, 3)(x, edge_index)
    with pytest.raises(InputError, match=r"'x' must be \[nodes, 7\]"):
        GCN(7, 3, 2, binarize="both")(x, edge_index)
    with pytest.raises(InputError, match=r"'edge_weight' must be one number per edge"):
        GCNConv(20, 3)(x, edge_index, torch.ones(3))
    with pytest.raises(InputError, match=r"'edge_index' must be an integer tensor \[2, E\]"):
        GCNConv(20, 3)(x, edge_index.float())
    with pytest.raises(InputError, match=r"'edge_index' must be node ids in 0\.\.59"):
        GCNConv(x.shape[1], 3)(x, edge_index + 1)


def test_degrees_are_those_of_packed_graphs_in_any_order_of_edges() -> None:
    """A hub's weights add up in double: in float32 every order would round to another sum."""
    rng = np.random.default_rng(0)
    edges = np.stack([1 + np.arange(4999), np.zeros(4999, dtype=np.int64)])
    weights = rng.random(4999, dtype=np.float32)
    expected = gcn_degree_scale(edges[0], edges[1], weights, 5000)
    for order in (np.arange(4999), rng.permutation(4999), np.argsort(weights)):
        index, weight = torch.from_numpy(edges[:, order]), torch.from_numpy(weights[order])
        _, own = edge_weights("gcn", index, weight, 5000)
        assert float(own[0]) == float(expected[0] * expected[0])
