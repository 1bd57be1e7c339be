"""The command ``bignn pack-edges``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, add_threads, command, set_threads


def add_pack_edges(commands: Any) -> None:
    """Add ``bignn pack-edges``."""
    parser = command(
        commands,
        "pack-edges",
        _pack_edges,
        "Pack edges of any number to the compressed rows of a store, by external sort in bounded "
        "memory; continues where it was stopped.",
    )
    add = parser.add_argument
    add("edges", help="a .npy ([edges, 2] or [2, edges]), .parquet, .csv, .tsv or .txt file of "
        "sources and targets, or a folder of such files, read in natural order (part-2 "
        "before part-10)")  # fmt: skip
    add("-o", "--out", required=True, metavar="DIR", help="the store's folder")
    add("--nodes", required=True, type=int, metavar="N", help="number of nodes; ids are 0 to N - 1")
    add("--undirected", action="store_true", help="add the reverse of every edge; repeated edges "
        "become one")  # fmt: skip
    add("--memory", default="1G", metavar="SIZE", help="memory to use, such as 512M or 4G, "
        "at least 64M (default: 1G)")  # fmt: skip
    add_threads(add)


def _pack_edges(options: argparse.Namespace) -> Report:
    from bignn.runtime.store.pack_edges import describe, pack_edges

    if options.threads is not None:
        set_threads(options.threads)
    report = pack_edges(
        options.edges,
        options.out,
        num_nodes=options.nodes,
        undirected=options.undirected,
        memory=options.memory,
    )
    return report, describe
