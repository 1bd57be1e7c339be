"""Predicts with the installed bignn, without torch: the classes of Cora on every instruction set.

``python tools/try_installed.py`` ends with an error where the native extension is missing, where it
lacks an instruction set of its architecture, or where backends do not agree.
"""

from __future__ import annotations

import platform
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import bignn
from bignn.cli import main
from bignn.kernels import available_backends, native

#: Some instruction sets that a build for an architecture has, whatever the CPU at hand can run.
EXPECTED = {"x86_64": {"portable", "avx2", "avx512"}}
WIDTHS = (1433, 64, 7)


def random_model() -> bignn.PackedModel:
    """Make a binary GCN for Cora with random weights."""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    steps: list[dict[str, Any]] = []
    for layer, (inputs, outputs) in enumerate(pairwise(WIDTHS)):
        words, alpha = f"words.{layer}", f"alpha.{layer}"
        signs = rng.standard_normal((outputs, inputs), dtype=np.float32)
        arrays |= {words: bignn.bits.pack(signs), alpha: np.ones(outputs, dtype=np.float32)}
        steps += [
            {"op": "binarize"},
            {"op": "binary_linear", "words": words, "alpha": alpha},
            {"op": "aggregate", "aggr": "gcn", "edge_bits": 7},
        ]
    for number, step in enumerate(steps):
        step |= {"in": [f"v{number - 1}" if number else "x"], "out": f"v{number}"}
    return bignn.PackedModel(steps, arrays, WIDTHS[0])


def try_installed() -> None:
    """Predict in Python on every backend, and by the command; all must agree."""
    missing = EXPECTED.get(platform.machine(), {"portable"}) - set(native.INSTRUCTION_SETS)
    assert native.is_available(), native.why_not("portable")
    assert not missing, f"the extension lacks {sorted(missing)}"
    model, graph = random_model(), bignn.load("cora")
    expected = model.predict(graph, output="logits", backend="reference")
    for backend in available_backends():
        found = model.predict(graph, output="logits", backend=backend)
        assert np.array_equal(found, expected), f"{backend} differs from the reference"
    with tempfile.TemporaryDirectory() as folder:
        file, out = Path(folder) / "model.bignn", Path(folder) / "classes.npy"
        model.save(file)
        assert main(["predict", str(file), "cora", "--out", str(out)]) == 0
        assert np.array_equal(np.load(out), expected.argmax(axis=1))
    assert "torch" not in sys.modules
    print(f"{bignn.__file__}: {', '.join(native.INSTRUCTION_SETS)}; all that run here agree")


if __name__ == "__main__":
    try_installed()
