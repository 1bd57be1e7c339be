"""Ctrl-C ends a long prediction, which runs in native code, and leaves the model usable."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bignn.kernels import native

# 120 layers of 2048 x 2048 bits for 20,000 nodes are 1e13 products of bits, minutes at the least; a
# piece, which is finished before the end, is at most an eighth of a layer.
CODE = """
import signal
import numpy as np
from bignn import PackedGraph, PackedModel
from bignn.kernels.layer import DenseBits

# A shell that starts tests in the background has its children ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

WIDTH, NODES, LAYERS = 2048, 20_000, 120
rng = np.random.default_rng(0)
arrays = {
    "words": rng.integers(0, 2**64, (WIDTH, WIDTH // 64), dtype=np.uint64),
    "alpha": np.full(WIDTH, 0.01, dtype=np.float32),
}
steps = []
for layer in range(LAYERS):
    steps += [
        {"op": "binarize"},
        {"op": "binary_linear", "words": "words", "alpha": "alpha"},
        {"op": "aggregate", "aggr": "gcn", "edge_bits": 17},
    ]
for number, step in enumerate(steps):
    step |= {"in": [f"v{number - 1}" if number else "x"], "out": f"v{number}"}
model = PackedModel(steps, arrays, WIDTH)
words = rng.integers(0, 2**64, (NODES, WIDTH // 64), dtype=np.uint64)
ones = np.ones(NODES, dtype=np.float32)

def graph_of(nodes):
    return PackedGraph(
        DenseBits(words[:nodes]), WIDTH, ones[:nodes], np.arange(nodes + 1),
        np.arange(nodes, dtype=np.int32), None, ones[:nodes], model.input_digest,
    )

one, many = graph_of(1), graph_of(NODES)
expected = model.predict(one, plan="T", backend="portable")  # makes what it needs of the weights
print("start", flush=True)
try:
    model.predict(many, plan="T", backend="portable")
except KeyboardInterrupt:
    again = model.predict(one, plan="T", backend="portable")
    print("interrupted", np.array_equal(again, expected), flush=True)
    raise
print("finished", flush=True)
"""


def cpu_seconds(process: int) -> float:
    """Time that a process has been computing, however busy the machine is."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(not native.is_available(), reason="Python code is interrupted by itself")
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the test reads Linux's /proc")
@pytest.mark.parametrize("threads", ["1", "2"])
def test_ctrl_c_ends_a_prediction(threads: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CODE],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": threads},
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "start\n"
        # After half a second of work it is in native code, where it would be for minutes.
        began = cpu_seconds(child.pid)
        while cpu_seconds(child.pid) < began + 0.5:
            time.sleep(0.05)
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
    assert out == "interrupted True\n"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    # The innermost call is native code's: Python code around it would have been interrupted anyway.
    assert "self._native.run_to_classes(" in errors.rstrip().splitlines()[-2], errors
    assert child.returncode == -signal.SIGINT
