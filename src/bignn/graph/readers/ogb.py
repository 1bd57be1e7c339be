"""Reads OGB's raw folders (ogbn-arxiv, ogbn-products): tables in .csv.gz, a folder per split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError
from bignn.graph.edges import undirected
from bignn.graph.graph import SPLITS
from bignn.graph.readers.raw_files import read_numbers

_RAW = ("edge", "node-feat", "node-label", "num-node-list", "num-edge-list")
_PARTS = ("train", "valid", "test")


def files(split: str) -> tuple[str, ...]:
    """Return the paths of a dataset's files; ``split`` names the folder of its split."""
    return (
        *(f"raw/{name}.csv.gz" for name in _RAW),
        *(f"split/{split}/{part}.csv.gz" for part in _PARTS),
    )


ARXIV = files("time")
PRODUCTS = files("sales_ranking")


def read(folder: Path, split: str) -> dict[str, NDArray[Any]]:
    """Read the graph in ``folder``; its edges become undirected.

    OGB stores an edge of ogbn-products once, and its loader adds the reverse. The citations of
    ogbn-arxiv are directed; they are made symmetric as in the paper and in OGB's GCN examples.
    """
    raw = folder / "raw"
    num_nodes, num_edges = (_single(raw / f"num-{what}-list.csv.gz") for what in ("node", "edge"))
    pairs = _table(raw / "edge.csv.gz", np.int64, num_edges, 2)
    where = f"'{raw / 'edge.csv.gz'}'"
    arrays = {"edge_index": undirected(where, pairs[:, 0], pairs[:, 1], num_nodes)}
    del pairs  # as large as the edges
    arrays["x"] = _table(raw / "node-feat.csv.gz", np.float32, num_nodes, None)
    labels = read_numbers(raw / "node-label.csv.gz", np.int64)
    if labels.shape[1] > 1:
        raise FileError(
            f"'{raw / 'node-label.csv.gz'}' has {labels.shape[1]} labels per node; multi-label "
            "targets are not supported: give one class per node"
        )
    arrays["y"] = labels[:, 0]
    for key, part in zip(SPLITS, _PARTS, strict=True):
        ids = _table(folder / "split" / split / f"{part}.csv.gz", np.int64, None, 1)
        arrays[key] = np.sort(ids[:, 0])
    return arrays


def read_arxiv(folder: Path) -> dict[str, NDArray[Any]]:
    """Read ogbn-arxiv, which is split by year."""
    return read(folder, "time")


def read_products(folder: Path) -> dict[str, NDArray[Any]]:
    """Read ogbn-products, which is split by sales rank."""
    return read(folder, "sales_ranking")


def _single(file: Path) -> int:
    return int(_table(file, np.int64, 1, 1)[0, 0])


def _table(file: Path, dtype: Any, rows: int | None, columns: int | None) -> NDArray[Any]:
    table = read_numbers(file, dtype)
    expected = tuple(
        size if wanted is None else wanted
        for wanted, size in zip((rows, columns), table.shape, strict=True)
    )
    if table.shape != expected:
        raise FileError(
            f"'{file}' must have {expected[0]} rows of {expected[1]} numbers, got "
            f"{table.shape[0]} of {table.shape[1]}; get the file again"
        )
    return table
