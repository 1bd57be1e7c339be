"""The parts of a model that costs depend on: layers, widths, and what in them is binary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from bignn.config import Structure, Widths
from bignn.config.input_bits import AUTO, InputBits, num_input_bits, parse_input_bits
from bignn.cost.sizes import Sizes
from bignn.errors import input_error


@dataclass(frozen=True)
class CountedLayer:
    """A layer as costs are counted.

    Attributes:
        name: for tables.
        inputs: d_in.
        outputs: d_out, columns of a product; heads' columns side by side.
        products: how many such products there are, 2 in GraphSAGE.
        sums: how often neighbours are summed: 0 in a head, SGC's K.
        sum_width: columns of such a sum.
        attends: whether neighbours are weighed by attention.
        binary_weights, binary_features: what of its products is 1-bit.

    """

    name: str
    inputs: int
    outputs: int
    products: int
    sums: int
    sum_width: int
    attends: bool
    binary_weights: bool
    binary_features: bool


@dataclass(frozen=True)
class Architecture(Structure, Widths):
    """The arguments of :class:`bignn.nn.GNN` that costs depend on, by the same names."""

    @classmethod
    def of(cls, model: Any, sizes: Sizes) -> Architecture:
        """Read the architecture off a model, its ``config``, or a recipe, for a graph's sizes."""
        if isinstance(model, cls):
            return model._on(sizes)
        names = {field.name for field in fields(cls)}
        config = getattr(model, "config", model)
        if isinstance(config, Mapping):
            given = {name: config[name] for name in names if name in config}
        elif hasattr(config, "hidden_channels") and hasattr(config, "num_layers"):
            given = {name: getattr(config, name) for name in names if hasattr(config, name)}
        else:
            expected = "a bignn.nn.GNN, its config, or a recipe"
            raise input_error("model", expected, type(model).__name__)
        for name in ("hidden_channels", "num_layers"):
            if name not in given:
                raise input_error("model", f"one with '{name}'", f"only {sorted(given)}")
        if sizes.classes == 0 and "out_channels" not in given:
            raise input_error("classes", "at least 1 for a model that is planned by the graph", 0)
        return cls(**{"in_channels": sizes.features, "out_channels": sizes.classes, **given})._on(
            sizes
        )

    def _on(self, sizes: Sizes) -> Architecture:
        if self.in_channels != sizes.features:
            expected = f"one with {self.in_channels} features per node, as the model reads"
            raise input_error("graph", expected, sizes.features)
        return self

    @property
    def twin(self) -> Architecture:
        """The float version of a binary model, or the binary version of a float one."""
        return replace(self, binarize="both" if self.binarize == "none" else "none")

    @property
    def has_binary_features(self) -> bool:
        """Whether layers, the first among them, read bits."""
        return self.binarize in ("features", "both")

    @property
    def encoder(self) -> InputBits | None:
        """What makes more bits than one of each feature, if anything does."""
        if not self.has_binary_features or self.input_bits == AUTO:
            return None
        return parse_input_bits(self.input_bits, self.in_channels)

    @property
    def num_inputs(self) -> int:
        """Columns that the first layer reads: features, or the bits that are made of them."""
        return num_input_bits(self.input_bits, self.in_channels)

    @property
    def has_binary_weights(self) -> bool:
        """Whether layers' weights are bits."""
        return self.binarize in ("weights", "both")

    @property
    def layers(self) -> list[CountedLayer]:
        """The convolutions, first to last, and the head of a model with ``jk="cat"``.

        The last sum of a binary jumping model with a float head is counted at the classes' width
        (for each attention head; at the layer's own where that is less). Nothing but linear maps
        follows it, so it could be taken after the head, and the paper's figures for Bi-GraphSAINT
        only add up so; its float twin has a ReLU between and cannot. (To do it, a node's own part
        would need its own product with the head, which is not counted.)
        """
        jumps = self.jk == "cat"
        width = self.hidden_channels * self.heads
        layers = []
        for number in range(self.num_layers):
            is_last = number == self.num_layers - 1
            outputs = self.out_channels * self.out_heads if is_last and not jumps else width
            sums_last = is_last and jumps and self.binarize == "both" and not self.binarize_head
            layers.append(
                CountedLayer(
                    f"conv {number + 1}",
                    self.num_inputs if number == 0 else width,
                    outputs,
                    products=2 if self.conv == "sage" else 1,
                    sums=self.K if self.conv == "sgc" else 1,
                    sum_width=min(outputs, self.out_channels * self.heads)
                    if sums_last
                    else outputs,
                    attends=self.conv == "gat",
                    binary_weights=self.has_binary_weights,
                    binary_features=self.has_binary_features,
                )
            )
        if jumps:
            layers.append(
                CountedLayer(
                    "head",
                    width * self.num_layers,
                    self.out_channels,
                    products=1,
                    sums=0,
                    sum_width=self.out_channels,
                    attends=False,
                    binary_weights=self.binarize_head and self.has_binary_weights,
                    binary_features=self.binarize_head and self.has_binary_features,
                )
            )
        return layers
