"""Recognises a model's parts: its input stage, packed layers, and the rest, which runs in NumPy.

Packed layers work on bits alone:

- ``binary_linear, aggregate`` (GCN and its kin), unless it takes the largest;
- the same with a sum or mean, plus a second ``binary_linear`` of the same value (SAGE, GraphConv);
- the same with aggr ``"sum"``, plus a ``scale`` of the product itself (GIN);
- ``binary_linear, attention`` (GAT);

each followed by ``[bias] [batch_norm]``, then ``binarize`` or whatever else reads its result. Those
at the front, each on the one before it, run in one native call; others, as after a residual sum,
run one by one among the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words
from bignn.errors import FileError
from bignn.graph.hetero import EdgeType
from bignn.kernels.attention import Attention, whole_scores
from bignn.kernels.edge_kinds import EDGE_KINDS, WeightUse, of_relation, split_relation
from bignn.kernels.layer import BinaryLayer, Keep, OwnPart
from bignn.runtime.encoders import ENCODERS
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.operations import NEIGHBOURLY, Arrays, Operation, checked, encoder_in

Floats = NDArray[np.float32]

# What keeps numbers exact: products of bits, and operations on each number by itself.
_EXACT = (
    *("binarize", "binary_linear", "add", "concat", "bias", "batch_norm", "scale", "relu"),
    *("shift", "multiply", "maximum"),
)


@dataclass(frozen=True, eq=False)
class PackedStep:
    """A packed layer among other operations: it reads bits and makes values."""

    layer: BinaryLayer
    inputs: tuple[str]
    out: str


RestStep = Operation | PackedStep


@dataclass(frozen=True, eq=False)
class Network:
    """A model split into an input stage, packed layers and other operations.

    Attributes:
        input: the input stage; its result is the value ``source``.
        layers: packed layers from ``source`` on, each reading the one before.
        rest: the other operations, and packed layers among them, in order.
        kept: the values that the rest takes from packed layers, by (layer, form).
        result: the name of the logits; without a rest, the last layer makes them.
        num_classes: width of the logits.
        aggregations: how neighbours are weighed anywhere in the model.
        is_pooled: whether the logits have a row per graph instead of one per node.
        inputs: input stages and the values that they make, by type of nodes; empty but for a
            heterogeneous model, which has no packed layers at its front.
        relations: the relations of a heterogeneous model.
        result_type: the type of nodes that the logits are of, in a heterogeneous model.
        edge_weight: what the weights of edges are to the model.

    """

    input: InputSpec
    source: str
    layers: list[BinaryLayer]
    rest: list[RestStep]
    kept: dict[str, tuple[int, Keep]]
    result: str
    num_classes: int
    aggregations: frozenset[str] = field(default_factory=frozenset)
    is_pooled: bool = False
    inputs: Mapping[str, tuple[InputSpec, str]] = field(default_factory=dict)
    relations: tuple[EdgeType, ...] = ()
    result_type: str | None = None
    edge_weight: WeightUse = "used"

    @property
    def is_binary(self) -> bool:
        """Whether every product is one of bits, so that results are the same everywhere."""
        return bool(self.layers) and all(
            isinstance(step, PackedStep)
            or (step.op in _EXACT and (step.op != "binary_linear" or step.reads_bits))
            for step in self.rest
        )

    @property
    def num_features(self) -> int | dict[str, int]:
        """Features per node; by type of nodes in a heterogeneous model."""
        if not self.inputs:
            return self.input.num_features
        return {kind: stage.num_features for kind, (stage, _) in self.inputs.items()}

    @property
    def num_relations(self) -> int:
        """Number of relations that the model tells apart; 0 where it reads no edge types."""
        relations = [split_relation(name)[1] for name in self.aggregations]
        return max((1 + some for some in relations if some is not None), default=0)

    @property
    def num_hops(self) -> int:
        """How many hops away a prediction looks, at most."""
        hops = {name: number + 1 for name, (number, _) in self.kept.items()}
        for step in self.rest:
            before = max(hops.get(name, 0) for name in step.inputs)
            hops[step.out] = before + reads_neighbours(step)
        return hops[self.result] if self.rest else len(self.layers)


def understand(
    operations: Any,
    arrays: Arrays,
    num_features: Any,
    relations: Sequence[EdgeType] = (),
    edge_weight: WeightUse = "used",
) -> Network:
    """Check a list of operations against its arrays and recognise its layers."""
    steps = checked(operations, arrays, num_features, relations)
    reader = _Reader(steps)
    is_heterogeneous = isinstance(num_features, dict)
    if relations and not is_heterogeneous:
        raise FileError("relations are listed, but features are of one type of nodes")
    inputs = {}
    if is_heterogeneous:
        stage, source = InputSpec(0, False, None, None, False), ""
        for kind, width in num_features.items():
            inputs[kind] = _input(reader, f"x.{kind}", width, _STAGE_OF_TYPE)
    else:
        stage, source = _input(reader, "x", num_features, _STAGE)
    layers: list[BinaryLayer] = []
    kept: dict[str, tuple[int, Keep]] = {}
    value, result = source, steps[-1].out
    while stage.binarize:
        candidates = _layers_of(reader, value)
        if len(candidates) != 1:  # two layers side by side are no chain
            break
        layer, taken, out = candidates[0]
        reader.take(*taken)
        layers.append(layer)
        binarized = reader.users(out, "binarize")
        if len(binarized) == 1:
            kept[binarized[0].out] = len(layers) - 1, "bits"
            reader.take(binarized[0])
        kept[out] = len(layers) - 1, "values"
        if len(binarized) != 1:
            break
        value = binarized[0].out
    rest = _rest(reader)
    wanted = {name for step in rest for name in step.inputs}
    kept = {name: where for name, where in kept.items() if name in wanted}
    for number in range(len(layers)):
        keep = frozenset(form for layer, form in kept.values() if layer == number)
        layers[number] = replace(layers[number], keep=keep)
    aggregations = frozenset(
        [layer.aggr for layer in layers]
        + [aggregation_of(step) for step in rest if reads_neighbours(step)]
    )
    return Network(
        stage, source, layers, rest, kept, result, steps[-1].width, aggregations,
        steps[-1].is_pooled, inputs, tuple(relations),
        steps[-1].node_type, edge_weight,
    )  # fmt: skip


def _rest(reader: _Reader) -> list[RestStep]:
    """List the operations that are not taken, with packed layers in the place of theirs."""
    packed: dict[Operation, PackedStep] = {}
    for linear in [step for step in reader.steps if step.op == "binary_linear"]:
        found = _layer(reader, linear) if linear not in reader.taken else None
        if found is not None:
            layer, taken, out = found
            reader.take(*taken)
            packed[next(step for step in taken if step.out == out)] = PackedStep(
                layer, (linear.inputs[0],), out
            )
    return [
        packed.get(step, step)
        for step in reader.steps
        if step in packed or step not in reader.taken
    ]


def reads_neighbours(step: RestStep) -> bool:
    """Whether a step reads other nodes along the edges."""
    return isinstance(step, PackedStep) or step.op in NEIGHBOURLY


def aggregation_of(step: RestStep) -> str:
    """How a step weighs neighbours, and of which relation: ``aggr``, or what attention reads."""
    if isinstance(step, PackedStep):
        return step.layer.aggr
    if step.op == "attention_dot" or step.parameters.get("self_loops") is False:
        return "sum"
    aggr = str(step.parameters.get("aggr", "attention"))
    return of_relation(aggr, step.parameters.get("relation"))


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

    def count_uses(self, value: str) -> int:
        return self._uses[value]

    def only_user(self, value: str, *ops: str) -> Operation | None:
        """Find the one operation that uses a value, once, if it is one of ``ops``."""
        users = self._users.get(value, [])
        if len(users) != 1 or self._uses[value] != 1 or users[0].op not in ops:
            return None
        return users[0]


# Alternatives of each operation of an input stage.
_STAGE = (("normalize_rows",), ("standardize",), ENCODERS, ("binarize",))
# In a heterogeneous model layers centre the features that they read.
_STAGE_OF_TYPE = (("batch_norm",), ("binarize",))


def _input(
    reader: _Reader, source: str, num_features: int, stage_of: tuple[tuple[str, ...], ...]
) -> tuple[InputSpec, str]:
    """Recognise the input stage of features that nothing else reads, each operation or none.

    An encoder belongs to it where its result is binarized.
    """
    found: dict[str, Operation] = {}
    for ops in stage_of:
        step = reader.only_user(source, *ops)
        is_encoder = step is not None and step.op in ENCODERS
        if step is None or (is_encoder and reader.only_user(step.out, "binarize") is None):
            continue
        found[step.op] = step
        reader.take(step)
        source = step.out
    standardize = found.get("standardize", found.get("batch_norm"))
    encoders = [encoder_in(found[op]) for op in ENCODERS if op in found]
    stage = InputSpec(
        num_features,
        "normalize_rows" in found,
        None if standardize is None else standardize.arrays["mean"],
        None if standardize is None else standardize.arrays["scale"],
        "binarize" in found,
        encoders[0] if encoders else None,
    )
    return stage, source


_Found = tuple[BinaryLayer, list[Operation], str]


def _layers_of(reader: _Reader, value: str) -> list[_Found]:
    """Recognise the packed layers that read a value."""
    found = [_layer(reader, linear) for linear in reader.users(value, "binary_linear")]
    return [some for some in found if some is not None]


def _layer(reader: _Reader, linear: Operation) -> _Found | None:
    """Recognise the packed layer of a product; return it, its operations and its result's name."""
    if not linear.reads_bits:
        return None
    scaled = None
    step = reader.only_user(linear.out, "aggregate", "attention")
    if step is None:
        step, scaled = _sum_and_scaled(reader, linear)
        if step is None:
            return None
    if step.parameters.get("aggr") in ("max", "weighted_max"):
        return None
    taken, out = [linear, step], step.out
    own: Operation | None = None
    add = reader.only_user(out, "add")
    # A node's own part is not scaled by its degree.
    aggr, _ = split_relation(aggregation_of(step))
    is_plain = EDGE_KINDS[aggr].factor in ("none", "mean")
    if add is not None and step.op == "aggregate" and is_plain and len(add.inputs) == 2:
        others = [scaled] if scaled else reader.users(linear.inputs[0], "binary_linear")
        own = next(
            (
                other
                for other in others
                if other.out in add.inputs
                and other.width == linear.width
                and reader.only_user(other.out, "add") is add
            ),
            None,
        )
        if own is not None:
            taken += [own, add]
            out = add.out
    if scaled is not None and own is None:
        return None
    for op in ("bias", "batch_norm"):
        after = reader.only_user(out, op)
        if after is not None:
            taken.append(after)
            out = after.out
    ends = {step.op: step for step in taken if step.op in ("bias", "batch_norm")}
    return _folded(linear, step, own, ends.get("bias"), ends.get("batch_norm")), taken, out


def _sum_and_scaled(reader: _Reader, linear: Operation) -> tuple[Operation | None, ...]:
    """Recognise GIN's two users of a product: its sum over neighbours, and its scaled self."""
    sums, scaled = reader.users(linear.out, "aggregate"), reader.users(linear.out, "scale")
    is_pair = len(sums) == len(scaled) == 1 and reader.count_uses(linear.out) == 2
    if not is_pair or sums[0].parameters["aggr"] != "sum":
        return None, None
    return sums[0], scaled[0]


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
        mapped = linear if own.op == "scale" else own
        own_factor = factor * own.parameters.get("factor", 1.0)
        own_weights = OwnPart(_words(mapped), _rounded(mapped.arrays["alpha"] * own_factor))
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
