"""Graph classification: ego networks of a graph, each with its centre's class; GIN and pooling.

Run: .venv/bin/python benchmarks/ego_networks.py [--graph coauthor-cs] [--networks 2000]
     [--seeds 3] [--hidden 64] [--binary-hidden 256] [--dropout 0.4] [--epochs 30] [--lr 0.005]
     [--leave-teacher] [--threads 1] [--jobs 1] [--device cpu]
     (trains, minutes per seed; needs the graph in BIGNN_DATA)

An ego network is a node, its neighbours and the edges among them, drawn at random as 60 % training,
20 % validation, 20 % test. PyG's GIN layers (two), global mean pooling and a linear map are trained
as floats, binarized from new weights, and binarized with the float model as teacher; binary models
are wider (their bits still take an eighth of the bytes) and drop inputs. Packed models must choose
torch's class for every network. Seeds may train in several processes (--jobs), on a GPU (--device).
Then all networks are predicted in one call by the packed model and
by PyG's float model, in turns, each as many times as fits five seconds; the medians are printed.
Packing the networks is timed apart, as is PyG's collating.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Batch, Data
from torch_geometric.utils import k_hop_subgraph

import bignn
from bignn.train.fit import FitResult
from bignn.train.jobs import in_processes


class Classifier(nn.Module):
    """Two GIN layers, mean pooling, and a linear map."""

    def __init__(self, num_features: int, hidden: int, num_classes: int) -> None:
        super().__init__()
        sizes = [num_features, hidden, hidden]
        self.convs = nn.ModuleList(
            pyg.GINConv(
                nn.Sequential(
                    nn.Linear(before, after),
                    nn.BatchNorm1d(after),
                    nn.ReLU(),
                    nn.Linear(after, after),
                )
            )
            for before, after in pairwise(sizes)
        )
        self.norm = nn.BatchNorm1d(hidden)
        self.lin = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Logits of graphs."""
        for conv in self.convs:
            x = conv(x, edge_index).relu()
        out: Tensor = self.lin(self.norm(pyg.global_mean_pool(x, batch)))
        return out


def ego_networks(name: str, count: int) -> list[Data]:
    """Draw nodes and cut out their ego networks."""
    data = bignn.to_pyg(bignn.load(name))
    generator = torch.Generator().manual_seed(0)
    networks = []
    for centre in torch.randperm(data.num_nodes, generator=generator)[:count].tolist():
        nodes, edges, _, _ = k_hop_subgraph(
            centre, 1, data.edge_index, relabel_nodes=True, num_nodes=data.num_nodes
        )
        networks.append(Data(x=data.x[nodes], edge_index=edges, y=data.y[centre : centre + 1]))
    return networks


def splits(networks: list[Data], seed: int) -> list[list[Data]]:
    """Split networks at random into training, validation and test."""
    order = torch.randperm(len(networks), generator=torch.Generator().manual_seed(seed)).tolist()
    a, b = round(0.6 * len(order)), round(0.8 * len(order))
    return [[networks[number] for number in part] for part in (order[:a], order[a:b], order[b:])]


def classes_of(model: nn.Module, networks: list[Data]) -> np.ndarray[Any, Any]:
    """Predict in torch, some networks at a time."""
    found = []
    with torch.no_grad():
        for at in range(0, len(networks), 256):
            batch = Batch.from_data_list(networks[at : at + 256])
            found.append(model(batch.x, batch.edge_index, batch.batch).argmax(dim=1))
    return torch.cat(found).numpy()


def medians(calls: dict[str, Callable[[], object]], seconds: float = 5.0) -> dict[str, float]:
    """Time calls in turns; return the median seconds of each."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds * len(calls)
    while time.perf_counter() < end or len(times[next(iter(calls))]) < 5:
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(some) for name, some in times.items()}


@dataclass(frozen=True)
class SeedTrainer:
    """Trains the models of a seed: float, binary, and binary with the float one as teacher."""

    options: argparse.Namespace

    def __call__(self, seed: int) -> tuple[list[str], dict[str, FitResult], dict[str, nn.Module]]:
        """Return lines about the models, their results, and the models, on the CPU."""
        options = self.options
        torch.set_num_threads(options.threads)
        bignn.set_num_threads(options.threads)
        networks = ego_networks(options.graph, options.networks)
        num_classes = 1 + max(int(network.y) for network in networks)
        train, val, test = splits(networks, seed)

        def new(hidden: int) -> Classifier:
            torch.manual_seed(seed)
            return Classifier(networks[0].num_features, hidden, num_classes)

        teacher = new(options.hidden)
        models: dict[str, nn.Module] = {"float": teacher}
        for name in ("binary", "binary, with a teacher"):
            models[name] = new(options.binary_hidden)
            dropout = options.dropout
            bignn.binarize_(
                models[name], first="convs.0", center=True, skip=["lin"], dropout=dropout
            )
        settings = bignn.Settings(
            lr=options.lr, epochs=options.epochs, patience=20, select_by="accuracy",
            leave_teacher=options.leave_teacher,
        )  # fmt: skip
        lines, results = [], {}
        for name, model in models.items():
            taught_by = teacher if name.endswith("teacher") else None
            result = bignn.fit(
                *(model, train, settings), seed=seed, teacher=taught_by, val=val, test=test,
                batch_size=64, progress=False, device=options.device,
            )  # fmt: skip
            results[name] = result
            model.cpu()
            line = f"seed {seed} {name:23} val {result.val_acc:.1f} test {result.test_acc:.1f}"
            line += f", epoch {result.best_epoch} of {result.epochs}"
            if name != "float":
                packed = bignn.pack(model)
                differ = int((packed.predict(networks) != classes_of(model, networks)).sum())
                line += f", packed differs from torch on {differ} of {len(networks)} networks"
            lines.append(f"{line}, {result.seconds:.0f} s")
        return lines, results, models


def main() -> None:
    """Print accuracies per seed, then speeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graph", default="coauthor-cs")
    parser.add_argument("--networks", type=int, default=2000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--binary-hidden", type=int, default=256)
    parser.add_argument("--dropout", type=float, default=0.4)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--leave-teacher", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    bignn.set_num_threads(options.threads)
    networks = ego_networks(options.graph, options.networks)
    sizes = [network.num_nodes for network in networks]
    num_classes = 1 + max(int(network.y) for network in networks)
    print(
        f"{len(networks)} ego networks of {options.graph}: {sum(sizes)} nodes in all, median "
        f"{statistics.median(sizes):.0f}, largest {max(sizes)}, {num_classes} classes"
    )
    found: dict[str, list[FitResult]] = {}
    seeds = range(options.seeds)
    models: dict[str, nn.Module] = {}
    for lines, results, models in in_processes(SeedTrainer(options), seeds, options.jobs):  # noqa: B007
        print("\n".join(lines), flush=True)
        for name, result in results.items():
            found.setdefault(name, []).append(result)
    for name, of_seeds in found.items():
        scores = {
            "val": [result.val_acc for result in of_seeds],
            "test": [result.test_acc or 0.0 for result in of_seeds],
        }
        listed = ", ".join(
            f"{part} {np.mean(some):.1f} ± {np.std(some):.1f}" for part, some in scores.items()
        )
        print(f"{name:23} {listed} % of {len(of_seeds)} seeds")
    packed = bignn.pack(models["binary, with a teacher"])
    speeds(models["float"].eval(), packed, networks, options.threads)


def speeds(model: nn.Module, packed: bignn.PackedModel, networks: list[Data], threads: int) -> None:
    """Print networks per second."""
    batch = Batch.from_data_list(networks)
    graph = bignn.pack_graph(networks, like=packed)
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    print(f"packed model {packed.nbytes:,} bytes, float {size:,} bytes")

    @torch.no_grad()
    def torch_once() -> object:
        return model(batch.x, batch.edge_index, batch.batch).argmax(dim=1)

    calls = {"PyG": torch_once, "packed": lambda: packed.predict(graph)}
    found = medians(calls)
    making = medians(
        {
            "PyG": lambda: Batch.from_data_list(networks),
            "packed": lambda: bignn.pack_graph(batch, like=packed),
        }
    )
    for name, seconds in found.items():
        print(
            f"{name:7} {len(networks) / seconds:,.0f} networks per second on {threads} thread(s), "
            f"{1e3 * seconds:.1f} ms for all; made ready in {1e3 * making[name]:.0f} ms"
        )
    print(f"packed is {found['PyG'] / found['packed']:.1f} times as fast")


if __name__ == "__main__":
    main()
