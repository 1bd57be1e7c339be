"""A packed model as data: a list of operations on named values, and arrays they refer to.

Each operation is a JSON object with ``op``, ``in`` (names of values made before it), ``out`` (a new
name), and its parameters. Values may be used more than once. A list that is not understood is
refused, never guessed at (docs/format.md lists the operations).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.config.input_bits import MOST_ROTATED
from bignn.config.options import TRAINED_EDGE_BITS
from bignn.errors import FileError
from bignn.graph.hetero import EdgeType
from bignn.kernels.edge_kinds import EDGE_KINDS
from bignn.kernels.layer import HIDDEN_EDGE_BITS, LAST_EDGE_BITS
from bignn.runtime.encoders import Directions, Encoder, stored_encoder
from bignn.runtime.input_bits import NUM_DIAGONALS, rotation_size

Arrays = Mapping[str, NDArray[Any]]

#: How ``aggregate`` weighs neighbours.
AGGREGATIONS = tuple(aggr for aggr in EDGE_KINDS if aggr != "attention")
#: Those that edges between nodes of two types have.
BETWEEN_TYPES = ("mean", "sum", "max")
#: What ``pool`` makes of the nodes of a graph.
POOLS = ("mean", "sum", "max")
#: Functions of ``activation``; those with a ``parameter`` are marked in docs/format.md.
ACTIVATIONS = (
    *("leaky_relu", "elu", "celu", "selu", "gelu", "gelu_tanh", "silu", "mish", "tanh", "sigmoid"),
    *("logsigmoid", "softplus", "softsign", "tanhshrink", "relu6", "hardtanh", "hardsigmoid"),
    "hardswish",
)
#: What ``graph_norm`` divides by.
SPREADS = ("none", "columns", "entries", "variance", "rows", "length", "size")


class OperationSpec(NamedTuple):
    """The parameters of an operation besides ``op``, ``in`` and ``out``.

    Attributes:
        arrays: parameters that name arrays.
        choices: parameters with the values they may have.
        numbers: parameters with the range they may be in.
        several: whether the operation takes two or more values instead of one.
        reads_bits: whether it takes bits as well as floats; bits stand for ``β · (±1)``.
        optional: parameters that it need not have, with the values they may have.

    """

    arrays: tuple[str, ...] = ()
    choices: Mapping[str, tuple[Any, ...]] = {}
    numbers: Mapping[str, tuple[float, float]] = {}
    several: bool = False
    reads_bits: bool = False
    optional: Mapping[str, Sequence[Any]] = {}


#: Bits of rounded weights: those that a layer was trained with, or by its place in the model.
FIRST_VERSION_EDGE_BITS = (HIDDEN_EDGE_BITS, LAST_EDGE_BITS)
_EDGE_BITS = {"edge_bits": (*TRAINED_EDGE_BITS, *FIRST_VERSION_EDGE_BITS)}
_LARGEST = float(np.finfo(np.float32).max)
# Of values put side by side: a short list could otherwise ask for any amount of memory.
_MAX_COLUMNS = 1 << 16
_ANY_NUMBER = (-_LARGEST, _LARGEST)
_EPS = {"eps": (0, _LARGEST)}
_CENTER = {"center": (True, False)}
# The edges of one relation instead of all.
_RELATION = {"relation": range(1 << 16)}
_LSTM = ("input_weight", "hidden_weight", "bias")

OPERATIONS: dict[str, OperationSpec] = {
    "normalize_rows": OperationSpec(),
    "standardize": OperationSpec(("mean", "scale")),
    "rotate": OperationSpec(("diagonals",)),
    "threshold": OperationSpec(("thresholds",)),
    "learned": OperationSpec(Directions.names),
    "binarize": OperationSpec(),
    "linear": OperationSpec(("weight",), reads_bits=True),
    "binary_linear": OperationSpec(("words", "alpha"), reads_bits=True),
    "aggregate": OperationSpec(
        (), {"aggr": AGGREGATIONS} | _EDGE_BITS, reads_bits=True, optional=_RELATION
    ),
    "attention": OperationSpec(
        ("att_src", "att_dst"), {"concat": (True, False)} | _EDGE_BITS, {"negative_slope": (0, 1)}
    ),
    "attention_v2": OperationSpec(
        ("att",), {"concat": (True, False), "self_loops": (True, False)}, {"negative_slope": (0, 1)}
    ),
    "attention_dot": OperationSpec((), {"concat": (True, False)}, {"heads": (1, 1 << 16)}),
    "add": OperationSpec(several=True),
    "concat": OperationSpec(several=True),
    "bias": OperationSpec(("bias",)),
    "batch_norm": OperationSpec(("mean", "scale")),
    "scale": OperationSpec((), {}, {"factor": _ANY_NUMBER}),
    "shift": OperationSpec((), {}, {"amount": _ANY_NUMBER}),
    "multiply": OperationSpec(several=True),
    "maximum": OperationSpec(several=True),
    "relu": OperationSpec(),
    "elu": OperationSpec(),
    "pool": OperationSpec((), {"aggr": POOLS}),
    "activation": OperationSpec((), {"kind": ACTIVATIONS}, {"parameter": _ANY_NUMBER}),
    "prelu": OperationSpec(("slope",)),
    "softmax": OperationSpec(),
    "layer_norm": OperationSpec((), _CENTER, _EPS | {"groups": (1, _MAX_COLUMNS)}),
    "unit_length": OperationSpec((), {}, _EPS),
    "length": OperationSpec(),
    "graph_norm": OperationSpec(
        (), _CENTER | {"spread": SPREADS}, _EPS, optional={"per_graph": (True, False)}
    ),
    "embedding": OperationSpec(("weight",), {}, {"column": (0, 2**31 - 1)}),
    "lstm_attention": OperationSpec(
        (*_LSTM, *(f"reverse_{name}" for name in _LSTM), "attention"), several=True
    ),
}

#: Operations that read other nodes.
NEIGHBOURLY = ("aggregate", "attention", "attention_v2", "attention_dot")
#: Operations that read all nodes.
GRAPHWIDE = ("graph_norm",)

_MAX_OPERATIONS = 10_000
_MAX_INPUTS = 1_000


@dataclass(frozen=True, eq=False)
class Operation:
    """One checked operation with its arrays.

    Attributes:
        op: the operation's name.
        inputs: names of the values it takes.
        out: name of the value it makes.
        arrays: arrays by parameter.
        parameters: the other parameters.
        num_inputs: width of the first value taken.
        width: width of the value made.
        reads_bits, is_bits: whether the first value taken, and the value made, are binary.
        is_pooled: whether the value made has a row per graph instead of one per node.
        node_type: the type of nodes that it has rows of, in a heterogeneous model.

    """

    op: str
    inputs: tuple[str, ...]
    out: str
    arrays: Mapping[str, NDArray[Any]]
    parameters: Mapping[str, Any]
    num_inputs: int
    width: int
    reads_bits: bool
    is_bits: bool
    is_pooled: bool
    node_type: str | None = None


class _ValueType(NamedTuple):
    width: int
    is_bits: bool
    is_pooled: bool = False
    node_type: str | None = None


def checked(
    operations: Any, arrays: Arrays, num_features: Any, relations: Sequence[EdgeType] = ()
) -> list[Operation]:
    """Check operations one by one and together against the arrays.

    Args:
        operations: the operations.
        arrays: the arrays that they name.
        num_features: features per node; by type of nodes in a heterogeneous model.
        relations: the relations that operations name by number, in a heterogeneous model.

    """
    values = _inputs(num_features)
    if not isinstance(operations, list) or not 0 < len(operations) <= _MAX_OPERATIONS:
        raise FileError("the list of operations is missing or too long")
    used: set[str] = set()
    result: list[Operation] = []
    for step in operations:
        kind = _checked_kind(step)
        names = _checked_names(step, kind, values)
        taken = [values[name] for name in names]
        node_type = taken[0].node_type
        if node_type is not None:
            node_type = _checked_type(step, taken, relations)
        operation = _operation(step, names, taken, arrays, node_type)
        used.update(names)
        values[operation.out] = _ValueType(
            operation.width, operation.is_bits, operation.is_pooled, operation.node_type
        )
        result.append(operation)
    for name in values:
        if name not in used and name != result[-1].out:
            raise FileError(f"no operation uses value '{name[:40]}'")
    if result[-1].out in used or result[-1].is_bits:
        raise FileError("the last operation does not make the logits")
    return result


def _inputs(num_features: Any) -> dict[str, _ValueType]:
    """Name the values that features are: ``x``, or ``x.<type>`` in a heterogeneous model."""
    widths = num_features if isinstance(num_features, dict) else {None: num_features}
    if not widths or any(type(d) is not int or not 0 < d < 2**31 for d in widths.values()):
        raise FileError("the number of features is missing or out of range")
    for kind in widths:
        if isinstance(num_features, dict) and not isinstance(kind, str):
            raise FileError("the numbers of features are not by type of nodes")
    return {
        "x" if kind is None else f"x.{kind}": _ValueType(width, is_bits=False, node_type=kind)
        for kind, width in widths.items()
    }


def _checked_type(
    step: dict[str, Any], taken: list[_ValueType], relations: Sequence[EdgeType]
) -> str:
    """Return the type of nodes that an operation makes values of; refuse types that do not fit."""
    op, kinds = step["op"], [value.node_type for value in taken]
    if len(set(kinds)) > 1:
        raise FileError(f"'{op}' takes values of nodes of several types")
    if op not in (*NEIGHBOURLY, "pool") and not step.get("per_graph", False):
        return str(kinds[0])
    relation = step.get("relation")
    if op != "aggregate" or relation is None or step["aggr"] not in BETWEEN_TYPES:
        raise FileError(f"'{op}' reads edges of no relation")
    if relation >= len(relations) or relations[relation][0] != kinds[0]:
        raise FileError(f"'{op}' reads relation {relation}, which is not from such nodes")
    return str(relations[relation][2])


def _checked_kind(step: Any) -> OperationSpec:
    name = step.get("op") if isinstance(step, dict) else step
    if not isinstance(name, str) or not isinstance(step, dict) or name not in OPERATIONS:
        raise FileError(f"operation {str(name)[:40]!r} is unknown; a newer bignn may know it")
    kind = OPERATIONS[name]
    expected = {"op", "in", "out", *kind.arrays, *kind.choices, *kind.numbers}
    given = set(step) - set(kind.optional)
    if given != expected or not all(isinstance(step[key], str) for key in kind.arrays):
        raise FileError(f"operation '{name}' must have exactly {sorted(expected)}")
    optional = {key: some for key, some in kind.optional.items() if key in step}
    for key, choices in {**kind.choices, **optional}.items():
        if type(step[key]) is not type(choices[0]) or step[key] not in choices:
            known = choices if isinstance(choices, range) else list(choices)
            raise FileError(f"'{key}' of '{name}' must be one of {known}")
    for key, (low, high) in kind.numbers.items():
        number = step[key]
        # Integers of any size are JSON too; comparing them is exact.
        if type(number) not in (int, float) or not low <= number <= high or math.isnan(number):
            raise FileError(f"'{key}' of '{name}' must be a number in [{low:g}, {high:g}]")
    return kind


def _checked_names(
    step: dict[str, Any], kind: OperationSpec, values: dict[str, _ValueType]
) -> tuple[str, ...]:
    names, op = step["in"], step["op"]
    fits = isinstance(names, list) and (
        2 <= len(names) <= _MAX_INPUTS if kind.several else len(names) == 1
    )
    if not fits or not all(isinstance(name, str) for name in names):
        count = "two or more values" if kind.several else "one value"
        raise FileError(f"'in' of '{op}' must be a list of {count}")
    for name in names:
        if name not in values:
            raise FileError(f"'{op}' takes '{name[:40]}', which no operation before it makes")
        if values[name].is_bits and not kind.reads_bits:
            raise FileError(f"'{op}' takes '{name[:40]}', which is binary")
    if len({values[name].is_pooled for name in names}) > 1:
        raise FileError(f"'{op}' takes values of nodes and of graphs")
    reads_nodes = op in (*NEIGHBOURLY, "pool") or step.get("per_graph", False)
    if values[names[0]].is_pooled and reads_nodes:
        raise FileError(f"'{op}' takes '{names[0][:40]}', which has no nodes any more")
    out = step["out"]
    if not isinstance(out, str) or out in values:
        raise FileError(f"'out' of '{op}' must be a new name, got {str(out)[:40]!r}")
    return tuple(names)


def _operation(
    step: dict[str, Any],
    names: tuple[str, ...],
    taken: list[_ValueType],
    arrays: Arrays,
    node_type: str | None,
) -> Operation:
    op, num_inputs = step["op"], taken[0].width
    found: dict[str, NDArray[Any]] = {}

    def array(parameter: str, dtype: Any, *shape: int | None) -> NDArray[Any]:
        found[parameter] = _array(arrays, step[parameter], dtype, shape)
        return found[parameter]

    width = num_inputs
    if op == "binary_linear":
        words = array("words", np.uint64, None, words_per_row(num_inputs))
        width = len(words)
        array("alpha", np.float32, width)
        _check_padding("a weight", words, num_inputs)
    elif op in ("rotate", "learned") and num_inputs > MOST_ROTATED:
        raise FileError(f"'{op}' takes {num_inputs} columns, over {MOST_ROTATED}")
    elif op == "rotate":
        size = rotation_size(num_inputs)
        words = array("diagonals", np.uint64, None, NUM_DIAGONALS, words_per_row(size))
        width = _checked_width(op, len(words) * num_inputs)
        _check_padding("a rotation", words, size)
    elif op == "threshold":
        width = _checked_width(op, array("thresholds", np.float32, num_inputs, None).size)
    elif op == "learned":
        width = _checked_width(op, len(array("directions", np.int8, None, num_inputs)))
        array("direction_steps", np.float32, width)
        array("direction_offsets", np.int32, width)
    elif op == "linear":
        width = len(array("weight", np.float32, None, num_inputs))
    elif op == "attention":
        heads, channels = array("att_src", np.float32, None, None).shape
        array("att_dst", np.float32, heads, channels)
        if heads * channels != num_inputs:
            raise FileError(f"{heads} heads of {channels} do not fit {num_inputs} columns")
        width = num_inputs if step["concat"] else channels
    elif op == "attention_v2":
        heads, channels = array("att", np.float32, None, None).shape
        if 2 * heads * channels != num_inputs:
            raise FileError(f"twice {heads} heads of {channels} do not fit {num_inputs} columns")
        width = heads * channels if step["concat"] else channels
    elif op == "attention_dot":
        heads = step["heads"]
        if type(heads) is not int or num_inputs % (3 * heads):
            raise FileError(f"thrice {heads} heads do not fit {num_inputs} columns")
        width = num_inputs // 3 if step["concat"] else num_inputs // (3 * heads)
    elif op == "concat":
        width = _checked_width(op, sum(value.width for value in taken))
    elif op == "embedding":
        width = array("weight", np.float32, None, None).shape[1]
        if type(step["column"]) is not int or step["column"] >= num_inputs:
            raise FileError(f"'embedding' reads column {step['column']} of {num_inputs}")
    elif op == "length":
        width = 1
    elif op == "layer_norm":
        if type(step["groups"]) is not int or num_inputs % step["groups"]:
            raise FileError(f"{step['groups']} groups do not share {num_inputs} columns evenly")
    elif OPERATIONS[op].several:
        width = max(value.width for value in taken)
        narrow = () if op == "lstm_attention" else (1,)
        if any(value.width not in (width, *narrow) for value in taken):
            raise FileError(f"'{op}' takes values of different widths")
        if op == "lstm_attention":
            hidden = len(array("attention", np.float32, None)) // 2
            for reverse in ("", "reverse_"):
                array(f"{reverse}input_weight", np.float32, 4 * hidden, width)
                array(f"{reverse}hidden_weight", np.float32, 4 * hidden, hidden)
                array(f"{reverse}bias", np.float32, 4 * hidden)
    else:
        for parameter in OPERATIONS[op].arrays:  # one number per column
            array(parameter, np.float32, num_inputs)
    if width == 0:
        raise FileError("a layer has no outputs")
    kind = OPERATIONS[op]
    parameters = {key: step[key] for key in (*kind.choices, *kind.numbers)}
    parameters |= {key: step[key] for key in kind.optional if key in step}
    return Operation(
        op, names, step["out"], found, parameters, num_inputs, width, taken[0].is_bits,
        op == "binarize", taken[0].is_pooled or op == "pool", node_type,
    )  # fmt: skip


def encoder_in(step: Operation) -> Encoder:
    """Return the encoder that an operation is."""
    return stored_encoder(step.op, step.num_inputs, step.arrays)


def _checked_width(op: str, width: int) -> int:
    if width > _MAX_COLUMNS:
        raise FileError(f"'{op}' makes {width} columns, over {_MAX_COLUMNS}")
    return width


def _check_padding(what: str, words: NDArray[Any], num_bits: int) -> None:
    spare = -num_bits % 64
    if spare and words.size and (words[..., -1] >> np.uint64(64 - spare)).any():
        raise FileError(f"padding bits of {what} are not 0")


def _array(arrays: Arrays, name: str, dtype: Any, shape: tuple[int | None, ...]) -> NDArray[Any]:
    if name not in arrays:
        raise FileError(f"array '{name[:40]}' is missing")
    array = arrays[name]
    fits = len(array.shape) == len(shape) and all(
        wanted is None or size == wanted for size, wanted in zip(array.shape, shape, strict=True)
    )
    if array.dtype != dtype or not fits:
        raise FileError(
            f"array '{name[:40]}' must be {np.dtype(dtype)} {list(shape)}, "
            f"got {array.dtype} {list(array.shape)}"
        )
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise FileError(f"array '{name[:40]}' has values that are not finite")
    return array
