"""A model's options: declared once, used by models, recipes, costs and flags."""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, asdict, fields, replace
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch

import bignn
from bignn.config import ModelConfig, ModelOptions, Sampling, Settings
from bignn.cost import Architecture
from bignn.errors import InputError
from bignn.nn import (
    GAT,
    GCN,
    GNN,
    GATConv,
    GCNConv,
    GraphSAGE,
    JumpingHead,
    Linear,
    SAGEConv,
    SGConv,
)
from bignn.train.recipes import RECIPES, Recipe, recipe

MODELS = (GNN, GCN, GraphSAGE, GAT)
LAYERS = (Linear, GCNConv, SAGEConv, GATConv, SGConv, JumpingHead)


def test_signatures_spell_out_the_declared_options() -> None:
    """Every model and layer names PyG's words in its signature, with the declared defaults."""
    declared = {field.name: field.default for field in fields(ModelOptions)}
    for kind in MODELS:
        shown = inspect.signature(kind).parameters
        assert list(shown)[:5] == [
            *("in_channels", "hidden_channels", "num_layers", "out_channels", "conv")
        ]
        assert set(shown) == {field.name for field in fields(ModelConfig)}
        assert {p.kind for p in list(shown.values())[4:]} == {inspect.Parameter.KEYWORD_ONLY}
        defaults = {name: shown[name].default for name in declared}
        assert defaults == {**declared, "conv": None}  # None is the class's own
        hints, types = get_type_hints(kind.__init__), get_type_hints(ModelOptions)
        assert {name: hints[name] for name in types if name != "conv"} == {
            name: types[name] for name in types if name != "conv"
        }
    for layer in LAYERS:
        shown = inspect.signature(layer).parameters
        assert not any(p.kind in (p.VAR_KEYWORD, p.VAR_POSITIONAL) for p in shown.values()), layer
        shared = set(shown) & set(declared)
        assert {"binarize", "ste", "dropout", "scale_gradient"} <= shared, layer
        assert {name: shown[name].default for name in shared} == {
            name: declared[name] for name in shared
        }
    assert inspect.signature(GCN).parameters["dropout"].default == 0.0  # as in PyG


def test_a_model_keeps_its_arguments_as_a_plain_dictionary() -> None:
    model = GAT(3, 4, 2, heads=2, dropout=0.25, binarize="both")
    assert model.config == {
        **{"in_channels": 3, "hidden_channels": 4, "num_layers": 2, "out_channels": 4},
        **{"conv": "gat", "heads": 2, "out_heads": 1, "K": 2, "jk": None},
        **{"binarize_head": False, "dropout": 0.25, "input_dropout": 0.25},
        **{"attention_dropout": 0.0, "drop": "all", "balance": False, "scale_gradient": True},
        **{"norm": "none", "activation": "relu", "normalize_rows": True},
        **{"binarize": "both", "ste": "input", "edge_bits": 7, "input_bits": "auto"},
    }
    assert type(model.config) is dict
    again = GAT(**model.config)
    assert again.config == model.config
    with pytest.raises(TypeError, match="droput"):
        GNN(3, 4, 2, droput=0.1)  # type: ignore[call-arg]


def test_layers_get_their_share_of_the_options() -> None:
    own: dict[str, Any] = {
        **{"dropout": 0.2, "input_dropout": 0.6, "drop": "present", "balance": True},
        **{"norm": "batch", "binarize": "both"},
    }
    model = GNN(5, 4, 3, 2, **own)
    linears = [module for module in model.modules() if isinstance(module, Linear)]
    assert [linear.dropout for linear in linears] == [0.6, 0.2, 0.2]
    assert [linear.drop for linear in linears] == ["present", "all", "all"]
    assert [linear.balance for linear in linears] == [True, False, False]
    shapes = [tuple(linear.weight.shape) for linear in linears]
    assert shapes == [(4, 5), (4, 4), (2, 4)]
    # A layer that batch normalisation follows has no bias.
    assert [conv.bias is not None for conv in model.layers] == [False, False, True]
    attends = GNN(5, 4, 2, 3, conv="gat", heads=2, out_heads=3, attention_dropout=0.5)
    x, edges = torch.rand(4, 5), torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    assert attends.eval()(x, edges).shape == (4, 3)
    assert [conv.heads for conv in attends.layers if isinstance(conv, GATConv)] == [2, 3]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"conv": "gin"}, r"'conv' must be one of \['gcn', .*, got 'gin'"),
    ({"binarize": "all"}, "'binarize' must be one of"),
    ({"jk": "max"}, r"'jk' must be one of \['cat', None\], got 'max'"),
    ({"heads": 0}, "'heads' must be a whole number, at least 1, got 0"),
    ({"heads": 2}, r"'heads' must be 1 without attention \(conv 'gcn'\), got 2"),
    ({"K": 1.5}, "'K' must be a whole number, at least 1, got 1.5"),
]
WRONG_OF_TRAINING: list[tuple[dict[str, Any], str]] = [
    ({"norm": "layer"}, "'norm' must be one of"),
    ({"activation": "tanh"}, "'activation' must be one of"),
    ({"drop": "some"}, "'drop' must be one of"),
    ({"ste": "none"}, "'ste' must be one of"),
    ({"dropout": 1.0}, r"'dropout' must be in \[0, 1\), got 1.0"),
    ({"dropout": float("nan")}, r"'dropout' must be in \[0, 1\), got nan"),
    ({"dropout": "0.5"}, r"'dropout' must be in \[0, 1\), got '0.5'"),
    ({"input_dropout": -0.1}, r"'input_dropout' must be in \[0, 1\)"),
    ({"attention_dropout": 2}, r"'attention_dropout' must be in \[0, 1\)"),
]


def test_models_recipes_and_costs_refuse_the_same() -> None:
    for options, line in [*WRONG, *WRONG_OF_TRAINING]:
        with pytest.raises(bignn.InputError, match=line):
            GNN(3, 4, 2, **options)
        with pytest.raises(bignn.InputError, match=line):
            replace(RECIPES["gcn"], **options)
    for options, line in WRONG:
        with pytest.raises(bignn.InputError, match=line):
            Architecture(3, 4, 2, 5, **options)


def test_what_has_no_default_is_asked_for() -> None:
    required = {
        kind: {field.name for field in fields(kind) if field.default is MISSING}
        for kind in (Recipe, Architecture, Sampling, Settings)
    }
    widths = {"in_channels", "hidden_channels", "num_layers", "out_channels"}
    assert required == {
        **{Recipe: {"binarize", "settings"}, Architecture: widths},
        **{Sampling: {"kind", "batch_size"}, Settings: set()},
    }


def test_a_recipe_hands_all_its_options_to_the_model() -> None:
    graph = bignn.load("cora")
    options: dict[str, Any] = {
        **{"conv": "sgc", "K": 3, "jk": "cat", "binarize_head": True, "dropout": 0.1},
        **{"input_dropout": 0.2, "attention_dropout": 0.3, "drop": "present", "balance": True},
        **{"scale_gradient": False, "norm": "batch", "activation": "elu"},
        **{"normalize_rows": False, "ste": "gradient", "binarize": "weights"},
    }
    chosen = recipe("bi-gcn", hidden_channels=5, num_layers=1, **options)
    config = chosen.build(graph).config
    assert {name: config[name] for name in options} == options
    assert (config["hidden_channels"], config["num_layers"]) == (5, 1)
    architecture = asdict(Architecture.of(chosen, bignn.cost.Sizes.of(graph)))
    assert {name: config[name] for name in architecture} == architecture


def test_what_stands_for_an_integer_is_one() -> None:
    class Advice:
        def __index__(self) -> int:
            return 64

    model = GCN(np.int64(40), Advice(), 2, 3)  # type: ignore[arg-type]
    assert model.config["hidden_channels"] == 64
    assert json.dumps(model.config)
    with pytest.raises(InputError, match=r"'num_layers' must be .*, got 'x{70,76}\.\.\.$"):
        GCN(40, 64, "x" * 1000, 3)  # type: ignore[arg-type]


def test_samples_are_checked_when_they_are_declared() -> None:
    with pytest.raises(InputError, match=r"'kind' must be one of .* got 'foo'"):
        Sampling("foo", 3)  # type: ignore[arg-type]
    for kind in ("neighbor", "layer"):
        with pytest.raises(InputError, match=f"'fan_outs' must be given for '{kind}', got none; "):
            Sampling(kind, 3)


def test_help_describes_bignns_arguments_not_torchs() -> None:
    for kind in (*MODELS, *LAYERS, bignn.nn.GINConv, bignn.nn.InputStage):
        assert "the description of the class" in (inspect.getdoc(kind.__init__) or ""), kind
