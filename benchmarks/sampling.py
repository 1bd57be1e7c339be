"""How long does it take to sample a batch of neighbours, and an epoch of GraphSAINT's subgraphs?

Neighbours: a random graph of ogbn-arxiv's size (169,343 nodes, 2.3 million directed edges, skewed
degrees), batches of 1024 nodes. Ours against torch-sparse's ``neighbor_sample`` where that is
installed (it has to be built, which takes long), and against a vectorised implementation in torch
operations. All give the sampled nodes, edges numbered anew, and which edges they are; without
replacement. GraphSAINT: a random graph of Flickr's size, 6000 roots, length 2.

One thread each by default, as a loader's worker has.

Run: .venv/bin/python benchmarks/sampling.py [--threads 2]
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable
from itertools import count, cycle

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

import bignn
from bignn.kernels.sampling import CompressedGraph, sample_neighbours
from bignn.lab.bench.timing import measure
from bignn.loaders import NeighborLoader, SaintRandomWalkLoader

BATCH = 1024


def skewed_edges(num_nodes: int, num_edges: int) -> Tensor:
    """Both ends are drawn by weights with a long tail; sorted by target."""
    rng = np.random.default_rng(0)
    weights = 0.3 + rng.pareto(2, num_nodes)
    ends = rng.choice(num_nodes, (2, num_edges), p=weights / weights.sum())
    return torch.from_numpy(ends[:, np.argsort(ends[1], kind="stable")])


class TorchSampler:
    """The same in torch operations, over all nodes of a hop at once; Floyd's method too."""

    def __init__(self, offsets: Tensor, ids: Tensor) -> None:
        self.offsets, self.ids = offsets, ids
        self.number_of = torch.full((len(offsets) - 1,), -1)

    def chosen(self, start: Tensor, size: Tensor, fanout: int) -> tuple[Tensor, Tensor]:
        """Row and place of each drawn neighbour: all of small rows, ``fanout`` of the others."""
        small = (size <= fanout).nonzero().flatten()
        row = small.repeat_interleave(size[small])
        member = torch.arange(len(row)) - (size[small].cumsum(0) - size[small]).repeat_interleave(
            size[small]
        )
        rows, places = [row], [start[row] + member]
        large = (size > fanout).nonzero().flatten()
        if len(large):  # a member of all rows at a time
            members = torch.empty(len(large), fanout, dtype=torch.int64)
            draws = torch.rand(len(large), fanout, dtype=torch.float64)
            newest = size[large, None] - fanout + torch.arange(fanout)
            candidates = (draws * (newest + 1)).long()
            for k in range(fanout):
                candidate = candidates[:, k]
                taken = (members[:, :k] == candidate[:, None]).any(dim=1)
                members[:, k] = torch.where(taken, newest[:, k], candidate)
            rows.append(large.repeat_interleave(fanout))
            places.append((start[large, None] + members).flatten())
        return torch.cat(rows), torch.cat(places)

    def __call__(self, seeds: Tensor, fanouts: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Nodes, sources, targets and places of the edges."""
        self.number_of[seeds] = torch.arange(len(seeds))
        found, frontier, total = [seeds], seeds, len(seeds)
        rows, columns, edges = [], [], []
        for fanout in fanouts:
            start = self.offsets[frontier]
            size = self.offsets[frontier + 1] - start
            target, place = self.chosen(start, size, fanout)
            source = self.ids[place]
            new = source[self.number_of[source] < 0].unique()
            self.number_of[new] = total + torch.arange(len(new))
            rows.append(self.number_of[source])
            columns.append(total - len(frontier) + target)
            edges.append(place)
            total += len(new)
            found.append(new)
            frontier = new
        nodes = torch.cat(found)
        self.number_of[nodes] = -1
        return nodes, torch.cat(rows), torch.cat(columns), torch.cat(edges)


def report(contenders: dict[str, Callable[[], object]]) -> None:
    """Return medians, and how many times as long as ours."""
    times = measure(contenders, rounds=15)
    mine = times["bignn"].median
    for name, seconds in times.items():
        print(f"  {name:<34} {1e3 * seconds.median:9.2f} ms {seconds.median / mine:6.2f}x")


def neighbours(fanouts: list[int]) -> None:
    """Return batches of sampled neighbours, a different one in every call."""
    num_nodes = 169_343
    edge_index = skewed_edges(num_nodes, 2_315_598)
    graph = CompressedGraph.from_edges(edge_index[1].numpy(), edge_index[0].numpy(), num_nodes)
    offsets, ids = torch.from_numpy(graph.offsets), torch.from_numpy(graph.ids).long()
    in_torch = TorchSampler(offsets, ids)
    order = torch.from_numpy(np.random.default_rng(1).permutation(num_nodes))
    batches = cycle(order[: 100 * BATCH].split(BATCH))
    seeds = count()
    data = Data(x=torch.randn(num_nodes, 128), y=torch.zeros(num_nodes), edge_index=edge_index)
    loader = NeighborLoader(data, fanouts, batch_size=BATCH)
    contenders: dict[str, Callable[[], object]] = {
        "bignn": lambda: sample_neighbours(graph, next(batches).numpy(), fanouts, seed=next(seeds)),
        "torch operations": lambda: in_torch(next(batches), fanouts),
    }
    try:
        importlib.import_module("torch_sparse")
        sample = torch.ops.torch_sparse.neighbor_sample
        contenders["torch-sparse"] = lambda: sample(
            offsets, ids, next(batches), fanouts, False, True
        )
    except (ImportError, OSError) as error:
        print(f"torch-sparse is left out: {error}")
    # With the batch's rows of x (128 floats a node) and y, as a training loop gets it.
    contenders["bignn's NeighborLoader, x and y"] = lambda: loader(next(batches))
    found = sample_neighbours(graph, next(batches).numpy(), fanouts, seed=0)
    print(
        f"neighbours {fanouts} of {BATCH} nodes: {len(found.nodes):,} nodes, "
        f"{len(found.edges.numbers):,} edges in a batch"
    )
    report(contenders)


def saint() -> None:
    """Time an epoch of GraphSAINT's random walks, and what comes before the first."""
    num_nodes, num_edges, steps = 89_250, 899_756, 10
    edge_index = skewed_edges(num_nodes, num_edges)
    data = Data(x=torch.randn(num_nodes, 500), edge_index=edge_index)
    bare = Data(edge_index=edge_index, num_nodes=num_nodes)
    loaders = [SaintRandomWalkLoader(some, 6000, 2, num_steps=steps) for some in (data, bare)]
    num_sampled = sum(batch.num_nodes for batch in loaders[1]) // steps
    print(
        f"GraphSAINT, an epoch of {steps} subgraphs of 6000 walks of 2 steps "
        f"(about {num_sampled:,} nodes, 500 features each)"
    )
    report(
        {
            "bignn": lambda: list(map(type, loaders[0])),
            "without features": lambda: list(map(type, loaders[1])),
        }
    )
    print("GraphSAINT, sorting edges and coefficients from a coverage of 20")
    report({"bignn": lambda: SaintRandomWalkLoader(data, 6000, 2, steps, sample_coverage=20)})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="times samplers")
    parser.add_argument("--threads", type=int, default=1, help="ours and torch's (1)")
    bignn.set_num_threads(parser.parse_args().threads)
    print(f"{bignn.get_num_threads()} threads, torch {torch.__version__}")
    torch.manual_seed(0)
    for fanouts in ([10, 10, 10], [25, 10]):
        neighbours(fanouts)
    saint()
