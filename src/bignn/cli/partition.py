"""The command ``bignn partition``."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any, get_args

from bignn.cli.command import Report, add_dataset, command
from bignn.errors import counted
from bignn.runtime.parts.assignment import By

if TYPE_CHECKING:
    from bignn.runtime.parts.graph_part import PartSizes

#: Seconds from which on every part that is written gets a line.
_REPORT_AFTER = 3.0


def add_partition(commands: Any) -> None:
    """Add ``bignn partition``."""
    parser = command(
        commands,
        "partition",
        _partition,
        "Cut a graph into parts, one for each of several processes (torchrun) or machines.",
    )
    add = parser.add_argument
    add_dataset(add, ", or the folder of a store (see 'bignn pack-features')")
    add("-k", "--num-parts", type=int, required=True, metavar="K",
        help="number of parts, one per process")  # fmt: skip
    add("-o", "--out", required=True, metavar="DIR", help="folder for the parts (part-0.bigpart, "
        "...); a machine needs the parts of its own processes only")  # fmt: skip
    add("--by", choices=get_args(By), default="auto", help="metis: cut few edges (needs pymetis); "
        "ranges: as nodes are numbered; auto: metis where it is installed, up to 200 million "
        "edges, and ranges for a store (default: auto)")  # fmt: skip


def _partition(options: argparse.Namespace) -> Report:
    from bignn.graph import load
    from bignn.runtime.parts.part_files import part_path, write_parts
    from bignn.runtime.parts.store_parts import write_store_parts
    from bignn.runtime.store import is_store

    start = time.perf_counter()
    parts = []

    def report(part: PartSizes) -> None:
        path = part_path(options.out, part.number)
        parts.append({**part._asdict(), "bytes": path.stat().st_size})
        if time.perf_counter() - start > _REPORT_AFTER:
            print(f"wrote part {part.number}", file=sys.stderr, flush=True)

    given = options.num_parts, options.out, options.by, report
    if is_store(options.dataset):
        partition = write_store_parts(options.dataset, *given)
    else:
        graph = load(options.dataset)
        if graph.node_names is not None:
            print("note: parts have no names of nodes; predictions are by number, in the order of "
                  "the graph's node_names", file=sys.stderr, flush=True)  # fmt: skip
        start = time.perf_counter()
        partition = write_parts(graph, *given)
    return {
        "dataset": options.dataset,
        "out": options.out,
        "by": partition.by,
        "num_nodes": partition.num_nodes,
        "num_edges": partition.num_edges,
        "cut_edges": partition.num_cut,
        "halo_rows": partition.num_halo,
        "digest": partition.digest,
        "seconds": time.perf_counter() - start,
        "parts": parts,
    }, _describe


def _describe(report: dict[str, Any]) -> str:
    edges = max(report["num_edges"], 1)
    lines = [
        f"{report['num_nodes']:,} nodes in {counted(len(report['parts']), 'part')} by "
        f"{report['by']}, "
        f"{report['cut_edges']:,} of {report['num_edges']:,} edges between parts "
        f"({100 * report['cut_edges'] / edges:.1f} %), in {report['seconds']:.1f} s"
    ]
    lines += [
        f"  part {number}: {part['nodes']:,} nodes, {part['edges']:,} edges, {part['halo']:,} rows "
        f"of other parts, {part['bytes']:,} bytes"
        for number, part in enumerate(report["parts"])
    ]
    return "\n".join([*lines, f"wrote {report['out']}"])
