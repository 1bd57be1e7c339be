"""``bignn bench``: ours against PyG, torch and a float simulation, in one run, on equal threads."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

import bignn
from bignn import bits, kernels
from bignn.errors import input_error
from bignn.graph import EMBEDDED
from bignn.kernels.threads import get_num_threads
from bignn.lab.bench.contenders import Contender, Packed, Simulated, contenders_of
from bignn.lab.bench.contenders.base import edge_index
from bignn.lab.bench.peak_memory import memory_bytes, peak_mib
from bignn.lab.bench.problems import EdgeBits, ModelName, Problem, make_problem
from bignn.lab.bench.rounds import time_beside
from bignn.lab.bench.shapes import SHAPES
from bignn.lab.bench.suite_report import HEADER, Row, network_line
from bignn.lab.bench.timing import Seconds, measure
from bignn.lab.bench.torch_instructions import check_torch, mkl_processors, torch_capability
from bignn.runtime import PackedModel
from bignn.runtime.doctor import examine
from bignn.train.recipes import recipe

SUITES = ("gemm", "citation", "shapes")

#: Rows, inputs, outputs of the products in the suite ``gemm``; the first is Cora's first layer.
PRODUCTS = ((2708, 1433, 64), (2708, 256, 64), (4096, 512, 64), (19717, 500, 64))

#: Matrices of float64 numbers that a model with rounded weights has at a time in torch, and what
#: they may take of the memory.
_ROUNDED_MATRICES, _SHARE = 4, 0.5


def run(
    suites: Sequence[str],
    *,
    model: ModelName = "gcn",
    scale: float = 1.0,
    only: Sequence[str] | None = None,
    memory: bool = True,
    edge_bits: EdgeBits = None,
    backend: str | None = None,
    against: Sequence[str] | None = None,
) -> dict[str, Any]:
    """Run suites and return ``{"rows": [...], "machine": ..., "mkl": ..., "date": ...}``.

    ``mkl`` is the kind of processors that MKL says it runs code for, the date the UTC time at the
    end.

    Args:
        suites: some of :data:`SUITES`; none for all.
        model: what is run on graphs, one of :data:`bignn.lab.bench.problems.MODELS`.
        scale: factor on nodes and edges in the suite ``shapes``.
        only: names of shapes or datasets; None for all.
        memory: also measure peak memory, each contender in a process of its own.
        edge_bits: bits of the measured models' edge weights; "none" for float weights,
            None for what the recipes have.
        backend: backend of the packed models; None for the fastest. With a name, torch must have
            been loaded with the same instruction set
            (:func:`bignn.lab.bench.torch_instructions.torch_held_to`).
        against: contenders to time beside the packed model; None for all.

    """
    chosen = list(suites) or list(SUITES)
    for suite in chosen:
        if suite not in SUITES:
            raise input_error("suite", f"some of {list(SUITES)}", repr(suite))
    rivals = _rivals(model, against)
    graphs = checked_graphs(chosen, scale, only)
    used = kernels.checked_backend(backend)
    if backend is not None:
        check_torch(backend)
    recipe(f"bi-{model}", edge_bits=edge_bits)  # refuses other numbers
    rows: list[Row] = []
    for suite in chosen:
        if suite == "gemm":
            if only is None:
                rows += [_product(*sizes, used) for sizes in PRODUCTS]
            continue
        for name in graphs[suite]:
            sized = scale if suite == "shapes" else 1.0
            rows.append(_network(suite, name, model, sized, memory, edge_bits, used, rivals))
    return {
        "rows": rows,
        "machine": examine()["cpu"],
        "mkl": mkl_processors(),
        "version": bignn.__version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def checked_graphs(
    suites: Sequence[str], scale: float, only: Sequence[str] | None
) -> dict[str, list[str]]:
    """Return the names of the graphs of each suite, or raise what is wrong with the arguments."""
    if not 0 < scale <= 4:
        raise input_error("scale", "above 0 and at most 4", scale)
    graphs = {"citation": EMBEDDED, "shapes": tuple(SHAPES)}
    names = [name for suite in suites for name in graphs.get(suite, ())]
    for name in only or ():
        if name not in names:
            expected = f"some of {names}" if names else "left out: no suite of graphs is measured"
            raise input_error("only", expected, repr(name))
    wanted = names if only is None else only
    return {suite: [name for name in wanted if name in graphs.get(suite, ())] for suite in suites}


def _rivals(model: ModelName, against: Sequence[str] | None) -> dict[str, type[Contender]]:
    """Return what the packed model is timed against, by name."""
    known = {key: kind for key, kind in contenders_of(model).items() if key != "packed"}
    for name in against or ():
        if name not in known:
            raise input_error("against", f"some of {list(known)}", repr(name))
    return {key: kind for key, kind in known.items() if against is None or key in against}


def _log(text: str) -> None:
    print(f"bignn bench: {text}", file=sys.stderr, flush=True)


def _row(suite: str, shape: str, model: str, backend: str) -> Row:
    """Make a row of all columns, which are filled as they are measured."""
    names = (
        *("edge_bits", "plan", "packed_ms", "best_float", "best_float_ms", "pyg_ms"),
        *("pyg_sparse_ms", "torch_sparse_ms", "simulated_ms"),
        *("speedup_vs_pyg", "speedup_vs_pyg_sparse"),
        *("speedup_vs_best_float", "speedup_vs_simulated", "pyg_predicted_bytes", "packing_ms"),
        *("peak_mib_float", "peak_mib_simulated", "peak_mib_packed", "memory_ratio"),
        *("agreement", "flipped_bits", "hidden_bits", "layer_ms", "record_bytes", "gmacs"),
        *("fastest_ms", "fastest_speedup_vs_best_float", "fastest_speedup_vs_pyg"),
        *("machine_was_busy", "graph_mib_float", "graph_mib_packed", "memory_ratio_with_graph"),
    )
    row: Row = {"suite": suite, "shape": shape, "model": model, "threads": get_num_threads()}
    row |= {"backend": backend, "torch_capability": torch_capability()}
    return row | dict.fromkeys(names)


def _product(num_rows: int, num_inputs: int, num_outputs: int, backend: str) -> Row:
    """Time the XNOR product on one core against torch's float32 product, outputs preallocated."""
    shape = f"{num_rows}x{num_inputs}x{num_outputs}"
    _log(f"gemm {shape}")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((num_rows, num_inputs), dtype=np.float32)
    w = rng.standard_normal((num_outputs, num_inputs), dtype=np.float32)
    a = bits.pack(x)
    columns = kernels.prepare_columns(bits.pack(w), num_inputs, backend=backend)
    out = np.empty((num_rows, num_outputs), dtype=np.int32)
    tx, tw = torch.from_numpy(x), torch.from_numpy(w).t().contiguous()
    float_out = torch.empty(num_rows, num_outputs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # ours runs on the calling thread
    try:
        times = measure(
            {
                "float": lambda: torch.mm(tx, tw, out=float_out),
                "packed": lambda: kernels.xnor_matmul_into(a, columns, out),
            },
            rounds=21,
        )
    finally:
        torch.set_num_threads(threads)
    expected = bits.sign(x).astype(np.float32) @ bits.sign(w).astype(np.float32).T
    row = _row("gemm", shape, "xnor", backend) | {"threads": 1, "best_float": "torch.mm float32"}
    packed, floats = times["packed"], times["float"]
    row["packed_ms"], row["best_float_ms"] = 1e3 * packed.median, 1e3 * floats.median
    row["speedup_vs_best_float"] = floats.median / packed.median
    row["fastest_ms"] = {key: 1e3 * seconds.fastest for key, seconds in times.items()}
    row["fastest_speedup_vs_best_float"] = floats.fastest / packed.fastest
    row["gmacs"] = num_rows * num_inputs * num_outputs / packed.median / 1e9
    row["agreement"] = float((out == expected).mean())
    return row


def _network(
    suite: str,
    name: str,
    model: ModelName,
    scale: float,
    memory: bool,
    edge_bits: EdgeBits,
    backend: str,
    rivals: Mapping[str, type[Contender]],
) -> Row:
    def log(text: str) -> None:
        _log(f"{suite} {name}: {text}")

    start = time.perf_counter()
    log("making the graph" + (f" at scale {scale:g}" if scale != 1 else ""))
    row = _row(suite, name if scale == 1 else f"{name} x {scale:g}", f"bi-{model}", backend)
    how: Any = {"conv": model, "edge_bits": edge_bits, "backend": backend}
    row |= _measured(make_problem(name, scale=scale, **how), rivals, log)
    if row["best_float"] is not None:
        ratio = f"{row['speedup_vs_best_float']:.1f}x as fast as {row['best_float']}"
        if row["machine_was_busy"]:
            ratio += ", not reliable: other processes used the cores"
        log(f"packed {row['packed_ms']:.3g} ms, {ratio}")
    if memory:
        measured = {"packed": "packed", "simulated": "simulated", row["best_float"]: "float"}
        for key, field in measured.items():
            if key is not None and row[f"{key}_ms"] is not None:
                log(f"peak memory of {key}")
                row[f"peak_mib_{field}"] = peak_mib(
                    name, key, scale=scale, threads=get_num_threads(), **how
                )
        if row["peak_mib_float"] and row["peak_mib_packed"]:
            row |= memory_ratios(row)
    log(f"done in {time.perf_counter() - start:.0f} s")
    print(f"{HEADER}\n{network_line(row)}", file=sys.stderr, flush=True)
    return row


def memory_ratios(row: Row) -> Row:
    """Return how many times less memory ours takes, without and with the edges."""
    ours, floats = row["peak_mib_packed"], row["peak_mib_float"]
    with_graph = (floats + row["graph_mib_float"]) / (ours + row["graph_mib_packed"])
    return {"memory_ratio": floats / ours, "memory_ratio_with_graph": with_graph}


def _measured(
    problem: Problem, rivals: Mapping[str, type[Contender]], log: Callable[[str], None]
) -> Row:
    """Measure all but peak memory, which is measured once the problem here is freed."""
    row: Row = {"packing_ms": 1e3 * _seconds_of_packing(problem)}
    ours = Packed(problem)
    ours.load()

    def compare_classes(runners: Mapping[str, Contender]) -> None:
        simulated = runners.get("simulated")
        if isinstance(simulated, Simulated):
            log("agreement")
            row.update(_agreement(problem, ours, simulated, log))

    if "pyg" in rivals:
        row["pyg_predicted_bytes"] = rivals["pyg"].bytes_needed(problem)
    timed = time_beside({"packed": ours}, rivals, problem, log=log, after_group=compare_classes)
    plan = problem.packed.explain(ours.graph, backend=problem.backend)
    row |= _speeds(timed.seconds)
    row["graph_mib_packed"] = ours.structure_bytes() / 2**20
    if "best_float" in row:
        row["graph_mib_float"] = rivals[row["best_float"]](problem).structure_bytes() / 2**20
    return row | {
        "machine_was_busy": timed.machine_was_busy,
        "edge_bits": [layer.edge_bits for layer in problem.packed.network.layers],
        "plan": plan.ways,
        "layer_ms": [1e3 * (layer.measured or 0.0) for layer in plan.layers],
        "record_bytes": [layer.record_bytes for layer in plan.layers],
    }


def _seconds_of_packing(problem: Problem) -> float:
    x = problem.raw_features()
    begin = time.perf_counter()
    problem.packed_graph(x)
    return time.perf_counter() - begin


def _speeds(times: Mapping[str, Seconds]) -> Row:
    """Return the milliseconds of all contenders, and how many times ours they are."""
    ours = times["packed"]
    row: Row = {f"{key}_ms": 1e3 * seconds.median for key, seconds in times.items()}
    row["fastest_ms"] = {key: 1e3 * seconds.fastest for key, seconds in times.items()}
    floats = {key: times[key] for key in ("pyg", "pyg_sparse", "torch_sparse") if key in times}
    # Torch by hand is the fastest on most graphs: without it, nobody knows the best float.
    if "torch_sparse" in floats:
        best = min(floats, key=lambda key: floats[key])
        row["best_float"], row["best_float_ms"] = best, 1e3 * floats[best].median
        row["speedup_vs_best_float"] = floats[best].median / ours.median
        least = min(seconds.fastest for seconds in floats.values())
        row["fastest_speedup_vs_best_float"] = least / ours.fastest
    for key in ("pyg", "pyg_sparse", "simulated"):
        if key in times:
            row[f"speedup_vs_{key}"] = times[key].median / ours.median
    if "pyg" in times:
        row["fastest_speedup_vs_pyg"] = times["pyg"].fastest / ours.fastest
    return row


def _agreement(
    problem: Problem, ours: Packed, simulated: Simulated, log: Callable[[str], None]
) -> Row:
    """Count the classes that equal torch's, and the hidden bits that do not."""
    packed, backend = problem.packed, problem.backend
    layers: Iterator[torch.Tensor]
    if problem.model.layers[0].edge_bits is None:
        layers = map(simulated.layers, range(1, packed.num_hops + 1))
    else:  # the simulation does not round weights, the model does
        needed = _ROUNDED_MATRICES * 8 * problem.num_nodes * max(problem.sizes)
        if needed > _SHARE * memory_bytes():
            log(f"not computed: the model in torch needs {needed / 1e9:.0f} GB")
            return {}
        layers = iter(_layers_in_torch(problem))
    flipped = total = 0
    for count in range(1, packed.num_hops):
        theirs = next(layers).numpy()
        some = prefix(packed, count).stream(ours.graph, output="logits", backend=backend)
        for rows, values in some:
            flipped += int(((values >= 0) != (theirs[rows] >= 0)).sum())
            total += values.size
    same = float((ours.run() == next(layers).argmax(dim=1).numpy()).mean())
    return {"agreement": same, "flipped_bits": flipped, "hidden_bits": total}


@torch.no_grad()
def _layers_in_torch(problem: Problem) -> list[torch.Tensor]:
    """Return the outputs of all layers of the binary model, as torch computes them."""
    model, edges = problem.model, edge_index(problem)
    outputs: list[torch.Tensor] = []
    hooks = [
        conv.register_forward_hook(lambda _, __, out: outputs.append(out)) for conv in model.convs
    ]
    try:
        adjacency = (
            edges if problem.conv == "gat" else model.adjacency(edges, None, problem.num_nodes)
        )
        model(torch.from_numpy(problem.model_input()), adjacency)
    finally:
        for hook in hooks:
            hook.remove()
    return outputs


def prefix(packed: PackedModel, num_layers: int) -> PackedModel:
    """Return a model of the first layers of another, whose logits are the last one's values."""
    ends = [number for number, step in enumerate(packed.operations) if step["op"] == "binarize"]
    operations = packed.operations[: ends[num_layers]]
    names = {name for step in operations for name in step.values() if isinstance(name, str)}
    arrays = {name: array for name, array in packed.arrays.items() if name in names}
    return PackedModel(operations, arrays, packed.num_features)
