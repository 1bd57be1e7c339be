"""The command line as a user sees it: one document on stdout, one line for a failure."""

import json
import random
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_arrays
from safetensors.numpy import load_file

import bignn
from bignn.cli import bench, main, reproduce
from bignn.lab.bench import problems, suites
from bignn.lab.paper.sections import SECTIONS

REPORT_KEYS = [
    "dataset",
    "model",
    "seeds",
    "test_acc",
    "test_acc_mean",
    "test_acc_std",
    "val_acc_mean",
    "epochs",
    "seconds_per_run",
    "checkpoint",
    "distilled",
    "teacher_test_acc_mean",
]


@pytest.fixture
def toy(tmp_path: Path) -> str:
    path = tmp_path / "toy.npz"
    np.savez(path, **make_arrays())  # type: ignore[arg-type]
    return str(path)


def test_train_prints_one_json_document(
    toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs"
    arguments = ["train", toy, "--epochs", "40", "--hidden", "8", "--json"]
    assert main([*arguments, "--model", "bi-gcn", "--seeds", "2", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert list(report) == REPORT_KEYS
    assert report["seeds"] == [0, 1]
    assert len(report["test_acc"]) == len(report["epochs"]) == 2
    assert report["test_acc_mean"] == pytest.approx(np.mean(report["test_acc"]))
    assert report["test_acc_std"] == pytest.approx(np.std(report["test_acc"], ddof=1))
    assert "seed 1" in captured.err
    assert bignn.load_model(report["checkpoint"]).config["hidden_channels"] == 8
    # A seed gives the same alone as among others.
    assert main([*arguments, "--seed", "1", "--out", str(out / "b")]) == 0
    assert json.loads(capsys.readouterr().out)["test_acc"] == report["test_acc"][1:]
    # Without --json the report is text.
    assert main(["train", toy, "--epochs", "3", "--out", str(tmp_path / "r")]) == 0
    captured = capsys.readouterr()
    assert "test accuracy" in captured.out
    assert "seed-0.safetensors" in captured.out
    assert "note:" not in captured.err
    # What a second run replaces is said before it is.
    for more, is_told in (([], True), (["--resume"], False)):
        assert main(["train", toy, "--epochs", "3", "--out", str(tmp_path / "r"), *more]) == 0
        line = f"note: '{tmp_path / 'r'}' has seed-0.safetensors already, which this run replaces"
        assert (line in capsys.readouterr().err) == is_told


def test_failures_are_one_line_and_exit_1_or_2_where_a_flag_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, message in (
        (["train", "nowhere"], "unknown dataset 'nowhere'"),
        (["train", "."], "'.' is not a graph; give a .npz file"),
        (["train", "missing.npz"], "'missing.npz' does not exist"),
        (["train", "cora", "--seeds", "0"], "--seeds must be at least 1"),
        (
            ["train", "cora", "--model", "gcn", "--input-bits", "rotate:2"],
            "--input-bits must be left out for 'gcn', which reads the features themselves",
        ),
        (["train", "cora", "--seed", "-1"], "--seed must be 0 or more"),
        (["train", "cora", "--seed", str(2**70)], "--seed must be 0 or more, below 2**63"),
        (["train", "cora", "--hidden", str(2**45)], "out of memory"),
        (["train", "cora", "--lr", "nan"], "--lr must be a positive number"),
        (["train", "cora", "--hidden", "0"], "--hidden must be a whole number, at least 1, got 0"),
        (["train", "cora", "--layers", "0"], "--layers must be a whole number, at least 1, got 0"),
        (["train", "cora", "--dropout", "1"], "--dropout must be in [0, 1)"),
        (["convert", "out.csv", "--edges", "e", "--features", "f"], "ending in .npz"),
    ):
        assert main(arguments) == (2 if message.startswith("--") else 1)
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert captured.err.startswith(f"bignn {arguments[0]}: error: ")
        assert message in captured.err
        assert list(tmp_path.iterdir()) == []


def test_a_refused_command_leaves_no_folder(
    toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "runs" / "left"
    command = ["train", toy, "--model", "bi-sage", "--fan-outs", "10", "--out", str(out)]
    for more in ([], ["--distill"]):
        assert main([*command, *more]) == 2
        assert capsys.readouterr().err == (
            "bignn train: error: --fan-outs must be a number per layer (2), got 10\n"
        )
        assert not out.parent.exists()


#: Raises KeyboardInterrupt when the command loads one module, as Ctrl-C at that moment does.
INTERRUPT = """
import sys
class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r} and 'bignn.cli' in sys.modules:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
from bignn.cli import main
sys.exit(main(["train", {toy!r}]))
"""


def test_ctrl_c_while_modules_load_is_one_line(toy: str, tmp_path: Path) -> None:
    for module, line in (
        ("bignn.cli.run_command", "bignn: interrupted\n"),
        ("numpy", "bignn: interrupted\n"),
        ("bignn.train.recipes", "bignn: interrupted\n"),
        ("torch", "bignn train: interrupted; the same command with --resume continues\n"),
    ):
        code = INTERRUPT.format(module=module, toy=toy)
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
        )
        assert (done.returncode, done.stdout, done.stderr) == (130, "", line), module


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that takes no files")
def test_an_output_folder_that_cannot_be_written_is_one_line(
    toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", toy, "--models", "gcn", "--out", "/proc/new", "--epochs", "1"]) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("bignn compare: error: cannot write '/proc/new")
    (tmp_path / "file").write_text("")
    assert main(["demo", "--out", str(tmp_path / "file"), "--epochs", "1"]) == 1
    assert f"'{tmp_path / 'file'}' is a file; give a folder" in capsys.readouterr().err
    assert main(["train", toy, "--out", str(tmp_path / "file"), "--epochs", "1000000"]) == 1
    assert "cannot write" in capsys.readouterr().err


def test_wrong_usage_is_one_line_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    cases: list[tuple[list[str], str]] = [
        ([], "bignn: error: the following arguments are required: COMMAND; see 'bignn --help'"),
        (["fly"], "bignn: error: argument COMMAND: invalid choice: 'fly'"),
        (["train"], "bignn train: error: the following arguments are required: dataset; see "),
        (
            ["train", "cora", "--epochs", "ten"],
            "bignn train: error: argument --epochs: invalid int value: 'ten'; see "
            "'bignn train --help'",
        ),
        (["train", "cora", "--device", "tpu"], "bignn train: error: argument --device: expected "),
        (["predict", "--fly"], "bignn predict: error: the following arguments are required"),
        (
            ["train", "cora", "--epoch", "3"],
            "bignn train: error: unrecognized arguments: --epoch",
        ),
        (["train", "cora", "--fly"], "bignn train: error: unrecognized arguments: --fly; see 'big"),
        *(
            (
                [*command, "gin"],
                f"bignn {command[0]}: error: argument {name}: invalid choice: 'gin'",
            )
            for command, name in (
                (["train", "cora", "--model"], "--model"),
                (["cost", "cora", "--model"], "--model"),
                (["capacity", "cora", "--model"], "--model"),
                (["bench", "--model"], "--model"),
                (["bench"], "SUITE"),
                (["reproduce"], "TABLE|FIGURE"),
            )
        ),
    ]
    for arguments, line in cases:
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith(line)
        assert captured.err.count("\n") == 1


def test_names_that_the_parser_knows_are_those_of_the_lab() -> None:
    assert set(reproduce.TABLES) == set(SECTIONS)
    assert bench.SUITES == suites.SUITES
    assert set(bench.MODELS) == set(problems.MODELS)


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bignn", "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    assert report["native_extension"] is True
    assert report["backends"]["reference"] == "ok"
    assert report["backend"] in report["backends"]
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        flags = set(cpu.read_text().split())
        for feature in ("avx512f", "gfni"):  # what the fastest kernels want
            assert (feature in report["cpu_features"]) == (feature in flags)
    assert main(["doctor"]) == 0
    assert f"{report['backend']:<16} ok  <- used" in capsys.readouterr().out


def train_arguments(toy: str, out: Path, *more: str) -> list[str]:
    arguments = ["train", toy, "--seeds", "2", "--epochs", "150", "--patience", "150"]
    return [*arguments, "--save-every", "0", "--out", str(out), "--json", *more]


def final_tensors(out: Path) -> dict[str, np.ndarray]:
    return {
        f"{path.name} {name}": tensor
        for path in sorted(out.iterdir())
        for name, tensor in load_file(path).items()
    }


#: The command line in a process that kills itself at a checkpoint: before or after its renaming.
KILLED = """
import os, pathlib, signal, sys
from bignn.cli import main
number, moment, arguments = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
replace, calls = pathlib.Path.replace, 0
def replace_and_die(path, target):
    global calls
    calls += 1
    if calls == number and moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(path, target)
    if calls == number:
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.replace = replace_and_die
main(arguments)
"""


def test_killed_at_random_checkpoints_and_resumed_gives_the_same(
    toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    straight, out = tmp_path / "straight", tmp_path / "killed"
    assert main(train_arguments(toy, straight)) == 0
    expected = json.loads(capsys.readouterr().out)
    seed = random.randrange(2**32)
    print(f"checkpoints drawn with seed {seed}")
    moments = random.Random(seed)
    for moment in ("before", "after", "before"):
        number = str(moments.randint(1, 90))  # of 300 in all
        command = [sys.executable, "-c", KILLED, number, moment]
        done = subprocess.run(
            [*command, *train_arguments(toy, out, "--resume")], capture_output=True, check=False
        )
        assert done.returncode == -signal.SIGKILL
    capsys.readouterr()
    assert main(train_arguments(toy, out, "--resume")) == 0
    report = json.loads(capsys.readouterr().out)
    for key in ("test_acc", "val_acc_mean", "epochs"):
        assert report[key] == expected[key]
    ours, theirs = final_tensors(out), final_tensors(straight)  # also: no temporary file is left
    assert ours.keys() == theirs.keys()
    assert all(np.array_equal(ours[key], theirs[key]) for key in ours)


@pytest.fixture
def packed(toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A trained and packed Bi-GCN on the toy graph."""
    runs = tmp_path / "runs"
    assert main(["train", toy, "--epochs", "30", "--hidden", "8", "--out", str(runs)]) == 0
    out = str(tmp_path / "toy.bignn")
    assert main(["pack", str(runs / "seed-0.safetensors"), out]) == 0
    assert "all bits" in capsys.readouterr().out
    return out


def test_pack_and_predict(
    packed: str, toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", packed, toy, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    graph = bignn.load(toy)
    assert graph.y is not None
    assert graph.test_idx is not None
    assert report["num_nodes"] == graph.num_nodes
    classes = np.array(report["predictions"])
    right = classes[graph.test_idx] == graph.y[graph.test_idx]
    assert report["test_acc"] == pytest.approx(100 * right.mean())
    assert len(report["plan"]) == 2
    assert report["seconds"] > 0
    # A few nodes, each kind of file, a saved graph: the same classes.
    table, array, stored = (tmp_path / name for name in ("p.csv", "p.npy", "toy.bigraph"))
    few = ["--nodes", "5,0,5"]
    assert main(["predict", packed, toy, *few, "--out", str(table)]) == 0
    scores = [f"{score:.6f}" for score in report["scores"]]
    lines = [f"{node},{classes[node]},{scores[node]}\n" for node in (5, 0, 5)]
    assert table.read_text() == "node,class,score\n" + "".join(lines)
    saved = ["--save-graph", str(stored), "--output", "logits", "--out", str(array)]
    assert main(["predict", packed, toy, *saved]) == 0
    assert np.array_equal(np.load(array).argmax(axis=1), classes)
    capsys.readouterr()
    for plan in ("T", "G", "gt"):
        assert main(["predict", packed, str(stored), "--plan", plan, "--json"]) == 0
        forced = json.loads(capsys.readouterr().out)
        assert forced["predictions"] == report["predictions"]
        assert forced["plan"] == (plan.upper() * 2)[:2]
    # Packed in another order: the same nodes have the same classes, now and from the file.
    for source in (["--order", "locality", toy, "--save-graph", str(stored)], [str(stored)]):
        for nodes in ([], few):
            assert main(["predict", packed, *source, *nodes, "--json"]) == 0
            ordered = json.loads(capsys.readouterr().out)
            expected = classes if not nodes else [classes[node] for node in (5, 0, 5)]
            assert ordered["predictions"] == list(expected)
            if not nodes:
                assert ordered["test_acc"] == report["test_acc"]
    assert main(["predict", packed, toy, "--explain", "--threads", "1"]) == 0
    explained = capsys.readouterr().out
    assert "predicted ms" in explained
    assert "and 50 more" in explained


def test_predict_refuses_wrong_arguments_in_one_line(
    packed: str, toy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = tmp_path / "damaged.bignn"
    damaged.write_bytes(Path(packed).read_bytes()[:-10])
    stored = tmp_path / "toy.bigraph"
    assert main(["predict", packed, toy, "--save-graph", str(stored)]) == 0
    model = bignn.nn.GCN(20, 8, 2, 2, binarize="both")
    model.fit_input(torch.rand(9, 20))
    other = str(tmp_path / "other.bignn")
    bignn.pack(model).save(other)
    capsys.readouterr()
    for arguments, line in (
        ([str(damaged), toy], "is not a packed bignn file"),
        (["nowhere.bignn", toy], "does not exist; make one with 'bignn pack'"),
        ([packed, "no.bigraph"], "'no.bigraph' does not exist; make one with 'bignn predict"),
        ([str(tmp_path), toy], "is a folder; give a packed model (.bignn)"),
        ([packed, "cora"], "'dataset' must be one with 20 features"),
        ([other, str(stored)], f"others; pack the graph for this model: 'bignn predict {other}"),
        ([packed, packed], "holds a packed model, expected a packed graph"),
        ([str(stored), toy], "holds a packed graph, expected a packed model"),
        ([packed, toy, "--nodes", "0,60"], "--nodes must be node ids in 0..59"),
        ([packed, toy, "--nodes", "a"], "--nodes must be ids such as"),
        ([packed, toy, "--nodes", ""], "--nodes must be names or ids such as"),
        ([packed, toy, "--plan", "X"], "--plan must be one of T, G, S"),
        ([packed, toy, "--out", "p.txt"], "--out must be a file name ending in"),
        ([packed, str(stored), "--order", "locality"], "--order is for graphs that are packed now"),
        ([packed, toy, "--save-graph", packed], "--save-graph must be another file than 'model'"),
        ([packed, toy, "--save-graph", toy], "--save-graph must be another file than 'dataset'"),
        (
            [packed, toy, "--save-graph", "x.npz"],
            "--save-graph must be a file name ending in .bigraph",
        ),
        ([packed, toy, "--threads", "0"], "--threads must be a number from 1"),
    ):
        assert main(["predict", *arguments]) == (2 if line.startswith("--") else 1), arguments
        captured = capsys.readouterr()
        assert line in captured.err
        assert captured.err.count("\n") == 1
    checkpoint = str(tmp_path / "runs" / "seed-0.safetensors")
    assert main(["predict", checkpoint, toy]) == 1
    assert "make a packed model of it with 'bignn pack'" in capsys.readouterr().err
    assert main(["pack", checkpoint, checkpoint]) == 1
    assert "'out' must be a file name ending in .bignn" in capsys.readouterr().err
    failed = tmp_path / "failed.graph"
    assert main(["predict", packed, toy, "--nodes", "99", "--save-graph", str(failed)]) == 2
    assert not failed.exists()
    capsys.readouterr()
    assert main(["pack", toy, str(tmp_path / "x.bignn")]) == 1
    assert "is a graph's .npz or another archive, expected a checkpoint" in capsys.readouterr().err
    assert not (tmp_path / "x.bignn").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no full device")
def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "bignn", "cost", "cora"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot write to stdout: No space left" in done.stderr


def test_flags_are_not_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["train", "cora", "--epoch", "3"])
    assert ended.value.code == 2
    assert "unrecognized arguments: --epoch 3; see" in capsys.readouterr().err
