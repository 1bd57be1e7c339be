"""Reads MUSAE's GitHub graph: SNAP's tables (4,005 words) or PyG's .npz (128 numbers per node)."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.files import check_regular_file
from bignn.graph.edges import undirected
from bignn.graph.readers.npz import read_some
from bignn.graph.readers.raw_files import by_node, node_ids, read_json, read_numbers

FILES = ("musae_git_edges.csv", "musae_git_features.json", "musae_git_target.csv")


def read(folder: Path) -> dict[str, NDArray[Any]]:
    """Read SNAP's tables: the words of each node in JSON, a class per node, pairs of nodes."""
    edges, features, targets = (folder / name for name in FILES)
    y = _targets(targets)
    word_ids = [
        np.unique(node_ids(features, f"node {node}", row or []))
        for node, row in enumerate(by_node(features, read_json(features), len(y)))
    ]
    indices = np.concatenate(word_ids)
    if indices.size == 0:
        raise FileError(f"'{features}' has no features; get the file again")
    pairs = read_numbers(edges, np.int64, header=True)
    if pairs.shape[1] != 2:
        raise FileError(f"'{edges}' must have two ids per row, got {pairs.shape[1]}")
    return {
        "x_indptr": np.cumsum([0, *map(len, word_ids)]),
        "x_indices": indices,
        "x_shape": np.array([len(y), int(indices.max()) + 1]),
        "edge_index": undirected(f"'{edges}'", pairs[:, 0], pairs[:, 1], len(y)),
        "y": y,
    }


def read_reduced(file: Path) -> dict[str, NDArray[Any]]:
    """Read github.npz: ``edges`` [E, 2], ``features`` [N, d], ``target`` [N]."""
    wanted = ("edges", "features", "target")
    arrays = read_some(file, wanted, needed=wanted)
    edges = arrays["edges"]
    if edges.ndim != 2 or edges.shape[1] != 2:
        raise FileError(f"'{file}': 'edges' must be [edges, 2], got {list(edges.shape)}")
    pairs = undirected(f"'{file}'", edges[:, 0], edges[:, 1], len(arrays["features"]))
    return {"x": arrays["features"], "edge_index": pairs, "y": arrays["target"]}


def _targets(file: Path) -> NDArray[np.int64]:
    """Read column ``ml_target``, sorted by column ``id``."""
    check_regular_file(file, "a table of classes", "get the file again")
    try:
        with file.open(newline="", encoding="utf-8") as opened:
            rows = [(int(row["id"]), int(row["ml_target"])) for row in csv.DictReader(opened)]
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise FileError(
            f"'{file}' must be a table with columns id and ml_target ({error}); get the file again"
        ) from None
    ids = np.array([node for node, _ in rows], dtype=np.int64)
    if not np.array_equal(np.sort(ids), np.arange(len(rows))) or not rows:
        raise FileError(f"'{file}' must have ids 0 to {len(rows) - 1}, each once")
    y = np.empty(len(rows), dtype=np.int64)
    y[ids] = [target for _, target in rows]
    return y
