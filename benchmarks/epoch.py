"""An epoch (a training step and a validation) of Bi-GCN, against the float way and PyG's GCN.

    python benchmarks/epoch.py [cora citeseer pubmed]

All train the paper's sizes (64 hidden, dropout 0.4) with fused Adam, take turns in one run with as
many of torch's threads (one on small graphs, ``threads_for``), and are called as in training.
``bignn`` is the default loop, which leaves out nodes that cannot influence the loss; ``whole`` is
the same on all nodes. ``rounded`` and ``float weights`` are ``bignn`` again and the same with
neighbours' weights that are not rounded (``edge_bits=None``), in turns by themselves.
``simulated`` is the same binary model as its authors run it, on all nodes: signs and scales as
dense floats (the input's made once), torch's dropout on them, a sparse Â whose gradient is a sparse
product too. ``PyG`` is a float GCN of torch_geometric layers on dense x with cached normalisation,
``CSR`` the same with a sparse adjacency.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

import bignn
from bignn.binarize import binarize_features, binarize_weight
from bignn.graph import EMBEDDED, Graph
from bignn.lab.bench.timing import Seconds, measure
from bignn.nn import GCN
from bignn.nn.adjacency import normalized_adjacency
from bignn.nn.sparse import SparseMatrix
from bignn.train.batches import reachable
from bignn.train.distributed import World
from bignn.train.find_problem import node_problem
from bignn.train.fit import threads_for
from bignn.train.recipes import recipe
from bignn.train.run import TrainingRun

DROPOUT = 0.4
EPOCHS = 10


class DenseSimulation(nn.Module):
    """Bi-GCN in floats, every layer's input binarized where it is used."""

    def __init__(self, model: GCN) -> None:
        super().__init__()
        self.weights = nn.ParameterList(conv.lin.weight.detach().clone() for conv in model.layers)
        self.biases = nn.ParameterList(
            conv.bias.detach().clone() for conv in model.layers if conv.bias is not None
        )

    def forward(self, h: Tensor, adjacency: SparseMatrix) -> Tensor:
        """Logits, from an input that is binarized already."""
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            if layer > 0:
                signs, beta = binarize_features(h)
                h = signs * beta
            columns, alpha = binarize_weight(weight)
            dropped = functional.dropout(h, DROPOUT, self.training)
            h = adjacency @ (dropped @ (columns * alpha).t()) + bias
        return h


class PyGModel(nn.Module):
    """GCN as PyG's examples have it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first = GCNConv(graph.num_features, 64, cached=True)
        self.second = GCNConv(64, graph.num_classes, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        x = functional.dropout(x, DROPOUT, self.training)
        x = functional.dropout(self.first(x, edge_index).relu(), DROPOUT, self.training)
        out: Tensor = self.second(x, edge_index)
        return out


def ours(graph: Graph, model: GCN, *, on_all_nodes: bool) -> Callable[[], None]:
    """Run an epoch of bignn's own loop."""
    problem = node_problem(graph, None, torch.device("cpu"))
    whole = problem.whole
    run = TrainingRun(model, problem, recipe("bi-gcn").settings, 0, [], World())
    batches = [whole if on_all_nodes else reachable(whole, model)]
    if on_all_nodes:
        problem.validation_batch = replace(whole, loss_nodes=torch.from_numpy(graph.val_idx))

    def epoch() -> None:
        with threads_for(graph.num_nodes):
            run._validate(*run._begin_epoch(batches)())

    return epoch


def theirs(model: nn.Module, graph: Graph, *inputs: Tensor | SparseMatrix) -> Callable[[], None]:
    """Run an epoch as most training scripts have it."""
    assert graph.y is not None
    y = torch.from_numpy(graph.y)
    train, val = torch.from_numpy(graph.train_idx), torch.from_numpy(graph.val_idx)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)

    def epoch() -> None:
        with threads_for(graph.num_nodes):
            step()

    def step() -> None:
        model.train()
        optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(model(*inputs)[train], y[train]).backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            logits = model(*inputs)[val]
            float(functional.cross_entropy(logits, y[val]))
            int((logits.argmax(dim=-1) == y[val]).sum())

    return epoch


def _repeated(epoch: Callable[[], None]) -> Callable[[], None]:
    def epochs() -> None:
        for _ in range(EPOCHS):
            epoch()

    return epochs


def _times(contenders: dict[str, Callable[[], None]]) -> dict[str, Seconds]:
    """Measure epochs of contenders that take turns, ten in a row as in training."""
    return measure({key: _repeated(epoch) for key, epoch in contenders.items()}, rounds=5)


if __name__ == "__main__":
    for name in sys.argv[1:] or EMBEDDED:
        graph = bignn.load(name)
        torch.manual_seed(0)
        model = recipe("bi-gcn").build(graph)
        assert isinstance(model, GCN)
        x = torch.from_numpy(graph.dense_x())
        edge_index = torch.from_numpy(graph.edge_index)
        model.fit_input(x)
        unrounded = GCN(**(model.config | {"edge_bits": None}))
        unrounded.load_state_dict(model.state_dict())
        adjacency = normalized_adjacency(edge_index, None, len(x))
        signs, beta = binarize_features(model.input_stage._normalized(x))
        rows = x / x.sum(dim=1, keepdim=True).clamp(min=1e-12)
        csr = SparseMatrix.from_entries(
            edge_index[1], edge_index[0], torch.ones(edge_index.shape[1]), (len(x), len(x))
        ).matrix
        bignn_loop = ours(graph, model, on_all_nodes=False)
        contenders = {
            "bignn": bignn_loop,
            "whole": ours(graph, copy.deepcopy(model), on_all_nodes=True),
            "simulated": theirs(DenseSimulation(model), graph, signs * beta, adjacency),
            "PyG": theirs(PyGModel(graph), graph, rows, edge_index),
            "CSR": theirs(PyGModel(graph), graph, rows, csr),
        }
        times = _times(contenders)
        # By themselves, since they are near each other and the others leave caches cold.
        twins = {
            "rounded": bignn_loop,
            "float weights": ours(graph, unrounded, on_all_nodes=False),
        }
        times |= _times(twins)
        base = times["bignn"]
        best = min(times["PyG"], times["CSR"])
        print(
            f"{name:<10}"
            + "  ".join(
                f"{key} {1e3 * seconds.median / EPOCHS:7.2f} ms" for key, seconds in times.items()
            )
            + "  rounded / float weights "
            + f"{times['rounded'].median / times['float weights'].median:.3f}x"
            + f"  simulated / bignn {times['simulated'].median / base.median:.1f}x"
            + f" (on all nodes {times['simulated'].median / times['whole'].median:.1f}x)"
            + f"  best PyG / bignn {best.median / base.median:.1f}x"
            + f" (on all nodes {best.median / times['whole'].median:.1f}x)"
        )
