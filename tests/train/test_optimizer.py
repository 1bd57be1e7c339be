"""Learning rates: they fall as half a cosine, alike in any way of training, or stay."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_arrays

from bignn.cli import main
from bignn.errors import InputError
from bignn.graph import Graph, from_arrays
from bignn.nn import GCN
from bignn.train import checkpoint, run
from bignn.train.fit import fit
from bignn.train.optimizer import adam, set_rates
from bignn.train.recipes import Settings

COSINE = Settings(lr=0.02, last_layer_lr=0.5, lr_decay="cosine", epochs=8)


@pytest.fixture
def graph() -> Graph:
    return from_arrays(make_arrays(), name="toy")


def new_model() -> GCN:
    torch.manual_seed(0)
    return GCN(20, 16, 2, 2, binarize="both")


def weights(graph: Graph, settings: Settings, **options: Any) -> list[torch.Tensor]:
    model = new_model()
    fit(model, graph, settings, progress=False, **options)
    return list(model.state_dict().values())


def is_same(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def test_rates_are_half_a_cosine() -> None:
    optimizer = adam(new_model(), COSINE)
    for epoch, factor in ((0, 1.0), (2, (2 + math.sqrt(2)) / 4), (4, 0.5), (6, 0.1464466)):
        set_rates(optimizer, COSINE, epoch)
        rates = [group["lr"] for group in optimizer.param_groups]
        assert rates == pytest.approx([0.02 * factor, 0.01 * factor, 0.02 * factor])
    set_rates(optimizer, replace(COSINE, lr_decay="none"), 0)  # leaves them
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.02 * 0.1464466)


def test_a_rate_on_a_gpu_is_set_where_recorded_steps_read_it() -> None:
    optimizer = adam(new_model(), COSINE)
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(group["lr"])
    before = [group["lr"] for group in optimizer.param_groups]
    set_rates(optimizer, COSINE, 4)
    after = [group["lr"] for group in optimizer.param_groups]
    assert all(one is other for one, other in zip(before, after, strict=True))
    assert [float(rate) for rate in after] == pytest.approx([0.01, 0.005, 0.01])


def test_only_the_first_epoch_has_the_whole_rate(graph: Graph) -> None:
    for epochs, same in ((1, True), (2, False)):
        falling = replace(COSINE, epochs=epochs)
        kept = replace(falling, lr_decay="none")
        assert is_same(weights(graph, falling), weights(graph, kept)) == same


def test_rates_begin_anew_without_the_teacher(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs: list[int] = []
    monkeypatch.setattr(run, "set_rates", lambda optimizer, settings, epoch: epochs.append(epoch))
    settings = replace(COSINE, epochs=3, leave_teacher=True)
    weights(graph, settings, teacher=GCN(20, 8, 2, 2))
    assert epochs == [0, 1, 2, 0, 1, 2]


def test_the_flag_is_the_setting(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    common = ["train", "cora", "--epochs", "1", "--lr-decay"]
    for decay in ("cosine", "none"):
        assert main([*common, decay, "--out", str(tmp_path / decay)]) == 0
        _, header = checkpoint.read(tmp_path / decay / "seed-0.safetensors")
        assert header["settings"]["lr_decay"] == decay
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main([*common, "linear"])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert "--lr-decay: invalid choice: 'linear' (choose from 'none', 'cosine')" in lines[0]
    with pytest.raises(InputError, match=r"'lr_decay' must be one of \['none', 'cosine'\], got 'x"):
        Settings(lr_decay="x")  # type: ignore[arg-type]
