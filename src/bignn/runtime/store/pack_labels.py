"""Reads, checks and writes the labels and splits of a store."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError
from bignn.graph.graph import SPLITS, UNLABELLED, check_splits
from bignn.graph.readers.npz import NO_MASKS, read_some
from bignn.runtime.store.store import LABELS
from bignn.runtime.store.unfinished import UnfinishedPart


def read_labels(path: str | os.PathLike[str], num_nodes: int) -> dict[str, NDArray[Any]]:
    """Read ``y`` and the splits of a .npz file, and check them as those of a graph are."""
    masks = {key.replace("_idx", "_mask"): key for key in SPLITS}
    arrays = read_some(path, ("y", *SPLITS, *masks), ())
    if "y" not in arrays:
        raise FileError(f"'{path}' must hold 'y', a class per node, got none; add it to the file")
    for mask, key in masks.items():
        if arrays.pop(mask, None) is not None and key not in arrays:
            raise FileError(f"'{path}' must hold '{key}', got '{mask}'; {NO_MASKS}")
    y = arrays["y"]
    if y.ndim != 1 or y.dtype.kind not in "iu":
        got = f"{y.dtype} of shape {list(y.shape)}"
        raise FileError(f"'{path}': 'y' must be a class per node, whole numbers, got {got}")
    if len(y) != num_nodes:
        raise FileError(f"'{path}': 'y' must be a class per node ({num_nodes}), got {len(y)}")
    if (wrong := np.flatnonzero(y < UNLABELLED)).size:
        raise FileError(f"'{path}': 'y' is {y[wrong[0]]} in row {wrong[0]}, expected -1 or more")
    splits = {name: arrays[name] for name in SPLITS if name in arrays}
    for name, nodes in splits.items():
        if nodes.dtype.kind not in "iu":
            raise FileError(f"'{path}': '{name}' must be a vector of node ids, got {nodes.dtype}")
    try:
        check_splits(y, splits, len(y))
    except InputError as error:
        raise FileError(f"'{path}': {error}") from error
    return arrays


def pack_labels(path: str | os.PathLike[str], folder: Path, num_nodes: int) -> None:
    """Copy ``y`` and the splits of a .npz file into a store of so many nodes."""
    arrays = read_labels(path, num_nodes)
    y = arrays["y"]
    status = Path(path).stat()
    identity = {"file": [os.fspath(path), status.st_size, status.st_mtime_ns]}
    with UnfinishedPart(folder, LABELS, identity) as part:
        part.note_replaced()
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
