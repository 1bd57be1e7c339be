"""A packed model as data: a short list of operations on named values, and arrays they refer to.

Each operation is a JSON object with ``op``, ``in`` (names of values), ``out`` (a name), and the
names of its arrays. The list is general: values may be used more than once, and further kinds of
operation may be added. This version runs chains of convolutions, and refuses a list it does not
understand instead of guessing (docs/format.md lists the operations).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words, words_per_row
from bignn.errors import FileError

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]

#: Operation -> its array parameters, and its other parameters with the values they may have.
OPERATIONS: dict[str, tuple[tuple[str, ...], dict[str, tuple[Any, ...]]]] = {
    "normalize_rows": ((), {}),
    "standardize": (("mean", "scale"), {}),
    "binarize": ((), {}),
    "linear": (("weight",), {}),
    "binary_linear": (("words", "alpha"), {}),
    "aggregate": ((), {"norm": ("gcn",), "edge_bits": (17, 20)}),
    "bias": (("bias",), {}),
    "batch_norm": (("mean", "scale"), {}),
    "relu": ((), {}),
}

_MAX_OPERATIONS = 10_000


@dataclass(frozen=True, eq=False)
class Input:
    """What happens to raw features, see ``bignn.nn.InputNorm``."""

    num_features: int
    normalize_rows: bool
    mean: Floats | None
    scale: Floats | None
    binarize: bool


@dataclass(frozen=True, eq=False)
class Convolution:
    """One graph convolution of a chain.

    Attributes:
        weight: packed words [d_out, ceil(d_in / 64)] with ``alpha``, or floats [d_out, d_in].
        num_inputs: d_in.
        alpha: scales of a binary weight, or None.
        bias: added after the aggregation.
        mean, scale: of the batch normalisation after it, or None.
        edge_bits: of the integers that neighbours are weighed with where all is binary.
        relu: whether a ReLU follows.
        binarize: whether this convolution's *input* is binarized.

    """

    weight: Words | Floats
    num_inputs: int
    alpha: Floats | None
    bias: Floats
    edge_bits: int
    mean: Floats | None = None
    scale: Floats | None = None
    relu: bool = False
    binarize: bool = False

    @property
    def num_outputs(self) -> int:
        """d_out."""
        return len(self.weight)

    @property
    def is_binary(self) -> bool:
        """Whether it works on bits alone: its input and its weight, and no ReLU after it."""
        return self.binarize and self.alpha is not None and not self.relu


@dataclass(frozen=True, eq=False)
class Network:
    """The operations, understood: an input stage and a chain of convolutions."""

    input: Input
    convolutions: list[Convolution]

    @property
    def is_binary(self) -> bool:
        """Whether every layer works on bits alone."""
        return all(convolution.is_binary for convolution in self.convolutions)

    @property
    def num_classes(self) -> int:
        """Width of the last layer."""
        return self.convolutions[-1].num_outputs


def understand(operations: Any, arrays: Arrays, num_features: Any) -> Network:
    """Checks a list of operations against its arrays and turns it into a :class:`Network`."""
    if type(num_features) is not int or not 0 < num_features < 2**31:
        raise FileError("the number of features is missing or out of range")
    reader = _Reader(_checked(operations), arrays)
    current = num_features
    normalize_rows = reader.take("normalize_rows") is not None
    mean, scale = reader.take_pair("standardize", current)
    binarize = reader.take("binarize") is not None
    first = Input(num_features, normalize_rows, mean, scale, binarize)
    convolutions: list[Convolution] = []
    while not reader.at_end:
        convolution = _convolution(reader, current, binarize)
        current = convolution.num_outputs
        convolutions.append(convolution)
        binarize = reader.take("binarize") is not None
    if not convolutions or binarize:
        raise FileError("the operations do not end in a convolution")
    return Network(first, convolutions)


def _convolution(reader: _Reader, num_inputs: int, binarize: bool) -> Convolution:
    alpha: Floats | None = None
    weight: NDArray[Any]
    if (step := reader.take("binary_linear")) is not None:
        weight = reader.array(step, "words", np.uint64, (None, words_per_row(num_inputs)))
        alpha = reader.array(step, "alpha", np.float32, (len(weight),))
        _check_padding(weight, num_inputs)
    elif (step := reader.take("linear")) is not None:
        weight = reader.array(step, "weight", np.float32, (None, num_inputs))
    else:
        raise reader.unexpected()
    if len(weight) == 0:
        raise FileError("a layer has no outputs")
    if (aggregate := reader.take("aggregate")) is None:
        raise reader.unexpected()
    step = reader.take("bias")
    if step is None:
        bias = np.zeros(len(weight), dtype=np.float32)
    else:
        bias = reader.array(step, "bias", np.float32, (len(weight),))
    mean, scale = reader.take_pair("batch_norm", len(weight))
    relu = reader.take("relu") is not None
    edge_bits = int(aggregate["edge_bits"])
    return Convolution(weight, num_inputs, alpha, bias, edge_bits, mean, scale, relu, binarize)


def _check_padding(words: Words, num_bits: int) -> None:
    spare = -num_bits % 64
    if spare and words.size and (words[:, -1] >> np.uint64(64 - spare)).any():
        raise FileError("padding bits of a weight are not 0")


def _checked(operations: Any) -> Sequence[dict[str, Any]]:
    """A chain in which each operation takes what the one before it made."""
    if not isinstance(operations, list) or not 0 < len(operations) <= _MAX_OPERATIONS:
        raise FileError("the list of operations is missing or too long")
    before = "x"
    for step in operations:
        kind = step.get("op") if isinstance(step, dict) else step
        if not isinstance(kind, str) or not isinstance(step, dict) or kind not in OPERATIONS:
            raise FileError(f"operation {str(kind)[:40]!r} is unknown; a newer bignn may know it")
        names, choices = OPERATIONS[step["op"]]
        expected = {"op", "in", "out", *names, *choices}
        if set(step) != expected or not all(isinstance(step[name], str) for name in names):
            raise FileError(f"operation '{step['op']}' must have exactly {sorted(expected)}")
        for name, values in choices.items():
            if type(step[name]) is not type(values[0]) or step[name] not in values:
                raise FileError(f"'{name}' of '{step['op']}' must be one of {list(values)}")
        if step["in"] != [before] or not isinstance(step["out"], str):
            raise FileError("the operations are not a chain; a newer bignn may run them")
        before = step["out"]
    return operations


class _Reader:
    """Takes operations from the front of a list."""

    def __init__(self, operations: Sequence[dict[str, Any]], arrays: Arrays) -> None:
        self._operations = operations
        self._arrays = arrays
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._operations)

    def take(self, op: str) -> dict[str, Any] | None:
        """The next operation if it is ``op``."""
        if self.at_end or self._operations[self._next]["op"] != op:
            return None
        self._next += 1
        return self._operations[self._next - 1]

    def take_pair(self, op: str, size: int) -> tuple[Floats | None, Floats | None]:
        """Mean and scale of the next operation if it is ``op``."""
        if (step := self.take(op)) is None:
            return None, None
        return (
            self.array(step, "mean", np.float32, (size,)),
            self.array(step, "scale", np.float32, (size,)),
        )

    def array(
        self, step: dict[str, Any], parameter: str, dtype: Any, shape: tuple[int | None, ...]
    ) -> NDArray[Any]:
        """The array that a parameter names, checked."""
        name = step[parameter]
        if name not in self._arrays:
            raise FileError(f"array '{name[:40]}' is missing")
        array = self._arrays[name]
        fits = len(array.shape) == len(shape) and all(
            wanted is None or size == wanted
            for size, wanted in zip(array.shape, shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            raise FileError(
                f"array '{name[:40]}' must be {np.dtype(dtype)} {list(shape)}, "
                f"got {array.dtype} {list(array.shape)}"
            )
        if array.dtype == np.float32 and not np.isfinite(array).all():
            raise FileError(f"array '{name[:40]}' has values that are not finite")
        return array

    def unexpected(self) -> FileError:
        if self.at_end:
            return FileError("the list of operations ends too early")
        return FileError(
            f"operation '{self._operations[self._next]['op']}' is not expected at place "
            f"{self._next}; a newer bignn may run it"
        )
