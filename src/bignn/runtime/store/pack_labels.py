"""Writes the labels and splits of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.graph.graph import SPLITS, UNLABELLED
from bignn.graph.readers.npz import read_some
from bignn.runtime.store.store import LABELS
from bignn.runtime.store.unfinished import UnfinishedPart


def pack_labels(path: str | os.PathLike[str], folder: Path, num_nodes: int) -> None:
    """Copy ``y`` and the splits of a .npz file into a store of so many nodes."""
    arrays = read_some(path, ("y", *SPLITS), ("y",))
    y = arrays["y"]
    if y.shape != (num_nodes,) or y.dtype.kind not in "iu":
        got = f"{y.dtype} of shape {list(y.shape)}"
        raise FileError(f"'{path}': 'y' must be a class per node ({num_nodes}), got {got}")
    if (wrong := np.flatnonzero(y < UNLABELLED)).size:
        raise FileError(f"'{path}': 'y' is {y[wrong[0]]} in row {wrong[0]}, expected -1 or more")
    for name in SPLITS:
        if name in arrays:
            _check_split(path, name, arrays[name], num_nodes)
    status = Path(path).stat()
    identity = {"file": [os.fspath(path), status.st_size, status.st_mtime_ns]}
    with UnfinishedPart(folder, LABELS, identity) as part:
        splits = {name: arrays[name].astype(np.int64) for name in SPLITS if name in arrays}
        write_labels(part, y.astype(np.int16 if y.max(initial=0) < 2**15 else np.int64), splits)


def write_labels(
    part: UnfinishedPart, y: NDArray[Any], splits: Mapping[str, NDArray[np.int64]]
) -> None:
    """Write classes and splits, and finish the part."""
    for name, values in {"y": y, **splits}.items():
        writer = part.writer(name, values.dtype.str, [])
        if not writer.part.num_rows:
            writer.append(values)
    part.finish({"num_nodes": len(y), "num_classes": int(y.max(initial=-1)) + 1})


def _check_split(path: Any, name: str, nodes: NDArray[Any], num_nodes: int) -> None:
    if nodes.ndim != 1 or nodes.dtype.kind not in "iu":
        raise FileError(f"'{path}': '{name}' must be a vector of node ids, got {nodes.dtype}")
    wrong = np.flatnonzero((nodes < 0) | (nodes >= num_nodes))
    if wrong.size:
        row = int(wrong[0])
        raise FileError(
            f"'{path}': '{name}' names node {nodes[row]} in row {row}, expected 0..{num_nodes - 1}"
        )
