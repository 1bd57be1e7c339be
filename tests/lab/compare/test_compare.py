"""A comparison on small graphs: what it says is what the models do."""

import json
import tracemalloc
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import Arrays, make_arrays

import bignn
from bignn.cli import main
from bignn.graph import Graph, SparseRows
from bignn.lab import compare
from bignn.lab.bench import timing
from bignn.lab.bench.compared_problem import ComparedProblem, float_contenders
from bignn.lab.bench.contenders import Packed
from bignn.lab.bench.problems import float_features
from bignn.lab.compare.verdict import verdict
from bignn.lab.compare.wording import with_times
from bignn.lab.report.document import NOTE_MARK, Table
from bignn.train.recipes import MANY_LABELS, RECIPES, TWINS
from bignn.train.seeds import SeedResults, train_seeds

ROW = {
    **{"model": str, "accuracy": list, "accuracy_mean": float, "accuracy_std": type(None)},
    **{"model_bytes": int, "all_model_bytes": int, "data_bytes": int, "epochs": list},
    **{"checkpoint": str, "hidden": int, "ways": dict, "predict_ms": float, "predicted_by": str},
}


@pytest.fixture(autouse=True)
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """How long things take is not looked at."""

    def once(contenders: Any, log: Any) -> dict[str, timing.Seconds]:
        return timing.measure(contenders, rounds=1, warm_up=0)

    monkeypatch.setattr("bignn.lab.bench.rounds.measure_sensibly", once)
    monkeypatch.setattr("bignn.lab.bench.other_load.OtherLoad.is_in_the_way", False)


def awkward_arrays() -> Arrays:
    """Weighted, directed edges, self-loops, an edge given twice, isolated nodes."""
    arrays = make_arrays(num_nodes=80, num_features=70)
    rng = np.random.default_rng(3)
    edges = arrays["edge_index"][:, rng.random(arrays["edge_index"].shape[1]) < 0.5]
    edges = edges[:, (edges % 9 != 4).all(axis=0)]
    edges = np.concatenate([edges, edges[:, :3], [[0, 7], [0, 7]]], axis=1)
    weight = rng.random((edges.shape[1],), dtype=np.float32)
    return {**arrays, "edge_index": edges, "edge_weight": weight}


def compared(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    status = main(["compare", *arguments, "--json"])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    report: dict[str, Any] = json.loads(captured.out)
    return report


def test_a_comparison_says_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def peak(dataset: str, plain: Path, binary: Path | None, way: str, threads: int) -> float:
        assert (way == "packed") == (binary is not None)
        return 0.5 if way == "packed" else 4.0

    monkeypatch.setattr("bignn.lab.compare.measured.peak_mib_of_trained", peak)
    file, out = tmp_path / "mine.npz", tmp_path / "out"
    np.savez(file, **make_arrays())  # type: ignore[arg-type]
    options = [str(file), "--models", "gcn,bi-gcn", "--seeds", "1", "--epochs", "4"]
    report = compared(capsys, *options, "--out", str(out))
    plain, binary = report["models"]
    for row in (plain, binary):
        assert {key: type(row[key]) for key in ROW} == ROW
    # The recipe for many labels: 128 hidden. Of 20 features and 128 neurons a row of bits takes one
    # word and two, and each has a scale.
    assert plain["model_bytes"] == 4 * (20 * 128 + 128 * 2)
    assert binary["model_bytes"] == 128 * (8 + 4) + 2 * (16 + 4)
    assert plain["data_bytes"] == 60 * 20 * 4
    assert binary["data_bytes"] == 60 * (8 + 4)
    present = np.count_nonzero(make_arrays()["x"])
    in_rows = 8 * present + 4 * 61  # values and places, and where rows begin
    assert plain["sparse_data_bytes"] == (in_rows if in_rows < 60 * 20 * 4 else None)
    beside = binary["compared"]
    assert beside["accuracy_points"] == binary["accuracy_mean"] - plain["accuracy_mean"]
    assert beside["model_times_smaller"] == plain["model_bytes"] / binary["model_bytes"]
    assert beside["times_faster"] == plain["predict_ms"] / binary["predict_ms"]
    assert set(plain["ways"]) == {"pyg", "pyg_sparse", "torch_sparse"}
    assert plain["predict_ms"] == min(way["ms"] for way in plain["ways"].values())
    assert binary["predicted_by"] == "packed"
    assert (plain["peak_mib"], binary["peak_mib"], beside["memory_times_less"]) == (4.0, 0.5, 8.0)
    assert binary["recommended_width"]["float_width"] == 128
    assert binary["recommended_width"]["width"] % 64 == 0

    # What is packed by the command that the page shows predicts what torch does.
    packed = bignn.pack(bignn.load_model(binary["checkpoint"]))
    graph = bignn.load(file)
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    expected = bignn.load_model(binary["checkpoint"]).predict(x, edges).numpy()
    found = packed.predict(bignn.pack_graph(graph, like=packed))
    assert binary["agreement"] == (found == expected).mean() == 1
    assert graph.y is not None
    accuracy = 100 * (expected == graph.y)[graph.test_idx].mean()
    assert binary["accuracy"] == [pytest.approx(accuracy)]

    page = unescape(Path(report["page"]).read_text())
    assert Path(report["page"]) == out / "report.html"
    assert f"bignn pack {binary['checkpoint']}" in page
    assert binary["explained"] in page
    for row in (plain, binary):
        assert f"{row['accuracy_mean']:.1f}" in page  # one seed has no deviation
        assert with_times(row["predict_ms"], None) in page
        assert f"{row['model_bytes'] / 1024:.{1 if row is plain else 2}f}" in page

    # Once more: nothing is trained, and the text has the same numbers.
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")}
    assert len(before) == 2
    assert main(["compare", *options, "--out", str(out), "--no-memory"]) == 0
    text = capsys.readouterr().out
    assert f"{binary['accuracy_mean']:.1f} ({beside['accuracy_points']:+.1f})" in text
    assert f"({beside['model_times_smaller']:.1f}x)" in text
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*.safetensors")} == before


def test_weighted_directed_edges_and_no_test_split(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.npz"
    arrays = awkward_arrays()
    del arrays["test_idx"]
    np.savez(file, **arrays)  # type: ignore[arg-type]
    names = "gcn,bi-gcn,sage,bi-sage"
    options = ["--seeds", "2", "--epochs", "3", "--no-memory", "--distill", "--models", names]
    report = compared(capsys, str(file), *options, "--out", str(tmp_path / "out"))
    assert report["accuracy_on"] == "val"
    assert report["graph"]["is_weighted"]
    assert [row["agreement"] for row in report["models"]] == [None, 1.0, None, 1.0]
    assert all(row["peak_mib"] is None for row in report["models"])
    why = "memory was not measured: `--no-memory`"
    document = compare.document_of(report)
    assert ("–", why) in document.headline
    assert any(why in part for part in document.sections[0].parts if isinstance(part, str))
    assert all(len(row["accuracy"]) == 2 for row in report["models"])
    text = compare.describe(report)
    assert "validation accuracy" in text
    assert "no test split" in text
    students = [row["checkpoint"] for row in report["models"] if row["float_twin"] is not None]
    for row, checkpoint in zip(report["models"][1::2], students, strict=True):
        assert checkpoint in text
        assert row["taught"]["follows"] == ("distilled" in checkpoint)
        chosen = "with its teachers" if row["taught"]["follows"] else "without teachers"
        assert f"{row['model']} is the model {chosen}: " in " ".join(text.split())
    assert "Edge weights are not used by sage, bi-sage, as in PyG." in text


@pytest.mark.parametrize("is_sparse", [False, True])
def test_contenders_predict_what_the_trained_models_do(is_sparse: bool) -> None:
    arrays = awkward_arrays()
    x: Any = arrays["x"] * np.random.default_rng(5).random(arrays["x"].shape, dtype=np.float32)
    if is_sparse:
        x[:, 20:] = 0
        rows, columns = np.nonzero(x)
        offsets = np.searchsorted(rows, np.arange(len(x) + 1))
        x = SparseRows(offsets, columns, x[rows, columns], x.shape)
    graph = Graph(x, arrays["edge_index"], arrays["edge_weight"], y=arrays["y"])
    dense, weight = torch.from_numpy(graph.dense_x()), torch.from_numpy(arrays["edge_weight"])
    edges = torch.from_numpy(graph.edge_index)
    for recipes, (name, recipe) in (
        (some, named) for some in (RECIPES, MANY_LABELS) for named in some.items()
    ):
        torch.manual_seed(1)
        model = recipe.build(graph).eval()
        with torch.no_grad():
            for parameter_name, parameter in model.named_parameters():
                if parameter_name.endswith("bias"):
                    parameter.normal_(std=0.1)
        model.fit_input(dense)
        expected = model.predict(dense, edges, weight).numpy()
        if name not in TWINS:
            problem = ComparedProblem(graph, model)
            kinds: Any = float_contenders(model)
        else:
            twin = recipes[TWINS[name]].build(graph)
            problem = ComparedProblem(graph, twin, model)
            # Untrained attention has ties that float sums decide.
            kinds = {"packed": Packed} if name in ("bi-gcn", "bi-sage", "bi-saint") else {}
        for key, kind in kinds.items():
            contender = kind(problem)
            contender.load()
            contender.run()  # buffers are shared from call to call
            found = np.asarray(contender.run())
            assert (found == expected).all(), (name, key)


def test_float_features_take_their_own_size_and_no_more() -> None:
    arrays = make_arrays(num_nodes=3000, num_features=400)
    graph = Graph(arrays["x"], arrays["edge_index"])
    tracemalloc.start()
    try:
        x = float_features(graph, normalize_rows=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    sums = arrays["x"].sum(axis=1, keepdims=True)
    np.testing.assert_allclose(x, arrays["x"] / np.maximum(sums, 1), rtol=1e-6)
    assert x.nbytes <= peak < 1.2 * x.nbytes


def test_models_without_a_packed_form_have_dashes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mine.npz"
    np.savez(file, **make_arrays())  # type: ignore[arg-type]
    names = "sgc,gcn,bi-gcn-w,saint,bi-saint"
    options = ["--seeds", "1", "--epochs", "2", "--no-memory", "--models", names]
    report = compared(capsys, str(file), *options, "--out", str(tmp_path / "out"))
    rows = {row["model"]: row for row in report["models"]}
    assert list(rows) == names.split(",")
    assert rows["sgc"]["predicted_by"] == rows["saint"]["predicted_by"] == "torch"
    assert rows["sgc"]["model_bytes"] == 4 * 20 * 2
    assert rows["bi-gcn-w"]["predict_ms"] is None
    assert rows["bi-gcn-w"]["data_bytes"] == 60 * 20 * 4
    assert rows["bi-saint"]["predicted_by"] == "packed"
    assert not rows["bi-saint"]["is_all_bits"]
    table = compare.document_of(report).sections[0].parts[1]
    assert isinstance(table, Table)
    assert [NOTE_MARK.sub("", cell) for cell in table.rows[2][6:]] == ["-", "-", "-"]
    (number,) = NOTE_MARK.findall(table.rows[2][8])
    assert table.notes[int(number) - 1].startswith("Has float parts")
    assert "The last layer has float weights" in table.notes[-1]


def test_float_twins_are_added() -> None:
    assert compare.Comparison("cora", ("bi-gcn",)).models == ("gcn", "bi-gcn")
    models = compare.Comparison("cora", ("bi-gcn", "sage", "bi-gat", "bi-gcn-w")).models
    assert models == ("gcn", "bi-gcn", "sage", "gat", "bi-gat", "bi-gcn-w")


def test_wrong_options_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for options, line in (
        (["--models", "gcn,resnet"], "--models must be some of"),
        (["--models", "gcn,gcn"], "--models must be some names, each once"),
        (["--bi-hidden", "0"], "--bi-hidden must be a whole number, at least 1, got 0"),
        (["--models", "gcn", "--distill"], "--models must include a binary model where --distill"),
        (["--seeds", "0"], "--seeds must be at least 1, got 0"),
        (["--hidden", "0"], "--hidden must be a whole number, at least 1, got 0"),
        (["--jobs", "0"], "--jobs must be a number from 1"),
        (["--page", "report.pdf"], "--page must be a file name ending in .html"),
    ):
        assert main(["compare", "cora", *options]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert line in captured.err


def test_wrong_graphs_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for missing, line in (
        ("file", "does not exist; give a .npz file, a store's folder or one of"),
        ("y", "training needs labels 'y'"),
        ("train_idx", "training needs ['train_idx']"),
    ):
        file = tmp_path / f"without-{missing}.npz"
        arrays = make_arrays()
        if missing == "y":
            arrays = {key: arrays[key] for key in ("x", "edge_index")}
        arrays.pop(missing, None)
        if missing != "file":
            np.savez(file, **arrays)  # type: ignore[arg-type]
        assert main(["compare", str(file), "--out", str(tmp_path / "out")]) == 1
        captured = capsys.readouterr()
        assert captured.err.count("\n") == 1
        assert line in captured.err


def test_two_nodes_and_one_class(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "two.npz"
    nothing = np.zeros((2, 0), dtype=np.int64)
    only: Any = {"y": np.zeros(2, dtype=np.int64), "train_idx": [0], "val_idx": [1]}
    np.savez(file, x=np.eye(2, dtype=np.float32), edge_index=nothing, **only)
    options = ["--seeds", "1", "--epochs", "1", "--no-memory", "--models", "gcn,bi-gcn"]
    report = compared(capsys, str(file), *options, "--out", str(tmp_path / "out"))
    assert [row["accuracy_mean"] for row in report["models"]] == [100.0, 100.0]


def test_the_command_is_told_as_it_can_be_typed() -> None:
    threads = f"--threads {bignn.get_num_threads()}"
    cora = compare.Comparison("cora")
    assert cora.command(cora.folder) == f"bignn compare cora {threads}"
    what = compare.Comparison("my graph.npz", ("gcn", "bi-gcn"), 5, distill=True, bi_hidden=32)
    words = f"--models gcn,bi-gcn --seeds 5 --distill --bi-hidden 32 --device cuda {threads}"
    told = what.command(Path("else where"), "cuda", memory=False)
    assert told == f"bignn compare 'my graph.npz' {words} --no-memory --out 'else where'"


def test_a_busy_machine_is_told_and_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"pyg": (8e-3, 6e-3), "torch_sparse": (48e-3, 2e-3), "bi-gcn": (2e-3, 1e-3)}

    def held_up(contenders: Any, log: Any) -> dict[str, timing.Seconds]:
        return {key: timing.Seconds(*seconds.get(key, (9.0, 9.0))) for key in contenders}

    file = tmp_path / "mine.npz"
    np.savez(file, **make_arrays())  # type: ignore[arg-type]
    options = ["--seeds", "1", "--epochs", "1", "--no-memory", "--models", "gcn,bi-gcn"]
    options += [str(file), "--out", str(tmp_path / "out")]
    monkeypatch.setattr("bignn.lab.bench.rounds.measure_sensibly", held_up)
    # By its median, torch by hand would lose to PyG; by its bursts it is the fastest float way.
    for median, way, times, mark in (
        (48, "torch_sparse", "4.0x) [", True),
        (5, "pyg", "2.0x)", False),
    ):
        seconds["torch_sparse"] = (median * 1e-3, 2e-3 if mark else 4e-3)
        seconds["pyg"] = (8e-3 if mark else 4e-3, 3e-3)
        seconds["bi-gcn"] = (2e-3, 0.5e-3 if mark else 1.5e-3)
        report = compared(capsys, *options)
        plain, binary = report["models"]
        assert binary["machine_was_busy"] == mark
        assert plain["predicted_by"] == way
        fastest = {True: 2 / 0.5, False: 3 / 1.5}[mark]
        assert binary["compared"]["fastest_times_faster"] == pytest.approx(fastest)
        text = compare.describe(report)
        assert f"2.00 ({times}" in text
        assert ("edge index (by fastest bursts)" in text) == mark
        assert ("Times are left out: other processes" in " ".join(text.split())) == mark
        cards = str(compare.document_of(report).headline)
        assert ("faster than GCN's fastest float way" in cards) != mark
        assert ("no times: other processes used the machine" in cards) == mark


def test_binary_models_of_another_width_and_float_students(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mine.npz", tmp_path / "out"
    np.savez(file, **make_arrays())  # type: ignore[arg-type]
    options = [str(file), "--models", "gcn,bi-gcn", "--seeds", "2", "--epochs", "9", "--no-memory"]
    options += ["--distill", "--hidden", "8", "--bi-hidden", "24", "--out", str(out)]
    report = compared(capsys, *options)
    plain, binary = report["models"]
    assert (plain["hidden"], binary["hidden"]) == (8, 24)
    assert plain["as_teacher"]["accuracy"] == plain["accuracy"] != plain["distilled"]["accuracy"]
    folders = {path.name for path in out.iterdir() if path.is_dir()}
    # The float model of this recipe, that of many labels, is a teacher as it is.
    # The first seed of a student is trained alone too.
    assert folders == {"gcn-8", "gcn-8-distilled", "bi-gcn-24-distilled", "bi-gcn-24"}
    for key, folder in (("as_teacher", "gcn-8"), ("distilled", "gcn-8-distilled")):
        graph = bignn.load(file)
        x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
        for seed, told in enumerate(plain[key]["accuracy"]):
            found = bignn.load_model(out / folder / f"seed-{seed}.safetensors").predict(x, edges)
            correct = found.numpy() == graph.y
            assert told == pytest.approx(100 * correct[graph.test_idx].mean())
    student = plain["distilled"]
    reached = f"{student['accuracy_mean']:.1f} ± {student['accuracy_std']:.1f}"
    assert f"reaches {reached} %" in " ".join(compare.describe(report).split())


def pair(points: float, **changed: Any) -> dict[str, Any]:
    """Return the parts of a report that the verdict reads: a GCN at 80 % and a Bi-GCN."""
    common = {"machine_was_busy": False, "epochs": [90, 90], "hidden": 64, "heads": 1}
    common |= {"quality": "plain"}
    common |= {"accuracy": [0.0] * changed.pop("seeds", 2), "accuracy_std": changed.pop("std", 0.1)}
    beside = {"memory_times_less": 6.2, "model_times_smaller": 30.4, "times_faster": 2.0}
    beside |= {"accuracy_points": points} | changed.pop("compared", {})
    binary = {"model": "bi-gcn", "float_twin": "gcn", "compared": beside}
    binary |= common | {"recommended_width": {"width": 448}} | changed.pop("binary", {})
    plain = {"model": "gcn", "float_twin": None, "compared": None, **common}
    about = {"accuracy_on": "test", "distilled": False, "epochs": None, "quality": "plain"}
    about |= {"advice": []}
    return {**about, "models": [plain, binary], **changed}


def test_the_verdict_is_the_numbers_in_both_directions() -> None:
    savings = "takes 6.2x less memory and predicts 2.0x faster."
    lost = f"On this graph, 1-bit Bi-GCN loses 0.6 points of test accuracy against GCN, {savings}"
    slower = {"memory_times_less": 0.5, "times_faster": 0.8}
    equal = {"memory_times_less": 1.01, "times_faster": 0.98}
    noise = "keeps the test accuracy as far as 2 seeds show (-0.6 ± 1.0 points) against GCN"
    one = {"seeds": 1, "std": None}
    trials = [{"what": "a teacher", "points": 1.2}, {"what": "448 hidden neurons", "points": -0.1}]
    helped = {"model": "bi-gcn", "trials": trials, "command": "bignn train x"}
    for report, expected in (
        (pair(-0.6), f"{lost} Try `--quality best`."),
        (pair(-0.6, distilled=True), "1-bit Bi-GCN, distilled, loses 0.6 points"),
        (pair(-0.6, quality="best"), "faster."),
        (pair(-0.6, binary={"quality": "best"}), "1-bit Bi-GCN of the best quality loses 0.6"),
        (
            pair(-0.6, advice=[helped]),
            f"{lost} Tried for Bi-GCN with one seed, points of validation "
            "accuracy: a teacher +1.2, 448 hidden neurons -0.1. So train it by `bignn train x`.",
        ),
        (pair(-0.6, advice=[helped | {"command": None}]), "neurons -0.1; nothing helped."),
        (pair(-9.0, epochs=90), "Training stopped at `--epochs 90` before it had converged"),
        (pair(0.6, compared=slower), "gains 0.6 points of test accuracy against GCN, takes 2.0x"),
        (pair(0.6, compared=slower), "more memory and predicts 1.2x slower."),
        (pair(0.6, compared=equal), "takes as much memory and predicts as fast."),
        (pair(-0.6, std=1.0), f"{noise}, {savings}"),
        (pair(-0.2, **one), f"loses 0.2 points of test accuracy (one seed) against GCN, {savings}"),
        (pair(-0.6, **one), "Try `--quality best`."),
        (pair(0.04, **one), "keeps the test accuracy (one seed)"),
        (pair(1, compared={"memory_times_less": None}), "takes 30.4x less memory for weights and"),
        (pair(1, accuracy_on="val"), "gains 1.0 points of validation accuracy"),
        (pair(1, binary={"machine_was_busy": True}), "and takes 6.2x less memory. Times are left"),
    ):
        found = verdict(report)
        assert expected in found
        assert found.endswith(expected) or not expected.endswith(".")
    assert verdict({**pair(0), "models": []}).startswith("Nothing was compared: ")


def test_the_best_quality_is_a_row_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "mine.npz", tmp_path / "out"
    np.savez(file, **make_arrays())  # type: ignore[arg-type]
    options = [str(file), "--models", "bi-gcn", "--seeds", "1", "--epochs", "2", "--no-memory"]
    report = compared(capsys, *options, "--quality", "best", "--out", str(out))
    _, binary, best = report["models"]
    assert [row["model"] for row in report["models"]] == ["gcn", "bi-gcn", "bi-gcn-best"]
    assert best["float_twin"] == "gcn"
    teacher = bignn.load_model(out / "bi-gcn-best" / "teacher" / "seed-0.safetensors")
    advice = int(bignn.recommend_width(teacher, bignn.load(file)))
    assert best["hidden"] == max(128, advice) > binary["hidden"] - 1
    assert len(list((out / "bi-gcn-best" / "teacher").glob("*.safetensors"))) == 4
    assert best["agreement"] == 1
    assert best["seconds_per_run"] > binary["seconds_per_run"]  # that of six models
    assert report["training_seconds"] == pytest.approx(
        sum(row["seconds_per_run"] for row in report["models"])
    )
    text = compare.describe(report)
    assert "1-bit Bi-GCN of the best quality" in " ".join(text.split())
    assert f"{best['hidden']} hidden neurons: validation accuracy" in " ".join(text.split())
    assert "bi-gcn-best.bignn" in text
    assert "--quality best" in report["command"]


def test_what_may_help_is_tried_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The float twin is made to look better; what each remedy is worth is then decided by hand."""
    arrays = make_arrays(num_features=12)
    arrays["x"] = np.random.default_rng(0).standard_normal(arrays["x"].shape).astype(np.float32)
    file, out = tmp_path / "my graph.npz", tmp_path / "out"
    np.savez(file, **arrays)  # type: ignore[arg-type]
    worth = {"gcn-8": 90.0, "bi-gcn-8": 80.0, "bi-gcn-distilled": 82.0}
    worth |= {"bi-gcn-input_bits-learned-64": 81.0, "bi-gcn-distilled-input_bits-learned-64": 83.0}
    worth |= dict.fromkeys(("bi-gcn-hidden_channels-64", "bi-gcn-hidden_channels-128"), 79.5)

    def trained(recipe: Any, graph: Any, seeds: Any, folder: Path, **more: Any) -> SeedResults:
        found = train_seeds(recipe, graph, seeds, folder, **more)
        told = [replace(result, val_score=worth[folder.name]) for result in found.results]
        return replace(found, results=told)

    monkeypatch.setattr("bignn.lab.compare.training.train_seeds", trained)
    options = [str(file), "--models", "bi-gcn", "--seeds", "1", "--patience", "2", "--no-memory"]
    options += ["--hidden", "8", "--out", str(out)]
    report = compared(capsys, *options)
    (advice,) = report["advice"]
    assert (advice["val_acc"], advice["float_val_acc"]) == (80.0, 90.0)
    tried = {trial["what"]: trial["points"] for trial in advice["trials"]}
    (wide,) = (what for what in tried if what.endswith("hidden neurons"))
    assert tried == {
        **{"a teacher": 2.0, wide: -0.5, "input bits learned:64": 1.0, "all that help": 3.0},
    }
    command = f"bignn train '{file}' --model bi-gcn --distill --hidden 8 --input-bits learned:64"
    assert advice["command"] == f"{command} --patience 2"
    assert command in compare.describe(report)
    # Nothing is tried where it is not wanted, nor where training was cut short.
    monkeypatch.setattr("bignn.lab.compare.advice.recipe", None)
    assert compared(capsys, *options, "--no-advice")["advice"] == []
    assert compared(capsys, *options, "--epochs", "1")["advice"] == []
