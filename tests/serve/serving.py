"""Graphs and models to serve, and a service in a process of its own."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conftest import make_graph, make_packed_model

from bignn import PackedModel, pack_graph
from bignn.graph import Graph

NUM_FEATURES = 300
NUM_NODES = 60


def some_model() -> PackedModel:
    return make_packed_model([NUM_FEATURES, 20, 5])


def some_graph() -> Graph:
    return make_graph(NUM_NODES, NUM_FEATURES, like_words=True)


def write_files(folder: Path) -> tuple[str, str]:
    """A model and a graph packed for it, as files."""
    model = some_model()
    model.save(folder / "m.bignn")
    pack_graph(some_graph(), like=model).save(folder / "g.bigraph")
    return str(folder / "m.bignn"), str(folder / "g.bigraph")


@dataclass
class Served:
    """A running ``bignn serve``."""

    process: subprocess.Popen[str]
    report: dict[str, Any]

    @property
    def port(self) -> int:
        return int(self.report["url"].rpartition(":")[2])

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, path: str, body: Any = None) -> tuple[int, Any]:
        """One request on a connection of its own: the status and the JSON document."""
        connection = self.connect()
        try:
            headers = {} if body is None else {"Content-Type": "application/json"}
            sent = None if body is None else json.dumps(body)
            connection.request("GET" if body is None else "POST", path, sent, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()


@contextmanager
def serve(*arguments: str) -> Iterator[Served]:
    """Run ``bignn serve`` on a free port until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bignn", "serve", *arguments, "--port", "0", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        yield Served(process, json.loads(line))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()
