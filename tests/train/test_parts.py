"""Several processes with a part of a graph each: what one process computes, and clear ends."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays, make_packed_model
from small_stores import make_store, packed_model
from test_distributed import PATHS, torchrun

from bignn.cli import main
from bignn.errors import InputError
from bignn.graph import Graph, from_arrays
from bignn.nn import GAT, GCN, GNN, GraphSAGE
from bignn.runtime.parts.graph_part import GraphPart, cut
from bignn.runtime.parts.part_files import open_part, write_parts
from bignn.runtime.parts.store_parts import write_store_parts
from bignn.runtime.store.predict_store import predict_store
from bignn.train.batches import Batch
from bignn.train.distributed import World
from bignn.train.find_problem import find_problem
from bignn.train.fit import fit
from bignn.train.parts.training_halo import TrainingHalo, from_bits, to_bits
from bignn.train.recipes import Settings, recipe

CPU = torch.device("cpu")


def models() -> dict[str, GNN]:
    """Models without random numbers."""
    torch.manual_seed(0)
    return {
        "gcn": GCN(20, 8, 2, 2, binarize="both"),
        "batch norm": GCN(20, 8, 3, 2, binarize="both", norm="batch"),
        "sage": GraphSAGE(20, 8, 2, 2, binarize="both"),
        "gat": GAT(20, 8, 2, 2, heads=2, binarize="both"),
        "jumping": GCN(20, 8, 2, 2, binarize="both", jk="cat"),
        "float": GCN(20, 8, 2, 2, norm="batch"),
        "float gat": GAT(20, 8, 2, 2, heads=2),
        "features": GCN(20, 8, 2, 2, binarize="features"),
        "float weights": GraphSAGE(20, 8, 2, 2, binarize="both", edge_bits=None),
    }


def first_step(
    model: GNN, graph: Graph | GraphPart, world: World, **options: str
) -> tuple[list[torch.Tensor], torch.Tensor, Batch]:
    """The gradients of a training step, summed over processes, and then the logits."""
    problem = find_problem(graph, None, None, None, 32, 0, CPU, **options)  # type: ignore[arg-type]
    settings = Settings()
    problem.prepare(model, settings, world)
    problem.fit_input(model)
    (batch,) = problem.batches(None, model, settings, world)[0]
    model.train()
    nodes = batch.loss_nodes
    (share,) = world.fractions(len(nodes))
    # The labels of all of a part's nodes have a say, so that gradients cross between parts.
    loss = share * problem.task.loss(batch.logits(model)[nodes], batch.y[nodes], None)
    loss.backward()
    world.sum_gradients(model)
    gradients = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.eval()
    with torch.no_grad():
        return gradients, batch.logits(model), batch


def stored_model(part: GraphPart) -> GNN:
    """A model for parts of a store."""
    torch.manual_seed(0)
    return GCN(part.partition.num_features, 8, 2, part.partition.num_classes, binarize="both")


SCRIPT = """
import json, os, shutil, sys
from pathlib import Path
import numpy as np, torch
from conftest import make_arrays
import bignn
from bignn.cli import main
from bignn.errors import InputError
from bignn.graph import from_arrays
from bignn.runtime.parts.part_files import open_part
from bignn.train.distributed import current_world, joined_world
from bignn.train.distill import weights_digest
from bignn.train.fit import fit
from bignn.train.parts.predict_parts import predict_parts
from bignn.train.recipes import Settings, recipe
from test_parts import CPU, first_step, models, stored_model

said = {}
with joined_world("cpu") as world:
    rank = world.rank
    part = open_part("parts", rank, 2)
    steps = {}
    for name, model in models().items():
        gradients, logits, _ = first_step(model, part, world)
        steps[name] = gradients + [logits]
    for name in ("gcn", "gat"):
        steps[f"{name} int8"] = first_step(models()[name], part, world, halo_gradients="int8")[0]
    stored = open_part("store-parts", rank, 2)
    gradients, logits, _ = first_step(stored_model(stored), stored, world)
    steps["store"] = gradients + [logits]
    torch.save({"nodes": torch.from_numpy(part.nodes.copy()), **steps}, f"steps-{rank}.pt")
    # Other first weights in each process, dropout of their own: one result.
    for form in ("float", "int8"):
        torch.manual_seed(rank)
        model = recipe("bi-gcn", graph=part.partition, hidden_channels=8, epochs=12).build(part)
        options = {"halo_gradients": form, "progress": False}
        result = fit(model, part, Settings(lr=0.03, epochs=12), **options)
        said[form] = [weights_digest([model]), result.val_loss, result.val_acc, result.test_acc]
        said[f"{form} bytes"] = result.exchanged | {"epochs": result.epochs}
    refused = []
    for change in (
        {"graph": open_part("other", rank, 2)} if rank else {"graph": part},
        {"settings": Settings(inductive=True)},
    ):
        try:
            fit(model, **{"graph": part, "progress": False, **change})
        except InputError as error:
            refused.append(str(error))
    for change, arguments in (
        ("version", ["model.bignn", "parts"]),
        ("model", ["other.bignn" if rank else "model.bignn", "parts"]),
        ("parts", ["model.bignn", "other" if rank else "parts"]),
    ):
        version = bignn.__version__
        bignn.__version__ = "0.0.0" if rank and change == "version" else version
        try:
            predict_parts(*arguments, world)
        except InputError as error:
            refused.append(str(error))
        bignn.__version__ = version
    said["refused"] = refused
    for options in (["--json"], ["--output", "logits", "--json", "--out", "logits.npy"],
                    ["--out", "named.csv"], ["--halo", "floats", "--json", "--out", "f.npy"]):
        with open("out.txt" if rank == 0 else os.devnull, "a") as sys.stdout:
            code = main(["predict", "model.bignn", "parts", *options])
        assert code == 0
    with open(os.devnull, "a") as sys.stdout:
        assert main(["predict", "store.bignn", "store-parts", "--out", "store.npy"]) == 0
sys.stdout = sys.__stdout__
Path(f"said-{rank}.json").write_text(json.dumps(said))
"""


def test_two_processes_with_parts_are_one(tmp_path: Path) -> None:
    """Gradients, evaluated logits, results of training, and predictions of the command."""
    arrays = make_arrays()
    graph = from_arrays(arrays, name="toy")
    write_parts(graph, 2, tmp_path / "parts", "ranges")
    write_parts(from_arrays(make_arrays(seed=1)), 2, tmp_path / "other", "ranges")
    packed = make_packed_model([20, 9, 3])
    packed.save(tmp_path / "model.bignn")
    make_packed_model([20, 9, 3], seed=1).save(tmp_path / "other.bignn")
    store = make_store(tmp_path / "store")
    write_store_parts(store.path, 2, tmp_path / "store-parts")
    write_store_parts(store.path, 1, tmp_path / "store-whole")
    of_store = packed_model(store, "sage")
    of_store.save(tmp_path / "store.bignn")
    # Inside of joined_world a command does not leave it.
    script = SCRIPT.replace('main(["predict"', 'predict(["predict"').replace(
        "said = {}", PREDICT + "said = {}"
    )
    (tmp_path / "script.py").write_text(script)
    done = torchrun("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ranks = [torch.load(tmp_path / f"steps-{rank}.pt") for rank in (0, 1)]
    nodes = torch.cat([rank["nodes"] for rank in ranks])
    for name, model in models().items():
        gradients, logits, batch = first_step(model, graph, World())
        # One process leaves out what is too far from labels; those of all nodes are compared.
        if len(batch.y) != graph.num_nodes:
            with torch.no_grad():
                edges = torch.from_numpy(graph.edge_index)
                logits = model(torch.from_numpy(graph.dense_x()), edges)
        for place, gradient in enumerate(gradients):
            for rank in ranks:
                error = (rank[name][place] - gradient).abs().max()
                assert error <= 2e-5 * max(1.0, float(gradient.abs().max())), (name, place)
        found = torch.cat([rank[name][-1] for rank in ranks])
        assert torch.allclose(found, logits[nodes], atol=2e-5), name
    for name in ("gcn", "gat"):
        gradients, _, _ = first_step(models()[name], graph, World())
        for place, gradient in enumerate(gradients):
            found = ranks[0][f"{name} int8"][place]
            assert (found - gradient).abs().max() <= 0.02 * gradient.abs().max().clamp(min=0.1)
    whole = open_part(tmp_path / "store-whole", 0, 1)
    gradients, logits, _ = first_step(stored_model(whole), whole, World())
    assert torch.allclose(torch.cat([rank["store"][-1] for rank in ranks]), logits, atol=2e-5)
    for place, gradient in enumerate(gradients):
        assert torch.allclose(ranks[0]["store"][place], gradient, atol=2e-5), place
    predict_store(of_store, store, tmp_path / "one.npy", progress=False)
    assert np.array_equal(np.load(tmp_path / "store.npy"), np.load(tmp_path / "one.npy"))
    first, second = (json.loads((tmp_path / f"said-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    for form in ("float", "int8"):
        assert first[form][1] < 0.69, form  # chance is log 2
        # Gradients of 8 columns each epoch.
        sent, rows = first[f"{form} bytes"], sum(part.num_halo for part in cut(graph, 2, "ranges"))
        width = 4 * 8 if form == "float" else 8 + 4
        assert sent["backward_bytes"] == sent["epochs"] * rows * width, form
        assert sent["backward_float32_bytes"] == sent["epochs"] * rows * 4 * 8
        # Degrees once; then c times 20 columns, which are constant, and p times 8.
        floats = sent["forward_float32_bytes"] / rows - 4  # 80 c + 32 p
        in_bits = sent["forward_bytes"] / rows - 4  # (3 + 4) c + (1 + 4) p
        constant = (5 * floats - 32 * in_bits) / (5 * 80 - 32 * 7)
        passes = (in_bits - 7 * constant) / 5
        assert constant in (1, 2)
        assert passes.is_integer() and passes >= 2 * sent["epochs"]
    assert "the processes differ in 'graph'" in first["refused"][0]
    assert "'inductive' must be left out for a graph in parts" in first["refused"][1]
    assert first["refused"][2:] == [
        "the processes differ in their version of bignn; install one version everywhere",
        "the processes differ in their model; copy one .bignn file to all machines",
        "the processes differ in their parts; copy the parts of one 'bignn partition' to all "
        "machines",
    ]
    lines = (tmp_path / "out.txt").read_text().splitlines()
    report = json.loads(lines[0])
    expected = packed.predict(graph)
    assert report["predictions"] == expected.tolist()
    assert report["num_parts"] == 2
    rows = sum(part.num_halo for part in cut(graph, 2, "ranges"))
    assert report["exchange"]["bytes"] == rows * (3 + 4 + 2 + 4)  # 20 bits, then 9
    assert report["exchange"]["float32_bytes"] == rows * 4 * (20 + 9)
    logits = np.load(tmp_path / "logits.npy")
    assert np.array_equal(logits, packed.predict(graph, output="logits"))
    assert np.array_equal(np.load(tmp_path / "f.npy"), expected)
    table = (tmp_path / "named.csv").read_text().splitlines()
    assert table[0] == "node,class,score"
    assert len(table) == 61
    assert json.loads(lines[-1])["exchange"]["ratio"] == 1.0


#: The command inside of a world that stays: what it joins is joined already.
PREDICT = """
from contextlib import contextmanager
from bignn.train import distributed
@contextmanager
def joined(_device, _timeout=None):
    yield current_world(CPU)
def predict(arguments):
    distributed.joined_world = joined
    return main(arguments)
"""


def test_a_world_of_one_is_the_plain_training(tmp_path: Path) -> None:
    graph = from_arrays(make_arrays(), name="toy")
    write_parts(graph, 1, tmp_path)
    part = open_part(tmp_path, 0, 1)
    for name, model in models().items():
        other = models()[name]
        settings = Settings(lr=0.01, epochs=3)
        mine = fit(model, part, settings, progress=False)
        plain = fit(other, graph, settings, progress=False)
        assert mine.val_loss == pytest.approx(plain.val_loss, abs=1e-4), name
        assert mine.test_acc == pytest.approx(plain.test_acc), name


def test_one_process_exchanges_rows_with_itself() -> None:
    """What a GPU's NCCL is tried by, on the CPU: gradients and predictions of the plain graph."""
    script = Path(__file__).parents[2] / "benchmarks" / "nccl.py"
    arguments = [str(script), "--device", "cpu", "--epochs", "2"]
    environment = {**os.environ, "PYTHONPATH": PATHS, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cpu tensors go by gloo, 1,102 rows to itself" in done.stdout
    assert done.stdout.splitlines()[-1] == "all equal"


def test_what_cannot_train_in_parts_is_refused(tmp_path: Path) -> None:
    graph = from_arrays(make_arrays(), name="toy")
    whole, half = next(cut(graph, 1)), next(cut(graph, 2))
    model = models()["gcn"]
    options = {"progress": False}
    with pytest.raises(InputError, match=r"'graph' must be one of 1 parts, .* got 2"):
        fit(model, half, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'model' must be a bignn.nn.GNN .* got 'sgc'"):
        fit(GNN(20, 8, 1, 2, conv="sgc"), whole, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'teacher' must be one that weighs neighbours"):
        fit(model, whole, teacher=GraphSAGE(20, 8, 2, 2), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'batches' must be left out"):
        fit(model, whole, batches=[1], **options)  # type: ignore[arg-type]
    store = make_store(tmp_path / "store")
    write_store_parts(store.path, 1, tmp_path / "parts")
    stored = open_part(tmp_path / "parts", 0, 1)
    with pytest.raises(InputError, match="a teacher needs raw features, which no store has"):
        fit(stored_model(stored), stored, teacher=stored_model(stored), **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'loss' must be that of classes"):
        fit(model, whole, loss="bce", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="no quantiles of a graph in parts"):
        encoded = GCN(20, 8, 2, 2, binarize="both", input_bits="threshold:2")
        fit(encoded, whole, **options)  # type: ignore[arg-type]
    unlabelled = next(cut(Graph(graph.x, graph.edge_index), 1))
    with pytest.raises(InputError, match="training needs"):
        fit(model, unlabelled, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["sage", "bi-sage", "saint", "bi-saint"])
def test_models_of_sampled_recipes_train_full_batch_in_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], model: str
) -> None:
    """Where many nodes have labels, their recipes sample and see the training nodes alone."""
    arrays = make_arrays()
    assert recipe(model, graph=from_arrays(arrays)).settings.inductive
    np.savez(tmp_path / "toy.npz", **arrays)  # type: ignore[arg-type]
    parts = tmp_path / "p"
    assert main(["partition", str(tmp_path / "toy.npz"), "-k", "1", "-o", str(parts)]) == 0
    few = ["train", str(parts), "--model", model, "--epochs", "2", "--hidden", "8"]
    few += ["--out", str(tmp_path / "runs")]
    assert main(few) == 0, capsys.readouterr().err
    part = open_part(parts, 0, 1)
    made = recipe(model, graph=part.partition, hidden_channels=8).build(part)
    assert fit(made, part, {"epochs": 2}, progress=False).epochs == 2
    for flags, line in (
        (["--fan-outs", "4,4"], "--sampler must be 'none' for a graph in parts, which is trained "
         "full batch, got 'neighbor'"),
        (["--inductive"], "--inductive must be left out for a graph in parts, got True"),
    ):  # fmt: skip
        assert main([*few, *flags]) == 2
        assert line in capsys.readouterr().err


def test_a_teacher_in_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    assert main(["partition", str(tmp_path / "toy.npz"), "-k", "1", "-o", str(tmp_path / "p")]) == 0
    arguments = ["train", str(tmp_path / "p"), "--epochs", "4", "--hidden", "8", "--distill"]
    assert main([*arguments, "--out", str(tmp_path / "runs"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert report["teacher_test_acc_mean"] is not None
    assert main([*arguments[:2], "--quality", "best"]) == 2
    assert "--quality must be 'plain' for a graph in parts" in capsys.readouterr().err


def test_errors_of_rounding_are_fed_back() -> None:
    """Over many steps the gradients that arrive add up to those that were sent."""
    graph = from_arrays(make_arrays(), name="toy")
    halo = TrainingHalo(World(), next(cut(graph, 1)), CPU, "int8")
    sent: list[torch.Tensor] = []
    exchange = halo.exchange

    class Loop:
        def __init__(self, rows: torch.Tensor) -> None:
            self.rows = rows

        def wait_tensor(self) -> torch.Tensor:
            return self.rows

    def start_tensor(rows: torch.Tensor, *, back: bool, columns: int) -> Any:
        assert back and columns == 33
        return Loop(rows)

    exchange.start_tensor = start_tensor  # type: ignore[method-assign,assignment]
    torch.manual_seed(0)
    arrived = []
    for _ in range(40):
        sent.append(torch.randn(7, 33))
        arrived.append(halo.send_back(sent[-1], key=1))
    once = (arrived[0] - sent[0]).abs().max()
    assert 0 < once < 0.02
    assert (torch.stack(arrived).sum(0) - torch.stack(sent).sum(0)).abs().max() < 1.5 * once


def test_bits_of_signs_and_back() -> None:
    for columns in (1, 7, 8, 9, 64, 70):
        signs = torch.randint(0, 2, (5, columns)).float() * 2 - 1
        octets = to_bits(signs)
        assert octets.shape == (5, -(-columns // 8))
        assert torch.equal(from_bits(octets, columns), signs)


# --- Failures ----------------------------------------------------------------------------------


def start(
    rank: int, size: int, port: int, script: Path, *arguments: str
) -> "subprocess.Popen[str]":
    """Starts one process of a world as torchrun would, with nobody who looks after it."""
    environment = {
        **os.environ,
        **{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)},
        **{"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        **{"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "GLOO_SOCKET_IFNAME": "lo"},
        "PYTHONPATH": PATHS,
    }
    return subprocess.Popen(
        [sys.executable, str(script), *arguments],
        cwd=script.parent,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


#: The command; process 1 does something at its second exchange of halos.
FAILING = """
import os, signal, sys
from bignn.cli import main
from bignn.train import distributed
from bignn.train.parts.halo import HaloExchange

distributed._LEADER_HEAD_START = 0.1
what, *arguments = sys.argv[1:]
exchange, count = HaloExchange.start_tensor, 0
def failing(self, *rest, **more):
    global count
    count += 1
    if count == 2 and os.environ["RANK"] == "1":
        os.kill(os.getpid(), getattr(signal, what))
    return exchange(self, *rest, **more)
HaloExchange.start_tensor = failing
sys.exit(main(arguments))
"""


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("SIGKILL", r"process 0 of 2 lost the others: one of them ended or did not answer"),
        ("SIGSTOP", r"process 0 of 2 lost the others: .* did not answer for 2 s"),
    ],
)
def test_failures_end_in_a_line(tmp_path: Path, what: str, line: str) -> None:
    graph = from_arrays(make_arrays(), name="toy")
    write_parts(graph, 2, tmp_path / "parts")
    make_packed_model([20, 9, 3]).save(tmp_path / "model.bignn")
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    arguments = [what, "predict", "model.bignn", "parts", "--out", "out.npy"]
    # Long enough for a process to start on a busy machine, where that counts.
    arguments += ["--timeout", "2" if what == "SIGSTOP" else "60"]
    port = free_port()
    processes = [start(rank, 2, port, script, *arguments) for rank in (0, 1)]
    try:
        _, told = processes[0].communicate(timeout=300)
    finally:
        for process in processes:
            process.kill()
    processes[1].communicate()
    assert processes[0].returncode == 1, told
    lines = [some for some in told.splitlines() if some.startswith("bignn predict: error: ")]
    assert len(lines) == 1, told
    assert re.search(line, lines[0]), lines
    assert not list(tmp_path.glob("out.npy*"))
