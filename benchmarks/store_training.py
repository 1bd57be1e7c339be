"""Training from a store, and whether it learns as much as training on the same graph in memory."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
from store_common import HIDDEN, LAYERS, SHAPE, peak_memory, record, recorded, store_of


def run_train(options: argparse.Namespace) -> None:
    """Train from a store, or the same graph in memory, for some epochs.

    Both are tested on all neighbours: the graph in memory by the trained model itself, the store by
    the packed engine, since nothing else holds it. Beside each checkpoint is a file of the most
    memory that its epochs and tests took, so that a seed which is continued, or was finished
    before, keeps its own.
    """
    import bignn as library
    from bignn.runtime.packed_model import PackedModel
    from bignn.runtime.store import Store
    from bignn.runtime.store.predict_store import accuracy_of, predict_store
    from bignn.train.recipes import recipe
    from bignn.train.seeds import fit_model

    folder = Path(options.folder)
    store = Store(store_of(folder, options.scale))
    changes: dict[str, Any] = {
        "sampler": "neighbor", "input_bits": "sign", "normalize_rows": False, "norm": "batch",
        "num_layers": LAYERS, "hidden_channels": HIDDEN, "epochs": options.epochs, "dropout": 0.0,
        "lr": 0.003, "batch_size": options.batch_size, "fan_outs": (5, 5, 5),
    }  # fmt: skip
    graph: Any = _in_memory(store, options.scale) if options.in_memory else store
    settings = recipe("bi-sage", graph=store, **changes)
    place = "memory" if options.in_memory else "store"
    found, seconds, peaks = [], 0.0, []
    run = f"trained-{options.scale}-{options.epochs}-{options.batch_size}-{place}"
    with peak_memory() as peak:
        for seed in range(options.seeds):
            path = folder / f"{run}-{seed}.safetensors"
            kept = path.with_suffix(".peak.json")

            def on_epoch(epoch: int, loss: float, score: float, kept: Path = kept) -> None:
                line = f"epoch {epoch}: validation loss {loss:.3f}, accuracy {score:.2f} %"
                print(line, file=sys.stderr, flush=True)
                _keep_peak(kept, peak)

            model, result = fit_model(
                settings, graph, seed, checkpoint_path=path, resume=True, on_epoch=on_epoch
            )
            if not kept.exists():
                raise SystemExit(f"nothing tells the memory of '{path}': remove it to train again")
            seconds += result.seconds
            row = {
                "test_acc": result.test_acc,
                "val_acc": result.val_acc,
                "epoch": result.best_epoch,
            }
            if options.in_memory:
                row["whole_graph_acc"] = result.test_acc
            else:
                packed, out = path.with_suffix(".bignn"), folder / "predictions.npy"
                library.pack(model).save(packed)
                predict_store(PackedModel.open(packed), store, out, output="classes")
                row["whole_graph_acc"] = accuracy_of(store, out)
                out.unlink()
            peaks.append(_keep_peak(kept, peak))
            print(place, "seed", seed, row, file=sys.stderr, flush=True)
            found.append(row)
    assert store.train_idx is not None
    batches = -(-len(store.train_idx) // options.batch_size)
    seconds *= 1000 / (options.epochs * options.seeds * batches)
    record(
        "train",
        _key(options, place),
        {
            "num_nodes": store.num_nodes, "num_edges": store.num_edges, "epochs": options.epochs,
            "batches": batches, "batch_size": options.batch_size, "seeds": found,
            "seconds_per_1000_batches": None if options.busy else seconds,
            "peak_anonymous_bytes": max(each["anonymous"] for each in peaks),
            "peak_file_bytes": max(each["file"] for each in peaks),
            "is_watched": True,
        },
    )  # fmt: skip


def _key(options: argparse.Namespace, place: str) -> str:
    """Return the name of a record of training: scale, nodes in a batch, and where the graph is."""
    return f"{options.scale}-{options.batch_size}{'-memory' if place == 'memory' else ''}"


def _keep_peak(path: Path, peak: dict[str, int]) -> dict[str, int]:
    """Keep the most memory, of now and of what a file has from before, in that file."""
    before = json.loads(path.read_text()) if path.exists() else {}
    most = {kind: max(size, before.get(kind, 0)) for kind, size in peak.items()}
    path.write_text(json.dumps(most))
    return most


def _in_memory(store: Any, scale: int) -> Any:
    import bignn as library
    from bignn.runtime.store.synthetic import SHAPES, SyntheticRows, scaled

    rows = SyntheticRows(scaled(SHAPES[SHAPE], 1 / scale), 0)
    target = np.repeat(np.arange(store.num_nodes), np.diff(store.offsets))
    edge_index = np.stack([store.ids.astype(np.int64), target])
    x, y = rows.features(0, store.num_nodes), np.array(store.y).astype(np.int64)
    splits: dict[str, Any] = rows.splits()
    return library.Graph(x, edge_index, y=y, **splits, name=f"{SHAPE}/{scale} in memory")


def run_accuracy(options: argparse.Namespace) -> None:
    """Train from a store and in memory, each in a process of its own, and compare them.

    Checkpoints in the folder are continued, so that the same command goes on where it was stopped.
    """
    from scipy import stats

    here = [sys.executable, str(Path(__file__).with_name("store_scale.py")), "train"]
    names = ("folder", "scale", "epochs", "seeds", "batch_size")
    same = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in names]
    same += ["--busy"] * options.busy
    for where in ([], ["--in-memory"]):
        subprocess.run([*here, *same, *where], check=True, stdout=subprocess.DEVNULL)
    rows = recorded()["train"]
    found = {"store": rows[_key(options, "store")], "in memory": rows[_key(options, "memory")]}
    batches = f"{options.epochs} x {found['store']['batches']} batches of {options.batch_size}"
    print(f"1/{options.scale} of {SHAPE}, {batches}; test accuracy on all neighbours, %")
    scores = {}
    for place, row in found.items():
        scores[place] = [seed["whole_graph_acc"] for seed in row["seeds"]]
        each = ", ".join(f"{score:.2f}" for score in scores[place])
        spread = f" ± {stdev(scores[place]):.2f}" if len(scores[place]) > 1 else ""
        memory = row["peak_anonymous_bytes"] / 2**30
        print(f"{place:10} {fmean(scores[place]):6.2f}{spread}  ({each})  {memory:.2f} GiB")
    if options.seeds > 1:
        test = stats.ttest_ind(*scores.values(), equal_var=False)
        apart = fmean(scores["store"]) - fmean(scores["in memory"])
        low, high = test.confidence_interval()
        interval = f"95 % interval {low:+.1f} to {high:+.1f}"
        print(f"difference {apart:+.2f} points, {interval}, p = {test.pvalue:.2g} (Welch)")
