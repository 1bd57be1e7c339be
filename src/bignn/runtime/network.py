"""Recognises a model's parts: its input stage, packed layers, and the rest, which runs in NumPy.

Packed layers are those at the front that work on bits alone, each on the one before it:

- ``binary_linear, aggregate`` (GCN and its kin);
- ``binary_linear, aggregate`` with aggr ``"mean"``, plus a second ``binary_linear`` of the same
  value (SAGE);
- ``binary_linear, attention`` (GAT);

each followed by ``[bias] [batch_norm]``, then ``binarize`` or whatever else reads its result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words
from bignn.errors import FileError
from bignn.kernels.attention import Attention, whole_scores
from bignn.kernels.layer import BinaryLayer, Keep, OwnPart
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.operations import NEIGHBOURLY, Arrays, Operation, checked

Floats = NDArray[np.float32]

# What keeps numbers exact: products of bits, and operations on each number by itself.
_EXACT = ("binarize", "binary_linear", "add", "concat", "bias", "batch_norm", "scale", "relu")


@dataclass(frozen=True, eq=False)
class Network:
    """A model split into an input stage, packed layers and other operations.

    Attributes:
        input: the input stage; its result is the value ``source``.
        layers: packed layers from ``source`` on, each reading the one before.
        rest: the other operations, in order.
        kept: the values that the rest takes from packed layers, by (layer, form).
        result: the name of the logits; without a rest, the last layer makes them.
        num_classes: width of the logits.
        aggregations: how neighbours are weighed anywhere in the model.

    """

    input: InputSpec
    source: str
    layers: list[BinaryLayer]
    rest: list[Operation]
    kept: dict[str, tuple[int, Keep]]
    result: str
    num_classes: int
    aggregations: frozenset[str] = field(default_factory=frozenset)

    @property
    def is_binary(self) -> bool:
        """Whether every product is one of bits, so that results are the same everywhere."""
        return bool(self.layers) and all(
            operation.op in _EXACT and (operation.op != "binary_linear" or operation.reads_bits)
            for operation in self.rest
        )

    @property
    def num_hops(self) -> int:
        """How many hops away a prediction looks, at most."""
        return len(self.layers) + sum(operation.op in NEIGHBOURLY for operation in self.rest)


def understand(operations: Any, arrays: Arrays, num_features: Any) -> Network:
    """Check a list of operations against its arrays and recognise its layers."""
    steps = checked(operations, arrays, num_features)
    reader = _Reader(steps)
    stage, source = _input(reader, num_features)
    layers: list[BinaryLayer] = []
    kept: dict[str, tuple[int, Keep]] = {}
    value, result = source, steps[-1].out
    while stage.binarize:
        found = _layer(reader, value)
        if found is None:
            break
        layer, out = found
        layers.append(layer)
        binarized = reader.users(out, "binarize")
        if len(binarized) == 1:
            kept[binarized[0].out] = len(layers) - 1, "bits"
            reader.take(binarized[0])
        kept[out] = len(layers) - 1, "values"
        if len(binarized) != 1:
            break
        value = binarized[0].out
    rest = [step for step in steps if step not in reader.taken]
    wanted = {name for step in rest for name in step.inputs}
    kept = {name: where for name, where in kept.items() if name in wanted}
    for number in range(len(layers)):
        keep = frozenset(form for layer, form in kept.values() if layer == number)
        layers[number] = replace(layers[number], keep=keep)
    aggregations = frozenset(
        [layer.aggr for layer in layers]
        + [aggregation_of(step) for step in rest if step.op in NEIGHBOURLY]
    )
    return Network(stage, source, layers, rest, kept, result, steps[-1].width, aggregations)


def aggregation_of(step: Operation) -> str:
    """How an operation weighs neighbours: its ``aggr``, or ``"attention"``."""
    return str(step.parameters.get("aggr", "attention"))


class _Reader:
    """The users of every value, and the operations that were recognised so far."""

    def __init__(self, steps: Sequence[Operation]) -> None:
        self.steps = steps
        self.taken: set[Operation] = set()
        self._users: dict[str, list[Operation]] = {}
        self._uses: Counter[str] = Counter()
        for step in steps:
            for name in dict.fromkeys(step.inputs):
                self._users.setdefault(name, []).append(step)
            self._uses.update(step.inputs)

    def take(self, *steps: Operation) -> None:
        self.taken.update(steps)

    def users(self, value: str, op: str) -> list[Operation]:
        return [step for step in self._users.get(value, []) if step.op == op]

    def only_user(self, value: str, *ops: str) -> Operation | None:
        """Find the one operation that uses a value, once, if it is one of ``ops``."""
        users = self._users.get(value, [])
        if len(users) != 1 or self._uses[value] != 1 or users[0].op not in ops:
            return None
        return users[0]


def _input(reader: _Reader, num_features: int) -> tuple[InputSpec, str]:
    """Recognise ``[normalize_rows] [standardize] [binarize]`` of x that nothing else reads."""
    source = "x"
    found: dict[str, Operation] = {}
    for op in ("normalize_rows", "standardize", "binarize"):
        step = reader.only_user(source, op)
        if step is not None:
            found[op] = step
            reader.take(step)
            source = step.out
    standardize = found.get("standardize")
    stage = InputSpec(
        num_features,
        "normalize_rows" in found,
        None if standardize is None else standardize.arrays["mean"],
        None if standardize is None else standardize.arrays["scale"],
        "binarize" in found,
    )
    return stage, source


def _layer(reader: _Reader, value: str) -> tuple[BinaryLayer, str] | None:
    """Recognise the packed layer that reads a value; return it and the name of its result."""
    found = None
    for linear in reader.users(value, "binary_linear"):
        step = reader.only_user(linear.out, "aggregate", "attention")
        if step is None or step.parameters.get("aggr") == "sum":
            continue
        if found is not None:  # two layers side by side are no chain
            return None
        found = linear, step
    if found is None:
        return None
    linear, step = found
    taken, out = [linear, step], step.out
    own: Operation | None = None
    add = reader.only_user(out, "add")
    if add is not None and step.parameters.get("aggr") == "mean" and len(add.inputs) == 2:
        own = next(
            (
                other
                for other in reader.users(value, "binary_linear")
                if other.out in add.inputs and reader.only_user(other.out, "add") is add
            ),
            None,
        )
        if own is not None:
            taken += [own, add]
            out = add.out
    bias = reader.only_user(out, "bias")
    if bias is not None:
        taken.append(bias)
        out = bias.out
    norm = reader.only_user(out, "batch_norm")
    if norm is not None:
        taken.append(norm)
        out = norm.out
    reader.take(*taken)
    return _folded(linear, step, own, bias, norm), out


def _folded(
    linear: Operation,
    step: Operation,
    own: Operation | None,
    bias: Operation | None,
    norm: Operation | None,
) -> BinaryLayer:
    """Fold α, bias and batch normalisation into scales and a shift."""
    width = step.width
    alpha = linear.arrays["alpha"].astype(np.float64)
    shift = np.zeros(width) if bias is None else bias.arrays["bias"].astype(np.float64)
    factor = np.ones(width)
    if norm is not None:
        factor = norm.arrays["scale"].astype(np.float64)
        shift = (shift - norm.arrays["mean"]) * factor
    averages = step.op == "attention" and not step.parameters["concat"]
    scale = alpha if averages else alpha * factor
    own_weights = None
    if own is not None:
        own_weights = OwnPart(_words(own), _rounded(own.arrays["alpha"] * factor))
    attention = _attention(linear, step, factor, _rounded(scale), averages=averages)
    return BinaryLayer(
        _words(linear),
        linear.num_inputs,
        _rounded(scale),
        _rounded(shift),
        int(step.parameters["edge_bits"]),
        own_weights,
        attention,
        aggregation_of(step),
    )


def _attention(
    linear: Operation, step: Operation, factor: NDArray[Any], scale: Floats, *, averages: bool
) -> Attention | None:
    if step.op != "attention":
        return None
    heads = len(step.arrays["att_src"])
    parts = [
        whole_scores(linear.arrays["words"], linear.num_inputs, linear.arrays["alpha"], vectors)
        for vectors in (step.arrays["att_src"], step.arrays["att_dst"])
    ]
    found = [part for part in parts if part is not None]
    if len(found) < len(parts):
        raise FileError("scales of a layer and its attention multiply out of range")
    return Attention(
        heads,
        averages,
        float(step.parameters["negative_slope"]),
        np.concatenate([values for values, _ in found]),
        np.concatenate([sigma for _, sigma in found]),
        _rounded(factor / heads) if averages else scale,
    )


def _words(linear: Operation) -> Words:
    return np.ascontiguousarray(linear.arrays["words"], dtype=np.uint64)


def _rounded(values: NDArray[Any]) -> Floats:
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise FileError("scales of a layer and its batch normalisation multiply out of range")
    return rounded
