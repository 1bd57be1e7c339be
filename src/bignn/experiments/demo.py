"""The first thing a newcomer sees: GCN and Bi-GCN on Cora, with the paper's figures beside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save_file

from bignn import kernels
from bignn.binarize import binarize_weight
from bignn.checkpoint import load_model
from bignn.experiments.seeds import mean_and_std, train_seeds
from bignn.files import atomic_path
from bignn.graph import Graph, load
from bignn.nn import GCN, BinaryRows
from bignn.pack import Arrays, packed_features, packed_weights
from bignn.recipes import recipe

#: Tables "Transductive learning results" and "Memory Consumptions" of the paper: accuracy in
#: percent (mean, standard deviation), sizes in units of 1024 bytes.
PAPER = {
    "gcn": {"accuracy": (81.4, 0.4), "model_kib": 360.0, "data_kib": 14.8 * 1024},
    "bi-gcn": {"accuracy": (81.2, 0.8), "model_kib": 11.53, "data_kib": 0.47 * 1024},
}


def run(
    out: str | os.PathLike[str], *, seeds: int = 1, epochs: int | None = None, progress: bool = True
) -> dict[str, Any]:
    """Trains both models on Cora, packs the binary one, checks the bits, writes all to ``out``."""
    graph = load("cora")
    folder = Path(out)
    rows: list[dict[str, Any]] = []
    models: dict[str, GCN] = {}
    for name in ("gcn", "bi-gcn"):
        trained = train_seeds(
            recipe(name, epochs=epochs),
            graph,
            range(seeds),
            folder / name,
            progress=progress,
            label=f"{name} on cora",
        )
        models[name] = load_model(trained.checkpoints[trained.best])
        mean, std = mean_and_std(trained.test_acc)
        rows.append({"model": name, "test_acc": mean, "test_acc_std": std, "paper": PAPER[name]})
    weights, features = packed_weights(models["bi-gcn"]), packed_features(models["bi-gcn"], graph)
    packed = folder / "cora-bi-gcn-packed.safetensors"
    with atomic_path(packed) as temporary:
        save_file(_prefixed(model=weights, data=features), temporary)
    rows[0]["model_bytes"] = sum(4 * conv.lin.weight.numel() for conv in models["gcn"].layers)
    rows[0]["data_bytes"] = graph.dense_x().nbytes
    rows[1]["model_bytes"] = sum(a.nbytes for key, a in weights.items() if "bias" not in key)
    rows[1]["data_bytes"] = sum(array.nbytes for array in features.values())
    return {
        "dataset": "cora",
        "seeds": seeds,
        "rows": rows,
        "first_layer_exact": _first_layer_agrees(models["bi-gcn"], graph, weights, features),
        "written": {
            "checkpoints": [str(folder / name) for name in ("gcn", "bi-gcn")],
            "packed": str(packed),
        },
    }


def describe(report: dict[str, Any]) -> str:
    """The report of :func:`run` as a table."""
    by_model = {row["model"]: row for row in report["rows"]}
    plain, binary = by_model["gcn"], by_model["bi-gcn"]
    seeds = report["seeds"]
    lines = [
        f"Cora, 2 layers, 64 hidden, {seeds} seed{'s' if seeds > 1 else ''} (mean ± std); "
        "the paper's figures in brackets",
        "",
        f"{'':<22}{'GCN (float)':>26}{'Bi-GCN (1 bit)':>26}{'ratio':>16}",
        "-" * 90,
    ]
    accuracies = [
        f"{row['test_acc']:.1f} ± {row['test_acc_std']:.1f} "
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
    exact = "agree exactly" if report["first_layer_exact"] else "DISAGREE"
    lines += [
        "",
        "Sizes are bytes of arrays as written: weights and their scales (biases aside, as in the",
        "paper), features and their scales. Rows of bits are padded to 64, which is why ours are a",
        "little larger than the paper's estimate.",
        f"XNOR products of the packed bits and the float products of the signs {exact} (layer 1).",
        "",
        *(f"checkpoints  {path}" for path in report["written"]["checkpoints"]),
        f"packed bits  {report['written']['packed']}",
    ]
    return "\n".join(lines)


def _prefixed(**groups: Arrays) -> Arrays:
    return {
        f"{group}.{key}": array for group, arrays in groups.items() for key, array in arrays.items()
    }


def _first_layer_agrees(model: GCN, graph: Graph, weights: Arrays, features: Arrays) -> bool:
    """Whether the packed product equals the float product of the model's own signs, everywhere."""
    dots = kernels.xnor_matmul(features["words"], weights["0.words"], graph.num_features)
    with torch.no_grad():
        rows = model.input_norm(torch.from_numpy(graph.dense_x()))
        assert isinstance(rows, BinaryRows)
        product = rows.signs @ binarize_weight(model.layers[0].lin.weight)[0].t()
    return bool(np.array_equal(dots, product.numpy()))
