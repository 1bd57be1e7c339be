"""How do time and memory of a store grow with the graph? Synthetic papers100M from 1/64 up.

    python benchmarks/store_scale.py scales --folder /big/disk [--scales 64,32,16,8,4,2,1]
        [--memory 8G] [--limit 280] [--model MODEL.bignn]
    python benchmarks/store_scale.py float --folder /big/disk --scale 12
    python benchmarks/store_scale.py pack --folder /big/disk [--gigabytes 10]
    python benchmarks/store_scale.py train --folder /big/disk --scale 8 [--seeds 3] [--in-memory]
        [--busy]
    python benchmarks/store_scale.py limited --folder /big/disk --scale 1 --memory 6G
    python benchmarks/store_scale.py edges --folder /big/disk [--millions 200]
    python benchmarks/store_scale.py parts --folder /big/disk --scale 64 [--num-parts 2]

``scales`` writes a store of 1/S of papers100M (``bignn synth``) and predicts all nodes with a
3-layer Bi-GraphSAGE of 256 hidden neurons (``bignn predict --memory``), each in a process of its
own; a prediction that takes longer than ``--limit`` seconds is killed (-9), and the same command
continues it: the seconds of its parts are added up. ``float`` runs the same network with PyG's
SAGEConv weights on float features in memory, and ours from the store after it, with as many
threads. ``pack`` packs a float memmap beside reading the same file. ``train`` trains one epoch from
the store, with ``--in-memory`` on the same graph in memory, and with ``--busy``, where others use
the machine, takes no times. ``edges`` packs random edges. ``limited`` predicts in a memory control
group (version 1) with a limit of ``--memory``, which counts the page cache. ``parts`` cuts a store
(``bignn partition``) and predicts it by as many processes as parts, and by one from the store.
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

ROOT = Path(__file__).parents[1]
RECORD = ROOT / "docs" / "results" / "store.json"
HIDDEN, LAYERS = 256, 3
SHAPE = "papers100M"
#: Rows that the float network computes at a time.
_FLOAT_ROWS = 1 << 16


def recorded() -> dict[str, Any]:
    """Return the records so far."""
    return json.loads(RECORD.read_text()) if RECORD.exists() else {}


def record(kind: str, key: str, value: dict[str, Any]) -> None:
    """Write a record."""
    found = recorded()
    found.setdefault(kind, {})[key] = value
    RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(kind, key, json.dumps(value), flush=True)


def bignn(
    *arguments: str,
    limit: float | None = None,
    partial: Path | None = None,
    group: Path | None = None,
) -> tuple[dict[str, Any], float, int]:
    """Run a command, killed and continued where it takes long: report, seconds, kills.

    With ``partial``, the file that seconds so far are kept in, this process ends after a kill and
    the same call continues. With ``group`` the command runs in that control group.
    """
    command = [sys.executable, "-m", "bignn", *arguments, "--json"]
    if group is not None:
        joined = 'echo $$ > "$0" && exec "$@"'
        command = ["sh", "-c", joined, str(group / "cgroup.procs"), *command]
    seconds, kills = 0.0, 0
    if partial is not None and partial.exists():
        seconds, kills = json.loads(partial.read_text())
    while True:
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            seconds += time.perf_counter() - start
            if partial is not None:
                partial.write_text(json.dumps([seconds, kills]))
                raise SystemExit(f"killed after {seconds:.0f} s; run it again to go on") from None
            continue
        seconds += time.perf_counter() - start
        if partial is not None:
            partial.unlink(missing_ok=True)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        return json.loads(out), seconds, kills


def store_of(folder: Path, scale: int) -> Path:
    """Return the store of 1/scale, written unless it is there."""
    path = folder / f"{SHAPE}-{scale}"
    if not (path / "labels.json").exists():
        report, seconds, _ = bignn("synth", SHAPE, "--scale", str(1 / scale), "-o", str(path))
        record("synth", str(scale), {"seconds": seconds, "num_edges": report["num_edges"]})
    return path


def untrained_model(store: Path, path: Path) -> Path:
    """Write an untrained model for a store."""
    import torch

    import bignn as library
    from bignn.nn import GraphSAGE
    from bignn.runtime.store import Store

    opened = Store(store)
    torch.manual_seed(0)
    sizes = opened.num_features, HIDDEN, LAYERS, opened.num_classes
    model = GraphSAGE(*sizes, binarize="both", norm="batch")
    model.load_input_stage(opened.stage)
    library.pack(model.eval()).save(path)
    return path


def run_scales(options: argparse.Namespace) -> None:
    """Predict stores of several sizes."""
    folder = Path(options.folder)
    for scale in map(int, options.scales.split(",")):
        store = store_of(folder, scale)
        model = Path(options.model or untrained_model(store, folder / "sage.bignn"))
        out = folder / "predictions.npy"
        _drop_caches()
        report, seconds, kills = bignn(
            "predict", str(model), str(store), "--memory", options.memory, "--out", str(out),
            limit=options.limit, partial=folder / f"partial-{scale}.json",
        )  # fmt: skip
        record(
            "predict",
            f"{scale}{options.note}",
            {
                **{key: report[key] for key in ("num_nodes", "num_edges", "layers", "memory")},
                "seconds": seconds,
                "kills": kills,
                "peak_anonymous_bytes": report["peak_anonymous_bytes"],
                "peak_file_bytes": report["peak_file_bytes"],
                "test_acc": report["test_acc"],
                "is_trained": options.model is not None,
                "store_bytes": sum(file.stat().st_size for file in store.iterdir()),
            },
        )
        out.unlink()
        if options.remove:
            shutil.rmtree(store)


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
        _drop_caches()  # pages that others have read are charged to them
        report, seconds, kills = bignn(
            "predict", str(model), str(store), "--memory", options.memory, "--out", str(out),
            limit=options.limit, group=group,
        )  # fmt: skip
        peak = int((group / "memory.max_usage_in_bytes").read_text())
        reclaims = int((group / "memory.failcnt").read_text())
    finally:
        (group / "memory.force_empty").write_text("0")
        group.rmdir()
    kept = {key: report[key] for key in ("test_acc", "layers", "peak_anonymous_bytes")}
    kept |= {"limit": limit, "seconds": seconds, "peak": peak, "reclaims": reclaims, "kills": kills}
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
    _drop_caches()
    model = untrained_model(store.path, Path(options.folder) / "sage.bignn")
    out = Path(options.folder) / "predictions.npy"
    report, seconds, _ = bignn("predict", str(model), str(store.path), "--memory", options.memory,
                               "--out", str(out), "--threads", str(threads))  # fmt: skip
    out.unlink()
    ours = {"seconds": seconds, "peak_anonymous_bytes": report["peak_anonymous_bytes"]}
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
    _drop_caches()
    packed = folder / "packed"
    shutil.rmtree(packed, ignore_errors=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    report, _, _ = bignn("pack-features", str(path), "-o", str(packed))
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
    _drop_caches()
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        buffer = bytearray(1 << 24)
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def _drop_caches() -> None:
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        print("the page cache could not be emptied: reads may come from memory", file=sys.stderr)


def run_train(options: argparse.Namespace) -> None:
    """Train from a store, or the same graph in memory, for some epochs."""
    import bignn as library
    from bignn.runtime.store import Store
    from bignn.runtime.store.memory import resident_memory
    from bignn.train.checkpoint import load_model
    from bignn.train.recipes import recipe
    from bignn.train.seeds import fit_model

    store = Store(store_of(Path(options.folder), options.scale))
    changes: dict[str, Any] = {
        "sampler": "neighbor", "input_bits": "sign", "normalize_rows": False, "norm": "batch",
        "num_layers": LAYERS, "hidden_channels": HIDDEN, "epochs": options.epochs, "dropout": 0.0,
        "lr": 0.003, "batch_size": options.batch_size, "fan_outs": (5, 5, 5),
    }  # fmt: skip
    graph: Any = _in_memory(store, options.scale) if options.in_memory else store
    settings = recipe("bi-sage", graph=store, **changes)
    marks: list[float] = []
    peak = {"anonymous": 0, "file": 0}

    def after_epoch(epoch: int, loss: float, score: float) -> None:
        marks.append(time.perf_counter())
        for kind, size in resident_memory().items():
            peak[kind] = max(peak[kind], size)
        print(epoch, loss, score, flush=True)

    place = Path(options.folder) / f"trained-{options.scale}-{options.in_memory}.safetensors"
    found, seconds = [], 0.0
    for seed in range(options.seeds):
        start = time.perf_counter()
        _, result = fit_model(
            settings, graph, seed, checkpoint_path=place, on_epoch=after_epoch, progress=False
        )
        seconds += marks[-1] - start
        found.append({"test_acc": result.test_acc, "val_acc": result.val_acc})
        if seed == 0:
            library.pack(load_model(place)).save(place.with_suffix(".bignn"))
    assert store.train_idx is not None
    batches = -(-len(store.train_idx) // options.batch_size)
    seconds *= 1000 / (options.epochs * options.seeds * batches)
    record(
        "train",
        f"{options.scale}{'-memory' if options.in_memory else ''}",
        {
            "num_nodes": store.num_nodes, "num_edges": store.num_edges, "epochs": options.epochs,
            "batches": batches, "batch_size": options.batch_size, "seeds": found,
            "seconds_per_1000_batches": None if options.busy else seconds,
            "peak_anonymous_bytes": peak["anonymous"], "peak_file_bytes": peak["file"],
        },
    )  # fmt: skip


def _in_memory(store: Any, scale: int) -> Any:
    import bignn as library
    from bignn.runtime.store.synthetic import SHAPES, SyntheticRows, scaled

    rows = SyntheticRows(scaled(SHAPES[SHAPE], 1 / scale), 0)
    target = np.repeat(np.arange(store.num_nodes), np.diff(store.offsets))
    edge_index = np.stack([store.ids.astype(np.int64), target])
    x, y = rows.features(0, store.num_nodes), np.array(store.y).astype(np.int64)
    splits: dict[str, Any] = rows.splits()
    return library.Graph(x, edge_index, y=y, **splits, name=f"{SHAPE}/{scale} in memory")


def run_parts(options: argparse.Namespace) -> None:
    """Cut a store into parts, and predict these by several processes and the store by one."""
    folder, count = Path(options.folder), str(options.num_parts)
    store = store_of(folder, options.scale)
    model = Path(options.model or untrained_model(store, folder / "sage.bignn"))
    parts, outs = folder / "parts", [folder / f"{name}.npy" for name in ("one", "several")]
    here = [sys.executable, "-m"]
    cut = ["bignn", "partition", str(store), "-k", count, "-o", str(parts), "--json"]
    _, seconds, peak_of_cut = _watched([*here, *cut])
    alone, _, _ = bignn("predict", str(model), str(store), "--out", str(outs[0]))
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
    _drop_caches()
    arguments = ["--nodes", str(num_nodes), "--memory", "1G"]
    report, _, _ = bignn("pack-edges", str(path), "-o", str(packed), *arguments)
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
    for name, run in (*jobs, *more, ("parts", run_parts)):
        job = commands.add_parser(name)
        job.set_defaults(run=run)
        job.add_argument("--folder", required=True)
        job.add_argument("--note", default="")
        job.add_argument("--scales", default="64,32,16,8,4,2,1")
        job.add_argument("--scale", type=int, default=64)
        job.add_argument("--memory", default="8G")
        job.add_argument("--limit", type=float, default=280)
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
