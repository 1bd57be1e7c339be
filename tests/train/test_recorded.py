"""Recorded epochs and seeds that take turns: the results of epochs and seeds by themselves."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_arrays
from torch import Tensor

import bignn
from bignn.cli import main
from bignn.graph import Graph, from_arrays
from bignn.kernels.cuda import device as cuda_module
from bignn.nn import GCN
from bignn.nn.saved_bits import kernels as kernels_module
from bignn.train import recorded, seeds
from bignn.train.recipes import Settings, recipe
from bignn.train.recorded import Number, RecordedEpoch, Recorder
from bignn.train.seeds import SeedResults, train_seeds

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def graph() -> Graph:
    return from_arrays(make_arrays(), name="toy")


class FakeGraph:
    """What torch.cuda.CUDAGraph is asked to do, in order."""

    done: list[str] = []  # noqa: RUF012 - of all of them

    def capture_begin(self, capture_error_mode: str) -> None:
        self.done.append(f"begin {capture_error_mode}")

    def capture_end(self) -> None:
        self.done.append("end")

    def replay(self) -> None:
        self.done.append("replay")


class FakeGenerator:
    """A generator whose states are what was done to them."""

    def clone_state(self) -> str:
        return "copy"

    def graphsafe_set_state(self, state: str) -> None:
        FakeGraph.done.append(f"set {state}")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    class Stream:
        def synchronize(self) -> None:
            pass

    monkeypatch.setattr(FakeGraph, "done", [])
    monkeypatch.setattr("torch.cuda.CUDAGraph", FakeGraph)
    monkeypatch.setattr("torch.cuda.current_stream", Stream)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 0)
    monkeypatch.setattr("torch.cuda.default_generators", (FakeGenerator(),))
    return FakeGraph.done


def test_the_first_epochs_are_not_recorded(fake: list[str]) -> None:
    recorder = Recorder(True, CUDA, 10, epoch=5)
    found: list[object] = []
    for epoch in range(5, 10):
        read = recorder.begin(epoch, lambda: (torch.tensor(0.5), 3.0, torch.tensor(7)))
        found.append(None if read is None else list(read()))
    assert found == [None, None, None, [0.5, 3.0, 7.0], [0.5, 3.0, 7.0]]
    assert fake == ["begin thread_local", "end", "replay", "replay"]


def test_what_cannot_be_recorded_is_tried_once(fake: list[str]) -> None:
    recorder = Recorder(True, CUDA, 10, epoch=0)

    def waits() -> Sequence[Number]:
        raise RuntimeError("operation not permitted when stream is capturing\nand more")

    assert [recorder.begin(epoch, waits) for epoch in range(6)] == [None] * 6
    # The generator draws from a state that expects no recording.
    assert fake == ["begin thread_local", "end", "set copy"]
    assert recorder.why_not == "operation not permitted when stream is capturing"


def test_an_epoch_that_waits_is_not_recorded(
    fake: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = ["default"]
    monkeypatch.setattr("torch.cuda.get_sync_debug_mode", lambda: modes[-1])
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", modes.append)
    notice = "Synchronization debug mode is a prototype feature and does not yet detect all "
    for message, is_recorded in (
        ("called a synchronizing CUDA operation (in line 7)", False),
        ("a word", True),
        (f"{notice}synchronizing operations", True),
    ):
        recorder = Recorder(True, CUDA, 10, epoch=0)
        is_told = message == "a word"
        with pytest.warns(UserWarning, match="a word") if is_told else nullcontext():
            for epoch in range(recorded.EPOCHS_BEFORE):
                assert recorder.begin(epoch, lambda: (torch.tensor(1.0),)) is None
                with recorder.watched(epoch):
                    if epoch + 1 == recorded.EPOCHS_BEFORE:
                        assert modes[-1] == "warn"
                        warnings.warn(message, stacklevel=1)
        assert modes[-1] == "default"
        read = recorder.begin(recorded.EPOCHS_BEFORE, lambda: (torch.tensor(1.0),))
        assert (read is not None) == is_recorded
        assert (recorder.why_not is None) == is_recorded


@pytest.mark.parametrize(
    "given", [(False, CUDA, 10), (True, CPU, 10), (True, CUDA, recorded.MOST_NODES + 1)]
)
def test_other_work_is_not_recorded(fake: list[str], given: tuple[bool, Any, int]) -> None:
    recorder = Recorder(*given, epoch=0)
    assert recorder.begin(9, lambda: (torch.tensor(1.0),)) is None
    assert fake == []


class EagerEpoch(RecordedEpoch):
    """Work that is done when it is launched, as a replay does it."""

    launched = 0

    def __init__(self, work: Callable[[], Sequence[Number]]) -> None:
        self._work = work

    def launch(self) -> None:
        EagerEpoch.launched += 1
        self._values = [float(number) for number in self._work()]

    def read(self) -> list[float]:
        return self._values


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded, "DEVICES", ("cpu",))
    monkeypatch.setattr("torch.cuda.get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr("torch.cuda.set_sync_debug_mode", lambda mode: None)
    monkeypatch.setattr(recorded, "RecordedEpoch", EagerEpoch)
    monkeypatch.setattr(EagerEpoch, "launched", 0)


def trained(graph: Graph, **options: Any) -> tuple[object, list[Tensor]]:
    torch.manual_seed(0)
    model = GCN(20, 16, 2, 2, binarize="both", dropout=0.4, norm="batch")
    settings = Settings(lr=0.01, epochs=12, patience=5)
    result = bignn.fit(model, graph, settings, progress=False, **options)
    told = (result.val_loss, result.val_acc, result.test_acc, result.best_epoch, result.epochs)
    return told, list(model.state_dict().values())


def test_recorded_training_is_that_of_launches(
    graph: Graph, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    expected = trained(graph)
    request.getfixturevalue("replays")
    path = tmp_path / "run.safetensors"
    epochs: list[int] = []

    def stop(epoch: int, loss: float, score: float) -> None:
        epochs.append(epoch)
        if epoch == 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trained(graph, checkpoint_path=path, save_every=0, on_epoch=stop)
    found = trained(graph, checkpoint_path=path, resume=True)
    assert epochs[:6] == [1, 2, 3, 4, 5, 6]
    assert EagerEpoch.launched > 0
    assert found[0] == expected[0]
    assert all(torch.equal(a, b) for a, b in zip(found[1], expected[1], strict=True))


def test_seeds_that_take_turns_are_those_by_themselves(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Without dropout, since on a CPU all runs draw from one generator.
    changes: dict[str, Any] = {"dropout": 0.0, "input_dropout": 0.0, "lr": 0.05}
    chosen = recipe("bi-gcn", graph=graph, epochs=60, patience=2, **changes)
    in_turn = train_seeds(chosen, graph, [0, 1, 2], tmp_path / "a", progress=False)
    assert len({result.epochs for result in in_turn.results}) > 1  # they stop at different epochs
    monkeypatch.setattr(seeds, "can_fit_together", lambda *given: True)
    together = train_seeds(chosen, graph, [0, 1, 2], tmp_path / "b", progress=False)

    def told(results: SeedResults) -> list[object]:
        return [(r.val_loss, r.test_acc, r.best_epoch, r.epochs) for r in results.results]

    assert told(together) == told(in_turn)
    together.checkpoints[1].write_bytes(b"damaged")
    with pytest.raises(bignn.FileError):
        train_seeds(chosen, graph, [0, 1], tmp_path / "b", resume=True, progress=False)
    options: dict[str, Any] = {"resume": True, "replace_unusable": True, "progress": False}
    again = train_seeds(chosen, graph, [0, 1, 2], tmp_path / "b", **options)
    assert told(again) == told(in_turn)
    assert "seed 1 is trained anew" in capsys.readouterr().err


def test_seeds_take_turns_on_a_gpu_where_the_graph_is_small(graph: Graph) -> None:
    whole = recipe("bi-gcn", graph=graph, sampler="none")
    sampled = recipe("bi-gcn", graph=graph, sampler="walk")
    assert seeds.can_fit_together(whole, graph, "cuda:1")
    assert not seeds.can_fit_together(whole, graph, "cpu")
    assert not seeds.can_fit_together(sampled, graph, "cuda")


def test_a_gpu_without_kernels_trains_on_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_module, "_opened", lambda number: "CUDA does not work here: no driver")
    kernels_module.kernels_for.cache_clear()
    try:
        assert kernels_module.kernels_for(torch.device("cuda", 0)) is None
    finally:
        kernels_module.kernels_for.cache_clear()


def test_a_gpu_without_memory_is_one_line(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "toy.npz"
    bignn.save(graph, path)

    def full(*given: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB.\nMore")

    monkeypatch.setattr(GCN, "forward", full)
    assert main(["train", str(path), "--out", str(tmp_path / "out"), "--epochs", "2"]) == 1
    lines = capsys.readouterr().err.strip().splitlines()
    assert "out of memory" in lines[-1]
    assert not any("Traceback" in line for line in lines)
