"""The command ``bignn serve``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from bignn.cli.command import add_threads, command, set_threads
from bignn.errors import counted, input_error

#: Flags that bound requests, with the largest value that each may have.
_BOUNDS = {"max_body": 2**20, "max_nodes": 2**31, "max_changes": 2**31, "timeout": 86_400}

#: What the outputs of a model are called, where they are no classes.
_NOUNS = {"labels": ("label",), "label_probabilities": ("label",), "values": ("value",)}


def add_serve(commands: Any) -> None:
    """Add ``bignn serve``."""
    parser = command(
        commands,
        "serve",
        _serve,
        "Answer for the nodes of a graph over HTTP, and update it; needs no torch.",
    )
    add = parser.add_argument
    add("model", help="a .bignn file, or a .biglive file alone")
    add(
        "graph",
        nargs="?",
        help="the name of a dataset, a .npz file, a packed graph (.bigraph) or a live one "
        "(.biglive)",
    )
    add(
        "--live",
        metavar="FILE",
        help="file to keep the graph and its updates in (.biglive): made of the graph at first, "
        "opened instead of it from then on (default: updates are lost at the end)",
    )
    add("--host", default="127.0.0.1", help="address to listen on; whoever can reach it may ask "
        "and update (default: 127.0.0.1, this machine alone)")  # fmt: skip
    add("--port", type=int, default=8000, metavar="N",
        help="port to listen on, 0 for any free one (default: 8000)")  # fmt: skip
    add("--max-body", type=float, default=16, metavar="MIB",
        help="largest body of a request, in MiB (default: 16)")  # fmt: skip
    add("--max-nodes", type=int, default=10_000, metavar="N",
        help="most nodes that a request asks for (default: 10,000)")  # fmt: skip
    add("--max-changes", type=int, default=10_000, metavar="N",
        help="most nodes and edges that an update names (default: 10,000)")  # fmt: skip
    add("--timeout", type=float, default=10, metavar="S",
        help="seconds for a request to arrive (default: 10)")  # fmt: skip
    add_threads(add)


def _serve(options: argparse.Namespace) -> None:
    from bignn.serve.limits import Limits
    from bignn.serve.served_graph import open_served
    from bignn.serve.server import address_of, listen, run
    from bignn.serve.service import Service

    for name, most in _BOUNDS.items():
        if not 0 < (value := getattr(options, name)) <= most:
            raise input_error(name, f"more than 0 and at most {most}", value)
    limits = Limits(
        body_bytes=max(1, int(options.max_body * 2**20)),
        nodes=options.max_nodes,
        changes=options.max_changes,
        seconds=options.timeout,
    )
    set_threads(options.threads)
    with listen(options.host, options.port) as listening:
        graph = open_served(options.model, options.graph, options.live)
        service = Service(graph, limits)

        def ready() -> None:
            report = {
                "url": address_of(listening),
                "num_nodes": service.num_nodes,
                "num_classes": graph.model.num_classes,
                "output": graph.model.output,
                "kept_in": None if graph.path is None else str(graph.path),
                "why_fixed": graph.why_fixed,
            }
            print(json.dumps(report) if options.json else _describe(report), flush=True)

        run(service, listening, ready)


def _describe(report: dict[str, Any]) -> str:
    if report["kept_in"] is not None:
        updates = f"updates are kept in {report['kept_in']}"
    elif report["why_fixed"]:
        updates = report["why_fixed"]
    else:
        updates = "updates are lost at the end; --live FILE keeps them"
    nodes = counted(report["num_nodes"], "node")
    outputs = counted(report["num_classes"], *_NOUNS.get(report["output"], ("class", "classes")))
    return f"{report['url']}: {nodes}, {outputs}; {updates}"
