"""How many requests does ``bignn serve`` answer? Requests per second, latencies, memory over time.

Run: .venv/bin/python benchmarks/serve.py [--shape arxiv] [--scale 1] [--threads 2] [--seconds 10]
     [--connections 16] [--batch 10] [--minutes 10] [--pause 0] [--live FOLDER] [--client auto]

The graph is a shape of ``bignn bench`` (random, skewed degrees) with an untrained Bi-GCN of the
paper's widths, served by a process of its own. Clients ask for one random node per request:
``wrk`` or, without it, ``hey`` (which asks for the same node every time), or with
``--client python`` one of our own, which is slower than the server. ``apt-get install wrk`` gets
the first. Then the same beside a client that updates without a pause, in batches of ``--batch``
undirected edges that are added and taken away again, each on disk before it is acknowledged; then
new nodes with five edges in both directions, by our own client. ``--minutes`` goes on with all of
this, and prints the server's memory as it goes; ``--pause`` seconds are waited after every update
of these minutes, and twenty times as long after every round of readers, on machines that others use
as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bignn.lab.bench.problems import make_problem

WRK = """
math.randomseed(os.time())
request = function()
  return wrk.format("GET", "/predict?nodes=" .. math.random(0, {last}))
end
"""
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}


class Load(NamedTuple):
    """What a client measured: answers per second, and milliseconds."""

    rate: float
    p50: float
    p99: float
    errors: int

    def __str__(self) -> str:
        told = f", {self.errors} ERRORS" if self.errors else ""
        return f"{self.rate:>8,.0f} requests/s, p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms{told}"


def by_wrk(port: int, num_nodes: int, connections: int, seconds: float) -> Load:
    """Ask for random nodes with wrk."""
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(WRK.format(last=num_nodes - 1))
        script.flush()
        address = f"http://127.0.0.1:{port}"
        told = subprocess.run(
            ["wrk", "-t1", f"-c{connections}", f"-d{round(seconds)}s", "--latency", "-s",
             script.name, address],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    times = {
        percent: float(number) * UNITS[unit]
        for percent, number, unit in re.findall(r"(\d+)%\s+([\d.]+)(us|ms|s)\b", told)
    }
    (rate,) = re.findall(r"Requests/sec:\s+([\d.]+)", told)
    errors = sum(map(int, re.findall(r"Non-2xx or 3xx responses: (\d+)", told)))
    errors += sum(map(int, re.findall(r"(?:connect|read|write|timeout) (\d+)", told)))
    return Load(float(rate), times["50"], times["99"], errors)


def by_hey(port: int, num_nodes: int, connections: int, seconds: float) -> Load:
    """Ask for one node with hey."""
    address = f"http://127.0.0.1:{port}/predict?nodes={num_nodes // 2}"
    told = subprocess.run(
        ["hey", "-z", f"{round(seconds)}s", "-c", str(connections), address],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (rate,) = re.findall(r"Requests/sec:\s+([\d.]+)", told)
    times = dict(re.findall(r"(\d+)%+ in ([\d.]+) secs", told))
    good = sum(map(int, re.findall(r"\[200\]\s+(\d+) responses", told)))
    every = sum(map(int, re.findall(r"\[\d+\]\s+(\d+) responses", told)))
    return Load(float(rate), 1e3 * float(times["50"]), 1e3 * float(times["99"]), every - good)


def by_python(
    port: int, connections: int, seconds: float, request: Callable[[np.random.Generator], bytes]
) -> Load:
    """Send requests from connections that each wait for their answer."""

    async def one(number: int, end: float, times: list[float]) -> int:
        rng = np.random.default_rng(number)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        errors = 0
        while time.perf_counter() < end:
            start = time.perf_counter()
            writer.write(request(rng))
            head = await reader.readuntil(b"\r\n\r\n")
            (length,) = re.findall(rb"content-length: (\d+)", head)
            await reader.readexactly(int(length))
            times.append(1e3 * (time.perf_counter() - start))
            errors += not head.startswith(b"HTTP/1.1 200")
        writer.close()
        return errors

    async def all_of_them() -> Load:
        times: list[float] = []
        end = time.perf_counter() + seconds
        errors = await asyncio.gather(*(one(n, end, times) for n in range(connections)))
        p50, p99 = np.percentile(times, [50, 99])
        return Load(len(times) / seconds, float(p50), float(p99), sum(errors))

    return asyncio.run(all_of_them())


def node_request(num_nodes: int) -> Callable[[np.random.Generator], bytes]:
    """Make requests for one random node."""
    return lambda rng: (
        f"GET /predict?nodes={rng.integers(num_nodes)} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
    )


def new_node_request(num_nodes: int, num_features: int) -> Callable[[np.random.Generator], bytes]:
    """Make requests for a new node with twenty features and five neighbours."""

    def make(rng: np.random.Generator) -> bytes:
        columns = rng.choice(num_features, min(20, num_features), replace=False).tolist()
        others = rng.integers(num_nodes, size=5).tolist()
        new = [-1] * 5
        body = json.dumps({"x": {"columns": [columns]}, "edges": [others + new, new + others]})
        head = "POST /predict_new HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()

    return make


class Updates(threading.Thread):
    """A client that adds edges and takes them away again, one request after the other."""

    def __init__(self, port: int, num_nodes: int, batch: int, pause: float = 0.0) -> None:
        super().__init__()
        self._port, self._num_nodes, self._batch, self._pause = port, num_nodes, batch, pause
        self._stopped = threading.Event()
        self.times: list[float] = []

    def run(self) -> None:
        """Update until :meth:`stop`."""
        rng = np.random.default_rng(0)
        connection = HTTPConnection("127.0.0.1", self._port)
        edges: list[list[int]] = []
        while not self._stopped.is_set():
            if edges:
                body, edges = {"remove_edges": edges}, []
            else:
                one = rng.integers(self._num_nodes, size=self._batch)
                other = (one + 1 + rng.integers(self._num_nodes - 1)) % self._num_nodes
                edges = [np.r_[one, other].tolist(), np.r_[other, one].tolist()]
                body = {"add_edges": edges}
            start = time.perf_counter()
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/update", json.dumps(body), headers)
            response = connection.getresponse()
            told = response.read()
            assert response.status == 200, told
            self.times.append(time.perf_counter() - start)
            self._stopped.wait(self._pause)
        connection.close()

    def stop(self) -> str:
        """End, and describe what was done."""
        self._stopped.set()
        self.join()
        rate, middle = 1 / np.mean(self.times), np.median(self.times)
        return (
            f"{rate:,.0f} updates/s of {self._batch} undirected edges, median {1e3 * middle:.1f} ms"
        )


def metric(port: int, name: str) -> float:
    """Read one number of the server's metrics."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        text = response.read().decode()
    (value,) = re.findall(rf"^{name} (\S+)$", text, re.MULTILINE)
    return float(value)


def processor_seconds(process: int) -> float:
    """Read the processor time that a process has used, on machines that others use as well."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(folder: Path, threads: int) -> Iterator[tuple[int, int]]:
    """Run the server; yields its port and its process."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bignn", "serve", str(folder / "m.bignn"), str(folder / "g.bigraph"),
         "--live", str(folder / "live.biglive"), "--threads", str(threads), "--port", "0",
         "--json"],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        report = json.loads(process.stdout.readline())
        yield int(report["url"].rpartition(":")[2]), process.pid
    finally:
        start = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait()
        print(f"stopped in {time.perf_counter() - start:.1f} s, exit code {process.returncode}")


def main() -> None:
    """Print all lines."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="arxiv")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--live", help="folder for the files (default: a temporary one)")
    parser.add_argument("--client", default="auto", choices=("auto", "wrk", "hey", "python"))
    options = parser.parse_args()
    client = options.client
    if client == "auto":
        client = next((name for name in ("wrk", "hey") if shutil.which(name)), "python")
        if client == "python":
            print("neither wrk nor hey is installed (apt-get install wrk): our own client asks")
    problem = make_problem(options.shape, conv="gcn", scale=options.scale, epochs=0)
    num_nodes, num_features = problem.num_nodes, problem.packed.num_features

    def read(port: int, seconds: float) -> Load:
        if client == "wrk":
            return by_wrk(port, num_nodes, options.connections, seconds)
        if client == "hey":
            return by_hey(port, num_nodes, options.connections, seconds)
        return by_python(port, options.connections, seconds, node_request(num_nodes))

    with tempfile.TemporaryDirectory(dir=options.live) as name:
        folder = Path(name)
        problem.packed.save(folder / "m.bignn")
        problem.packed_graph().save(folder / "g.bigraph")
        with served(folder, options.threads) as (port, process):
            print(
                f"{options.shape}, {num_nodes:,} nodes, {options.threads} threads, {client}, "
                f"{options.connections} connections; "
                f"{metric(port, 'bignn_resident_bytes') / 2**20:.0f} MiB",
                flush=True,
            )
            read(port, 2)  # touches fresh memory
            before = processor_seconds(process)
            found = read(port, options.seconds)
            cost = (processor_seconds(process) - before) / (found.rate * options.seconds)
            print(
                f"single nodes:                {found}; {1e3 * cost:.2f} ms of processor time each",
                flush=True,
            )
            updates = Updates(port, num_nodes, options.batch)
            updates.start()
            found = read(port, options.seconds)
            print(f"single nodes beside updates: {found}; {updates.stop()}", flush=True)
            ask = new_node_request(num_nodes, num_features)
            for connections in (1, options.connections):
                found = by_python(port, connections, options.seconds, ask)
                print(f"new nodes, {connections:>3} connections:   {found}", flush=True)
            if options.minutes:
                watch_memory(port, num_nodes, options, lambda: read(port, 20), ask)


def watch_memory(
    port: int,
    num_nodes: int,
    options: argparse.Namespace,
    read: Callable[[], Load],
    ask: Callable[[np.random.Generator], bytes],
) -> None:
    """Print the server's memory while it is asked and updated."""
    start = time.perf_counter()
    updates = Updates(port, num_nodes, options.batch, options.pause)
    updates.start()
    while (minutes := (time.perf_counter() - start) / 60) < options.minutes:
        found = read()
        by_python(port, 2, 5, ask)
        resident, journal = (
            metric(port, f"bignn_{name}_bytes") / 2**20 for name in ("resident", "journal")
        )
        print(
            f"{minutes:5.1f} min: {resident:6.0f} MiB, journal {journal:.1f} MiB; {found}",
            flush=True,
        )
        time.sleep(20 * options.pause)
    print(f"meanwhile {updates.stop()}; {len(updates.times):,} in all")


if __name__ == "__main__":
    main()
