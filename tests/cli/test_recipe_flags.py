"""Flags of recipes: one per value, and the values given reach the model."""

import argparse
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_arrays

import bignn
from bignn.cli import main
from bignn.cli.recipe_flags import OF_MODEL, OF_SAMPLES, OF_TRAINING, add_recipe_flags, changes_of
from bignn.config import ModelOptions, Sampling, Settings


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    np.savez("toy.npz", **make_arrays())  # type: ignore[arg-type]
    return "toy.npz"


def test_every_value_of_a_recipe_has_a_flag() -> None:
    model = {field.name for field in fields(ModelOptions)} | {"hidden_channels", "num_layers"}
    assert set(OF_MODEL) == model
    assert set(OF_TRAINING) == {field.name for field in fields(Settings)} - {"sampling"}
    samples = {field.name for field in fields(Sampling)} - {"kind"}
    assert set(OF_SAMPLES) == samples | {"sampler"}


def given(*arguments: str) -> dict[str, Any]:
    names = (*OF_MODEL, *OF_TRAINING, *OF_SAMPLES)
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_recipe_flags(parser, names)
    changes = changes_of(parser.parse_args(arguments), names)
    return {name: value for name, value in changes.items() if value is not None}


def test_flags_are_of_their_values_types() -> None:
    assert given() == {}
    assert given(
        *("--hidden", "8", "--input-dropout", "0.5", "--no-balance", "--inductive"),
        *("--conv", "mean-gcn", "--fan-outs", "5,-1", "--sampler", "none", "--lr", "1"),
    ) == {
        **{"hidden_channels": 8, "input_dropout": 0.5, "balance": False, "inductive": True},
        **{"conv": "mean-gcn", "fan_outs": (5, -1), "sampler": "none", "lr": 1.0},
    }
    for wrong in (["--hidden", "1.5"], ["--conv", "gin"], ["--sampler", "all"], ["--lr", "fast"]):
        with pytest.raises(argparse.ArgumentError, match=wrong[0]):
            given(*wrong)


def test_what_is_given_reaches_the_model(toy: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = bignn.get_num_threads()
    try:
        arguments = (
            *("--conv", "sage", "--jk", "cat", "--activation", "elu", "--binarize", "weights"),
            *("--hidden", "5", "--epochs", "2", "--sampler", "walk", "--coverage", "3"),
            *("--threads", "1", "--json"),
        )
        assert main(["train", toy, "--model", "gcn", *arguments]) == 0
        assert bignn.get_num_threads() == 1
    finally:
        bignn.set_num_threads(before)
    report = json.loads(capsys.readouterr().out)
    config = bignn.load_model(report["checkpoint"]).config
    names = ("conv", "jk", "activation", "binarize", "hidden_channels")
    assert [config[name] for name in names] == ["sage", "cat", "elu", "weights", 5]
    assert report["epochs"] == [2]


def test_help_leaves_defaults_to_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("train", "capacity", "compare", "cost"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        text = " ".join(capsys.readouterr().out.split())
        assert "number of convolutions (default: the recipe's)" in text or command == "compare"
        assert "maximum number of epochs (default: the recipe's)" in text or command == "cost"
        for number in ("1000)", "100)", "0.9)", "2)"):
            assert f"default: {number}" not in text


def test_devices_have_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["train", "cora"], ["capacity", "cora"], ["reproduce"], ["compare", "cora"]):
        for text in ("tpu", "cuda:", "cuda:x", "cpu:0", "cuda:-1"):
            with pytest.raises(SystemExit):
                main([*command, "--device", text])
            line = capsys.readouterr().err.splitlines()[-1]
            assert f"expected cpu, cuda or cuda:N, got '{text}'; see" in line


def test_a_missing_gpu_is_named(
    toy: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["train", toy, "--device", "cuda"]) == 2
    assert "torch sees no CUDA GPU" in capsys.readouterr().err
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert main(["train", toy, "--device", "cuda:2"]) == 2
    error = capsys.readouterr().err
    expected = "--device must be 'cuda:0' to 'cuda:1', got 'cuda:2'; this machine has no other GPU"
    assert error == f"bignn train: error: {expected}\n"
    assert not Path("runs").exists()
