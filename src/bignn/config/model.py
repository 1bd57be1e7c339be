"""Declarations of a model's arguments: names, defaults, bounds and checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from bignn.config.input_bits import AUTO, SIGN, check_input_bits
from bignn.config.options import (
    BELOW_ONE,
    COUNT,
    DEFAULT_EDGE_BITS,
    EDGE_BITS,
    about,
    check,
    option,
)
from bignn.errors import input_error

#: What is 1-bit.
BinarizeMode = Literal["none", "features", "weights", "both"]
#: Which gradients of binary features are let through, see ``bignn.binarize.binarize_features``.
SteRule = Literal["input", "gradient"]
#: Kinds of convolution.
ConvName = Literal["gcn", "mean-gcn", "sage", "gat", "sgc"]
#: Jumping knowledge: with ``"cat"`` the last map reads all layers' outputs side by side.
JumpMode = Literal["cat"]
#: Features that dropout may take: any, or only those that differ from what most nodes have.
DropMode = Literal["all", "present"]
#: Normalisation between layers.
NormMode = Literal["none", "batch"]
#: Activations between layers of float features.
Activation = Literal["relu", "elu"]


@dataclass(frozen=True)
class Widths:
    """Width and depth of a model."""

    in_channels: int = field(metadata=about("features per node", COUNT))
    hidden_channels: int = field(metadata=about("width of hidden layers, per head", COUNT))
    num_layers: int = field(metadata=about("number of convolutions", COUNT))
    out_channels: int = field(metadata=about("number of classes", COUNT))


@dataclass(frozen=True, kw_only=True)
class Structure:
    """Kinds of layers in a model and what in them is binary: everything that costs depend on."""

    conv: ConvName = option("gcn", "kind of convolution")
    heads: int = option(1, "attention heads of hidden layers", COUNT)
    out_heads: int = option(1, "attention heads of the last layer", COUNT)
    K: int = option(2, "steps of propagation of an 'sgc' convolution", COUNT)
    jk: JumpMode | None = option(None, "'cat': predict from all layers' outputs side by side")
    binarize_head: bool = option(False, "binarize the last map of 'cat' (saint) models too")
    binarize: BinarizeMode = option("none", "what is 1-bit")
    input_bits: str = option(
        AUTO,
        "bits of a binary model's input: sign, learned:K, rotate:K or threshold:K for K bits per "
        "feature, or auto, by what the features are like",
    )

    def __post_init__(self) -> None:
        check(self)
        check_input_bits(self.input_bits)
        if self.binarize in ("none", "weights"):  # the input is read in floats
            object.__setattr__(self, "input_bits", SIGN)
        if self.conv != "gat" and (self.heads, self.out_heads) != (1, 1):
            most = max(self.heads, self.out_heads)
            raise input_error("heads", f"1 without attention (conv '{self.conv}')", most)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Structure):
    """Options of a model beside its widths; :class:`bignn.nn.GNN` describes what they do."""

    dropout: float = option(0.0, "dropout of every layer's input", BELOW_ONE)
    input_dropout: float | None = option(
        None, "dropout of the first layer's input, if it has its own", BELOW_ONE
    )
    attention_dropout: float = option(0.0, "dropout of attention", BELOW_ONE)
    drop: DropMode = option("all", "which features of the first layer may be dropped")
    balance: bool = option(False, "as many +1 as -1 in each column of the first layer's weights")
    scale_gradient: bool = option(True, "gradients reach weights through their scales too")
    norm: NormMode = option("none", "normalisation between layers")
    activation: Activation = option("relu", "activation between layers of float features")
    normalize_rows: bool = option(True, "scale each node's features to sum 1")
    ste: SteRule = option("input", "gradient mask of binary features")
    edge_bits: int | None = option(
        DEFAULT_EDGE_BITS,
        "bits that binary layers round neighbours' weights to, 2 to 8, or none",
        EDGE_BITS,
    )


@dataclass(frozen=True)
class ModelConfig(ModelOptions, Widths):
    """Arguments that build a :class:`bignn.nn.GNN`; checkpoints carry them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_dropout is None:
            object.__setattr__(self, "input_dropout", self.dropout)
        check_input_bits(self.input_bits, self.in_channels)
