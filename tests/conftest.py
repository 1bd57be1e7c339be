"""Small graphs every test may use."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray

from bignn.graph import Graph, from_arrays

# Examples share two busy cores; how long one takes says nothing.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

Arrays = dict[str, NDArray[Any]]


def make_arrays(num_nodes: int = 60, num_features: int = 20, seed: int = 0) -> Arrays:
    """Two communities whose features and edges give their class away, in the .npz format."""
    rng = np.random.default_rng(seed)
    y = np.arange(num_nodes) % 2
    x = (rng.random((num_nodes, num_features)) < 0.15).astype(np.float32)
    half = num_features // 2
    x[y == 0, :half] += rng.random((int((y == 0).sum()), half)) < 0.3
    x[y == 1, half:] += rng.random((int((y == 1).sum()), num_features - half)) < 0.3
    pairs = rng.integers(0, num_nodes, (2, 4 * num_nodes))
    kept = (y[pairs[0]] == y[pairs[1]]) | (rng.random(pairs.shape[1]) < 0.2)
    pairs = pairs[:, kept & (pairs[0] != pairs[1])]
    nodes = rng.permutation(num_nodes)
    third = num_nodes // 3
    return {
        "x": x,
        "edge_index": np.unique(np.concatenate([pairs, pairs[::-1]], axis=1), axis=1),
        "y": y,
        "train_idx": nodes[:third],
        "val_idx": nodes[third : 2 * third],
        "test_idx": nodes[2 * third :],
    }


@pytest.fixture
def arrays() -> Arrays:
    return make_arrays()


@pytest.fixture
def graph() -> Graph:
    return from_arrays(make_arrays(), name="toy")
