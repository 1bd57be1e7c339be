"""Input encoders of packed models: their numbers, by kind, and what they make of rows.

:mod:`bignn.runtime.input_bits` has the arithmetic, which training shares. Imports NumPy only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bignn.bits import pack, unpack
from bignn.config.input_bits import InputBits, InputBitsKind
from bignn.errors import FileError
from bignn.runtime.input_bits import (
    compared,
    hadamard_matrix,
    projected,
    rotated,
    rotation_matrix,
    rotation_size,
)

Floats = NDArray[np.float32]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Encoder:
    """An input encoder of d features; one class per kind.

    Attributes:
        kind: the kind, as in the option ``input_bits`` and in files.
        num_features: d.
        arrays: its numbers by their names in files, rotations as ±1.

    """

    kind: ClassVar[InputBitsKind]
    names: ClassVar[tuple[str, ...]]
    num_features: int
    arrays: Arrays

    @property
    def num_columns(self) -> int:
        """Bits of a row."""
        raise NotImplementedError

    @property
    def input_bits(self) -> str:
        """The option ``input_bits`` of models with such an encoder."""
        return str(InputBits(self.kind, self.num_columns // self.num_features))

    def encode(self, z: Floats) -> Floats:
        """Encode standardised rows: [N, d] -> [N, num_columns]."""
        raise NotImplementedError

    def stored(self) -> dict[str, NDArray[Any]]:
        """Return the arrays as model files have them, ±1 as bits."""
        return {name: pack(a) if name == "diagonals" else a for name, a in self.arrays.items()}


class Rotations(Encoder):
    """K random rotations: ``diagonals``, ±1 as int8 [K, 3, p]."""

    kind = "rotate"
    names = ("diagonals",)

    @property
    def num_columns(self) -> int:
        """Bits of a row."""
        return len(self.arrays["diagonals"]) * self.num_features

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The rotations multiplied out, [d, K d]."""
        diagonals = self.arrays["diagonals"].astype(np.float64)
        hadamard = hadamard_matrix(self.num_features).astype(np.float64)
        return np.ascontiguousarray(rotation_matrix(diagonals, hadamard, self.num_features))

    def encode(self, z: Floats) -> Floats:
        """Rotate rows."""
        made: Floats = rotated(z, self.matrix, _as_doubles, _as_singles)
        return made


class Thresholds(Encoder):
    """K bounds of each feature: ``thresholds``, float32 [d, K]."""

    kind = "threshold"
    names = ("thresholds",)

    @property
    def num_columns(self) -> int:
        """Bits of a row."""
        return self.arrays["thresholds"].size

    def encode(self, z: Floats) -> Floats:
        """Compare every feature with its bounds."""
        made: Floats = compared(z, self.arrays["thresholds"])
        return made


class Directions(Encoder):
    """Learned directions, int8 [m, d], and of each its step, float32, and its offset, int32."""

    kind = "learned"
    names = ("directions", "direction_steps", "direction_offsets")

    @property
    def num_columns(self) -> int:
        """Bits of a row."""
        return len(self.arrays["directions"])

    @cached_property
    def matrix(self) -> NDArray[np.float64]:
        """The directions as columns, [d, m]."""
        return np.ascontiguousarray(self.arrays["directions"].T.astype(np.float64))

    def encode(self, z: Floats) -> Floats:
        """Project rows onto the directions."""
        steps, offsets = (self.arrays[name].astype(np.float64) for name in self.names[1:])
        made: Floats = projected(z, self.matrix, steps, offsets, _as_doubles, _as_singles)
        return made


_CLASSES: dict[str, type[Encoder]] = {
    kind.kind: kind for kind in (Rotations, Thresholds, Directions)
}
#: The kinds of encoders, which are operations of packed models.
ENCODERS = tuple(_CLASSES)
#: The names of the arrays of all kinds.
ENCODER_ARRAYS = tuple(name for kind in _CLASSES.values() for name in kind.names)


def encoder_of(kind: str, num_features: int, arrays: Arrays) -> Encoder:
    """Make the encoder of a kind from its arrays, rotations as ±1."""
    if num_features < 1:
        raise FileError(f"'{kind}' bits of {num_features} features, where at least 1 is needed")
    made = _CLASSES[kind]
    encoder = made(num_features, {name: arrays[name] for name in made.names})
    if encoder.num_columns == 0 or encoder.num_columns % num_features:
        raise FileError(
            f"{encoder.num_columns} '{kind}' bits are no multiple of {num_features} features"
        )
    return encoder


def stored_encoder(kind: str, num_features: int, arrays: Arrays) -> Encoder:
    """Make the encoder of a kind from arrays as model files have them."""
    if kind == Rotations.kind:
        words = arrays["diagonals"]
        arrays = {"diagonals": unpack(words, rotation_size(num_features))}
    return encoder_of(kind, num_features, arrays)


def kind_with(names: Mapping[str, object]) -> str | None:
    """Return the kind of encoder that arrays of such names are those of; None for no encoder."""
    return next((kind for kind, made in _CLASSES.items() if names.keys() >= {*made.names}), None)


def _as_doubles(some: Any) -> Any:
    return some.astype(np.float64)


def _as_singles(some: Any) -> Any:
    return some.astype(np.float32)
