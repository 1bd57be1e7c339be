"""``bignn compare``: trains the models, measures them, and puts one report together."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bignn.config.options import COUNT
from bignn.errors import InputError, input_error
from bignn.graph import Graph, load
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.kernels.threads import get_num_threads
from bignn.lab.bench.compared_problem import NeighbourRows
from bignn.lab.compare.measured import Row, TrainedModel, compared, measure
from bignn.packing import pack
from bignn.runtime import PackedGraph, pack_graph
from bignn.runtime.doctor import examine
from bignn.train.averages import mean_and_std
from bignn.train.checkpoint import load_model
from bignn.train.jobs import checked_jobs
from bignn.train.recipes import RECIPES, TWINS, Recipe, recipe, teacher_recipe
from bignn.train.seeds import SeedResults, Teachers, train_seeds

MODELS = ("gcn", "bi-gcn", "sage", "bi-sage")


@dataclass(frozen=True)
class Comparison:
    """The settings of a comparison.

    Attributes:
        dataset: a name or a file, as :func:`bignn.load` takes it.
        models: names of recipes; the float twins of binary ones are added, each before its first.
        seeds: number of seeds, from 0 on.
        distill: whether the binary models learn from float ones.
        epochs, patience, hidden: settings of all models; None for those of the recipes.
        bi_hidden: the width of binary models, if it is another.
        input_bits: bits of their input; None for those of the recipes.

    """

    dataset: str
    models: tuple[str, ...] = MODELS
    seeds: int = 3
    distill: bool = False
    epochs: int | None = None
    patience: int | None = None
    hidden: int | None = None
    bi_hidden: int | None = None
    input_bits: str | None = None

    def __post_init__(self) -> None:
        names = [name.strip() for name in self.models]
        if not names or len(set(names)) < len(names):
            raise input_error("models", "some names, each once", repr(",".join(names)))
        if self.bi_hidden is not None:
            COUNT.check("bi_hidden", self.bi_hidden)
        for name in names:
            if name not in RECIPES:
                raise input_error("models", f"some of {list(RECIPES)}", repr(name))
            recipe(name, **self.changes(name))  # refuses values that it cannot have
        for name in [name for name in names if name in TWINS]:
            if TWINS[name] not in names:
                names.insert(names.index(name), TWINS[name])
        object.__setattr__(self, "models", tuple(names))
        if self.seeds < 1:
            raise input_error("seeds", "at least 1", self.seeds)
        if self.distill and not any(name in TWINS for name in self.models):
            raise InputError(
                f"'models' must include a binary model where --distill is given, got "
                f"'{','.join(names)}'; name one, such as bi-gcn"
            )

    def changes(self, model: str) -> dict[str, Any]:
        """Return the changes to a model's recipe."""
        hidden = self.hidden
        if model in TWINS and self.bi_hidden is not None:
            hidden = self.bi_hidden
        own = {"input_bits": self.input_bits} if model in TWINS else {}
        return {"epochs": self.epochs, "patience": self.patience, "hidden_channels": hidden, **own}

    @property
    def folder(self) -> Path:
        """The default folder of its checkpoints."""
        return Path("runs") / f"compare-{Path(self.dataset).stem}"

    def command(self, out: Path, device: str = "cpu", memory: bool = True) -> str:
        """Return the command that repeats this comparison, in a folder and with as many threads."""
        parts = ["bignn", "compare", self.dataset]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value == field.default:
                continue
            flag = f"--{field.name.replace('_', '-')}"
            listed = ",".join(value) if isinstance(value, tuple) else str(value)
            parts += [flag] if value is True else [flag, listed]
        parts += [] if device == "cpu" else ["--device", device]
        parts += ["--threads", str(get_num_threads())]
        parts += [] if memory else ["--no-memory"]
        parts += [] if out == self.folder else ["--out", str(out)]
        return shlex.join(parts)


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
    trained = _train_models(what, graph, out, resume, options)
    models: dict[str, TrainedModel] = {}
    for name in what.models:
        best = load_model(trained[name].checkpoints[trained[name].best])
        packed = pack(best)
        bits = pack_graph(graph, like=packed) if packed.network.input.binarize else None
        models[name] = TrainedModel(name, trained[name], best, packed, bits)
    measured_on = "val" if graph.test_idx is None else "test"
    rows = {name: _row(model, graph, measured_on) for name, model in models.items()}
    for name, row in rows.items():
        for key, other in (("distilled", _student(name)), ("as_teacher", _teacher(name))):
            if other in trained:
                row[key] = _accuracies(trained[other], measured_on)
    neighbours = NeighbourRows.of(graph)
    for name in what.models:
        if name not in TWINS:
            family = [models[name], *(models[b] for b in what.models if TWINS.get(b) == name)]
            measure(what.dataset, graph, neighbours, family, rows, memory)
    for name, row in rows.items():
        if name in TWINS:
            row["compared"] = compared(rows[TWINS[name]], row)
    return {
        "dataset": what.dataset,
        "graph": _sizes(graph),
        "accuracy_on": measured_on,
        "seeds": list(range(what.seeds)),
        "distilled": what.distill,
        "threads": get_num_threads(),
        "device": device,
        "training_seconds": sum(
            result.seconds
            for found in {id(one): one for one in trained.values()}.values()
            for result in found.results
        ),
        "epochs": what.epochs,
        "memory": memory,
        "command": what.command(out, device, memory),
        "made_by": examine(),
        "out": str(out),
        "models": [rows[name] for name in what.models],
    }


def _train_models(
    what: Comparison, graph: Graph, out: Path, resume: bool, options: dict[str, Any]
) -> dict[str, SeedResults]:
    """Train all models and return them by name; with ``distill`` float students and teachers too.

    Float models are trained first, since binary ones may learn from them.
    """
    seeds, label = range(what.seeds), Path(what.dataset).stem
    common = {**options, "resume": resume, "replace_unusable": True}
    trained: dict[str, SeedResults] = {}

    def train(name: str, chosen: Recipe, kind: str, teachers: Teachers | None = None) -> None:
        folder, title = out / kind, f"{kind} on {label}"
        trained[name] = train_seeds(
            chosen, graph, seeds, folder, label=title, teachers=teachers, **common
        )

    def kind_of(name: str, suffix: str = "") -> str:
        hidden = what.changes(name)["hidden_channels"]
        return name + ("" if hidden is None else f"-{hidden}") + suffix

    for name in what.models:
        if name not in TWINS or not what.distill:
            train(name, recipe(name, graph=graph, **what.changes(name)), kind_of(name))
    for name in what.models if what.distill else ():
        if name not in TWINS:
            continue
        twin = TWINS[name]
        asked = teacher_recipe(name, graph, **what.changes(twin))
        taught_by = _teacher(twin)
        if asked == recipe(twin, graph=graph, **what.changes(twin)):
            trained[taught_by] = trained[twin]
        elif taught_by not in trained:
            train(taught_by, asked, kind_of(twin, "-teacher"))
        paths = zip(trained[taught_by].seeds, trained[taught_by].checkpoints, strict=True)
        teachers = Teachers(checkpoints={seed: [path] for seed, path in paths})
        for key, student in ((name, name), (_student(twin), twin)):
            if key not in trained:
                chosen = recipe(student, graph=graph, distill=True, **what.changes(student))
                train(key, chosen, kind_of(student, "-distilled"), teachers)
    return trained


def _teacher(float_model: str) -> str:
    return f"{float_model} as a teacher"


def _student(float_model: str) -> str:
    return f"{float_model} as a student"


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


def _row(model: TrainedModel, graph: Graph, measured_on: str) -> Row:
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
    return {
        "model": model.name,
        "float_twin": TWINS.get(model.name),
        **_accuracies(model.trained, measured_on),
        "distilled": None,
        "as_teacher": None,
        "epochs": [result.epochs for result in results],
        "seconds_per_run": sum(result.seconds for result in results) / len(results),
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
