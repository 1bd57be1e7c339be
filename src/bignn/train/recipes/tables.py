"""Recipes of the models by name, as chosen on validation nodes.

How they were chosen, and what else was tried, is in docs/trials.md.
"""

from __future__ import annotations

from typing import Any

from bignn.config import Sampling, Settings
from bignn.train.recipes.definition import Recipe

#: The float model that a binary one is compared with and learns from.
TWINS = {
    **{"bi-gcn": "gcn", "bi-gcn-f": "gcn", "bi-gcn-w": "gcn"},
    **{"bi-gat": "gat", "bi-sage": "sage", "bi-saint": "saint"},
}

_GAT: dict[str, Any] = {"conv": "gat", "heads": 8}
_FLOAT_GAT: dict[str, Any] = {
    **_GAT,
    "dropout": 0.6,
    "attention_dropout": 0.6,
    "activation": "elu",
}
_SAINT: dict[str, Any] = {"conv": "sage", "jk": "cat"}

#: Recipes for graphs where few nodes have labels, like the citation graphs. Training sees the whole
#: graph: its labelled nodes alone (140 of Cora's 2,708) have next to no edges among them.
RECIPES = {
    "gcn": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8),
    "bi-gcn-f": Recipe("features", Settings(), dropout=0.4),
    "bi-gcn-w": Recipe("weights", Settings(), dropout=0.6),
    "bi-gcn": Recipe("both", Settings(beta1=0.5, last_layer_lr=0.3), dropout=0.4),
    "gat": Recipe("none", Settings(lr=0.01, weight_decay=2e-3), hidden_channels=8, **_FLOAT_GAT),
    "bi-gat": Recipe(
        "both", Settings(beta1=0.5, last_layer_lr=0.3), hidden_channels=32, dropout=0.6, **_GAT
    ),
    "sage": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8, conv="sage"),
    "bi-sage": Recipe("both", Settings(beta1=0.5, last_layer_lr=0.3), dropout=0.4, conv="sage"),
    "saint": Recipe("none", Settings(lr=0.01, weight_decay=1e-3), dropout=0.8, **_SAINT),
    "bi-saint": Recipe("both", Settings(beta1=0.5, last_layer_lr=0.3), dropout=0.4, **_SAINT),
    "sgc": Recipe(
        "none", Settings(lr=0.2, weight_decay=1e-4), num_layers=1, dropout=0.0, conv="sgc"
    ),
    "fastgcn": Recipe(
        "none",
        Settings(lr=0.01, weight_decay=1e-3, sampling=Sampling("layer", 256, fan_outs=(400, 400))),
        dropout=0.5,
    ),
}

#: Recipes with a teacher, whose predictions of all nodes make up for missing labels. Trials were
#: made of "gcn" and "bi-gcn"; the others follow them.
STUDENTS = {
    **RECIPES,
    "gcn": Recipe("none", Settings(lr=0.01, weight_decay=5e-4), dropout=0.5),
    "bi-gcn-f": Recipe("features", Settings(), dropout=0.2, input_dropout=0.8, drop="present"),
    "bi-gcn-w": Recipe("weights", Settings(), dropout=0.4, balance=True),
    "bi-gcn": Recipe("both", Settings(), dropout=0.2, input_dropout=0.8, drop="present"),
    "gat": Recipe("none", Settings(lr=0.005, weight_decay=5e-4), hidden_channels=8, **_FLOAT_GAT),
    "bi-gat": Recipe(
        "both",
        Settings(),
        hidden_channels=32,
        dropout=0.2,
        input_dropout=0.8,
        drop="present",
        **_GAT,
    ),
    "bi-sage": Recipe(
        "both", Settings(), dropout=0.2, input_dropout=0.8, drop="present", conv="sage"
    ),
    "bi-saint": Recipe(
        "both", Settings(), dropout=0.2, input_dropout=0.8, drop="present", **_SAINT
    ),
}

#: Sampled models train for longer than PyG's examples do. The validation loss of binary ones falls
#: less smoothly, since their weights flip one by one; float ones gain by longer training too. All
#: have the same time.
_PATIENT: dict[str, Any] = {"epochs": 500, "patience": 80}
_NEIGHBOURS: dict[str, Any] = {
    "inductive": True,
    "sampling": Sampling("neighbor", 2048, fan_outs=(10, 10)),
    **_PATIENT,
}
_WALKS: dict[str, Any] = {
    "inductive": True,
    "sampling": Sampling("walk", 1500, walk_length=2),
    **_PATIENT,
}
_BINARY: dict[str, Any] = {"drop": "present", "balance": True, "norm": "batch"}

#: Recipes for graphs where a tenth of the nodes or more have labels.
MANY_LABELS = {
    **RECIPES,
    "gcn": Recipe(
        "none", Settings(lr=0.01), hidden_channels=128, dropout=0.2, normalize_rows=False
    ),
    "bi-gcn-f": Recipe("features", Settings(), 128, dropout=0.2, drop="present", norm="batch"),
    "bi-gcn-w": Recipe("weights", Settings(), 128, dropout=0.2, balance=True, norm="batch"),
    "bi-gcn": Recipe("both", Settings(), 128, dropout=0.2, **_BINARY),
    "gat": Recipe(
        "none",
        Settings(lr=0.005),
        hidden_channels=16,
        heads=8,
        dropout=0.2,
        conv="gat",
        activation="elu",
        normalize_rows=False,
    ),
    "bi-gat": Recipe("both", Settings(), 16, heads=8, dropout=0.2, conv="gat", **_BINARY),
    "sage": Recipe(
        "none",
        Settings(lr=0.003, **_NEIGHBOURS),
        hidden_channels=128,
        dropout=0.2,
        conv="sage",
        normalize_rows=False,
    ),
    "bi-sage": Recipe("both", Settings(**_NEIGHBOURS), 128, dropout=0.2, conv="sage", **_BINARY),
    "saint": Recipe(
        "none",
        Settings(lr=0.003, **_WALKS),
        hidden_channels=128,
        dropout=0.2,
        normalize_rows=False,
        **_SAINT,
    ),
    "bi-saint": Recipe("both", Settings(**_WALKS), 128, dropout=0.2, **_BINARY, **_SAINT),
}

#: Recipes with a teacher, which keeps a wide binary model from overfitting the labels. Labels have
#: a larger share of the loss than where they are few.
MANY_LABELS_STUDENTS = {
    **MANY_LABELS,
    "gcn": Recipe(
        "none", Settings(lr=0.01, distill_mix=0.7), 128, dropout=0.2, normalize_rows=False
    ),
    "bi-gcn": Recipe("both", Settings(patience=300, distill_mix=0.7), 128, dropout=0.0, **_BINARY),
    "bi-sage": Recipe(
        "both",
        Settings(lr=0.003, **_NEIGHBOURS),
        128,
        dropout=0.2,
        conv="sage",
        **_BINARY,
    ),
    "bi-saint": Recipe("both", Settings(lr=0.003, **_WALKS), 128, dropout=0.2, **_BINARY, **_SAINT),
}

#: Settings of models that ``bignn.binarize_`` converted: PyG's weights are drawn for such a rate,
#: and some of them (GIN's) grow so sure of themselves that the validation loss rises while ever
#: more nodes are right (docs/design.md).
CONVERTED = Settings(lr=0.01, epochs=300, select_by="accuracy", leave_teacher=True)
