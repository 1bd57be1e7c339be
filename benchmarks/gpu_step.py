"""A training step on a GPU, float and binary side by side: median time and peak memory.

    python benchmarks/gpu_step.py [--norm batch] [--dropout 0.5] [--scale 0.1] [--compile]

Three layers of 256 at ogbn-arxiv's shape (169,343 nodes, 128 features, 40 classes), Adam, the loss
on half of the nodes. Memory is the most that a step takes beyond what is there before it: features,
edges, weights and Adam's moments do not count. ``PyG`` is torch_geometric's GCN on edges with
cached normalisation, ``float`` ours (a CSR matrix, cuSPARSE), ``signs as floats`` Bi-GCN without
bits, ``bits`` the one that ``bignn.fit`` trains, ``bits, replayed`` the same recorded as a CUDA
graph. All take turns. Then the gradients of both forms of Bi-GCN are compared, and with
``--compile`` a step of the compiled model is made.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.lab.bench.contenders.base import edge_index
from bignn.lab.bench.problems import make_problem
from bignn.nn import GCN
from bignn.nn.saved_bits.kernels import kernels_for

HIDDEN, LAYERS, CLASSES = 256, 3, 40
ROUNDS, STEPS, WARM_UP = 7, 5, 3

Step = Callable[[], Tensor]


class TheirGCN(nn.Module):
    """PyG's layers with dropout and, if asked for, batch normalisation."""

    def __init__(self, sizes: list[int], dropout: float, norm: str) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.convs = nn.ModuleList(GCNConv(a, b, cached=True) for a, b in pairwise(sizes))
        self.norms = nn.ModuleList(
            nn.BatchNorm1d(size, affine=False) if norm == "batch" else nn.Identity()
            for size in sizes[1:-1]
        )
        self.dropout = dropout

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        """Compute the logits."""
        for number, conv in enumerate(self.convs):
            x = conv(functional.dropout(x, self.dropout, self.training), edges)
            if number < len(self.norms):
                x = self.norms[number](x).relu()
        return x


@contextmanager
def without_bits() -> Iterator[None]:
    """Let binary layers multiply floats."""
    with patch("bignn.nn.gcn_conv.kernels_for", lambda device: None):
        yield


def make_step(model: nn.Module, x: Any, edges: Any, y: Tensor, nodes: Tensor) -> Step:
    """Return a step of training."""
    optimizer = torch.optim.Adam(model.parameters(), fused=True, capturable=True)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(x, edges)[nodes], y[nodes])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def replayed(step: Step) -> Step:
    """Record a step and return what launches it."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = step()

    def launch() -> Tensor:
        graph.replay()
        return loss

    return launch


def milliseconds(step: Step) -> float:
    """Return the time of a step, on the device and with the launches."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(STEPS):
        step()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) / STEPS


def peak_bytes(step: Step) -> int:
    """Return the most memory that a step takes beyond what is there before it."""
    step()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def profile(step: Step) -> str:
    """Return the operations that take most of the device's time."""
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[activity.CUDA, activity.CPU]) as found:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    return str(found.key_averages().table(sort_by="self_cuda_time_total", row_limit=25))


def largest_difference(model: GCN, x: Any, edges: Any, y: Tensor) -> float:
    """Compare the gradients of a model without dropout: with bits and with floats."""
    gradients = []
    state = {name: value.clone() for name, value in model.state_dict().items()}
    for conv in model.layers:
        conv.lin.dropout = 0.0
    for bits in (True, False):
        model.load_state_dict(state)
        model.zero_grad()
        if bits:
            functional.cross_entropy(model(x, edges), y).backward()
        else:
            with without_bits():
                functional.cross_entropy(model(x, edges), y).backward()
        gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    return max(
        float((a - b).norm() / b.norm()) for a, b in zip(*gradients, strict=True) if b.norm() > 0
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--norm", choices=["none", "batch"], default="none")
    parser.add_argument("--dropout", type=float, default=0.5)
    parser.add_argument("--scale", type=float, default=1.0, help="of the graph")
    parser.add_argument("--compile", action="store_true", help="try the compiled model too")
    parser.add_argument("--profile", action="store_true", help="print what takes the time")
    given = parser.parse_args()
    device = torch.device("cuda", torch.cuda.current_device())
    if kernels_for(device) is None:
        sys.exit("no kernels for this GPU; bignn doctor says why")
    problem = make_problem("arxiv", scale=given.scale, conv="gcn")
    edges = edge_index(problem).to(device)
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(problem.num_nodes, 128, generator=generator).to(device)
    y = torch.randint(CLASSES, (problem.num_nodes,), generator=generator).to(device)
    nodes = torch.arange(0, problem.num_nodes, 2, device=device)
    options: dict[str, Any] = {"dropout": given.dropout, "norm": given.norm, "input_bits": "sign"}
    sizes = [128, *[HIDDEN] * (LAYERS - 1), CLASSES]
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}: {problem.num_nodes:,} nodes, "
        f"{edges.shape[1]:,} edges, {'-'.join(map(str, sizes))}, norm {given.norm}, "
        f"dropout {given.dropout}",
        flush=True,
    )

    def ours(binarize: str) -> tuple[GCN, Any]:
        torch.manual_seed(0)
        made = GCN(128, HIDDEN, LAYERS, CLASSES, binarize=binarize, **options)  # type: ignore[arg-type]
        made.to(device).train().fit_input(x)
        return made, made.input_stage(x)

    theirs = TheirGCN(sizes, given.dropout, given.norm).to(device).train()
    plain, floats = ours("none")
    binary, rows = ours("both")
    other, _ = ours("both")
    recorded, _ = ours("both")
    steps: dict[str, Step] = {
        "PyG": make_step(theirs, x, edges, y, nodes),
        "float": make_step(plain, floats, edges, y, nodes),
        "signs as floats": make_step(other, rows, edges, y, nodes),
        "bits": make_step(binary, rows, edges, y, nodes),
    }

    def call(name: str, work: Callable[[Step], Any], step: Step) -> Any:
        if name == "signs as floats":
            with without_bits():
                return work(step)
        return work(step)

    memory = {}
    for name, step in steps.items():
        for _ in range(WARM_UP):
            call(name, lambda made: made(), step)
        memory[name] = call(name, peak_bytes, step)
    try:
        steps["bits, replayed"] = replayed(make_step(recorded, rows, edges, y, nodes))
    except RuntimeError as error:
        print(f"not recorded: {str(error).splitlines()[0]}")
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            times[name].append(call(name, milliseconds, step))
    for name in steps:
        taken = f"{memory[name] / 1e6:>9.0f} MB" if name in memory else ""
        print(f"{name:<18}{statistics.median(times[name]):>9.2f} ms{taken}", flush=True)
    if given.profile:
        print(profile(steps["bits"]))
    print(f"gradients differ by {largest_difference(binary, rows, edges, y):.1e} at most")
    if given.compile:
        step = make_step(torch.compile(ours("both")[0]), x, edges, y, nodes)  # type: ignore[arg-type]
        losses = [float(step()) for _ in range(3)]
        print(f"compiled: losses {losses}, {milliseconds(step):.2f} ms")


if __name__ == "__main__":
    main()
