"""Makes graphs with few, dense features, for studies of input bits.

Run: .venv/bin/python benchmarks/dense_graphs.py [GRAPH ...] [--columns 100,128] [--blocks 8]
     [--out runs/dense]   (a minute or two)
Of each graph, by name or file, ``GRAPH-COLUMNS.npz`` has the same nodes, edges, labels and split,
and for features the first columns of ``U S`` of the singular value decomposition ``U S Vᵀ`` of its
bags of words, as those of ogbn-products were made. ``blocks-8.npz`` is a stochastic block model
with Gaussian features. The same command writes the same numbers, up to the last digits of a sum.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.linalg import svds

import bignn
from bignn.graph import Graph, SparseRows, from_arrays, to_arrays
from bignn.graph.split import random_split

GRAPHS = ("amazon-computers", "amazon-photo", "coauthor-cs", "coauthor-physics", "pubmed")


def reduced(graph: Graph, most: int) -> NDArray[np.float32]:
    """Return ``U S`` [nodes, most], largest singular value first.

    A pair of singular vectors may change its sign: the largest number of each column is positive.
    """
    x = graph.x
    if isinstance(x, SparseRows):
        matrix = sparse.csr_array((x.values, x.indices, x.indptr), shape=x.shape)
    else:
        matrix = sparse.csr_array(x)
    start = np.random.default_rng(0).standard_normal(min(matrix.shape))
    left, singular, _ = svds(matrix.astype(np.float64), k=most, v0=start)
    order = np.argsort(-singular)
    values = (left * singular)[:, order]
    largest = values[np.abs(values).argmax(axis=0), np.arange(most)]
    return np.asarray(values * np.sign(largest), dtype=np.float32)


def block_model(
    num_columns: int,
    *,
    num_nodes: int = 5000,
    num_classes: int = 8,
    degree: float = 8.0,
    inside: float = 0.5,
    distance: float = 0.8,
) -> Graph:
    """Draw a stochastic block model with Gaussian features.

    Args:
        num_columns: features per node: its class's centre plus standard normal noise.
        num_nodes: nodes.
        num_classes: classes, of equal chance.
        degree: mean number of neighbours.
        inside: share of the edges whose ends have one class; the others have any ends.
        distance: standard deviation of the classes' centres, in each column.

    """
    rng = np.random.default_rng(0)
    y = rng.integers(0, num_classes, num_nodes)
    centres = distance * rng.standard_normal((num_classes, num_columns))
    x = centres[y] + rng.standard_normal((num_nodes, num_columns))
    count = int(num_nodes * degree / 2)
    source, target = rng.integers(0, num_nodes, (2, count))
    by_class = np.argsort(y, kind="stable")
    first = np.searchsorted(y[by_class], np.arange(num_classes + 1))
    same = rng.random(count) < inside
    sizes = np.diff(first)[y[source[same]]]
    target[same] = by_class[first[y[source[same]]] + (rng.random(same.sum()) * sizes).astype(int)]
    pairs = np.unique(np.sort([source, target], axis=0)[:, source != target], axis=1)
    arrays = {
        "x": x.astype(np.float32),
        "edge_index": np.concatenate([pairs, pairs[::-1]], axis=1),
        "y": y,
        **random_split(y, (60, 20, 20)),
    }
    return from_arrays(arrays, name=f"blocks-{num_columns}")


def main() -> None:
    """Write the graphs."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="*", default=list(GRAPHS))
    parser.add_argument("--columns", default="100,128")
    parser.add_argument("--blocks", default="8")
    parser.add_argument("--out", type=Path, default=Path("runs/dense"))
    options = parser.parse_args()
    columns = [int(number) for number in options.columns.split(",") if number]
    for name in options.graphs if columns else ():
        graph = bignn.load(name)
        values = reduced(graph, max(columns))
        kept = {key: array for key, array in to_arrays(graph).items() if not key.startswith("x")}
        for number in columns:
            arrays = {**kept, "x": np.ascontiguousarray(values[:, :number])}
            path = options.out / f"{Path(name).stem}-{number}.npz"
            bignn.save(from_arrays(arrays, name=path.stem), path)
            print(path)
    for number in (int(number) for number in options.blocks.split(",") if number):
        path = options.out / f"blocks-{number}.npz"
        bignn.save(block_model(number), path)
        print(path)


if __name__ == "__main__":
    main()
