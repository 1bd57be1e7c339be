"""The .npz files of Shchur et al. (Amazon Computers, Photo; Coauthor CS, Physics)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.graph.readers.npz import read_some
from bignn.graph.readers.scipy_npz import checked_indptr, read_adjacency

_WANTED = ("attr_indptr", "attr_indices", "attr_shape", "labels")


def read(file: Path) -> dict[str, NDArray[Any]]:
    """The arrays of the graph in ``file``; names of nodes, words and classes are not read.

    Features stay sparse and as published, the counts of Coauthor among them (PyG sets all to 1).
    """
    given = read_some(file, (*_WANTED, "attr_data"), needed=_WANTED)
    num_nodes = len(given["labels"])
    attributes = {"indptr": given["attr_indptr"], "indices": given["attr_indices"]}
    arrays = {
        "x_indptr": checked_indptr(file, "attr_", attributes, num_nodes),
        "x_indices": given["attr_indices"],
        "x_shape": given["attr_shape"],
        "edge_index": read_adjacency(file, num_nodes, prefix="adj_"),
        "y": given["labels"],
    }
    if "attr_data" in given and not np.all(given["attr_data"] == 1):
        arrays["x_data"] = given["attr_data"]
    return arrays
