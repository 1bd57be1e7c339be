"""Accuracy of converted models beside their float ones: ``python benchmarks/converted.py``.

Each model trains in floats and binary in a plain PyG loop (Adam, learning rate 0.01, decay 5e-4,
the epoch of the best validation accuracy), and binary by ``bignn.fit`` with the float model as its
teacher. A row has the mean accuracies on ``validation/test`` nodes: choose between rows by the
first alone. ``packed`` is the share of nodes, over all binary models, to which the packed model
gives torch's class.

``--models`` and ``--graphs`` choose, ``--ways float binary`` leaves out the teacher, ``continued``
is a binary model that starts from the trained float weights, and ``--options center=True
dropout=0.5`` converts with other options. More models are more entries of ``MODELS``.
"""

from __future__ import annotations

import argparse
import ast
import statistics
from collections.abc import Callable
from typing import Any, Literal

import torch
import torch_geometric.nn as pyg
from plain_loop import accuracies, nodes_packed_alike, train
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn


class ResidualGCN(nn.Module):
    """Three convolutions with a sum around the second, before or after its activation."""

    def __init__(
        self, num_features: int, num_classes: int, order: Literal["x + relu", "relu(x +)"]
    ) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(num_features, 64)
        self.conv2 = pyg.GCNConv(64, 64)
        self.conv3 = pyg.GCNConv(64, num_classes)
        self.order = order

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        x = functional.dropout(x, 0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        h = self.conv2(functional.dropout(x, 0.5, training=self.training), edge_index)
        x = x + h.relu() if self.order == "x + relu" else (x + h).relu()
        out: Tensor = self.conv3(functional.dropout(x, 0.5, training=self.training), edge_index)
        return out


class DenseGCN(nn.Module):
    """Every convolution reads the activated values of all before it, side by side."""

    def __init__(self, num_features: int, num_classes: int) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(num_features, 64)
        self.conv2 = pyg.GCNConv(64, 64)
        self.conv3 = pyg.GCNConv(128, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        x = functional.dropout(x, 0.5, training=self.training)
        x = self.conv1(x, edge_index).relu()
        h = self.conv2(functional.dropout(x, 0.5, training=self.training), edge_index).relu()
        both = functional.dropout(torch.cat([x, h], dim=-1), 0.5, training=self.training)
        out: Tensor = self.conv3(both, edge_index)
        return out


#: Builders of the models, given the numbers of features and classes.
MODELS: dict[str, Callable[[int, int], nn.Module]] = {
    "GCN": lambda d, c: pyg.GCN(d, 64, 2, c, dropout=0.5),
    "GraphSAGE": lambda d, c: pyg.GraphSAGE(d, 64, 2, c, dropout=0.5),
    "GAT": lambda d, c: pyg.GAT(d, 64, 2, c, dropout=0.5, heads=8),
    "GIN": lambda d, c: pyg.GIN(d, 64, 2, c, dropout=0.5),
    "x + relu(conv)": lambda d, c: ResidualGCN(d, c, "x + relu"),
    "relu(x + conv)": lambda d, c: ResidualGCN(d, c, "relu(x +)"),
    "dense": DenseGCN,
    "GCN, 4 layers": lambda d, c: pyg.GCN(d, 64, 4, c, dropout=0.5),
    "GCN, 8 layers": lambda d, c: pyg.GCN(d, 64, 8, c, dropout=0.5),
    "GAT, 4 layers": lambda d, c: pyg.GAT(d, 64, 4, c, dropout=0.5, heads=8),
    "GCN, 8 wide": lambda d, c: pyg.GCN(d, 8, 2, c, dropout=0.5),
    "GCN, 16 wide": lambda d, c: pyg.GCN(d, 16, 2, c, dropout=0.5),
}
WAYS = ("float", "binary", "distilled", "continued")


def measure(name: str, data: Data, seed: int, args: argparse.Namespace) -> dict[str, Any]:
    """Train one model in all ways with one seed."""
    num_classes = int(data.y.max()) + 1

    def made(*, binary: bool) -> nn.Module:
        torch.manual_seed(seed)
        model = MODELS[name](data.num_node_features, num_classes)
        if binary:
            bignn.binarize_(model, **args.options)
        return model

    results: dict[str, Any] = {"packed": []}
    teacher = made(binary=False)
    if set(args.ways) - {"binary"}:
        results["float"] = train(teacher, data, args.epochs)
    for way in set(args.ways) - {"float"}:
        model = made(binary=way != "continued")
        if way == "binary":
            results[way] = train(model, data, args.epochs)
        elif way == "distilled":
            bignn.fit(model, data, teacher=teacher, seed=seed, progress=False)
            results[way] = accuracies(model, data)
        else:
            model.load_state_dict(teacher.state_dict())
            bignn.binarize_(model, **args.options)
            results[way] = train(model, data, args.epochs)
        results["packed"].append(nodes_packed_alike(model, data) / data.num_nodes)
    return results


def _option(given: str) -> tuple[str, Any]:
    name, _, value = given.partition("=")
    return name, value if value.isalpha() and value.islower() else ast.literal_eval(value)


def main() -> None:
    """Print a row per graph and model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--graphs", nargs="+", default=["cora", "amazon-photo"])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS[:3])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--options", nargs="*", type=_option, default=[])
    args = parser.parse_args()
    args.options = dict(args.options)
    torch.set_num_threads(1)
    print(f"{'graph':13} {'model':15}", *(f"{way:11}" for way in WAYS), "packed", flush=True)
    for graph in args.graphs:
        data = bignn.to_pyg(bignn.load(graph))
        for name in args.models:
            runs = [measure(name, data, seed, args) for seed in range(args.seeds)]
            cells = [_cell([run[way] for run in runs if way in run]) for way in WAYS]
            agreements = [share for run in runs for share in run["packed"]]
            packed = f"{min(agreements):.4f}" if agreements else "-"
            print(f"{graph:13} {name:15}", *(f"{cell:11}" for cell in cells), packed, flush=True)


def _cell(scores: list[tuple[float, float]]) -> str:
    if not scores:
        return "-"
    return "/".join(f"{statistics.mean(values):.1f}" for values in zip(*scores, strict=True))


if __name__ == "__main__":
    main()
