"""Two hosts with a slow link between them: a graph in parts, halos as bits and as floats.

    sudo python benchmarks/two_hosts.py                        # 100 Mbit/s and 1 Gbit/s
    sudo python benchmarks/two_hosts.py --rates 10gbit --nodes 50000
    sudo python benchmarks/two_hosts.py --cut                  # the link goes down in the middle

The hosts are two network namespaces of this machine, joined by a pair of virtual devices whose rate
``tc`` holds; nothing but their own traffic is touched. Needs root and iproute2. Each runs one
process of ``bignn predict MODEL PARTS``; the graph is a random one of ogbn-arxiv's shape, cut by
ranges, so that nearly all rows are in the other's halo: the hardest case for a link. Bytes are
those that the device counted, headers of TCP and the gathering of the answers included. "floats"
is the same packed model with its halos sent as float32; "float model" is a float GCN of the same
widths in torch, which sends each layer's input too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bignn
from bignn.graph import Graph
from bignn.lab.bench.shapes import SHAPES, skewed_graph
from bignn.nn import GCN
from bignn.runtime.parts.part_files import open_part, write_parts

HOSTS = ("bignn-a", "bignn-b")
ADDRESSES = ("10.231.77.1", "10.231.77.2")
PORT = "29571"


def run(*command: str) -> str:
    """Run a program and return what it prints."""
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def two_hosts(rate: str) -> Iterator[None]:
    """Make two namespaces, joined by a link of a rate; remove them in the end."""
    remove()
    try:
        for host in HOSTS:
            run("ip", "netns", "add", host)
        run("ip", "link", "add", "bgn0", "netns", HOSTS[0], "type", "veth",
            "peer", "name", "bgn0", "netns", HOSTS[1])  # fmt: skip
        for host, address in zip(HOSTS, ADDRESSES, strict=True):
            run("ip", "-n", host, "addr", "add", f"{address}/24", "dev", "bgn0")
            run("ip", "-n", host, "link", "set", "lo", "up")
            run("ip", "-n", host, "link", "set", "bgn0", "up")
            run("tc", "-n", host, "qdisc", "add", "dev", "bgn0", "root", "tbf", "rate", rate,
                "burst", "256kb", "latency", "400ms")  # fmt: skip
        yield
    finally:
        remove()


def remove() -> None:
    """Remove the namespaces, and with them their devices."""
    for host in HOSTS:
        subprocess.run(["ip", "netns", "del", host], check=False, capture_output=True)


def set_link(state: str) -> None:
    """Set both ends of the link "up" or "down"."""
    for host in HOSTS:
        run("ip", "-n", host, "link", "set", "bgn0", state)


def sent_bytes(host: str) -> int:
    """Return the bytes that a host has sent over the link."""
    found = json.loads(run("ip", "-n", host, "-s", "-j", "link", "show", "bgn0"))
    return int(found[0]["stats64"]["tx"]["bytes"])


def start(rank: int, arguments: list[str], folder: Path) -> subprocess.Popen[str]:
    """Start the process of a host."""
    environment = {
        **os.environ,
        **{"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "1"},
        **{"MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "bgn0"},
        **{"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"},
    }
    return subprocess.Popen(
        ["ip", "netns", "exec", HOSTS[rank], sys.executable, *arguments],
        cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def together(arguments: list[str], folder: Path) -> tuple[dict[str, Any], int]:
    """Run a program on both hosts; return the leader's report and the bytes on the link."""
    before = sum(map(sent_bytes, HOSTS))
    processes = [start(rank, arguments, folder) for rank in (0, 1)]
    printed = [process.communicate(timeout=600) for process in processes]
    for process, (_, errors) in zip(processes, printed, strict=True):
        if process.returncode:
            raise SystemExit(errors)
    return json.loads(printed[0][0].splitlines()[-1]), sum(map(sent_bytes, HOSTS)) - before


def make_problem(folder: Path, num_nodes: int) -> None:
    """Write a model and a graph of ogbn-arxiv's shape in two parts."""
    shape = SHAPES["arxiv"]
    rng = np.random.default_rng(0)
    num_edges = shape.num_edges * num_nodes // shape.num_nodes
    offsets, source = skewed_graph(num_nodes, num_edges, rng)
    target = np.repeat(np.arange(num_nodes), np.diff(offsets))
    features, hidden, _, classes = shape.sizes
    x = rng.standard_normal((num_nodes, features), dtype=np.float32)
    graph = Graph(x, np.stack([source.astype(np.int64), target]), name="arxiv-shaped")
    torch.manual_seed(0)
    model = GCN(features, hidden, 3, classes, binarize="both", input_bits="sign",
                normalize_rows=False)  # fmt: skip
    model.fit_input(torch.from_numpy(x))
    bignn.pack(model.eval()).save(folder / "model.bignn")
    write_parts(graph, 2, folder / "parts", "ranges")


def float_model() -> None:
    """Run the float model on this host's part and report, as the command does."""
    from bignn.config import Settings
    from bignn.train.distributed import joined_world
    from bignn.train.parts.part_problem import PartProblem

    features, hidden, _, classes = SHAPES["arxiv"].sizes
    with joined_world("cpu") as world:
        part = open_part("parts", world.rank, world.size)
        labelled = part_with_labels(part)
        model = GCN(features, hidden, 3, classes, normalize_rows=False).eval()
        problem = PartProblem(labelled, None, torch.device("cpu"))
        problem.prepare(model, Settings(), world)
        batch, exchange = problem.trial(), problem.halo.exchange
        world.barrier()
        began, before = time.perf_counter(), exchange.forward.sent
        with torch.no_grad():
            batch.logits(model)
        world.barrier()
        sent = world.totals(exchange.forward.sent - before)[0]
        report = {"seconds": time.perf_counter() - began, "exchange": {"bytes": int(sent)}}
    if world.is_leader:
        print(json.dumps(report))


def part_with_labels(part: Any) -> Any:
    """Give a part labels, which a learning problem asks for."""
    from dataclasses import replace

    count = part.num_nodes
    some = np.arange(1)
    facts = replace(part.partition, num_classes=1)
    y = np.zeros(count, dtype=np.int64)
    return replace(part, partition=facts, y=y, train_idx=some, val_idx=some)


def compare(rates: list[str], folder: Path, rounds: int) -> None:
    """Measure every rate, and print a table."""
    print(
        f"{'link':<10}{'halo':<14}{'seconds':>10}{'waiting':>10}{'payload':>14}{'on the link':>14}"
    )
    for rate in rates:
        with two_hosts(rate):
            for form in ("bits", "floats", "float model"):
                runs = []
                for _ in range(rounds):
                    if form == "float model":
                        arguments = [str(Path(__file__).resolve()), "--float-model"]
                    else:
                        arguments = ["-m", "bignn", "predict", "model.bignn", "parts", "--json",
                                     "--out", f"{form}.npy", "--halo", form]  # fmt: skip
                    runs.append(together(arguments, folder))
                report, wire = min(runs, key=lambda some: float(some[0]["seconds"]))
                waited = report.get("waited_seconds")
                shown = "" if waited is None else f"{waited:.3f}"
                print(f"{rate:<10}{form:<14}{report['seconds']:>10.3f}{shown:>10}"
                      f"{report['exchange']['bytes']:>14,}{wire:>14,}", flush=True)  # fmt: skip
    same = np.array_equal(np.load(folder / "bits.npy"), np.load(folder / "floats.npy"))
    print(f"classes of bits and floats are {'equal' if same else 'DIFFERENT'}")


def cut_link(folder: Path) -> tuple[list[int], list[str], float]:
    """Cut the link while halos are on it; return exit codes, lines, and how long it took."""
    with two_hosts("1mbit"):
        arguments = ["-m", "bignn", "predict", "model.bignn", "parts", "--out", "cut.npy",
                     "--timeout", "5", "--halo", "floats"]  # fmt: skip
        processes = [start(rank, arguments, folder) for rank in (0, 1)]
        while sum(map(sent_bytes, HOSTS)) < 200_000:  # the exchange has begun
            time.sleep(0.1)
            if any(process.poll() is not None for process in processes):
                raise SystemExit("a process ended before the link was cut")
        began = time.monotonic()
        set_link("down")
        told = [process.communicate(timeout=300)[1] for process in processes]
        lines = [line for text in told for line in text.splitlines() if "error: " in line]
        return [process.returncode for process in processes], lines, time.monotonic() - began


def main() -> int:
    """Run the comparison, or one host's part of it."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument(
        "--rates", default="100mbit,1gbit", help="rates of the link, as tc has them"
    )
    parser.add_argument("--nodes", type=int, default=169_343)
    parser.add_argument("--rounds", type=int, default=3, help="the fastest of so many counts")
    parser.add_argument("--cut", action="store_true", help="cut the link instead")
    parser.add_argument("--float-model", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.float_model:
        float_model()
        return 0
    if os.geteuid() != 0:
        raise SystemExit("two_hosts.py makes network namespaces; run it as root")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_problem(folder, 20_000 if options.cut else options.nodes)
        if options.cut:
            codes, lines, seconds = cut_link(folder)
            print(f"exit codes {codes}, {seconds:.1f} s after the cut:", *lines, sep="\n")
            return 0
        compare(options.rates.split(","), folder, options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
