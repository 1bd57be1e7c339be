"""``bignn compare``: trains the models, measures them, and puts one report together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from bignn.graph import Graph, load
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.kernels.threads import get_num_threads
from bignn.lab.bench.compared_problem import NeighbourRows
from bignn.lab.compare.advice import advise
from bignn.lab.compare.comparison import Comparison, model_of
from bignn.lab.compare.measured import Row, TrainedModel, compared, measure
from bignn.lab.compare.training import Training, student_of, teacher_of
from bignn.packing import pack
from bignn.runtime import PackedGraph, pack_graph
from bignn.runtime.doctor import examine
from bignn.train.averages import mean_and_std
from bignn.train.checkpoint import load_model
from bignn.train.jobs import checked_jobs
from bignn.train.quality import Students
from bignn.train.recipes import TWINS
from bignn.train.seeds import SeedResults


def run(
    what: Comparison,
    out: Path,
    *,
    device: str = "cpu",
    jobs: int = 1,
    memory: bool = True,
    resume: bool = True,
    progress: bool = True,
) -> dict[str, Any]:
    """Train all models, or read those that ``out`` has, and measure them.

    Accuracies are those of all seeds. Sizes, memory and times are those of the seed with the lowest
    validation loss, on the CPU: binary models packed, float ones in the fastest of several ways.
    """
    checked_jobs(jobs)
    graph = load(what.dataset)
    options = {"device": device, "jobs": jobs, "progress": progress}
    training = Training(what, graph, out, resume, options)
    training.train_all()
    trained = training.trained
    models: dict[str, TrainedModel] = {}
    for name in what.rows:
        best = load_model(trained[name].checkpoints[trained[name].best])
        packed = pack(best)
        bits = pack_graph(graph, like=packed) if packed.network.input.binarize else None
        models[name] = TrainedModel(name, trained[name], best, packed, bits)
    measured_on = "val" if graph.test_idx is None else "test"
    rows = {name: _row(model, graph, measured_on, training) for name, model in models.items()}
    for name, row in rows.items():
        for key, other in (("distilled", student_of(name)), ("as_teacher", teacher_of(name))):
            if other in trained and what.distill:
                row[key] = _accuracies(trained[other], measured_on)
    neighbours = NeighbourRows.of(graph)
    for name in what.models:
        if name not in TWINS:
            twins = [b for b in what.rows if TWINS.get(model_of(b)) == name]
            family = [models[name], *(models[b] for b in twins)]
            measure(what.dataset, graph, neighbours, family, rows, memory)
    for row in rows.values():
        if row["float_twin"] is not None:
            row["compared"] = compared(rows[row["float_twin"]], row)
    advice = advise(training, rows) if what.advice else []
    return {
        "dataset": what.dataset,
        "graph": _sizes(graph),
        "accuracy_on": measured_on,
        "seeds": list(range(what.seeds)),
        "distilled": what.distill,
        "quality": what.quality,
        "threads": get_num_threads(),
        "device": device,
        "training_seconds": training.seconds,
        "epochs": what.epochs,
        "memory": memory,
        "command": what.command(out, device, memory),
        "made_by": examine(),
        "out": str(out),
        "models": [rows[name] for name in what.rows],
        "advice": advice,
    }


def _sizes(graph: Graph) -> dict[str, Any]:
    splits = {key: getattr(graph, f"{key}_idx") for key in ("train", "val", "test")}
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "is_weighted": graph.edge_weight is not None,
        **{key: None if ids is None else len(ids) for key, ids in splits.items()},
    }


def _row(model: TrainedModel, graph: Graph, measured_on: str, training: Training) -> Row:
    """Make a model's row with accuracy and sizes; measurements are filled in later."""
    results = model.trained.results
    config = model.model.config
    kept = model.graph
    dense = 4 * graph.num_nodes * graph.num_features
    sparse: int | None = None
    if kept is not None and isinstance(kept.features, SparseBits):
        sparse = kept.feature_bytes
    elif kept is None:  # compressed rows: a float and a place of 32 bits each
        present = int(np.count_nonzero(graph.dense_x()))
        in_rows = 8 * present + 4 * (graph.num_nodes + 1)
        sparse = in_rows if in_rows < dense else None
    best, students = training.best.get(model.name), training.students.get(model.name)
    seconds = model.trained.seconds / len(results)
    return {
        "model": model.name,
        "float_twin": TWINS.get(model_of(model.name)),
        "quality": "plain" if best is None else "best",
        "taught": _taught(students if best is None else best.students),
        **_accuracies(model.trained, measured_on),
        "distilled": None,
        "as_teacher": None,
        "epochs": [result.epochs for result in results],
        "seconds_per_run": seconds if best is None else best.seconds_per_seed,
        "checkpoint": str(model.checkpoint),
        "hidden": config["hidden_channels"] * config["heads"],
        "heads": config["heads"],
        "input_bits": config["input_bits"],
        "model_bytes": model.packed.sizes.weights,
        "all_model_bytes": sum(array.nbytes for array in model.packed.arrays.values()),
        "data_bytes": dense if kept is None else _bytes(kept),
        "sparse_data_bytes": sparse,
        "is_all_bits": model.packed.network.is_binary,
        "uses_edge_weights": model.model.layers[0].aggr == "gcn",
        "machine_was_busy": False,
        "predicted_by": None,
        "predict_ms": None,
        "fastest_ms": None,
        "peak_mib": None,
        "ways": {},
        "agreement": None,
        "plan": None,
        "explained": None,
        "recommended_width": None,
        "compared": None,
    }


def _taught(students: Students | None) -> dict[str, Any] | None:
    """Return what validation said of teachers; None where there were none."""
    if students is None:
        return None
    return {"follows": students.kind == "distilled", "val_acc": students.validation}


def _accuracies(trained: SeedResults, measured_on: str) -> Row:
    found = [r.val_acc if measured_on == "val" else r.test_acc for r in trained.results]
    mean, std = mean_and_std(found)
    return {"accuracy": found, "accuracy_mean": mean, "accuracy_std": std}


def _bytes(graph: PackedGraph) -> int:
    """Return the bytes of dense bits of all features and of their scales, even if stored sparse."""
    features = graph.features
    assert not isinstance(features, np.ndarray)
    assert graph.beta is not None
    words = features.words if isinstance(features, DenseBits) else features.dense().words
    return words.nbytes + graph.beta.nbytes
