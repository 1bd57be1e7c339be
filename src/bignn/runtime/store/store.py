"""A store: a folder with features as bits, edges and labels, opened by mapping (docs/format.md)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError, InputError
from bignn.files import checked_path
from bignn.graph.graph import SPLITS
from bignn.runtime.encoders import ENCODER_ARRAYS, encoder_of, kind_with
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.store.array_file import ArrayPart, map_array, read_rows, verify_array
from bignn.runtime.store.unfinished import VERSION

#: Parts of a store.
FEATURES, EDGES, LABELS = "features", "edges", "labels"
#: Arrays of the input stage that a store's features were made by.
STAGE_ARRAYS = ("mean", "scale", *ENCODER_ARRAYS)
#: Files that a part must have.
_NEEDED = {FEATURES: ("bits", "beta"), EDGES: ("offsets", "ids"), LABELS: ("y",)}
#: Most nodes of a store: ids have 32 bits.
MOST_NODES = (1 << 31) - 1


def is_store(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a store, whole or begun."""
    folder = Path(path)
    return folder.is_dir() and any(
        (folder / f"{kind}{end}.json").is_file() for kind in _NEEDED for end in ("", ".journal")
    )


@dataclass(frozen=True, eq=False)
class StorePart:
    """One part of a store: its header and its arrays.

    Attributes:
        folder: the store's folder.
        kind: the part's name.
        header: what its manifest says besides the arrays.
        arrays: the description of each array.

    """

    folder: Path
    kind: str
    header: Mapping[str, Any]
    arrays: Mapping[str, ArrayPart]

    @classmethod
    def open(cls, folder: Path, kind: str, needed: Sequence[str] | None = None) -> StorePart:
        """Read a part's manifest; ``needed`` are arrays that it must have."""
        path = folder / f"{kind}.json"
        if not path.is_file():
            if (folder / f"{kind}.journal.json").is_file():
                raise FileError(
                    f"'{folder}': its {kind} are not finished; run the command that packs them "
                    "again: it continues"
                )
            raise FileError(f"'{folder}' has no {kind}; {_HOW[kind]}")
        try:
            stored = json.loads(path.read_text())
            header = {key: value for key, value in stored.items() if key != "arrays"}
            is_ours = header["format"] == f"bignn store {kind}"
            version, arrays = header["version"], stored["arrays"].items()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise FileError(f"'{path}' is no manifest of a store; pack it again") from None
        if not is_ours or version != VERSION:
            raise FileError(f"'{path}' has format {header['format']!r}, version {version!r}, "
                            f"expected 'bignn store {kind}', version {VERSION}")  # fmt: skip
        parts = {name: ArrayPart.from_json(path, part) for name, part in arrays}
        needed = _NEEDED[kind] if needed is None else needed
        if missing := [name for name in needed if name not in parts]:
            raise FileError(f"'{path}' lacks '{missing[0]}'; pack it again")
        return cls(folder, kind, header, parts)

    def path(self, name: str) -> Path:
        """Return the file of an array."""
        return self.folder / f"{name}.npy"

    def map(self, name: str) -> NDArray[Any]:
        """Map an array, read-only."""
        return map_array(self.path(name), self.arrays[name])

    def read(self, name: str, begin: int, end: int) -> NDArray[Any]:
        """Read rows of an array into memory."""
        return read_rows(self.path(name), self.arrays[name], begin, end)

    def verify(self) -> None:
        """Compare all blocks of all arrays with their digests."""
        for name, part in self.arrays.items():
            verify_array(self.path(name), part)

    def number(self, key: str) -> int:
        """Return a whole number of the header."""
        value = self.header.get(key)
        if type(value) is not int or value < 0:
            raise FileError(f"'{self.folder / self.kind}.json' has no '{key}'; pack it again")
        return value


def check_same_nodes(folder: Path, kind: str, num_nodes: int) -> None:
    """Refuse to pack features or edges beside edges or features of another number of nodes."""
    other = EDGES if kind == FEATURES else FEATURES
    try:
        held = StorePart.open(folder, other).number("num_nodes")
    except FileError:
        return  # none are there, or they are to be packed again
    if held != num_nodes:
        raise FileError(
            f"'{folder}' has {other} of {held} nodes, got {kind} of {num_nodes}; give {held}, or "
            f"another folder, or remove '{folder / other}.json' to replace both"
        )


_HOW = {
    FEATURES: "'bignn pack-features X.npy -o DIR' packs them",
    EDGES: "'bignn pack-edges EDGES --nodes N -o DIR' packs them",
    LABELS: "'bignn pack-features X.npy -o DIR --labels FILE.npz' adds them",
}


class Store:
    """An opened store; arrays are mapped when they are first used.

    Made by ``bignn pack-features``, ``bignn pack-edges`` and ``bignn synth``.

    Args:
        path: the folder.
        verify: read everything once and compare it with its digests.

    """

    def __init__(self, path: str | os.PathLike[str], *, verify: bool = False) -> None:
        self.path = checked_path(path)
        if not self.path.is_dir():
            raise FileError(f"'{self.path}' is no store, a folder that bignn pack-features makes")
        self.features = StorePart.open(self.path, FEATURES)
        self.edges = StorePart.open(self.path, EDGES)
        has_labels = (self.path / f"{LABELS}.json").is_file()
        self.labels = StorePart.open(self.path, LABELS) if has_labels else None
        self._check_sizes()
        if verify:
            self.verify()

    def verify(self) -> None:
        """Read everything once and compare it with its digests."""
        for part in (self.features, self.edges, self.labels):
            if part is not None:
                part.verify()

    def _check_sizes(self) -> None:
        nodes, bits = self.num_nodes, self.num_bits
        expected = {
            (self.features, "bits"): ("<u8", [nodes, words_per_row(bits)]),
            (self.features, "beta"): ("<f4", [nodes]),
            (self.edges, "offsets"): ("<i8", [nodes + 1]),
            (self.edges, "ids"): ("<i4", [self.num_edges]),
        }
        if self.edges.number("num_nodes") != nodes:
            raise FileError(
                f"'{self.path}' has features of {nodes} nodes and edges of "
                f"{self.edges.number('num_nodes')}; pack one of them again"
            )
        for (part, name), (dtype, shape) in expected.items():
            array = part.arrays[name]
            if array.dtype != dtype or [array.num_rows, *array.row_shape] != shape:
                raise FileError(f"'{part.path(name)}' must be {dtype} of shape {shape}; pack it "
                                "again")  # fmt: skip
        if self.stage.digest() != self.features.header.get("input_digest"):
            raise FileError(f"'{self.path}': its input statistics were changed; pack it again")

    @property
    def name(self) -> str:
        """The folder's name."""
        return str(self.path)

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.features.number("num_nodes")

    @property
    def num_features(self) -> int:
        """Raw features per node."""
        return self.features.number("num_features")

    @property
    def num_bits(self) -> int:
        """Bits per node."""
        return self.features.number("num_bits")

    @property
    def num_edges(self) -> int:
        """Number of edges, each in one direction."""
        return self.edges.number("num_edges")

    @cached_property
    def stage(self) -> InputSpec:
        """The input stage that the bits were made by."""
        found = {
            name: np.array(self.features.map(name))
            for name in STAGE_ARRAYS
            if name in self.features.arrays
        }
        kind = kind_with(found)
        return InputSpec(
            self.num_features,
            bool(self.features.header.get("normalize_rows")),
            found.get("mean"),
            found.get("scale"),
            True,
            None if kind is None else encoder_of(kind, self.num_features, found),
        )

    @cached_property
    def words(self) -> NDArray[np.uint64]:
        """Bits of all nodes, [N, ceil(K / 64)], mapped."""
        return self.features.map("bits")

    @cached_property
    def beta(self) -> NDArray[np.float32]:
        """Scales β of all nodes, mapped."""
        return self.features.map("beta")

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """Where each node's neighbours begin, [N + 1], mapped."""
        return self.edges.map("offsets")

    @cached_property
    def ids(self) -> NDArray[np.int32]:
        """Neighbours, the sources of the edges that reach each node, mapped."""
        return self.edges.map("ids")

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self._labels().number("num_classes")

    @cached_property
    def y(self) -> NDArray[Any]:
        """Classes of all nodes, -1 where unknown, mapped."""
        return self._labels().map("y")

    def split(self, key: str) -> NDArray[np.int64] | None:
        """Return the nodes of a split (``"train_idx"``, ...), if the store has it."""
        assert key in SPLITS
        part = self.labels
        return None if part is None or key not in part.arrays else part.map(key)

    @property
    def train_idx(self) -> NDArray[np.int64] | None:
        """The training nodes."""
        return self.split("train_idx")

    def _labels(self) -> StorePart:
        if self.labels is None:
            raise InputError(f"'{self.path}' has no labels; {_HOW[LABELS]}")
        return self.labels

    def digest(self) -> str:
        """Return a fingerprint of all that the store holds."""
        import hashlib

        state = hashlib.blake2b(digest_size=16)
        for part in (self.features, self.edges, self.labels):
            if part is not None:
                described = {name: array.as_json() for name, array in part.arrays.items()}
                state.update(json.dumps([part.kind, described], sort_keys=True).encode())
        return state.hexdigest()

    def __reduce__(self) -> tuple[Any, ...]:
        return Store, (self.path,)  # other processes map the same files

    def __repr__(self) -> str:
        return (
            f"Store({self.name!r}, nodes={self.num_nodes}, edges={self.num_edges}, "
            f"bits={self.num_bits})"
        )
