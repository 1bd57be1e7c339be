"""How do time and memory of a store grow with the graph? Synthetic papers100M from 1/64 up.

    python benchmarks/store_scale.py scales --folder /big/disk [--scales 64,32,16,8,4,2,1]
        [--memory 8G] [--repeats 2] [--remove] [--limit 280] [--model MODEL.bignn]
    python benchmarks/store_scale.py float --folder /big/disk --scale 12
    python benchmarks/store_scale.py pack --folder /big/disk [--gigabytes 10]
    python benchmarks/store_scale.py train --folder /big/disk --scale 8 [--seeds 3] [--in-memory]
        [--busy]
    python benchmarks/store_scale.py accuracy --folder /big/disk --scale 64 --epochs 4 --seeds 3
    python benchmarks/store_scale.py limited --folder /big/disk --scale 1 --memory 6G
    python benchmarks/store_scale.py edges --folder /big/disk [--millions 200]
    python benchmarks/store_scale.py parts --folder /big/disk --scale 64 [--num-parts 2]

``scales`` writes a store of 1/S of papers100M (``bignn synth``) and predicts all nodes with a
3-layer Bi-GraphSAGE of 256 hidden neurons (``bignn predict --memory``), each in a process of its
own, ``--repeats`` times, and prints time and memory per edge beside each other. The same command
goes on with the scale at which it was interrupted; ``--remove`` removes each store after use (else
20 GB stay, and 20 GB more are needed meanwhile). With ``--limit`` a prediction that takes more
seconds is killed (-9), and the same command continues it: the times of its parts are added up.
``float`` runs the same network with PyG's SAGEConv weights on float features in memory, and ours
from the store after it, with as many threads. ``pack`` packs a float memmap beside reading the same
file. ``train`` trains one epoch from the store, with ``--in-memory`` on the same graph in memory,
and with ``--busy``, where others use the machine, takes no times. ``accuracy`` does both and prints
them side by side; checkpoints in the folder are continued. ``edges`` packs random edges.
``limited`` predicts in a memory control group (version 1) with a limit of ``--memory``, which
counts the page cache. ``parts`` cuts a store (``bignn partition``) and predicts it by as many
processes as parts, and by one from the store.
Records go to docs/results/store.json; ``bignn reproduce`` makes tables and a figure of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from store_common import (
    HIDDEN,
    LAYERS,
    SHAPE,
    bignn,
    drop_caches,
    record,
    store_of,
    untrained_model,
)
from store_training import run_accuracy, run_train

#: Rows that the float network computes at a time.
_FLOAT_ROWS = 1 << 16


def run_scales(options: argparse.Namespace) -> None:
    """Predict stores of several sizes; runs that an interrupted series finished are not repeated.

    Of several runs the fastest is recorded, with the times of all.
    """
    folder = Path(options.folder)
    series = folder / "series.json"
    done: dict[str, list[dict[str, Any]]] = (
        json.loads(series.read_text()) if series.exists() else {}
    )
    best = {}
    scales = [int(scale) for scale in options.scales.split(",")]
    for scale in scales:
        runs = done.setdefault(str(scale), [])
        if runs:
            line = f"1/{scale} was predicted {len(runs)} of {options.repeats} times ({series})"
            print(line, file=sys.stderr, flush=True)
        if len(runs) < options.repeats:
            print(f"1/{scale}: its store", file=sys.stderr, flush=True)
            store = store_of(folder, scale)
            model = Path(options.model or untrained_model(store, folder / "sage.bignn"))
            while len(runs) < options.repeats:
                line = f"1/{scale}: prediction {len(runs) + 1} of {options.repeats}"
                print(line, file=sys.stderr, flush=True)
                runs.append(_predicted(store, model, options))
                series.write_text(json.dumps(done))
            if options.remove:
                shutil.rmtree(store)
        best[scale] = {
            **min(runs, key=lambda run: float(run["seconds"])),
            "all_seconds": [run["seconds"] for run in runs],
            "all_processor_seconds": [run["processor_seconds"] for run in runs],
            "is_trained": options.model is not None,
        }
        record("predict", f"{scale}{options.note}", best[scale])
    series.unlink()  # the series is over: the same command begins another one
    _show_flatness(best)


def _predicted(store: Path, model: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Predict a store once: time, memory, and the cores that others used meanwhile."""
    folder = Path(options.folder)
    out = folder / "predictions.npy"
    partial = None if options.limit is None else folder / f"spent-{store.name}.json"
    if partial is None or not partial.exists():  # what was begun unwatched would count for nothing
        shutil.rmtree(out.with_name(f"{out.name}.work"), ignore_errors=True)
    drop_caches()
    report, spent = bignn(
        "predict", str(model), str(store), "--memory", options.memory, "--out", str(out),
        limit=options.limit, partial=partial,
    )  # fmt: skip
    out.unlink()
    kept = ("num_nodes", "num_edges", "layers", "memory", "test_acc")
    peaks = ("peak_anonymous_bytes", "peak_file_bytes")
    return {
        **{key: report[key] for key in (*kept, *peaks)},
        "seconds": spent.seconds,
        "processor_seconds": spent.processor_seconds,
        "other_cores": spent.other_cores,
        "kills": spent.kills,
        "store_bytes": sum(file.stat().st_size for file in store.iterdir()),
    }


def _show_flatness(rows: dict[int, dict[str, Any]]) -> None:
    """Print time and memory per edge of every scale, and by how much they differ."""
    heads = ("ns", "processor ns", "bytes", "others' cores")
    print("scale   " + "".join(f"{head:>14}" for head in heads) + "   per edge (ns: and layer)")
    columns: list[tuple[float, float, float]] = []
    for scale, row in rows.items():
        visits = LAYERS * row["num_edges"]
        time, work = (1e9 * row[key] / visits for key in ("seconds", "processor_seconds"))
        columns.append((time, work, row["peak_anonymous_bytes"] / row["num_edges"]))
        others = row["other_cores"]
        shown = "".join(f"{value:14.2f}" for value in columns[-1])
        print(f"1/{scale:<6}{shown}{'–' if others is None else f'{others:14.2f}'}")
    ratios = [max(column) / min(column) for column in zip(*columns, strict=True)]
    print("max/min " + "".join(f"{ratio:13.2f}x" for ratio in ratios))


def run_limited(options: argparse.Namespace) -> None:
    """Predict in a control group whose limit, that of ``--memory``, counts the page cache."""
    from bignn.runtime.store.memory import memory_bytes

    folder, limit = Path(options.folder), memory_bytes(options.memory)
    store, out = store_of(folder, options.scale), folder / "predictions.npy"
    model = Path(options.model or untrained_model(store, folder / "sage.bignn"))
    group = Path(f"/sys/fs/cgroup/memory/bignn-store-{os.getpid()}")
    group.mkdir()
    try:
        (group / "memory.limit_in_bytes").write_text(str(limit))
        drop_caches()  # pages that others have read are charged to them
        report, spent = bignn(
            "predict", str(model), str(store), "--memory", options.memory, "--out", str(out),
            limit=options.limit, group=group,
        )  # fmt: skip
        peak = int((group / "memory.max_usage_in_bytes").read_text())
        reclaims = int((group / "memory.failcnt").read_text())
    finally:
        (group / "memory.force_empty").write_text("0")
        group.rmdir()
    kept = {key: report[key] for key in ("test_acc", "layers", "peak_anonymous_bytes")}
    kept |= {"limit": limit, "peak": peak, "reclaims": reclaims}
    kept |= {"seconds": spent.seconds, "kills": spent.kills}
    record("limited", str(options.scale), {**kept, "is_trained": options.model is not None})
    out.unlink()


def run_float(options: argparse.Namespace) -> None:
    """Run PyG's GraphSAGE over the whole graph in floats, then ours from the store.

    No array is larger than a layer's input and output: rows go through the CSR product of their
    neighbours and both linear maps by blocks, and the last layer, whose output is narrower than its
    input, maps first. Ids have 32 bits, and memory may come in large pages.
    """
    os.environ["THP_MEM_ALLOC_ENABLE"] = "1"
    import torch
    from torch_geometric.nn import SAGEConv

    from bignn.runtime.store import Store
    from bignn.runtime.store.synthetic import SHAPES, SyntheticRows, scaled

    store = Store(store_of(Path(options.folder), options.scale))
    num_nodes, num_edges = store.num_nodes, store.num_edges
    needed = 2 * 4 * HIDDEN * num_nodes + 8 * num_edges + 8 * num_nodes
    lines = Path("/proc/meminfo").read_text().splitlines()
    available = next(1024 * int(line.split()[1]) for line in lines if "MemAvailable" in line)
    if needed > available:
        raise SystemExit(f"floats need {needed / 2**30:.1f} GiB of {available / 2**30:.1f} GiB")
    rows = SyntheticRows(scaled(SHAPES[SHAPE], 1 / options.scale), 0)
    blocks = [(at, min(at + _FLOAT_ROWS, num_nodes)) for at in range(0, num_nodes, _FLOAT_ROWS)]
    x = torch.empty(num_nodes, store.num_features)
    for begin, end in blocks:
        x[begin:end] = torch.from_numpy(rows.features(begin, end))
    offsets, ids = np.array(store.offsets), torch.from_numpy(np.array(store.ids))
    warnings.filterwarnings("ignore", message="Sparse")

    def mean(begin: int, end: int, sources: torch.Tensor) -> torch.Tensor:
        """Return the means over the neighbours of some rows."""
        starts = offsets[begin : end + 1]
        degrees = np.diff(starts)
        weights = np.repeat(1 / np.maximum(degrees, 1), degrees).astype(np.float32)
        places = torch.from_numpy((starts - starts[0]).astype(np.int32))
        sizes = (end - begin, num_nodes)
        some = ids[starts[0] : starts[-1]]
        return torch.sparse_csr_tensor(places, some, torch.from_numpy(weights), sizes) @ sources

    widths = [store.num_features, *[HIDDEN] * (LAYERS - 1), store.num_classes]
    *hidden, last = [SAGEConv(a, b) for a, b in pairwise(widths)]
    marks, began = [time.perf_counter()], time.process_time()
    with torch.no_grad():
        for conv in hidden:
            made = torch.empty(num_nodes, conv.out_channels)
            for begin, end in blocks:
                torch.addmm(conv.lin_l.bias, mean(begin, end, x), conv.lin_l.weight.t(),
                            out=made[begin:end])  # fmt: skip
                made[begin:end].addmm_(x[begin:end], conv.lin_r.weight.t()).relu_()
            x = made
            marks.append(time.perf_counter())
        mapped = x @ last.lin_l.weight.t()
        classes = torch.empty(num_nodes, dtype=torch.int64)
        for begin, end in blocks:
            values = mean(begin, end, mapped).add_(last.lin_l.bias)
            classes[begin:end] = values.addmm_(x[begin:end], last.lin_r.weight.t()).argmax(dim=1)
        marks.append(time.perf_counter())
    processor, threads = time.process_time() - began, torch.get_num_threads()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    del x, made, mapped
    found = {
        "num_nodes": num_nodes, "num_edges": num_edges, "peak_bytes": peak, "threads": threads,
        "seconds": marks[-1] - marks[0], "layers": [b - a for a, b in pairwise(marks)],
        "processor_seconds": processor,
    }  # fmt: skip
    drop_caches()
    model = untrained_model(store.path, Path(options.folder) / "sage.bignn")
    out = Path(options.folder) / "predictions.npy"
    report, spent = bignn("predict", str(model), str(store.path), "--memory", options.memory,
                          "--out", str(out), "--threads", str(threads))  # fmt: skip
    out.unlink()
    ours = {"seconds": spent.seconds, "peak_anonymous_bytes": report["peak_anonymous_bytes"]}
    record("float", str(options.scale), {**found, "ours": ours})


def run_pack(options: argparse.Namespace) -> None:
    """Pack a float memmap, and read the same file as fast as the disk gives it."""
    from bignn.runtime.store.synthetic import SHAPES, SyntheticRows

    folder, columns = Path(options.folder), 128
    num_rows = int(options.gigabytes * 1e9) // (4 * columns)
    path = folder / "floats.npy"
    if not path.exists():
        rows = SyntheticRows(SHAPES[SHAPE], 0)
        with path.open("wb") as file:
            header = {"descr": "<f4", "fortran_order": False, "shape": (num_rows, columns)}
            np.lib.format.write_array_header_1_0(file, header)
            for begin in range(0, num_rows, 1 << 16):
                file.write(rows.features(begin, min(begin + (1 << 16), num_rows)).data)
            os.fsync(file.fileno())
    size = path.stat().st_size
    reading = _read_seconds(path)
    drop_caches()
    packed = folder / "packed"
    shutil.rmtree(packed, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    report, _ = bignn("pack-features", str(path), "-o", str(packed))
    after = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    # The disk may keep what it has read in caches of its own, so it is read after it too.
    again = _read_seconds(path)
    record(
        "pack",
        f"{options.gigabytes:g}{options.note}",
        {
            "bytes": size,
            "read_seconds": reading,
            "read_rate": size / reading,
            "read_rate_after": size / again,
            "seconds": report["seconds"],
            "statistics_seconds": report["statistics_seconds"],
            # Two passes read the file twice.
            "statistics_rate": size / report["statistics_seconds"],
            "bits_rate": size / (report["seconds"] - report["statistics_seconds"]),
            "peak_bytes": 1024 * max(before, after),
        },
    )
    shutil.rmtree(packed)


def _read_seconds(path: Path) -> float:
    """Read a file from the disk, and nothing else."""
    drop_caches()
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 24)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def run_parts(options: argparse.Namespace) -> None:
    """Cut a store into parts, and predict these by several processes and the store by one."""
    folder, count = Path(options.folder), str(options.num_parts)
    store = store_of(folder, options.scale)
    model = Path(options.model or untrained_model(store, folder / "sage.bignn"))
    parts, outs = folder / "parts", [folder / f"{name}.npy" for name in ("one", "several")]
    here = [sys.executable, "-m"]
    cut = ["bignn", "partition", str(store), "-k", count, "-o", str(parts), "--json"]
    _, seconds, peak_of_cut = _watched([*here, *cut])
    alone, _ = bignn("predict", str(model), str(store), "--out", str(outs[0]))
    torchrun = [*here, "torch.distributed.run", "--nproc-per-node", count, "-m"]
    predict = ["bignn", "predict", str(model), str(parts), "--out", str(outs[1]), "--json"]
    report, _, peak = _watched([*torchrun, *predict])
    one, several = map(np.load, outs)
    record(
        "parts",
        f"{options.scale}-{count}",
        {
            "num_nodes": report["num_nodes"],
            "partition_seconds": seconds,
            "partition_peak_anonymous_bytes": peak_of_cut,
            "predict_peak_anonymous_bytes": peak,
            "part_bytes": sorted(file.stat().st_size for file in parts.iterdir()),
            "predict_seconds": report["seconds"],
            "packing_seconds": report["packing_seconds"],
            "predict_seconds_of_one": alone["seconds"],
            "exchange": {key: report["exchange"][key] for key in ("bytes", "float32_bytes")},
            "nodes_that_differ": int((one != several).sum()),
            "machine_was_busy": options.busy,
        },
    )
    shutil.rmtree(parts)


def _watched(command: list[str]) -> tuple[dict[str, Any], float, int]:
    """Run a command: its report, seconds, and the most memory of its own or of a child's own."""
    start, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    while process.poll() is None:
        some = children.read_text().split() if children.exists() else []
        peak = max(peak, *map(_anonymous_bytes, (process.pid, *map(int, some))))
        time.sleep(0.01)
    seconds = time.perf_counter() - start
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    assert process.stdout is not None
    return json.loads(process.stdout.read().splitlines()[-1]), seconds, peak


def _anonymous_bytes(pid: int) -> int:
    """Return the memory of a process's own."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if "RssAnon" in line), 0)


def run_edges(options: argparse.Namespace) -> None:
    """Pack random edges by external sort."""
    folder = Path(options.folder)
    num_edges, num_nodes = options.millions * 1_000_000, options.millions * 70_000
    path = folder / "edges.npy"
    rng = np.random.default_rng(0)
    with path.open("wb") as file:
        header = {"descr": "<i4", "fortran_order": False, "shape": (num_edges, 2)}
        np.lib.format.write_array_header_1_0(file, header)
        for begin in range(0, num_edges, 1 << 22):
            count = min(1 << 22, num_edges - begin)
            file.write(rng.integers(0, num_nodes, (count, 2), dtype=np.int32).data)
    packed = folder / "packed-edges"
    shutil.rmtree(packed, ignore_errors=True)
    drop_caches()
    arguments = ["--nodes", str(num_nodes), "--memory", "1G"]
    report, _ = bignn("pack-edges", str(path), "-o", str(packed), *arguments)
    peak = 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    kept = {key: report[key] for key in ("num_edges", "num_nodes", "seconds", "partition_seconds")}
    record("edges", str(options.millions), {**kept, "peak_bytes": peak})
    shutil.rmtree(packed)
    path.unlink()


def main() -> None:
    """Run one of the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(required=True)
    jobs = (("scales", run_scales), ("float", run_float), ("pack", run_pack))
    more = (("train", run_train), ("edges", run_edges), ("limited", run_limited))
    others = (("parts", run_parts), ("accuracy", run_accuracy))
    for name, run in (*jobs, *more, *others):
        job = commands.add_parser(name)
        job.set_defaults(run=run)
        job.add_argument("--folder", required=True)
        job.add_argument("--note", default="")
        job.add_argument("--scales", default="64,32,16,8,4,2,1")
        job.add_argument("--scale", type=int, default=64)
        job.add_argument("--memory", default="8G")
        job.add_argument("--limit", type=float)
        job.add_argument("--repeats", type=int, default=1)
        job.add_argument("--model")
        job.add_argument("--remove", action="store_true")
        job.add_argument("--gigabytes", type=float, default=10)
        job.add_argument("--epochs", type=int, default=1)
        job.add_argument("--seeds", type=int, default=1)
        job.add_argument("--busy", action="store_true", help="record no times of training")
        job.add_argument("--millions", type=int, default=200)
        job.add_argument("--batch-size", type=int, default=256)
        job.add_argument("--in-memory", action="store_true")
        job.add_argument("--num-parts", type=int, default=2)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
