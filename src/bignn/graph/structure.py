"""Features made from a graph's structure, for nodes that have none. NumPy only."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error

#: Columns of random features where no number is given.
_RANDOM_COLUMNS = 64
_MOST_COLUMNS = 65536
_EXPECTED = "'degree', 'constant', 'random' or 'random:COLUMNS'"


def check_structure_features(kind: str, argument: str = "features") -> int:
    """Refuse a kind of features that is not known; return the columns that it asks for."""
    name, colon, count = str(kind).partition(":")
    if name not in ("degree", "constant", "random") or (colon and name != "random"):
        raise input_error(argument, _EXPECTED, repr(kind))
    if colon and not (count.isdecimal() and 1 <= int(count) <= _MOST_COLUMNS):
        expected = f"'random:COLUMNS' with 1 to {_MOST_COLUMNS} columns"
        raise input_error(argument, expected, repr(kind))
    return int(count) if colon else _RANDOM_COLUMNS


def structure_features(
    kind: str, edge_index: NDArray[np.int64], num_nodes: int, seed: int = 0
) -> NDArray[np.float32]:
    """Make features of nodes that have none.

    Args:
        kind: ``"degree"``: column k is 1 where at least 2^k edges end at the node, up to the
            largest degree, so that every bit says something; ``"constant"``: one column of 1;
            ``"random"`` or ``"random:COLUMNS"``: normal numbers, which tell nodes apart and mean
            nothing in another graph.
        edge_index: sources and targets [2, E].
        num_nodes: number of nodes.
        seed: seed of random features.

    """
    columns = check_structure_features(kind)
    if kind == "constant":
        return np.ones((num_nodes, 1), dtype=np.float32)
    if kind != "degree":
        random = np.random.default_rng(seed)
        return random.standard_normal((num_nodes, columns), dtype=np.float32)
    degrees = np.bincount(edge_index[1], minlength=num_nodes)
    largest = max(int(degrees.max()) if num_nodes else 0, 1)
    powers = 2 ** np.arange(largest.bit_length())
    return (degrees[:, None] >= powers).astype(np.float32)
