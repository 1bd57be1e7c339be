"""Training in several processes: together they do what one does, and none is left behind."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays

import bignn
from bignn.cli import main
from bignn.errors import InputError
from bignn.graph import from_arrays
from bignn.nn import GCN, GNN, GraphSAGE
from bignn.train import checkpoint, distributed
from bignn.train.batches import Batch, full_batch, take_loss_share
from bignn.train.distributed import LostProcessError, World
from bignn.train.fit import fit
from bignn.train.jobs import checked_jobs
from bignn.train.recipes import Settings
from bignn.train.sampled_batches import SampledBatches, Sampling

CPU = torch.device("cpu")
HERE = Path(__file__).parent
#: Where processes find helpers of tests and bignn, installed or not.
PATHS = os.pathsep.join(map(str, (HERE, HERE.parent, Path(bignn.__file__).parent.parent)))


def torchrun(*arguments: str, cwd: Path, processes: int = 2) -> subprocess.CompletedProcess[str]:
    """Runs ``torchrun`` without its warnings; its report of a failure is kept."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
    # A free port of its own, so that tests can run beside each other.
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    return subprocess.run(
        [*command, *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,  # ends a test that hangs
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "ignore",
            "PYTHONPATH": PATHS,
            # Names of this machine that do not resolve make gloo look for long.
            "GLOO_SOCKET_IFNAME": "lo",
        },
    )


def weights(path: Path) -> dict[str, torch.Tensor]:
    return checkpoint.read(path)[0]["model"]


def assert_close(mine: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert mine.keys() == other.keys()
    for name, value in mine.items():
        assert torch.allclose(value.float(), other[name].float(), atol=1e-5), name


def test_the_command_trains_the_same_model_with_two_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two seeds with a teacher each; the leader alone prints and writes."""
    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    arguments = ["train", str(tmp_path / "toy.npz"), "--model", "bi-gcn", "--distill", "--json"]
    arguments += ["--seeds", "2", "--epochs", "5", "--hidden", "8", "--out"]
    assert main([*arguments, str(tmp_path / "one")]) == 0
    alone = json.loads(capsys.readouterr().out)
    done = torchrun("-m", "bignn", *arguments, str(tmp_path / "two"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    together = json.loads(done.stdout)
    lines = [line for line in done.stderr.splitlines() if "seed" in line]
    # Two teachers, two students, and the one that was trained without a teacher too, once each.
    assert len(lines) == 5, done.stderr
    for key in ("test_acc", "val_acc_mean", "epochs", "teacher_test_acc_mean"):
        assert together[key] == pytest.approx(alone[key]), key
    for name in ("seed-0", "seed-1", "teacher-epochs-5/seed-1"):
        path = f"{name}.safetensors"
        assert_close(weights(tmp_path / "one" / path), weights(tmp_path / "two" / path))
    assert not list(tmp_path.rglob("*.tmp"))


def models() -> dict[str, tuple[GNN, Settings, Any]]:
    """Models that one process and two train to the same weights up to rounding.

    No random numbers but those that all processes share.
    """
    graph = from_arrays(make_arrays(), name="toy")
    whole = full_batch(graph, CPU)
    short = Settings(lr=0.01, epochs=4)
    sampled = replace(short, inductive=True, sampling=Sampling("neighbor", 8, fan_outs=(-1, -1)))
    torch.manual_seed(0)
    options: dict[str, Any] = {"binarize": "both", "dropout": 0.0}
    thirds = [replace(whole, loss_nodes=nodes) for nodes in whole.loss_nodes.split(7)]
    joint = replace(whole, loss_nodes=whole.loss_nodes[:14])
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    return {
        "dropout": (GCN(20, 8, 2, 2, binarize="both", dropout=0.4), short, None),
        "batch norm": (GCN(20, 8, 2, 2, binarize="both", norm="batch"), short, None),
        "neighbours": (GraphSAGE(20, 8, 2, 2, **options), sampled, None),
        # Two processes take the first two of three batches in one step; the third is one's alone.
        "given": (GCN(20, 8, 2, 2, **options), short, [joint, thirds[2]] if alone else thirds),
    }


def train_models(out: Path) -> None:
    graph = from_arrays(make_arrays(), name="toy")
    for name, (model, settings, batches) in models().items():
        path = out / f"{name}.safetensors"
        fit(model, graph, settings, batches=batches, checkpoint_path=path, progress=False)


SCRIPT = """
import json, os, shutil
from dataclasses import replace
from pathlib import Path
import torch, torch_geometric.nn as pyg
from conftest import make_arrays
from bignn.train import checkpoint
from bignn.train.distill import weights_digest
from bignn.errors import InputError
from bignn.graph import from_arrays
from bignn.loaders import NeighborLoader
from bignn.nn import GCN, GraphSAGE
from bignn.graph.pyg import to_pyg
from bignn.train.recipes import Settings, recipe
from bignn.train.sampled_batches import Sampling
from bignn.train.fit import fit
from test_distributed import train_models

rank, out = int(os.environ["RANK"]), Path.cwd()
train_models(out / "two")
graph = from_arrays(make_arrays(), name="toy")
said = {}

# Different first weights, random numbers of their own, several kinds of batches: one result.
for kind, size, fan_outs in (("neighbor", 9, (3, 3)), ("layer", 9, (9, 9)), ("walk", 4, ())):
    torch.manual_seed(rank)
    made = GCN if kind == "layer" else GraphSAGE
    model = made(20, 8, 2, 2, binarize="both", norm="batch", dropout=0.4)
    sampling = Sampling(kind, size, fan_outs=fan_outs, coverage=5)
    settings = Settings(lr=0.03, epochs=25, inductive=True, sampling=sampling)
    result = fit(model, graph, settings, progress=False)
    said[kind] = [weights_digest([model]), result.val_loss, result.val_acc, result.epochs]

# A user's own module, with running averages, and PyG's batches, of which 3 are not shared evenly.
torch.manual_seed(rank)
model, data = pyg.GCN(20, 8, 2, 2, norm="batch", dropout=0.3), to_pyg(graph)
loader = NeighborLoader(data, [4, 4], input_nodes=data.train_mask, batch_size=7, shuffle=True)
result = fit(model, graph, Settings(lr=0.01, epochs=10), batches=loader, progress=False)
said["own"] = [weights_digest([model]), result.val_loss]

# Going on from a checkpoint of the middle.
def run(path, resume):
    torch.manual_seed(7)
    model = recipe("bi-sage", graph=graph, hidden_channels=8, epochs=9, batch_size=5).build(graph)
    settings = recipe("bi-sage", graph=graph, hidden_channels=8, epochs=9, batch_size=5).settings
    fit(model, graph, settings, checkpoint_path=path, resume=resume, save_every=0, progress=False)
    return weights_digest([model])

write, count = checkpoint.write, 0
def write_and_keep(path, *rest):
    global count
    write(path, *rest)
    count += 1
    if count == 4:
        shutil.copy(path, out / "middle.safetensors")
checkpoint.write = write_and_keep
straight = run(out / "straight.safetensors", False)
written, checkpoint.write = count, write
said["resumed"] = [straight, run(out / "middle.safetensors", True)]

for change in ({"seed": rank}, {"settings": Settings(lr=0.1 + rank)}):
    try:
        fit(model, graph, **{"progress": False, **change})
    except InputError as error:
        said[f"refused {list(change)}"] = str(error)
said["written"] = written if rank == 0 else 9
said["wrote"] = written > 0
Path(f"rank-{rank}.json").write_text(json.dumps(said))
"""


def test_fit_in_two_processes(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = torchrun("script.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    train_models(tmp_path / "one")
    for name in models():
        one, two = (tmp_path / folder / f"{name}.safetensors" for folder in ("one", "two"))
        assert_close(weights(one), weights(two))
        losses = [checkpoint.read(path)[1]["progress"]["best_loss"] for path in (one, two)]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5), name
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1))
    assert (first.pop("wrote"), second.pop("wrote")) == (True, False)
    assert first == second
    for kind in ("neighbor", "layer", "walk"):
        assert first[kind][1] < 0.65, kind  # chance is log 2
    straight, resumed = first["resumed"]
    assert straight == resumed
    for change in ("seed", "settings"):
        assert (
            "the processes differ in 'graph', 'settings', 'seed'" in first[f"refused ['{change}']"]
        )


DYING = """
import os, signal, sys
from bignn.train.run import TrainingRun
from bignn.cli import main

epochs = TrainingRun._train_epoch
def dying(run, batches):
    epochs(run, batches)
    if os.environ["RANK"] == "{who}" and run.progress.epoch == 6:
        os.kill(os.getpid(), signal.SIGKILL)
TrainingRun._train_epoch = dying
sys.exit(main(sys.argv[1:]))
"""


def test_a_process_that_dies_ends_the_run(tmp_path: Path) -> None:
    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    (tmp_path / "dying.py").write_text(DYING.format(who=1))
    arguments = ["train", "toy.npz", "--hidden", "8", "--save-every", "0", "--out", "runs"]
    done = torchrun("dying.py", *arguments, cwd=tmp_path)
    assert done.returncode not in (0, None)
    lines = [line for line in done.stderr.splitlines() if line.startswith("bignn train: error: ")]
    assert len(lines) == 1, done.stderr
    assert "process 0 of 2" in lines[0]
    assert "--resume" in lines[0]
    assert f"Signal {int(signal.SIGKILL)}" in done.stderr  # torchrun's word on the other
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["seed-0.safetensors"]
    assert checkpoint.read(tmp_path / "runs" / "seed-0.safetensors")[1]["progress"]["epoch"] == 5


def run_as_rank(rank: int, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that takes itself for one of two."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=900,  # ends a test that hangs
        env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
    )


def test_a_process_that_waits_inside_a_library_ends_on_sigterm() -> None:
    code = (
        "import hashlib, os, signal, threading\n"
        "from bignn.train.distributed import _SigtermHandler\n"
        "_SigtermHandler._PATIENCE = 0.1\n"
        "_SigtermHandler()\n"
        "threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()\n"
        "hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)\n"  # many minutes
    )
    done = run_as_rank(0, code)
    assert done.returncode == 1
    assert done.stderr.startswith("bignn: error: process 0 of 2 was ended")
    assert done.stderr.count("\n") == 1


def test_the_line_survives_code_that_turns_every_error_into_its_own() -> None:
    code = (
        "import os, signal\n"
        "from bignn.train import distributed\n"
        "distributed.under_torchrun = lambda: True\n"
        "distributed.current_world = lambda device: distributed.World()\n"
        "try:\n"
        "    with distributed.joined_world('cpu'):\n"
        "        try:\n"
        "            os.kill(os.getpid(), signal.SIGTERM)\n"
        "        except ValueError:\n"
        "            raise KeyError('something else')\n"
        "except distributed.LostProcessError as error:\n"
        "    print(error)\n"
    )
    done = run_as_rank(1, code)
    assert done.stdout.startswith("process 1 of 2 was ended"), done.stderr


def test_a_process_of_several_ends_before_pythons_own_end() -> None:
    """Where torch's threads may abort it; one that is alone ends as always."""
    code = (
        "import atexit, sys\n"
        "from bignn.train import distributed\n"
        "distributed.under_torchrun = lambda: {}\n"
        "atexit.register(print, 'taken down')\n"
        "print('done')\n"
        "distributed.end_process(3)\n"
        "sys.exit(4)\n"
    )
    several, alone = (run_as_rank(0, code.format(is_several)) for is_several in (True, False))
    assert (several.returncode, several.stdout) == (3, "done\n")
    assert (alone.returncode, alone.stdout) == (4, "done\ntaken down\n")


#: The command, where the leader has as long as it takes to be the first to report an error.
PATIENT = """
import sys
from bignn.cli import main
from bignn.train import distributed

distributed._LEADER_HEAD_START = 900.0
sys.exit(main(sys.argv[1:]))
"""


def test_an_error_that_all_processes_meet_is_reported_once(tmp_path: Path) -> None:
    (tmp_path / "patient.py").write_text(PATIENT)
    done = torchrun("patient.py", "train", "cora", "--seeds", "2", "--jobs", "2", cwd=tmp_path)
    assert done.returncode == 1
    lines = [line for line in done.stderr.splitlines() if line.startswith("bignn train: error: ")]
    expected = "--jobs must be 1 under torchrun, whose processes train each seed together, got 2"
    assert lines == [f"bignn train: error: {expected}"]
    assert done.stdout == ""


def test_a_process_alone_is_a_world_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    assert world.is_leader
    assert world.totals(3, 0.5) == [3, 0.5]
    assert world.fractions(3, 0) == [1, 0]
    assert list(world.pad_batches("abc")) == ["a", "b", "c"]
    assert not world.differs("anything")
    assert distributed.current_world(CPU) == world
    # Other launchers set some of the variables; torchrun all.
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("RANK", "1")
    assert not distributed.under_torchrun()
    assert distributed.is_leader()
    for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "1")
    assert distributed.under_torchrun()
    assert not distributed.is_leader()
    with pytest.raises(InputError, match="'jobs' must be 1 under torchrun"):
        checked_jobs(2)
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert not distributed.under_torchrun()


def test_each_process_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert distributed.resolve_device("cuda") == torch.device("cuda")
    for name, value in (("RANK", "3"), ("LOCAL_RANK", "1"), ("WORLD_SIZE", "4")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert distributed.resolve_device("cuda") == torch.device("cuda:1")
    assert distributed.resolve_device("cuda:0") == torch.device("cuda:0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    with pytest.raises(InputError, match="a GPU per process, got 2 for 4 processes"):
        distributed.resolve_device("cuda")


def test_torchs_errors_become_one_line() -> None:
    line = r"^process 1 of 3 lost the others: .* \(Connection closed by \[::1\]\); .*--resume\)$"
    with pytest.raises(LostProcessError, match=line), World(1, 3).communicating():
        raise RuntimeError("[gloo/pair.cc:9] Connection closed by [::1]. Read this.\nAnd much more")


def test_the_shares_of_a_loss_are_all_of_it() -> None:
    """Labels and targets alike, by number and by weight."""
    for size in (2, 3, 7):
        whole = full_batch(from_arrays(make_arrays()), CPU)
        whole = replace(whole, targets=torch.rand(60, 2), loss_weight=torch.rand(20))
        parts = [take_loss_share(whole, World(rank, size).share) for rank in range(size)]
        nodes = torch.cat([part.loss_nodes for part in parts])
        assert sorted(nodes.tolist()) == sorted(whole.loss_nodes.tolist())
        taught = [number for part in parts for number in list(range(60))[part.target_nodes]]
        assert sorted(taught) == list(range(60))
        assert [part.num_terms[1] for part in parts] == [
            len(range(60)[rank::size]) for rank in range(size)
        ]
        assert {part.num_terms[0] for part in parts} == {1}
        for part in parts:
            assert part.loss_weight is not None
            assert len(part.loss_weight) == len(part.loss_nodes)


def test_processes_split_an_epoch_without_overlap() -> None:
    # Nodes have themselves as labels, so that a batch shows which nodes it was made of.
    whole = replace(full_batch(from_arrays(make_arrays()), CPU), y=torch.arange(60))

    def epoch(kind: Any, share: slice) -> list[Batch]:
        torch.manual_seed(5)
        model = GCN(20, 4, 2, 2) if kind == "layer" else GraphSAGE(20, 4, 2, 2)
        fan_outs = (3, 3) if kind in ("neighbor", "layer") else ()
        sampling = Sampling(kind, 6, fan_outs=fan_outs, coverage=3)
        return list(SampledBatches(sampling, model, whole, share))

    for kind, size in product(("neighbor", "layer", "walk", "node", "edge"), (2, 3)):
        alone = epoch(kind, slice(None))
        shares = [epoch(kind, World(rank, size).share) for rank in range(size)]
        steps = [len(share) for share in shares]
        if kind in ("neighbor", "layer"):
            assert max(steps) == len(alone)
            assert steps == sorted(steps, reverse=True)
            for step, batch in enumerate(alone):
                split = [share[step].y for share in shares if step < len(share)]
                assert sorted(torch.cat(split).tolist()) == sorted(batch.y.tolist())
        else:
            assert sum(steps) == len(alone)
            for number, batch in enumerate(alone):
                mine = shares[number % size][number // size]
                assert torch.equal(mine.y, batch.y)
