"""Reads the .npz files of Shchur et al. (Amazon Computers, Photo; Coauthor CS, Physics)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.graph.readers.npz import read_some
from bignn.graph.readers.scipy_npz import checked_indptr, read_adjacency

_WANTED = ("attr_indptr", "attr_indices", "attr_shape", "labels")


def read(file: Path) -> dict[str, NDArray[Any]]:
    """Read the graph in ``file``; names of nodes, words and classes are left unread.

    Features stay sparse and as published. Those of Coauthor are counts; PyG sets them all to 1.
    """
    found = read_some(file, (*_WANTED, "attr_data"), needed=_WANTED)
    num_nodes = len(found["labels"])
    attributes = {"indptr": found["attr_indptr"], "indices": found["attr_indices"]}
    arrays = {
        "x_indptr": checked_indptr(file, "attr_", attributes, num_nodes),
        "x_indices": found["attr_indices"],
        "x_shape": found["attr_shape"],
        "edge_index": read_adjacency(file, num_nodes, prefix="adj_"),
        "y": found["labels"],
    }
    if "attr_data" in found and not np.all(found["attr_data"] == 1):
        arrays["x_data"] = found["attr_data"]
    return arrays
