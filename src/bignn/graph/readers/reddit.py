"""Reads GraphSAGE's Reddit: reddit_data.npz (features, labels, split) and reddit_graph.npz."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.graph.graph import SPLITS
from bignn.graph.readers.npz import read_some
from bignn.graph.readers.scipy_npz import read_adjacency

FILES = ("reddit_data.npz", "reddit_graph.npz")


def read(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the graph in ``folder``; node types 1, 2, 3 are training, validation and test."""
    data, graph = (folder / name for name in FILES)
    wanted = ("feature", "label", "node_types")
    arrays = read_some(data, wanted, needed=wanted)
    x, types = arrays["feature"], arrays["node_types"]
    if x.ndim != 2:
        raise FileError(f"'{data}': 'feature' must be [nodes, features], got {list(x.shape)}")
    if types.shape != (len(x),) or not np.isin(types, (0, 1, 2, 3)).all():
        raise FileError(
            f"'{data}': 'node_types' must be 1, 2 or 3 (training, validation, test) for each of "
            f"{len(x)} nodes, got shape {list(types.shape)} with values {np.unique(types)[:5]}"
        )
    return {
        "x": x,
        "edge_index": read_adjacency(graph, len(x)),
        "y": arrays["label"],
        **{key: np.flatnonzero(types == part + 1) for part, key in enumerate(SPLITS)},
    }
