"""``bignn demo``: GCN and Bi-GCN on Cora beside the paper's figures, then the packed Bi-GCN
predicting without torch.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from bignn.errors import InputError
from bignn.graph import load
from bignn.kernels.threads import get_num_threads, set_num_threads
from bignn.lab import compare
from bignn.lab.compare.wording import WAYS
from bignn.lab.report.write_page import write_if_possible
from bignn.packing import pack
from bignn.train.averages import plus_minus
from bignn.train.checkpoint import load_model

#: Tables "Transductive learning results" and "Memory Consumptions" of the paper: accuracy in
#: percent (mean, standard deviation), sizes in units of 1024 bytes.
PAPER = {
    "gcn": {"accuracy": (81.4, 0.4), "model_kib": 360.0, "data_kib": 14.8 * 1024},
    "bi-gcn": {"accuracy": (81.2, 0.8), "model_kib": 11.53, "data_kib": 0.47 * 1024},
}


def run(
    out: str | os.PathLike[str], *, seeds: int = 1, epochs: int | None = None, progress: bool = True
) -> dict[str, Any]:
    """Compare both models on Cora, and predict with the packed one without torch."""
    set_num_threads(get_num_threads())  # torch and ours alike
    folder = Path(out)
    what = compare.Comparison("cora", ("gcn", "bi-gcn"), seeds, epochs=epochs, advice=False)
    compared = compare.run(what, folder, resume=False, progress=progress)
    plain, binary = compared["models"]
    file = folder / "cora.bignn"
    model = load_model(binary["checkpoint"])
    pack(model).save(file)
    alone = _without_torch(file)
    graph = load("cora")
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    document = compare.document_of(compared, PAPER)
    return {
        "dataset": "cora",
        "seeds": seeds,
        "rows": [
            {
                "model": row["model"],
                "test_acc": row["accuracy_mean"],
                "test_acc_std": row["accuracy_std"],
                "paper": PAPER[row["model"]],
                "model_bytes": row["model_bytes"],
                "data_bytes": row["data_bytes"],
            }
            for row in compared["models"]
        ],
        "threads": get_num_threads(),
        "sparse_kib": binary["sparse_data_bytes"] / 1024,
        "speeds": _speeds(plain, binary),
        "machine_was_busy": binary["machine_was_busy"],
        "alone_ms": alone["ms"],
        "packed_test_acc": alone["test_acc"],
        "predictions_equal": alone["classes"] == model.predict(x, edges).tolist(),
        "comparison": compared,
        "written": {
            "checkpoints": [str(folder / name) for name in what.models],
            "packed": str(file),
            "page": write_if_possible(document, folder / "report.html", required=False),
        },
    }


def _speeds(plain: dict[str, Any], binary: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the times of the packed model, of the fastest float way and of PyG on an edge index.

    All are of the same rounds in one process, so that their ratios mean something.
    """
    best = plain["predicted_by"]
    rows = {
        "packed Bi-GCN": binary["ways"]["packed"],
        f"GCN, the fastest way ({WAYS[best]})": plain["ways"][best],
        f"GCN, {WAYS['pyg']}": plain["ways"]["pyg"],
    }
    ours = binary["ways"]["packed"]
    return [
        {
            "what": what,
            "ms": way["ms"],
            "times": way["ms"] / ours["ms"],
            "fastest_ms": way["fastest_ms"],
            "fastest_times": way["fastest_ms"] / ours["fastest_ms"],
        }
        for what, way in rows.items()
    ]


def describe(report: dict[str, Any]) -> str:
    """Describe the report of :func:`run` as a table."""
    by_model = {row["model"]: row for row in report["rows"]}
    plain, binary = by_model["gcn"], by_model["bi-gcn"]
    seeds, threads = report["seeds"], report["threads"]
    lines = [
        f"Cora, 2 layers, 64 hidden, {f'{seeds} seeds (mean ± std)' if seeds > 1 else '1 seed'}; "
        "the paper's figures in brackets",
        "",
        f"{'':<22}{'GCN (float)':>26}{'Bi-GCN (1 bit)':>26}{'ratio':>16}",
        "-" * 90,
    ]
    accuracies = [
        f"{plus_minus(row['test_acc'], row['test_acc_std'])} "
        f"[{row['paper']['accuracy'][0]} ± {row['paper']['accuracy'][1]}]"
        for row in (plain, binary)
    ]
    lines.append(f"{'test accuracy, %':<22}{accuracies[0]:>26}{accuracies[1]:>26}{'':>16}")
    for label, key, paper_key in (
        ("model, KiB", "model_bytes", "model_kib"),
        ("features, KiB", "data_bytes", "data_kib"),
    ):
        sizes = [f"{r[key] / 1024:,.2f} [{r['paper'][paper_key]:,.2f}]" for r in (plain, binary)]
        ratio = plain[key] / binary[key]
        paper = plain["paper"][paper_key] / binary["paper"][paper_key]
        lines.append(f"{label:<22}{sizes[0]:>26}{sizes[1]:>26}{f'{ratio:.1f}x [{paper:.1f}x]':>16}")
    equal = "equal torch's on every node" if report["predictions_equal"] else "DIFFER from torch's"
    lines += [
        "",
        "Sizes are bytes of arrays: weights and their scales (biases aside, as in the paper),",
        "features and their scales, a bit each. Rows of bits are padded to 64, so a little above",
        "the paper's estimate. Cora's features have few ones: kept as their places they take",
        f"{report['sparse_kib']:.0f} KiB.",
        "",
        f"{f'all nodes, {threads} thread' + 's' * (threads > 1):<40}{'median':>14}{'vs packed':>12}"
        f"{'fastest burst':>14}{'vs packed':>10}",
        "-" * 90,
        *(
            f"{row['what']:<40}{row['ms']:>11.2f} ms{row['times']:>11.1f}x"
            f"{row['fastest_ms']:>11.2f} ms{row['fastest_times']:>9.1f}x"
            for row in report["speeds"]
        ),
        "",
        *(
            [
                "Other processes used cores meanwhile: the fastest bursts are nearer to the truth "
                "than medians;",
                "measure again when the machine is idle.",
                "",
            ]
            if report["machine_was_busy"]
            else []
        ),
        f"Without torch, in a process of its own, from {report['written']['packed']}: all nodes "
        f"in {report['alone_ms']:.2f} ms,",
        f"test accuracy {report['packed_test_acc']:.1f} %. Its predictions {equal}.",
        "",
        *(f"checkpoints  {path}" for path in report["written"]["checkpoints"]),
        f"packed       {report['written']['packed']}",
        f"page         {report['written']['page'] or 'none: it needs the extra lab'}",
    ]
    return "\n".join(lines)


#: Runs with torch and PyG blocked, as where they are not installed.
_ALONE = """
import sys
sys.modules.update(torch=None, torch_geometric=None)
import json, statistics, time
import bignn
model = bignn.open(sys.argv[1])
bignn.set_num_threads(int(sys.argv[2]))
graph = bignn.load("cora")
packed = bignn.pack_graph(graph, like=model)
times = []
for _ in range(210):
    start = time.perf_counter()
    classes = model.predict(packed)
    times.append(time.perf_counter() - start)
test = graph.test_idx
accuracy = 100 * float((classes[test] == graph.y[test]).mean())
ms = 1e3 * statistics.median(times[10:])
print(json.dumps({"ms": ms, "test_acc": accuracy, "classes": classes.tolist()}))
"""


def _without_torch(file: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _ALONE, str(file), str(get_num_threads())],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise InputError(f"predicting without torch failed: {done.stderr.strip()[-300:]}")
    report: dict[str, Any] = json.loads(done.stdout)
    return report
