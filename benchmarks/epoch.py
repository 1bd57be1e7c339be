"""An epoch (a training step and a validation) of Bi-GCN, against the float way and PyG's GCN.

    python benchmarks/epoch.py [cora citeseer pubmed]

All train the paper's sizes (64 hidden) on the whole graph, take turns in one run on the same
threads, and are called as in training. ``simulated`` is the same binary model as its authors run
it: signs and scales as dense floats, torch's dropout on them, a sparse Â. ``PyG`` is a float GCN of
torch_geometric layers on dense x with cached normalisation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

import bignn
from bignn.batches import full_batch, reachable
from bignn.binarize import binarize_features, binarize_weight
from bignn.experiments.timing import measure
from bignn.graph import EMBEDDED, Graph
from bignn.nn import GCN, normalized_adjacency
from bignn.recipes import recipe
from bignn.train import _Run

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

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        """Logits."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            signs, beta = binarize_features(x)
            h = functional.dropout(signs * beta, DROPOUT, self.training)
            columns, alpha = binarize_weight(weight)
            x = adjacency @ (h @ (columns * alpha).t()) + bias
        return x


class PyGModel(nn.Module):
    """GCN as PyG's examples have it."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.first = GCNConv(graph.num_features, 64, cached=True)
        self.second = GCNConv(64, graph.num_classes, cached=True)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        x = functional.dropout(x, 0.5, self.training)
        x = functional.dropout(self.first(x, edge_index).relu(), 0.5, self.training)
        out: Tensor = self.second(x, edge_index)
        return out


def ours(graph: Graph, model: GCN) -> Callable[[], None]:
    """An epoch of bignn's own loop."""
    whole = full_batch(graph, torch.device("cpu"))
    run = _Run(model, graph, whole, recipe("bi-gcn").settings, 0)
    batches = [reachable(whole, model)]

    def epoch() -> None:
        run._train_epoch(batches)
        run._validate()

    return epoch


def theirs(model: nn.Module, graph: Graph, *inputs: Tensor) -> Callable[[], None]:
    """An epoch as most training scripts have it."""
    assert graph.y is not None
    y = torch.from_numpy(graph.y)
    train, val = torch.from_numpy(graph.train_idx), torch.from_numpy(graph.val_idx)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    def epoch() -> None:
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


if __name__ == "__main__":
    for name in sys.argv[1:] or EMBEDDED:
        graph = bignn.load(name)
        torch.manual_seed(0)
        model = recipe("bi-gcn").build(graph)
        x = torch.from_numpy(graph.dense_x())
        edge_index = torch.from_numpy(graph.edge_index)
        model.fit_input(x)
        adjacency = normalized_adjacency(edge_index, None, len(x)).matrix
        normalized = model.input_norm._normalized(x)
        rows = x / x.sum(dim=1, keepdim=True).clamp(min=1e-12)
        contenders = {
            "bignn": ours(graph, model),
            "simulated": theirs(DenseSimulation(model), graph, normalized, adjacency),
            "PyG": theirs(PyGModel(graph), graph, rows, edge_index),
        }
        # In a row, as in training.
        times = measure({key: _repeated(epoch) for key, epoch in contenders.items()}, rounds=7)
        base = times["bignn"]
        print(
            f"{name:<10}"
            + "  ".join(
                f"{key} {1e3 * seconds.median / EPOCHS:7.2f} ms" for key, seconds in times.items()
            )
            + f"  simulated / bignn {times['simulated'].median / base.median:5.1f}x"
            + f"  PyG / bignn {times['PyG'].median / base.median:4.1f}x"
            + f"  (fastest calls: {times['simulated'].fastest / base.fastest:.1f}x,"
            + f" {times['PyG'].fastest / base.fastest:.1f}x)"
        )
