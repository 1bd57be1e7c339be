"""Time and memory of loading datasets by name, on random raw files of the published sizes.

    python benchmarks/loading.py ogbn-arxiv reddit ogbn-products:0.1

A number after a name scales its nodes and edges. Files are written to a temporary folder; a second
load of an OGB dataset reads the cache the first one left.
"""

from __future__ import annotations

import gzip
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import bignn
from bignn.graph.published_sizes import PUBLISHED_SIZES, PublishedSizes
from bignn.graph.readers import reddit
from bignn.graph.sources import SOURCES


def write_table(file: Path, table: NDArray[Any], cell: str = "%d") -> None:
    """Write a table in .csv.gz, quickly compressed."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(file, "wb", compresslevel=1) as opened:
        np.savetxt(opened, table, fmt=cell, delimiter=",")


def write_ogb(
    folder: Path, files: tuple[str, ...], sizes: PublishedSizes, nodes: int, edges: int
) -> None:
    """OGB's tables; ``files`` in the order of ``bignn.graph.readers.ogb.files``."""
    rng = np.random.default_rng(0)
    ends = np.cumsum([sizes.train, sizes.val]) * nodes // sizes.nodes
    tables = [
        rng.integers(0, nodes, (edges, 2)),
        rng.standard_normal((nodes, sizes.features)),
        rng.integers(0, sizes.classes, (nodes, 1)),
        np.array([[nodes]]),
        np.array([[edges]]),
        *(part[:, None] for part in np.split(rng.permutation(nodes), ends)),
    ]
    for file, table in zip(files, tables, strict=True):
        write_table(folder / file, table, "%.6f" if table.dtype.kind == "f" else "%d")


def write_reddit(folder: Path, sizes: PublishedSizes, nodes: int, edges: int) -> None:
    """Reddit's two archives."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True)
    data, graph = (folder / name for name in reddit.FILES)
    np.savez(
        data,
        feature=rng.standard_normal((nodes, sizes.features), dtype=np.float32),
        label=rng.integers(0, sizes.classes, nodes),
        node_types=rng.permutation(np.arange(nodes) % 3 + 1),
    )
    ends = rng.integers(0, nodes, (2, edges), dtype=np.int32)
    both = np.concatenate([ends, ends[::-1]], axis=1)
    np.savez(graph, row=both[0], col=both[1], shape=np.array([nodes, nodes]))


def measure(name: str, scale: float) -> None:
    """Write, loads twice, prints."""
    sizes = PUBLISHED_SIZES[name]
    nodes, edges = int(sizes.nodes * scale), int(sizes.edges * scale)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BIGNN_DATA"] = folder
        place = Path(folder) / name
        if os.fork() == 0:  # what writing takes is not counted
            if name == "reddit":
                write_reddit(place, sizes, nodes, edges)
            else:
                write_ogb(place, SOURCES[name][0].files, sizes, nodes, edges)
            os._exit(0)
        os.wait()
        for turn in ("first", "second"):
            start = time.perf_counter()
            graph = bignn.load(name)
            seconds = time.perf_counter() - start
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
            print(f"{name} x {scale:g}, {turn} load: {seconds:.1f} s, peak so far {peak:.1f} GB")
            del graph


if __name__ == "__main__":
    for argument in sys.argv[1:] or ["ogbn-arxiv"]:
        dataset, _, factor = argument.partition(":")
        measure(dataset, float(factor or 1))
