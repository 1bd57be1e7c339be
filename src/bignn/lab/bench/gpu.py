"""``bignn bench --device cuda``: packed GCNs on a GPU against torch and PyG on the same GPU."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bignn
from bignn.kernels import native
from bignn.kernels.cuda.device import cuda_device
from bignn.lab.bench.contenders.base import activate_, adjacency, edge_index, through
from bignn.lab.bench.contenders.gcn import PyGEdgeIndex, pyg_convs
from bignn.lab.bench.problems import EdgeBits, Problem, make_problem
from bignn.lab.bench.suites import checked_graphs
from bignn.lab.bench.timing import measure
from bignn.nn.sparse import csr_tensor
from bignn.runtime import PackedGraph
from bignn.runtime.backends.gpu import GpuBackend, device_number
from bignn.train.recipes import recipe

Row = dict[str, Any]
Run = Callable[[], Tensor]

#: Seconds that the rounds of a contender may take, and what PyG may take of the GPU's memory.
_BUDGET, _SHARE = 1.0, 0.8

_TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def run(
    suites: Sequence[str],
    *,
    device: str = "cuda",
    scale: float = 1.0,
    only: Sequence[str] | None = None,
    edge_bits: EdgeBits = None,
) -> dict[str, Any]:
    """Measure graphs on a GPU; arguments are those of :func:`bignn.lab.bench.suites.run`.

    All classes stay on the GPU. Memory is all that a contender takes there: edges, features,
    weights and activations.
    """
    graphs = checked_graphs(suites, scale, only)
    recipe("bi-gcn", edge_bits=edge_bits)  # refuses other numbers
    rows = []
    for suite, names in graphs.items():
        for name in names:
            sized = scale if suite == "shapes" else 1.0
            _log(f"{name}: making the graph")
            problem = make_problem(name, scale=sized, conv="gcn", edge_bits=edge_bits)
            rows.append(_measured(problem, name if sized == 1 else f"{name} x {sized:g}", device))
            print(_lines(rows[-1]), file=sys.stderr, flush=True)
    return {
        "rows": rows,
        "device": cuda_device(device_number(device)).name,
        "torch": torch.__version__,
        "version": bignn.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def describe(report: dict[str, Any]) -> str:
    """Describe the rows as tables for a terminal."""
    return "\n".join([
        f"Bi-GCN on {report['device']}, torch {report['torch']}: median ms per prediction of all "
        "nodes, classes left on the GPU;",
        "GB: all that a contender takes there, edges included.",
        *(_lines(row) for row in report["rows"]),
    ])  # fmt: skip


def _lines(row: Row) -> str:
    lines = [
        f"{row['shape']}: {row['num_nodes']:,} nodes, {row['num_entries']:,} entries, "
        f"{'-'.join(map(str, row['sizes']))}",
        f"  packed ({row['plan']}){'':<13}{row['packed_ms']:>10.3f} ms{row['packed_gb']:>9.3f} GB"
        f"   {row['predict_ms']:.3f} ms with the classes on the host",
    ]
    for name, found in row["floats"].items():
        if found["ms"] is None:
            lines.append(f"  {name:<22} {found['why_not']}")
            continue
        lines.append(
            f"  {name:<22}{found['ms']:>10.3f} ms{found['gb']:>9.3f} GB"
            f"   packed is {found['ms'] / row['packed_ms']:.1f}x as fast in 1/"
            f"{found['gb'] / row['packed_gb']:.1f} of the memory"
        )
    if row["differing_classes"] is not None:
        lines.append(f"  classes that differ from the CPU engine's: {row['differing_classes']}")
    return "\n".join(lines)


def _log(text: str) -> None:
    print(f"bignn bench: {text}", file=sys.stderr, flush=True)


def _measured(problem: Problem, shape: str, device: str) -> Row:
    row: Row = {
        "shape": shape,
        "num_nodes": problem.num_nodes,
        "num_entries": len(problem.ids),
        "sizes": list(problem.sizes),
    }
    x = problem.raw_features()
    row |= _packed(problem, problem.packed_graph(x), device)
    _log(f"{shape}: packed {row['packed_ms']:.3f} ms, {row['packed_gb']:.3f} GB")
    row["floats"] = {}
    features = torch.from_numpy(x)
    for name, make in _contenders().items():
        found = _float(partial(make, problem, features, device), device)
        _log(f"{shape}: {name} {found['why_not'] or '{ms:.3f} ms, {gb:.3f} GB'.format(**found)}")
        row["floats"][name] = found
    return row


def _packed(problem: Problem, graph: PackedGraph, device: str) -> Row:
    backend = GpuBackend(problem.packed.network.layers)
    plan = backend.plan(graph, None, device)
    gpu = cuda_device(device_number(device))
    with backend.lent(graph, plan, device) as bound:

        def launch() -> None:
            bound.launch("classes")
            gpu.synchronize()

        classes = bound.run_to_classes()
        times = {"packed": launch, "predict": bound.run_to_classes}
        taken = measure(times, rounds=21, warm_up=1, budget=_BUDGET)
        num_bytes = bound.num_bytes
    differing = None
    if native.is_available():
        differing = int(np.count_nonzero(problem.packed.predict(graph) != classes))
    return {
        "plan": plan.ways,
        "edge_bits": [layer.edge_bits for layer in problem.packed.network.layers],
        "packed_ms": 1e3 * taken["packed"].median,
        "predict_ms": 1e3 * taken["predict"].median,
        "packed_gb": num_bytes / 1e9,
        "differing_classes": differing,
    }


def _contenders() -> dict[str, Callable[[Problem, Tensor, str], Run]]:
    made: dict[str, Callable[[Problem, Tensor, str], Run]] = {
        f"torch CSR {name}": partial(_by_rows, dtype=dtype) for name, dtype in _TYPES.items()
    }
    return made | {"PyG edge_index": _by_edges, "PyG compiled": _compiled}


def _float(make: Callable[[], Run], device: str) -> Row:
    """Measure a float contender; a row without a time says why there is none."""
    with _emptied(device):
        base = torch.cuda.memory_allocated(device)
        try:
            run = make()

            def launch() -> None:
                run()
                torch.cuda.synchronize(device)

            with torch.no_grad():
                launch()
                torch.cuda.reset_peak_memory_stats(device)  # making it may take more
                taken = measure({"run": launch}, rounds=21, warm_up=1, budget=_BUDGET)["run"]
        except torch.OutOfMemoryError:
            return {"ms": None, "gb": None, "why_not": "out of memory"}
        except Exception as error:  # what torch.compile raises where it cannot
            line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            return {"ms": None, "gb": None, "why_not": f"does not run: {line[:80]}"}
        peak = torch.cuda.max_memory_allocated(device) - base
        return {"ms": 1e3 * taken.median, "gb": peak / 1e9, "why_not": None}


@contextmanager
def _emptied(device: str) -> Iterator[None]:
    """Give memory of others back before and after, and count the peak from here."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    yield
    gc.collect()
    torch.cuda.empty_cache()


def _by_rows(problem: Problem, features: Tensor, device: str, *, dtype: torch.dtype) -> Run:
    """Multiply by a cached CSR adjacency (cuSPARSE), each layer in the cheaper order."""
    matrix = adjacency(problem)
    matrix = csr_tensor(
        matrix.crow_indices().to(device),
        matrix.col_indices().to(device),
        matrix.values().to(device, dtype),
        (problem.num_nodes, problem.num_nodes),
    )
    x = features.to(device, dtype)
    weights = [weight.t().to(device, dtype).contiguous() for weight in problem.weights]
    biases = [bias.to(device, dtype) for bias in problem.biases]

    def run() -> Tensor:
        h = x
        for layer, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            if weight.shape[0] < weight.shape[1]:
                h = torch.addmm(bias, matrix @ h, weight)
            else:
                h = (matrix @ (h @ weight)).add_(bias)
            if layer + 1 < len(weights):
                h = activate_(problem, h)
        return h.argmax(dim=1)

    return run


def _by_edges(problem: Problem, features: Tensor, device: str) -> Run:
    """Run PyG's layers on an edge index, ``cached=True``."""
    needed = 2 * PyGEdgeIndex.bytes_needed(problem)
    if needed > _SHARE * torch.cuda.get_device_properties(device).total_memory:
        raise torch.OutOfMemoryError(f"{needed} bytes")
    edges, x = edge_index(problem).to(device), features.to(device)
    convs = [conv.to(device) for conv in pyg_convs(problem, cached=True)]
    return lambda: through(problem, convs, x, edges, None)


def _compiled(problem: Problem, features: Tensor, device: str) -> Run:
    """Run PyG's layers as torch.compile makes them."""
    run = _by_edges(problem, features, device)
    with torch.no_grad():
        run()  # the normalised edges are cached before
    compiled: Run = torch.compile(run, dynamic=False)
    return compiled
