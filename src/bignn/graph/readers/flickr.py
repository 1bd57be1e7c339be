"""Reads GraphSAINT's raw files (flickr): adj_full.npz, feats.npy, role.json, class_map.json."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.graph.graph import SPLITS, UNLABELLED
from bignn.graph.readers.npz import read_npy
from bignn.graph.readers.raw_files import by_node, node_ids, read_json
from bignn.graph.readers.scipy_npz import read_adjacency

FILES = ("adj_full.npz", "feats.npy", "role.json", "class_map.json")


def read(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the graph in ``folder``. Features are as published, not standardised."""
    adjacency, features, roles, classes = (folder / name for name in FILES)
    x = read_npy(features)
    if x.ndim != 2:
        raise FileError(f"'{features}' must be a matrix [nodes, features], got {list(x.shape)}")
    arrays = {
        "x": x,
        "edge_index": read_adjacency(adjacency, len(x)),
        "y": _labels(classes, len(x)),
    }
    role = read_json(roles)
    for key, part in zip(SPLITS, ("tr", "va", "te"), strict=True):
        if part not in role:
            raise FileError(f"'{roles}' must hold 'tr', 'va' and 'te', got {sorted(role)[:5]}")
        arrays[key] = np.sort(node_ids(roles, f"'{part}'", role[part]))
    return arrays


def _labels(file: Path, num_nodes: int) -> NDArray[np.int64]:
    """Read a class per node. Values are class ids, or lists with a single 1 at the class."""
    y = np.full(num_nodes, UNLABELLED, dtype=np.int64)
    for node, value in enumerate(by_node(file, read_json(file), num_nodes)):
        if value is None:
            continue
        if isinstance(value, list) and all(entry in (0, 1) for entry in value):
            if sum(value) != 1:
                raise FileError(
                    f"'{file}': node {node} has {sum(value)} classes; multi-label targets are "
                    "not supported: give one class per node"
                )
            y[node] = value.index(1)
        elif type(value) is int and 0 <= value < 1 << 31:
            y[node] = value
        else:
            raise FileError(f"'{file}': node {node} must have a class id, got {str(value)[:40]!r}")
    return y
