"""Recipes: chosen by what a graph is like, by the paper's dataset where asked for, and changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays

import bignn
from bignn.cli import main
from bignn.config import Sampling
from bignn.errors import InputError
from bignn.graph.graph import from_arrays
from bignn.lab.paper.rows import AS_PAPER_BINARY, AS_PAPER_FLOAT
from bignn.train.recipes import (
    MANY_LABELS,
    PAPER,
    RECIPES,
    TWINS,
    recipe,
    settings_for,
    teacher_recipe,
)
from bignn.train.recipes.cost import cost_of


def test_a_graphs_name_plays_no_part() -> None:
    """Equal arrays under different names have equal recipes and train alike."""
    arrays = make_arrays()
    graphs = [from_arrays(arrays, name=name) for name in ("toy", "reddit", "pubmed")]
    for name in RECIPES:
        for distill in (False, True):
            found = [recipe(name, graph=graph, distill=distill) for graph in graphs]
            assert found[0] == found[1] == found[2]
        teachers = [teacher_recipe(name, graph) for graph in graphs]
        assert teachers[0] == teachers[1] == teachers[2]
    results = []
    for graph in graphs:
        torch.manual_seed(0)
        model = recipe("bi-sage", graph=graph).build(graph)
        assert settings_for(model, graph) == MANY_LABELS["bi-sage"].settings
        settings = replace(settings_for(model, graph), epochs=2)
        result = bignn.fit(model, graph, settings, progress=False)
        results.append((replace(result, seconds=0.0), model.state_dict()))
    for result, state in results[1:]:
        assert result == results[0][0]
        for key, value in state.items():
            assert torch.equal(value, results[0][1][key]), key


def test_the_papers_settings_are_asked_for_by_name() -> None:
    saint = recipe("bi-saint", paper="reddit")
    assert (saint.hidden_channels, saint.num_layers, saint.jk) == (256, 2, "cat")
    assert saint.settings.inductive
    assert saint.settings.sampling == Sampling("walk", 2000, walk_length=4)
    assert (saint.binarize, saint.binarize_head) == ("both", False)
    gat = recipe("gat", paper="ogbn-arxiv")
    assert (gat.hidden_channels, gat.heads, gat.out_heads, gat.num_layers) == (128, 2, 1, 3)
    assert (gat.settings.epochs, gat.settings.lr, gat.dropout) == (500, 0.001, 0.5)
    products = recipe("bi-gat", paper="ogbn-products")
    assert products.settings.sampling == Sampling("neighbor", 1024, fan_outs=(10, 10, 10))
    deeper = recipe("sage", paper="ogbn-products", num_layers=2)
    assert deeper.settings.sampling == Sampling("neighbor", 1024, fan_outs=(20, 20))
    assert teacher_recipe("bi-sage", paper="reddit") == PAPER["reddit"]["sage"]
    for dataset in ("cora", "citeseer", "pubmed"):
        assert recipe("gcn", paper=dataset) == recipe("gcn", **dict(AS_PAPER_FLOAT))
        assert recipe("bi-gcn", paper=dataset) == recipe("bi-gcn", **dict(AS_PAPER_BINARY))
    assert recipe("gat", paper="pubmed").out_heads == 8
    for dataset in ("flickr", "reddit", "ogbn-arxiv", "ogbn-products"):
        rows = PAPER[dataset]
        for name, row in rows.items():  # binary models differ from their twins in bits and norms
            twin = rows[TWINS.get(name, name)]
            as_float = replace(row, binarize="none", norm=twin.norm, edge_bits=twin.edge_bits)
            assert as_float == twin


def test_what_the_paper_does_not_have_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"'paper' must be a dataset of the paper, one of \['cora"):
        recipe("gcn", paper="musae-github")
    line = r"'model' must be one that the paper trains on reddit, one of \['gcn', .* got 'gat'"
    with pytest.raises(InputError, match=line):
        recipe("gat", paper="reddit")
    monkeypatch.chdir(tmp_path)
    np.savez("toy.npz", **make_arrays())  # type: ignore[arg-type]
    assert main(["train", "toy.npz", "--as-paper"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("bignn train: error: --as-paper needs a dataset of the paper")
    assert "ogbn-products, got 'toy.npz'; leave it out" in error


def test_as_paper_trains_by_the_datasets_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BIGNN_DATA", str(tmp_path))
    np.savez(tmp_path / "reddit.npz", **make_arrays())  # type: ignore[arg-type]
    flags = ["train", "reddit", "--model", "bi-sage", "--epochs", "1", "--out", "runs"]
    widths = []
    for more in ([], ["--as-paper"]):
        assert main([*flags, *more]) == 0
        (checkpoint,) = Path("runs").glob("*.safetensors")
        widths.append(bignn.load_model(checkpoint).config["hidden_channels"])
        checkpoint.unlink()
    assert widths == [MANY_LABELS["bi-sage"].hidden_channels, 256]


def test_sizes_are_the_papers() -> None:
    """Model sizes as the paper prints them: K of 1024 bytes, without biases."""
    for (dataset, name), kilobytes in {
        ("reddit", "gcn"): 643.00,
        ("reddit", "sage"): 1286.00,
        ("reddit", "saint"): 1798.00,
        ("ogbn-arxiv", "gat"): 428.31,
        ("ogbn-products", "gat"): 1326.37,
    }.items():
        counted = cost_of(name, dataset)
        sizes = counted.sizes
        arrays: dict[str, Any] = {
            "x": np.zeros((sizes.classes, sizes.features)),
            "edge_index": np.zeros((2, 0), dtype=int),
            "y": np.arange(sizes.classes),
        }
        model = recipe(name, paper=dataset).build(from_arrays(arrays, name="any"))
        count = sum(p.numel() for p in model.parameters() if p.ndim >= 2)
        assert round(4 * count / 1024, 2) == kilobytes


def test_jumping_knowledge_can_be_left_out() -> None:
    assert recipe("saint").jk == "cat"
    assert recipe("saint", jk=None).jk == "cat"  # None keeps the recipe's own
    assert recipe("saint", jk="none").jk is None


def test_dense_features_get_bits_that_are_learned_where_there_are_many_labels() -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {
        "x": rng.standard_normal((200, 100)).astype(np.float32),
        "edge_index": rng.integers(0, 200, (2, 900)),
        "y": np.arange(200) % 3,
        "train_idx": np.arange(100),
        "val_idx": np.arange(100, 150),
    }
    many = from_arrays(arrays, name="any")
    few = from_arrays({**arrays, "train_idx": np.arange(6)}, name="any")
    for name in ("bi-gcn", "bi-sage", "bi-saint"):
        for distill in (False, True):
            assert recipe(name, graph=many, distill=distill).input_bits == "learned:4"
            assert recipe(name, graph=few, distill=distill).input_bits == "rotate:4"
            assert recipe(name, graph=many, distill=distill).drop == "all"
    # Where few labels are learned with a teacher most of the input is dropped, as in bags of words.
    assert recipe("bi-gcn", graph=few, distill=True).drop == "present"
    assert recipe("bi-sage", graph=many, drop="present").drop == "present"
    assert recipe("bi-sage", graph=many, input_bits="sign").drop == "present"
    assert recipe("bi-sage", graph=many, input_bits="sign").input_bits == "sign"
    assert recipe("bi-sage", graph=many, input_bits="auto").input_bits == "learned:4"
    assert recipe("sage", graph=many).build(many).input_stage.encoder is None
