"""Reads sparse matrices that scipy saved in .npz files, without scipy and without pickle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.graph.edges import undirected
from bignn.graph.readers.npz import read_some


def read_adjacency(file: Path, num_nodes: int, prefix: str = "") -> NDArray[np.int64]:
    """Read the edges of an adjacency matrix in CSR, CSC or COO form; they become undirected.

    Values and scipy's ``format`` are not read: an entry is an edge, and in an undirected graph it
    does not matter which of its two ids is the row.
    """
    names = ("row", "col", "indices", "indptr", "shape")
    found = read_some(file, [prefix + name for name in names], needed=[prefix + "shape"])
    arrays = {name: found[prefix + name] for name in names if prefix + name in found}
    where = f"'{file}'"
    if arrays["shape"].tolist() != [num_nodes, num_nodes]:
        raise FileError(
            f"{where}: '{prefix}shape' must be [{num_nodes}, {num_nodes}], a row and a column per "
            f"node, got {arrays['shape'].tolist()}"
        )
    if "row" in arrays and "col" in arrays:
        return undirected(where, arrays["row"], arrays["col"], num_nodes)
    if "indices" in arrays and "indptr" in arrays:
        indptr = checked_indptr(file, prefix, arrays, num_nodes)
        rows = np.repeat(np.arange(num_nodes, dtype=np.int32), np.diff(indptr))
        return undirected(where, rows, arrays["indices"], num_nodes)
    raise FileError(
        f"{where} holds no sparse matrix: expected '{prefix}indices' and '{prefix}indptr', or "
        f"'{prefix}row' and '{prefix}col'"
    )


def checked_indptr(
    file: Path, prefix: str, arrays: dict[str, NDArray[Any]], rows: int
) -> NDArray[np.int64]:
    """Return ``indptr`` if it divides ``indices`` into ``rows`` rows; refuse it otherwise."""
    indptr, indices = arrays["indptr"], arrays["indices"]
    good = indptr.dtype.kind in "iu" and indptr.shape == (rows + 1,) and indices.ndim == 1
    if good:
        indptr = indptr.astype(np.int64)
        good = indptr[0] == 0 and indptr[-1] == indices.size and not (np.diff(indptr) < 0).any()
    if not good:
        raise FileError(
            f"'{file}': '{prefix}indptr' must rise from 0 to the {indices.size} indices in "
            f"{rows} steps; get the file again"
        )
    return indptr
