"""The command ``bignn``: arguments in, one table or one JSON document out.

Progress and messages go to stderr. Exit code 0; 1 with one clear line for a failure; 2 for usage.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bignn
from bignn.errors import InputError, missing_extra, wrong
from bignn.files import prepare


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line and returns its exit code."""
    options = _parser().parse_args(arguments)
    try:
        done = options.run(options)
    except (InputError, OSError) as error:
        return _fail(options, " ".join(str(error).split()) or type(error).__name__)
    except MemoryError:
        return _fail(options, _OUT_OF_MEMORY)
    except ImportError as error:
        if (line := missing_extra(f"'bignn {options.command}'", error)) is None:
            raise
        return _fail(options, line)
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        return _fail(options, _OUT_OF_MEMORY)
    except KeyboardInterrupt:
        hint = "; continue with --resume" if options.command == "train" else ""
        print(f"bignn {options.command}: interrupted{hint}", file=sys.stderr)
        return 130
    if done is None:
        return 0
    report, describe = done
    try:
        print(json.dumps(report, allow_nan=False) if options.json else describe(report), flush=True)
    except BrokenPipeError:  # whoever reads has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


_OUT_OF_MEMORY = (
    "out of memory; take a smaller graph or model (--hidden, --layers), or a machine with more"
)


def _fail(options: argparse.Namespace, line: str) -> int:
    print(f"bignn {options.command}: error: {line}", file=sys.stderr)
    return 1


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Torch reports the CPU's as a plain RuntimeError."""
    signs = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return any(sign in str(error) for sign in signs)


Report = tuple[dict[str, Any], Callable[[dict[str, Any]], str]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bignn", description="Binary graph neural networks that are really binary."
    )
    parser.add_argument("--version", action="version", version=f"bignn {bignn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_train(commands)
    _add_convert(commands)
    _add_pack(commands)
    _add_predict(commands)
    _add_bench(commands)
    _add_demo(commands)
    _add_datasets(commands)
    _add_doctor(commands)
    return parser


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], Report | None], summary: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    parser.set_defaults(run=run)
    return parser


def _add_train(commands: Any) -> None:
    parser = _command(
        commands, "train", _train, "Train a model on a graph, with one or more seeds."
    )
    add = parser.add_argument
    add("dataset", help="a name that 'bignn datasets' lists, a name in $BIGNN_DATA, a .npz file")
    add("--model", default="bi-gcn", help="gcn, gat, sage, saint, sgc, fastgcn, bi-gcn, bi-gat, "
        "bi-sage, bi-saint, bi-gcn-f or bi-gcn-w (default: bi-gcn)")  # fmt: skip
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--seeds", type=int, metavar="N", help="train with seeds 0 to N-1")
    many.add_argument("--seed", type=int, metavar="S", help="train with this seed (default: 0)")
    add("--epochs", type=int, help="at most so many epochs (default: 1000)")
    add("--patience", type=int, help="epochs without a lower validation loss (default: 100)")
    add("--lr", type=float, help="learning rate (default: the model's recipe)")
    add("--weight-decay", type=float, help="L2 penalty (default: the model's recipe)")
    add("--beta1", type=float, help="Adam's first moment (default: the model's recipe)")
    add("--last-layer-lr", type=float, help="factor on the last layer's rate (default: the recipe)")
    add("--hidden", type=int, help="hidden neurons per layer (default: the recipe)")
    add("--layers", type=int, help="number of convolutions (default: 2)")
    add("--dropout", type=float, help="dropout of every layer's input (default: the recipe)")
    add("--input-dropout", type=float, help="dropout of the first layer's input (default: dropout)")
    add("--drop", choices=["all", "present"], help="features to drop from (default: the recipe)")
    add("--balance", action=argparse.BooleanOptionalAction, default=None,
        help="as many +1 as -1 in the first layer's columns (default: the recipe)")  # fmt: skip
    add("--heads", type=int, help="attention heads of hidden layers (default: the recipe)")
    add("--out-heads", type=int, help="attention heads of the last layer (default: the recipe)")
    add("--attention-dropout", type=float, help="dropout of attention (default: the recipe)")
    add("--binarize-head", action=argparse.BooleanOptionalAction, default=None,
        help="binarize the last map of saint models too (default: the recipe)")  # fmt: skip
    add("--norm", choices=["none", "batch"], help="normalisation between layers (default: recipe)")
    add("--normalize-rows", action=argparse.BooleanOptionalAction, default=None,
        help="scale each node's features to sum 1 (default: the recipe)")  # fmt: skip
    add("--ste", choices=["input", "gradient"], help="gradient mask of features (default: input)")
    add("--inductive", action=argparse.BooleanOptionalAction, default=None,
        help="train on the training nodes alone (default: the recipe)")  # fmt: skip
    add("--sampler", choices=["none", "neighbor", "walk", "node", "edge", "layer"],
        help="how batches are drawn (default: the recipe)")  # fmt: skip
    add("--batch-size", type=int, help="nodes, walks or edges per batch (default: the recipe)")
    add("--fan-outs", type=_numbers, metavar="K,K", help="neighbours per hop, -1 for all, or nodes "
        "per layer (default: the recipe)")  # fmt: skip
    add("--walk-length", type=int, help="steps of a random walk (default: the recipe)")
    add("--distill", action="store_true", help="learn from the float twin, trained first or reused")
    add("--teachers", type=int, default=1, metavar="N", help="average of N teachers (default: 1)")
    add("--teacher", action="append", metavar="CHECKPOINT", help="learn from it; may be repeated")
    add("--distill-mix", type=float, help="the teacher's share of the loss (default: 0.9)")
    add("--temperature", type=float, help="of distillation (default: 1)")
    add("--device", default="cpu", choices=["cpu", "cuda"], help="where to train (default: cpu)")
    add("--out", metavar="DIR", help="folder of checkpoints (default: runs/DATASET-MODEL)")
    add("--resume", action="store_true", help="go on from the checkpoints in --out")
    add("--save-every", type=float, default=10.0, metavar="SECONDS", help="(default: 10)")
    add("--jobs", type=int, default=1, metavar="J", help="seeds trained at the same time, by so "
        "many processes that share the threads (default: 1)")  # fmt: skip


_RECIPE_FLAGS = (
    *("hidden", "layers", "heads", "out_heads", "dropout", "input_dropout", "attention_dropout"),
    *("drop", "balance", "norm", "binarize_head", "inductive", "sampler", "batch_size"),
    *("fan_outs", "walk_length"),
    *("normalize_rows", "ste", "lr", "weight_decay", "beta1", "last_layer_lr", "epochs"),
    *("patience", "distill_mix", "temperature"),
)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers such as 25,10, got '{text}'") from None


def _train(options: argparse.Namespace) -> Report | None:
    """None where another process, of those that train together, has the word."""
    from bignn.distributed import joined

    with joined(options.device) as world:
        report = _trained(options)
    return report if world.is_leader else None


def _trained(options: argparse.Namespace) -> Report:
    from bignn.experiments.jobs import checked_jobs

    checked_jobs(options.jobs)
    from bignn.experiments.seeds import mean_and_std, train_seeds
    from bignn.recipes import SAMPLING, recipe

    changes = {name: getattr(options, name) for name in _RECIPE_FLAGS}
    # Refuses wrong values before the graph is read; samplers are a matter of the graph.
    recipe(options.model, **{k: v for k, v in changes.items() if k not in SAMPLING})
    if options.seeds is not None and options.seeds < 1:
        raise wrong("seeds", "at least 1", options.seeds)
    if options.seed is not None and not 0 <= options.seed < 2**63:
        raise wrong("seed", "0 or more, below 2**63", options.seed)
    seeds = range(options.seeds) if options.seeds is not None else [options.seed or 0]
    graph = bignn.load(options.dataset)
    label = Path(options.dataset).stem
    distill = options.distill or options.teacher is not None
    only_with_it = (options.teachers != 1, options.distill_mix, options.temperature)
    if not distill and any(option not in (None, False) for option in only_with_it):
        got = "neither, but --teachers, --distill-mix or --temperature"
        raise wrong("distill", "given (or --teacher)", got)
    kind = f"{options.model}-distilled" if distill else options.model
    out = Path(options.out or Path("runs") / f"{label}-{kind}")
    common = {"device": options.device, "save_every": options.save_every, "jobs": options.jobs}
    taught_by, teachers = _teachers(options, graph, seeds, out, common) if distill else (None, None)
    trained = train_seeds(
        recipe(options.model, graph=graph, distill=distill, **changes),
        graph,
        seeds,
        out,
        resume=options.resume,
        label=f"{kind} on {label}",
        teachers=teachers,
        **common,
    )
    mean, std = mean_and_std(trained.test_acc)
    count = len(trained.results)
    report = {
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
        "distilled": distill,
        "teacher_test_acc_mean": taught_by,
    }
    return report, _describe_train


def _teachers(
    options: argparse.Namespace, graph: bignn.Graph, seeds: Sequence[int], out: Path, common: Any
) -> tuple[float | None, Any]:
    """The mean test accuracy of the teachers, if it is known, and the teachers."""
    from bignn.checkpoint import load_model
    from bignn.experiments.seeds import Teachers, mean_and_std, train_teachers
    from bignn.recipes import teacher_recipe

    if options.teacher is not None:
        if options.teachers != 1:
            raise wrong("teachers", "left out when --teacher names them", options.teachers)
        return None, Teachers(of_all=[load_model(path) for path in options.teacher])
    changes = {"epochs": options.epochs, "patience": options.patience}
    changed = "".join(f"-{name}-{value}" for name, value in changes.items() if value is not None)
    trained, teachers = train_teachers(
        teacher_recipe(options.model, graph, **changes),
        graph,
        seeds,
        options.teachers,
        out / f"teacher{changed}",
        label=f"teacher on {Path(options.dataset).stem}",
        **common,
    )
    return mean_and_std(trained.test_acc)[0], teachers


def _describe_train(report: dict[str, Any]) -> str:
    test = "no test split"
    if report["test_acc_mean"] is not None:
        test = f"test accuracy {report['test_acc_mean']:.1f} ± {report['test_acc_std']:.1f} %"
    count = len(report["seeds"])
    kind = f"{report['model']}, distilled," if report["distilled"] else report["model"]
    teacher = ""
    if report["teacher_test_acc_mean"] is not None:
        teacher = f"teacher's test accuracy {report['teacher_test_acc_mean']:.1f} %\n"
    return (
        f"{kind} on {report['dataset']}: {test}, "
        f"validation {report['val_acc_mean']:.1f} % "
        f"({count} seed{'s' if count > 1 else ''}, {report['seconds_per_run']:.1f} s each)\n"
        f"{teacher}checkpoint {report['checkpoint']}"
    )


def _add_convert(commands: Any) -> None:
    parser = _command(
        commands, "convert", _convert, "Make a graph .npz from tables in CSV, TSV or Parquet."
    )
    add = parser.add_argument
    add("out", help="the .npz file to write")
    add("--edges", required=True, metavar="FILE", help="source, target[, weight]")
    add("--features", required=True, metavar="FILE", help="a row per node, numeric columns")
    add("--labels", metavar="FILE", help="a label per node, last column; empty means unknown")
    add("--id", metavar="COLUMN", help="column that names the nodes in features and labels")
    add(
        "--undirected",
        action="store_true",
        help="add the reverse of every edge; repeated edges become one, weights add up",
    )
    add("--split", metavar="A,B,C", help="random train,val,test split in percent, as 60,20,20")
    add("--seed", type=int, default=0, help="of the split (default: 0)")
    add("--no-header", action="store_true", help="text tables have no row of column names")


def _convert(options: argparse.Namespace) -> Report:
    from bignn.graph.convert import convert

    split = None
    if options.split is not None:
        try:
            split = [float(part) for part in options.split.split(",")]
        except ValueError:
            raise wrong("split", "percentages such as 60,20,20", repr(options.split)) from None
    if not options.out.endswith(".npz"):
        raise wrong("out", "a file name ending in .npz", repr(options.out))
    graph, classes = convert(
        options.edges,
        options.features,
        options.labels,
        id_column=options.id,
        undirected=options.undirected,
        split=split,
        seed=options.seed,
        header=not options.no_header,
    )
    bignn.save(graph, options.out)
    sizes = {
        "num_nodes": graph.num_nodes,
        "num_edges": graph.num_edges,
        "num_features": graph.num_features,
    }
    return {"out": options.out, **sizes, "classes": classes}, _describe_convert


def _describe_convert(report: dict[str, Any]) -> str:
    return (
        f"wrote {report['out']}: {report['num_nodes']} nodes, {report['num_edges']} directed "
        f"edges, {report['num_features']} features, {len(report['classes'])} classes"
        + "".join(f"\n  class {number}: {name}" for number, name in enumerate(report["classes"]))
    )


def _add_pack(commands: Any) -> None:
    parser = _command(
        commands, "pack", _pack, "Make a packed model (.bignn) from a checkpoint of 'bignn train'."
    )
    parser.add_argument("checkpoint", help="a .safetensors file written by 'bignn train'")
    parser.add_argument("out", help="the .bignn file to write")


def _pack(options: argparse.Namespace) -> Report:
    from bignn.checkpoint import load_model
    from bignn.packing import pack

    if not options.out.endswith(".bignn"):
        raise wrong("out", "a file name ending in .bignn", repr(options.out))
    packed = pack(load_model(options.checkpoint))
    packed.save(options.out)
    sizes = packed.nbytes
    report = {
        "out": options.out,
        "weight_bytes": sizes["weights"],
        "input_bytes": sizes["input"],
        "file_bytes": Path(options.out).stat().st_size,
        "is_binary": packed.network.is_binary,
        "operations": [step["op"] for step in packed.operations],
    }
    return report, _describe_pack


def _describe_pack(report: dict[str, Any]) -> str:
    kind = "all bits" if report["is_binary"] else "with float parts"
    return (
        f"wrote {report['out']}: {report['file_bytes']:,} bytes, {kind} "
        f"({report['weight_bytes']:,} of weights, scales and biases, "
        f"{report['input_bytes']:,} of input statistics)"
    )


def _add_predict(commands: Any) -> None:
    parser = _command(
        commands, "predict", _predict, "Predict the nodes of a graph with a packed model; no torch."
    )
    add = parser.add_argument
    add("model", help="a .bignn file")
    add("dataset", help="cora, ..., a .npz file, or a packed graph (see --save-graph)")
    add("--nodes", metavar="IDS", help="only these, as 0,5,9 (default: all)")
    add("--out", metavar="FILE", help="write predictions: .csv or .npy")
    add("--output", default="classes", choices=["classes", "probabilities", "logits"])
    add("--plan", help="force ways: T, G or S, or a letter per layer (default: planned)")
    add("--explain", action="store_true", help="show the plan, its costs and times")
    add("--threads", type=int, metavar="N", help="(default: OMP_NUM_THREADS, or all cores)")
    add("--save-graph", metavar="FILE", help="also write the packed graph, to predict from later")


def _predict(options: argparse.Namespace) -> Report:
    from bignn import deploy

    nodes = None
    if options.nodes is not None:
        try:
            nodes = [int(part) for part in options.nodes.split(",")]
        except ValueError:
            raise wrong("nodes", "ids such as 0,5,9", repr(options.nodes)) from None
    report = deploy.predict_file(
        options.model,
        options.dataset,
        nodes=nodes,
        out=options.out,
        output=options.output,
        plan=options.plan,
        explain=options.explain,
        threads=options.threads,
        save_graph=options.save_graph,
    )
    return report, deploy.describe


def _add_bench(commands: Any) -> None:
    parser = _command(
        commands,
        "bench",
        _bench,
        "Measure packed models against PyG, torch and a float simulation, in one run.",
    )
    add = parser.add_argument
    add("suites", nargs="*", metavar="SUITE", help="gemm, citation, shapes (default: all)")
    add("--model", default="gcn", help="gcn, sage or gat, on graphs (default: gcn)")
    add("--scale", type=float, default=1.0, help="of the shapes' nodes and edges (default: 1)")
    add("--only", metavar="NAMES", help="some graphs, as cora,arxiv (default: all of the suites)")
    add("--threads", type=int, metavar="N", help="(default: OMP_NUM_THREADS, or all cores)")
    add("--no-memory", action="store_true", help="do not measure peak memory")
    add("--plot", metavar="FILE", help="draw the speedups (.png, .svg or .pdf)")


def _bench(options: argparse.Namespace) -> Report:
    from bignn.experiments import bench
    from bignn.threads import get_num_threads, set_num_threads

    set_num_threads(get_num_threads() if options.threads is None else options.threads)
    if options.plot is not None:
        if Path(options.plot).suffix not in (".png", ".svg", ".pdf"):
            raise wrong("plot", "a file name ending in .png, .svg or .pdf", repr(options.plot))
        prepare(options.plot)
    report = bench.run(
        options.suites,
        model=options.model,
        scale=options.scale,
        only=None if options.only is None else options.only.split(","),
        memory=not options.no_memory,
    )
    if options.plot is not None:
        bench.plot(report, options.plot)
    return report, bench.describe


def _add_demo(commands: Any) -> None:
    parser = _command(commands, "demo", _demo, "Compare GCN and Bi-GCN on Cora; two minutes.")
    parser.add_argument("--out", default="runs/demo", metavar="DIR", help="(default: runs/demo)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--epochs", type=int, help="at most so many epochs (default: 1000)")


def _demo(options: argparse.Namespace) -> Report:
    from bignn.experiments import demo

    report = demo.run(options.out, seeds=options.seeds, epochs=options.epochs)
    return report, demo.describe


def _add_datasets(commands: Any) -> None:
    _command(commands, "datasets", _datasets, "List the graphs known by name and where they are.")


def _datasets(options: argparse.Namespace) -> Report:
    from bignn.graph import datasets

    return datasets.survey(), datasets.describe


def _add_doctor(commands: Any) -> None:
    _command(commands, "doctor", _doctor, "Tell versions, CPU features and which kernels are used.")


def _doctor(options: argparse.Namespace) -> Report:
    from bignn import doctor

    return doctor.examine(), doctor.describe
