"""The command ``bignn train``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bignn
from bignn.cli.command import (
    Report,
    add_dataset,
    add_device,
    add_jobs,
    add_threads,
    add_timeout,
    command,
    set_threads,
)
from bignn.cli.recipe_flags import (
    OF_MODEL,
    OF_SAMPLES,
    OF_TRAINING,
    add_recipe_flags,
    changes_of,
)
from bignn.errors import InputError, input_error, not_for_a_store
from bignn.runtime.parts.graph_part import GraphPart, StoredBits
from bignn.runtime.parts.part_files import is_partition, open_part
from bignn.runtime.store import Store, is_store
from bignn.train.averages import mean_and_std, plus_minus
from bignn.train.recipes import PAPER, RECIPES, Recipe, recipe, teacher_recipe

if TYPE_CHECKING:
    from bignn.train.distributed import World
    from bignn.train.quality import Students
    from bignn.train.seeds import SeedResults


def add_train(commands: Any) -> None:
    """Add ``bignn train``."""
    parser = command(commands, "train", _train, "Train a model on a graph, with one or more seeds.")
    add = parser.add_argument
    add_dataset(add, ", or the folder of a store (see 'bignn pack-features')")
    add(
        "--model",
        default="bi-gcn",
        choices=tuple(RECIPES),
        metavar="NAME",
        help=f"one of {', '.join(RECIPES)} (default: bi-gcn)",
    )
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--seeds", type=int, metavar="N", help="train with seeds 0 to N-1")
    many.add_argument("--seed", type=int, metavar="S", help="train with this seed (default: 0)")
    add_recipe_flags(parser.add_argument_group("model"), OF_MODEL)
    add_recipe_flags(parser.add_argument_group("training"), OF_TRAINING)
    add_recipe_flags(parser.add_argument_group("samples"), OF_SAMPLES)
    add("--as-paper", action="store_true", help="train by the paper's settings for this dataset, "
        "instead of by what the graph is like")  # fmt: skip
    add("--quality", choices=("plain", "best"), default="plain", help="best: as wide as "
        "recommended, and taught by four float models unless validation prefers it alone; trains "
        "six models a seed (default: plain)")  # fmt: skip
    add = parser.add_argument_group("teachers").add_argument
    add(
        "--distill",
        action="store_true",
        help="learn from the float twin, which is trained first or reused",
    )
    add(
        "--teachers",
        type=int,
        metavar="N",
        help="learn from the average of N teachers (default: 1, with --quality best 4)",
    )
    add(
        "--teacher",
        action="append",
        metavar="CHECKPOINT",
        help="learn from this model; may be repeated",
    )
    add("--always-follow", action="store_true", help="keep the student even if the first seed "
        "is better without a teacher on validation, and do not try")  # fmt: skip
    add = parser.add_argument_group("running").add_argument
    add_device(add)
    add("--out", metavar="DIR", help="folder for checkpoints (default: runs/DATASET-MODEL)")
    add("--resume", action="store_true", help="resume from the checkpoints in --out")
    add("--save-every", type=float, default=10.0, metavar="SECONDS",
        help="time between checkpoints (default: 10)")  # fmt: skip
    add_jobs(add, "train seeds")
    add_threads(add)
    add("--halo-gradients", choices=("float", "int8"), default="float", help="how processes with "
        "parts of a graph send gradients to each other (default: float)")  # fmt: skip
    add_timeout(add)


_OF_RECIPE = (*OF_MODEL, *OF_TRAINING, *OF_SAMPLES)


def _train(options: argparse.Namespace) -> Report | None:
    """Train, and return None in processes that follow the one that reports."""
    from bignn.train.distributed import joined_world

    with joined_world(options.device, options.timeout) as world:
        report = _trained(options, world)
    return report if world.is_leader else None


def _trained(options: argparse.Namespace, world: World) -> Report:
    from bignn.train.jobs import checked_jobs

    checked_jobs(options.jobs)
    from bignn.train.seeds import train_seeds

    if options.threads is not None:
        set_threads(options.threads)
    changes = changes_of(options, _OF_RECIPE)
    # Refuses wrong values before the graph is read; samplers are a matter of the graph.
    paper = _paper(options)
    asked = recipe(options.model, paper=paper, **changes_of(options, (*OF_MODEL, *OF_TRAINING)))
    if options.input_bits is not None and asked.binarize not in ("features", "both"):
        expected = f"left out for '{options.model}', which reads the features themselves"
        raise input_error("input_bits", expected, repr(options.input_bits))
    seeds = _seeds(options)
    if is_store(options.dataset):
        return _trained_on_store(options, seeds, changes, world)
    graph: Any = bignn.load(options.dataset) if not is_partition(options.dataset) else None
    if graph is None:
        graph = open_part(options.dataset, world.rank, world.size)
        if options.quality == "best":
            raise input_error("quality", "'plain' for a graph in parts", repr(options.quality))
        for name in ("distill", "teacher"):
            if isinstance(graph.x, StoredBits) and getattr(options, name):
                raise input_error(name, "left out for parts of a store", getattr(options, name))
        world.check_same(
            {"their version of bignn": bignn.__version__, "their parts": graph.partition.digest},
            "install one version, and copy the parts of one 'bignn partition' to all machines",
        )
    label = Path(options.dataset).stem
    is_best = options.quality == "best"
    distill = options.distill or options.teacher is not None or is_best
    for name in ("teachers", "distill_mix", "temperature", "always_follow"):
        if not distill and getattr(options, name) not in (None, False):
            raise InputError(f"'{name}' needs --distill or --teacher")
    kind = f"{options.model}-distilled" if distill else options.model
    kind = f"{options.model}-best" if is_best else kind
    out = _out(options, f"{label}-{kind}", seeds, world)
    common = {"device": options.device, "save_every": options.save_every, "jobs": options.jobs}
    if isinstance(graph, GraphPart):
        common["halo_gradients"] = options.halo_gradients
    if is_best:
        return _trained_best(options, graph, seeds, out, {**common, "changes": changes})
    facts = graph.partition if isinstance(graph, GraphPart) else graph
    planned = recipe(options.model, graph=facts, distill=distill, paper=paper, **changes)
    taught_by, teachers = _teachers(options, graph, seeds, out, common) if distill else (None, None)
    common |= {"resume": options.resume}
    if teachers is not None and not options.always_follow:
        return _trained_students(options, graph, planned, (taught_by, teachers), out, common)
    labelled = f"{kind} on {label}"
    trained = train_seeds(planned, graph, seeds, out, label=labelled, teachers=teachers, **common)
    report = _results(options, trained) | {"distilled": distill, "teacher_test_acc_mean": taught_by}
    return report, _describe_train


def _out(options: argparse.Namespace, name: str, seeds: list[int], world: World) -> Path:
    """Return the folder of the checkpoints; print a line where some there are replaced."""
    out = Path(options.out or Path("runs") / name)
    files = [f"seed-{seed}.safetensors" for seed in seeds]
    places = [out, out / "distilled", out / "alone"]
    old = [file for file in files if any((place / file).exists() for place in places)]
    if old and not options.resume and world.is_leader:
        shown = old[0] if len(old) == 1 else f"{old[0]} and {len(old) - 1} more"
        print(
            f"note: '{out}' has {shown} already, which this run replaces; --resume goes on with "
            "what is there, --out DIR writes elsewhere",
            file=sys.stderr,
            flush=True,
        )
    return out


def _trained_on_store(
    options: argparse.Namespace, seeds: list[int], changes: dict[str, Any], world: World
) -> Report:
    """Train from a store, by neighbour sampling."""
    from bignn.train.seeds import train_seeds

    for name in ("distill", "teacher", "teachers", "as_paper", "input_bits", "normalize_rows"):
        if (value := getattr(options, name, None)) not in (None, False):
            raise not_for_a_store(name, value)
    if options.quality == "best":
        raise input_error("quality", "plain for a store", options.quality)
    store = Store(options.dataset)
    of_store = {
        "sampler": changes.get("sampler") or "neighbor",
        "inductive": bool(changes.get("inductive")),  # recipes for many labels are
        "input_bits": store.stage.input_bits,
        "normalize_rows": store.stage.normalize_rows,
    }
    planned = recipe(options.model, graph=store, **{**changes, **of_store})
    label = store.path.resolve().name
    trained = train_seeds(
        planned,
        store,
        seeds,
        _out(options, f"{label}-{options.model}", seeds, world),
        label=f"{options.model} on {label}",
        device=options.device,
        save_every=options.save_every,
        jobs=options.jobs,
        resume=options.resume,
    )
    report = _results(options, trained) | {"distilled": False, "teacher_test_acc_mean": None}
    return report, _describe_train


def _seeds(options: argparse.Namespace) -> list[int]:
    if options.seeds is not None and options.seeds < 1:
        raise input_error("seeds", "at least 1", options.seeds)
    if options.seed is not None and not 0 <= options.seed < 2**63:
        raise input_error("seed", "0 or more, below 2**63", options.seed)
    return list(range(options.seeds)) if options.seeds is not None else [options.seed or 0]


def _results(options: argparse.Namespace, trained: SeedResults) -> dict[str, Any]:
    """Return what a report has of the seeds of a model."""
    mean, std = mean_and_std(trained.test_acc)
    count = len(trained.results)
    return {
        "dataset": options.dataset,
        "model": options.model,
        "seeds": trained.seeds,
        "test_acc": trained.test_acc,
        "test_acc_mean": mean,
        "test_acc_std": std,
        "val_acc_mean": sum(result.val_acc for result in trained.results) / count,
        "epochs": [result.epochs for result in trained.results],
        "seconds_per_run": sum(result.seconds for result in trained.results) / count,
        "checkpoint": str(trained.checkpoints[trained.best]),
    } | _exchanged(trained)


def _exchanged(trained: SeedResults) -> dict[str, Any]:
    """Return the bytes that processes with parts of a graph sent each other, of all seeds."""
    counts = [result.exchanged for result in trained.results if result.exchanged is not None]
    if not counts:
        return {}
    return {"exchange": {name: sum(some[name] for some in counts) for name in counts[0]}}


def _trained_students(
    options: argparse.Namespace,
    graph: bignn.Graph,
    planned: Recipe,
    taught_by: tuple[float | None, Any],
    out: Path,
    common: Any,
) -> Report:
    """Train with teachers, unless the first seed is better without by its validation accuracy."""
    from bignn.train.quality import keep_chosen, train_students, without_teaching

    changes = without_teaching(changes_of(options, _OF_RECIPE))
    facts = getattr(graph, "partition", graph)
    alone = recipe(options.model, graph=facts, paper=_paper(options), **changes)
    students = train_students(
        planned,
        alone,
        graph,
        _seeds(options),
        taught_by[1],
        out=out / "distilled",
        out_alone=out / "alone",
        label=f"{options.model} on {Path(options.dataset).stem}",
        **common,
    )
    chosen = keep_chosen(students, out)
    report = _results(options, chosen) | _of_students(students)
    return report | {"teacher_test_acc_mean": taught_by[0]}, _describe_train


def _of_students(students: Students) -> dict[str, Any]:
    """Return what a report has of the choice between teachers and none."""
    val = students.validation
    return {
        "distilled": students.kind == "distilled",
        **{f"val_acc_mean_{kind}": accuracy for kind, accuracy in val.items()},
    }


def _trained_best(
    options: argparse.Namespace, graph: bignn.Graph, seeds: list[int], out: Path, common: Any
) -> Report:
    """Train a model by ``--quality best``."""
    from bignn.train.quality import NUM_TEACHERS, train_best

    for name in ("teacher", "as_paper", "always_follow"):
        if getattr(options, name):
            raise input_error(name, "left out with --quality best", getattr(options, name))
    trained = train_best(
        options.model,
        graph,
        seeds,
        out,
        num_teachers=options.teachers or NUM_TEACHERS,
        label=f"{options.model} on {Path(options.dataset).stem}",
        resume=options.resume,
        **common,
    )
    report = _results(options, trained.chosen) | {
        **_of_students(trained.students),
        "teacher_test_acc_mean": mean_and_std(trained.teachers.test_acc)[0],
        "hidden_channels": trained.recipe.hidden_channels,
        "input_bits": trained.recipe.input_bits,
        "seconds_per_run": trained.seconds_per_seed,
    }
    return report, _describe_best


def _describe_best(report: dict[str, Any]) -> str:
    return (
        f"{_describe_train(report)}\n"
        f"{report['hidden_channels']} hidden neurons, input bits {report['input_bits']}"
    )


def _paper(options: argparse.Namespace) -> str | None:
    """Return the dataset of the paper whose settings are asked for."""
    if options.as_paper and options.dataset not in PAPER:
        raise InputError(
            f"'as_paper' needs a dataset of the paper, one of {', '.join(PAPER)}, got "
            f"'{options.dataset}'; leave it out to train by what the graph is like"
        )
    return options.dataset if options.as_paper else None


def _teachers(
    options: argparse.Namespace, graph: bignn.Graph, seeds: Sequence[int], out: Path, common: Any
) -> tuple[float | None, Any]:
    """Return the mean test accuracy of the teachers, None if it is unknown, and the teachers."""
    from bignn.train.checkpoint import load_model
    from bignn.train.seeds import Teachers, train_teachers

    if options.teacher is not None:
        if options.teachers is not None:
            raise input_error("teachers", "left out when --teacher names them", options.teachers)
        return None, Teachers(models=[load_model(path) for path in options.teacher])
    changes = {"epochs": options.epochs, "patience": options.patience}
    changed = "".join(f"-{name}-{value}" for name, value in changes.items() if value is not None)
    trained, teachers = train_teachers(
        teacher_recipe(
            options.model, getattr(graph, "partition", graph), paper=_paper(options), **changes
        ),
        graph,
        seeds,
        1 if options.teachers is None else options.teachers,
        out / f"teacher{changed}",
        label=f"teacher on {Path(options.dataset).stem}",
        **common,
    )
    return mean_and_std(trained.test_acc)[0], teachers


def _describe_train(report: dict[str, Any]) -> str:
    test = "no test split"
    if report["test_acc_mean"] is not None:
        test = f"test accuracy {plus_minus(report['test_acc_mean'], report['test_acc_std'])} %"
    count = len(report["seeds"])
    kind = f"{report['model']}, distilled," if report["distilled"] else report["model"]
    teacher = ""
    if report["teacher_test_acc_mean"] is not None:
        teacher = f"teacher's test accuracy {report['teacher_test_acc_mean']:.1f} %\n"
    if "val_acc_mean_alone" in report:
        chosen = "with its teacher" if report["distilled"] else "without a teacher"
        teacher += (
            f"trained {chosen}: validation {report['val_acc_mean_distilled']:.1f} % with it, "
            f"{report['val_acc_mean_alone']:.1f} % without\n"
        )
    return (
        f"{kind} on {report['dataset']}: {test}, "
        f"validation {report['val_acc_mean']:.1f} % "
        f"({count} seed{'s' if count > 1 else ''}, {report['seconds_per_run']:.1f} s each)\n"
        f"{teacher}{_describe_exchange(report)}checkpoint {report['checkpoint']}"
    )


def _describe_exchange(report: dict[str, Any]) -> str:
    """Format the bytes between parts; nothing where none were sent."""
    sent = report.get("exchange")
    if not sent or not sent["forward_bytes"]:
        return ""
    directions = []
    for name, what in (("forward", "rows forward"), ("backward", "gradients back")):
        count, floats = sent[f"{name}_bytes"], sent[f"{name}_float32_bytes"]
        ratio = f", {floats / count:.1f} times as many" if floats > count else ""
        directions.append(f"{count:,} bytes of {what} (as float32 {floats:,}{ratio})")
    return f"sent {' and '.join(directions)}\n"
