"""What a model is told: its widths and its options, with their defaults and checks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypedDict

from bignn.config.options import BELOW_ONE, COUNT, about, check, option
from bignn.errors import input_error

#: What is 1-bit.
BinarizeMode = Literal["none", "features", "weights", "both"]
#: By what gradients of binary features are masked.
SteRule = Literal["input", "gradient"]
#: Kinds of convolution.
ConvName = Literal["gcn", "mean-gcn", "sage", "gat", "sgc"]
#: What the last map reads: the last layer, or all of them side by side.
JumpMode = Literal["none", "cat"]
#: Which features dropout takes: any, or those that differ from what most nodes have.
DropMode = Literal["all", "present"]
#: Normalisation between layers.
NormMode = Literal["none", "batch"]
#: Activations between layers of float features.
Activation = Literal["relu", "elu"]


@dataclass(frozen=True)
class Widths:
    """How wide and how deep a model is."""

    in_channels: int = field(metadata=about("features per node", COUNT))
    hidden_channels: int = field(metadata=about("width of hidden layers, per head", COUNT))
    num_layers: int = field(metadata=about("number of convolutions", COUNT))
    out_channels: int = field(metadata=about("number of classes", COUNT))


@dataclass(frozen=True, kw_only=True)
class Structure:
    """What layers a model is made of, and what in them is binary: all that costs depend on."""

    conv: ConvName = option("gcn", "kind of convolution")
    heads: int = option(1, "attention heads of hidden layers", COUNT)
    out_heads: int = option(1, "attention heads of the last layer", COUNT)
    hops: int = option(2, "steps of propagation of an 'sgc' convolution", COUNT)
    jump: JumpMode = option("none", "'cat': predict from all layers' outputs side by side")
    binarize_head: bool = option(False, "binarize the last map of 'cat' (saint) models too")
    binarize: BinarizeMode = option("none", "what is 1-bit")

    def __post_init__(self) -> None:
        check(self)
        if self.conv != "gat" and (self.heads, self.out_heads) != (1, 1):
            most = max(self.heads, self.out_heads)
            raise input_error("heads", f"1 without attention (conv '{self.conv}')", most)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(Structure):
    """All options of a model beside its widths; :class:`bignn.nn.GNN` says what they mean."""

    dropout: float = option(0.4, "dropout of every layer's input", BELOW_ONE)
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


@dataclass(frozen=True)
class ModelConfig(ModelOptions, Widths):
    """The arguments that build a :class:`bignn.nn.GNN`; checkpoints carry them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.input_dropout is None:
            object.__setattr__(self, "input_dropout", self.dropout)


class ModelArguments(TypedDict, total=False):
    """:class:`ModelOptions` but for ``conv`` as keyword arguments, for type checkers and editors,
    who cannot derive them; a test holds the two together.
    """

    heads: int
    out_heads: int
    hops: int
    jump: JumpMode
    binarize_head: bool
    binarize: BinarizeMode
    dropout: float
    input_dropout: float | None
    attention_dropout: float
    drop: DropMode
    balance: bool
    scale_gradient: bool
    norm: NormMode
    activation: Activation
    normalize_rows: bool
    ste: SteRule
