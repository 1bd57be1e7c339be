"""``bignn compare``: float models against their binary twins on a user's own graph, measured."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bignn.bench.compared_problem import ComparedProblem, Neighbours, float_contenders
from bignn.bench.contenders import Contender, Packed
from bignn.bench.peak_memory import memory_bytes, peak_mib_of_trained
from bignn.bench.timing import Seconds, measure_sensibly
from bignn.capacity import recommend_width
from bignn.checkpoint import load_model
from bignn.doctor import examine
from bignn.errors import InputError, wrong
from bignn.experiments.jobs import checked_jobs
from bignn.experiments.seeds import SeedResults, Teachers, mean_and_std, train_seeds
from bignn.graph import Graph, load
from bignn.kernels.operands import DenseBits, SparseBits
from bignn.nn import GNN
from bignn.packing import pack
from bignn.recipes import RECIPES, TWINS, Recipe, recipe, teacher_recipe
from bignn.runtime import PackedGraph, PackedModel, pack_graph
from bignn.threads import get_num_threads

MODELS = ("gcn", "bi-gcn", "sage", "bi-sage")

#: Medians that are so many times the fastest burst tell of other processes: a thread that waits for
#: a core holds up all that wait for it, torch's more than ours. Then bursts are compared.
_BUSY = 3.0

Row = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
        dataset: a name or a file, as :func:`bignn.load` takes it.
        models: names of recipes, binary ones with their float twins.
        seeds: how many, from 0 on.
        distill: the binary models learn from float ones.
        epochs, patience, hidden: of all models; None for the recipes' own.
        bi_hidden: the width of binary models, if it is another.

    """

    dataset: str
    models: tuple[str, ...] = MODELS
    seeds: int = 3
    distill: bool = False
    epochs: int | None = None
    patience: int | None = None
    hidden: int | None = None
    bi_hidden: int | None = None

    def __post_init__(self) -> None:
        given = list(self.models)
        if not given or len(set(given)) < len(given):
            raise wrong("models", "some names, each once", given)
        for name in given:
            if name not in RECIPES:
                raise wrong("models", f"some of {list(RECIPES)}", repr(name))
            recipe(name, **self.changes(name))  # refuses values that it cannot have
        twins = dict.fromkeys(TWINS[name] for name in given if name in TWINS)
        if missing := [twin for twin in twins if twin not in given]:
            fix = f"give {','.join([*missing, *given])}"
            raise wrong("models", f"with {missing}, the float twins of binary ones", given, fix)
        if self.seeds < 1:
            raise wrong("seeds", "at least 1", self.seeds)
        if self.distill and not any(name in TWINS for name in self.models):
            raise wrong("models", "with a binary one to distill", given)

    def changes(self, model: str) -> dict[str, Any]:
        """Of a model's recipe."""
        hidden = self.hidden
        if model in TWINS and self.bi_hidden is not None:
            hidden = self.bi_hidden
        return {"epochs": self.epochs, "patience": self.patience, "hidden": hidden}

    @property
    def folder(self) -> Path:
        """Where its checkpoints are by default."""
        return Path("runs") / f"compare-{Path(self.dataset).stem}"

    def command(self, out: Path, device: str = "cpu", memory: bool = True) -> str:
        """What makes this comparison, in this folder and on as many threads."""
        words = ["bignn", "compare", self.dataset]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value == field.default:
                continue
            flag = f"--{field.name.replace('_', '-')}"
            listed = ",".join(value) if isinstance(value, tuple) else str(value)
            words += [flag] if value is True else [flag, listed]
        words += [] if device == "cpu" else ["--device", device]
        words += ["--threads", str(get_num_threads())]
        words += [] if memory else ["--no-memory"]
        words += [] if out == self.folder else ["--out", str(out)]
        return shlex.join(words)


@dataclass
class _Model:
    """A model that was trained: the seed with the lowest validation loss."""

    name: str
    trained: SeedResults
    model: GNN
    packed: PackedModel
    #: None where its features are floats.
    graph: PackedGraph | None

    @property
    def checkpoint(self) -> Path:
        """Of that seed."""
        return self.trained.checkpoints[self.trained.best]


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
    """Trains all models, or reads those that ``out`` has, and measures them.

    Accuracies are of all seeds; what is measured is the model of the seed with the lowest
    validation loss, on the CPU: binary models packed, float ones in the fastest of several ways.
    """
    checked_jobs(jobs)
    graph = load(what.dataset)
    options = {"device": device, "jobs": jobs, "progress": progress}
    trained = _trained(what, graph, out, resume, options)
    models: dict[str, _Model] = {}
    for name in what.models:
        best = load_model(trained[name].checkpoints[trained[name].best])
        packed = pack(best)
        bits = pack_graph(graph, like=packed) if packed.network.input.binarize else None
        models[name] = _Model(name, trained[name], best, packed, bits)
    measured_on = "val" if graph.test_idx is None else "test"
    rows = {name: _row(model, graph, measured_on) for name, model in models.items()}
    for name, row in rows.items():
        for key, other in (("distilled", _student(name)), ("as_teacher", _teacher(name))):
            if other in trained:
                row[key] = _accuracies(trained[other], measured_on)
    neighbours = Neighbours.of(graph)
    for name in what.models:
        if name not in TWINS:
            family = [models[name], *(models[b] for b in what.models if TWINS.get(b) == name)]
            _measure(what.dataset, graph, neighbours, family, rows, memory)
    for name, row in rows.items():
        if name in TWINS:
            row["compared"] = _compared(rows[TWINS[name]], row)
    return {
        "dataset": what.dataset,
        "graph": _facts(graph),
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
        "command": what.command(out, device, memory),
        "made_by": examine(),
        "out": str(out),
        "models": [rows[name] for name in what.models],
    }


def _say(text: str) -> None:
    print(f"bignn compare: {text}", file=sys.stderr, flush=True)


def _trained(
    what: Comparison, graph: Graph, out: Path, resume: bool, options: dict[str, Any]
) -> dict[str, SeedResults]:
    """All models by name; float ones first, since binary ones may learn from them, as float
    students then do, and teachers that are trained for it.
    """
    seeds, label = range(what.seeds), Path(what.dataset).stem
    common = {**options, "resume": resume, "anew": True}
    trained: dict[str, SeedResults] = {}

    def train(name: str, chosen: Recipe, kind: str, teachers: Teachers | None = None) -> None:
        folder, told = out / kind, f"{kind} on {label}"
        trained[name] = train_seeds(
            chosen, graph, seeds, folder, label=told, teachers=teachers, **common
        )

    def kind_of(name: str, suffix: str = "") -> str:
        hidden = what.changes(name)["hidden"]
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
        teachers = Teachers(of_seed={seed: [path] for seed, path in paths})
        for key, student in ((name, name), (_student(twin), twin)):
            if key not in trained:
                chosen = recipe(student, graph=graph, distill=True, **what.changes(student))
                train(key, chosen, kind_of(student, "-distilled"), teachers)
    return trained


def _teacher(float_model: str) -> str:
    return f"{float_model} as a teacher"


def _student(float_model: str) -> str:
    return f"{float_model} as a student"


def _facts(graph: Graph) -> dict[str, Any]:
    splits = {key: getattr(graph, f"{key}_idx") for key in ("train", "val", "test")}
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "features": graph.num_features,
        "classes": graph.num_classes,
        "is_weighted": graph.edge_weight is not None,
        **{key: None if ids is None else len(ids) for key, ids in splits.items()},
    }


def _row(model: _Model, graph: Graph, measured_on: str) -> Row:
    """Accuracy and sizes; what is measured is filled in later."""
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
        "model_bytes": model.packed.weight_bytes,
        "all_model_bytes": sum(array.nbytes for array in model.packed.arrays.values()),
        "data_bytes": dense if kept is None else _bytes(kept),
        "sparse_data_bytes": sparse,
        "is_all_bits": model.packed.network.is_binary,
        "uses_edge_weights": model.model.layers[0].norm == "gcn",
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
    """Of all features as bits, and their scales, even where they are stored sparse."""
    features = graph.features
    assert not isinstance(features, np.ndarray)
    assert graph.beta is not None
    words = features.words if isinstance(features, DenseBits) else features.dense().words
    return words.nbytes + graph.beta.nbytes


def _measure(
    dataset: str,
    graph: Graph,
    neighbours: Neighbours,
    family: Sequence[_Model],
    rows: dict[str, Row],
    memory: bool,
) -> None:
    """Fills in the rows of a float model and its binary twins, timed in the same rounds."""
    float_one, *binary_ones = family
    problem = ComparedProblem(graph, float_one.model, neighbours=neighbours)
    packed: dict[str, Contender] = {}
    for one in binary_ones:
        if one.packed.network.layers:
            own = ComparedProblem(graph, float_one.model, one.model, neighbours)
            packed[one.name] = Packed(own)
            packed[one.name].load()
            rows[one.name] |= _packed_facts(one, graph)
    seconds = _time(problem, float_one.name, packed)
    for name in packed:
        rows[name]["ways"]["packed"] = _way(seconds.pop(name))
    rows[float_one.name]["ways"] = {key: _way(taken) for key, taken in seconds.items()}
    packed.clear()
    ways = [way for one in family for way in rows[one.name]["ways"].values()]
    is_busy = any(way["ms"] > _BUSY * way["fastest_ms"] for way in ways)
    for one in family:
        _fill(dataset, float_one, one, rows[one.name], is_busy, memory)
    with_bits = [one for one in binary_ones if one.graph is not None]
    advice = _width(float_one.model, graph) if with_bits else None
    for one in with_bits:
        rows[one.name]["recommended_width"] = advice


def _way(taken: Seconds) -> Row:
    return {"ms": 1e3 * taken.median, "fastest_ms": 1e3 * taken.fastest, "peak_mib": None}


def _time(problem: ComparedProblem, name: str, packed: dict[str, Contender]) -> dict[str, Seconds]:
    """Seconds of the float model's ways and of packed models, by their names."""
    kinds = dict(float_contenders(problem.float_model))
    needed = {key: kind.bytes_needed(problem) for key, kind in kinds.items()}
    for key, size in needed.items():
        if size > 0.6 * memory_bytes():
            _say(f"{name}: {key} left out, it would need {size / 1e9:.0f} GB")
            del kinds[key]
    # All in the same rounds where they fit memory together, otherwise each beside ours.
    at_once = sum(needed[key] for key in kinds) < 0.4 * memory_bytes()
    taken: dict[str, list[Seconds]] = {}
    for group in [list(kinds)] if at_once else [[key] for key in kinds]:
        runners = {**packed, **{key: kinds[key](problem) for key in group}}
        _say(f"timing {', '.join([*(f'{name} ({key})' for key in group), *packed])}")
        for key in group:
            runners[key].load()
        for key, seconds in measure_sensibly({k: r.run for k, r in runners.items()}).items():
            taken.setdefault(key, []).append(seconds)
    return {key: sorted(several)[len(several) // 2] for key, several in taken.items()}


def _packed_facts(one: _Model, graph: Graph) -> Row:
    assert one.graph is not None
    plan = one.packed.explain(one.graph)
    weight = None if graph.edge_weight is None else torch.from_numpy(graph.edge_weight)
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    same = one.packed.predict(one.graph) == one.model.predict(x, edges, weight).numpy()
    return {"agreement": float(same.mean()), "plan": plan.ways, "explained": str(plan)}


def _fill(
    dataset: str, float_one: _Model, one: _Model, row: Row, is_busy: bool, memory: bool
) -> None:
    """The way that is fastest, and peak memory: its own, and that of what PyG's examples do."""
    judged_by = "fastest_ms" if is_busy else "ms"
    best = min(row["ways"], key=lambda key: float(row["ways"][key][judged_by]), default=None)
    for key, way in row["ways"].items():
        if memory and key in (best, "pyg"):
            _say(f"peak memory of {one.name} ({key})")
            binary = one.checkpoint if key == "packed" else None
            way["peak_mib"] = peak_mib_of_trained(
                dataset, float_one.checkpoint, binary, key, threads=get_num_threads()
            )
    if best is not None:
        row["machine_was_busy"] = is_busy
        row["predicted_by"] = best
        row["predict_ms"] = row["ways"][best]["ms"]
        row["fastest_ms"] = row["ways"][best]["fastest_ms"]
        row["peak_mib"] = row["ways"][best]["peak_mib"]


def _width(float_model: GNN, graph: Graph) -> dict[str, Any] | None:
    try:
        advice = recommend_width(float_model, graph)
    except InputError as error:
        _say(f"no width is recommended: {error}")
        return None
    return {
        "width": advice.width,
        "estimate": advice.estimate,
        "lower_bound": advice.lower_bound,
        "bins": advice.bins,
        "float_width": max((layer.width for layer in advice.layers if layer.is_hidden), default=0),
    }


def _compared(plain: Row, binary: Row) -> dict[str, float | None]:
    """A binary model beside its float twin: accuracy in points, the rest in times."""
    nothing = {"ms": None, "fastest_ms": None, "peak_mib": None}
    pyg = plain["ways"].get("pyg", nothing)
    fastest = min((way["fastest_ms"] for way in plain["ways"].values()), default=None)

    def times(theirs: float | None, ours: float | None) -> float | None:
        return theirs / ours if theirs and ours else None

    return {
        "accuracy_points": binary["accuracy_mean"] - plain["accuracy_mean"],
        "model_times_smaller": times(plain["model_bytes"], binary["model_bytes"]),
        "data_times_smaller": times(plain["data_bytes"], binary["data_bytes"]),
        "memory_times_less": times(plain["peak_mib"], binary["peak_mib"]),
        "memory_times_less_than_pyg": times(pyg["peak_mib"], binary["peak_mib"]),
        "times_faster": times(plain["predict_ms"], binary["predict_ms"]),
        "times_faster_than_pyg": times(pyg["ms"], binary["predict_ms"]),
        "fastest_times_faster": times(fastest, binary["fastest_ms"]),
        "fastest_times_faster_than_pyg": times(pyg["fastest_ms"], binary["fastest_ms"]),
    }
