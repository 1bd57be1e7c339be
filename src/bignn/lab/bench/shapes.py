"""Published sizes of large graphs, and random graphs of such sizes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn.graph.published_sizes import PUBLISHED_SIZES
from bignn.kernels.compressed_rows import compress_edges


@dataclass(frozen=True)
class Shape:
    """A published graph's sizes, and the paper's widths for it."""

    num_nodes: int
    num_edges: int
    sizes: tuple[int, ...]


def _shape(name: str, *hidden: int, papers_edges: bool = False) -> Shape:
    published = PUBLISHED_SIZES[name]
    edges = published.paper_edges if papers_edges else published.edges
    assert edges is not None
    return Shape(published.nodes, edges, (published.features, *hidden, published.classes))


#: Published nodes, undirected edges and features, with the paper's GCN widths. The paper's Reddit
#: has the edges of GraphSAINT's, a fifth of GraphSAGE's.
SHAPES = {
    "flickr": _shape("flickr", 256),
    "arxiv": _shape("ogbn-arxiv", 256, 256),
    "reddit": _shape("reddit", 256),
    "reddit-saint": _shape("reddit", 256, papers_edges=True),
    "products": _shape("ogbn-products", 512, 512),
}


def skewed_graph(
    num_nodes: int, num_edges: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Make undirected edges, one end uniform, the other with density ~ rank^-0.44, and self-loops.

    Rows have their neighbours in order, as those of packed and of torch's CSR graphs have.
    """
    names = rng.permutation(num_nodes).astype(np.int32)
    uniform = rng.random(num_edges, dtype=np.float32)
    skewed = np.minimum((uniform.astype(np.float64) ** 1.8 * num_nodes), num_nodes - 1)
    a = names[skewed.astype(np.int32)]
    b = rng.integers(0, num_nodes, num_edges, dtype=np.int32)
    b = np.where(a == b, (b + 1) % np.int32(num_nodes), b)  # self-loops are added below
    del uniform, skewed
    loops = np.arange(num_nodes, dtype=np.int32)
    target = np.concatenate([b, a, loops])
    source = np.concatenate([a, b, loops])
    del a, b
    offsets, ids, _ = compress_edges(source, target, None, num_nodes)
    return offsets, ids
