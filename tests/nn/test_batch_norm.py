"""Exact statistics of batch normalisation, and what a model makes of them."""

import numpy as np
import torch
from conftest import make_graph

from bignn import fit
from bignn.graph import Graph
from bignn.nn import GCN, BatchNorm
from bignn.nn.batch_norm import exact_statistics
from bignn.train.recipes import Settings


def test_it_is_torchs_batch_norm_without_an_affine_part() -> None:
    torch.manual_seed(0)
    ours, theirs = BatchNorm(5), torch.nn.BatchNorm1d(5, affine=False)
    for _ in range(3):
        h = 3 * torch.randn(20, 5) + 1
        assert torch.equal(ours(h), theirs(h))
    ours.eval(), theirs.eval()
    assert torch.equal(ours(h), theirs(h))
    assert ours.state_dict().keys() == theirs.state_dict().keys()


def test_exact_statistics_are_those_of_the_batch_and_stay() -> None:
    torch.manual_seed(0)
    norm = BatchNorm(5)
    model = torch.nn.Sequential(torch.nn.Identity(), norm).eval()
    h = 3 * torch.randn(20, 5) + 1
    before = model(h)
    with exact_statistics(model):
        inside = model(h)
    assert not torch.allclose(before, inside)
    torch.testing.assert_close(inside, (h - h.mean(0)) / (h.var(0) + 1e-5).sqrt())
    other = torch.randn(7, 5)
    torch.testing.assert_close(model(other), (other - h.mean(0)) / (h.var(0) + 1e-5).sqrt())
    assert torch.equal(model(h), inside)
    assert norm.num_batches_tracked is not None
    assert int(norm.num_batches_tracked) == 0


def test_a_training_batch_and_a_single_node_leave_them_alone() -> None:
    norm = BatchNorm(2)
    with exact_statistics(norm):
        norm.eval()
        assert torch.isfinite(norm(torch.ones(1, 2))).all()
        assert norm.running_mean is not None
        assert norm.running_mean.tolist() == [0, 0]
        norm.train()
        norm(torch.tensor([[0.0, 2], [2, 4]]))
        torch.testing.assert_close(norm.running_mean, torch.tensor([0.1, 0.3]))
    torch.testing.assert_close(norm(torch.ones(1, 2)), norm.eval()(torch.ones(1, 2)))
    torch.testing.assert_close(norm.running_mean, torch.tensor([0.1, 0.3]))


def test_the_flag_goes_back_after_an_error() -> None:
    norm = BatchNorm(2)
    try:
        with exact_statistics(norm):
            raise KeyError
    except KeyError:
        pass
    assert not norm.takes_statistics


def test_a_bias_before_batch_norm_is_left_out() -> None:
    convs = GCN(4, 8, 3, 2, norm="batch").layers
    assert [conv.bias is None for conv in convs] == [True, True, False]
    assert all(conv.bias is not None for conv in GCN(4, 8, 3, 2).layers)


def test_a_trained_model_keeps_the_statistics_of_all_nodes() -> None:
    graph = make_graph(60, 20)
    rng = np.random.default_rng(0)
    graph = Graph(
        graph.x,
        graph.edge_index,
        y=rng.integers(0, 3, 60),
        train_idx=np.arange(20),
        val_idx=np.arange(20, 40),
        test_idx=np.arange(40, 60),
    )
    torch.manual_seed(0)
    model = GCN(20, 8, 2, 3, norm="batch", binarize="both", dropout=0.5)
    fit(model, graph, Settings(epochs=7, lr=0.05), progress=False)
    model.eval()
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    with torch.no_grad():
        h = model.layers[0](model.input_stage(x), edges)
    norm = model.norms[0]
    assert isinstance(norm, BatchNorm)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, h.mean(0))
    torch.testing.assert_close(norm.running_var, h.var(0))
