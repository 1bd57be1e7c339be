"""How much slower is a residual Bi-GCN than a plain chain of its layers, at ogbn-arxiv's shape?

Four layers of 256, 169,343 nodes, 1,166,243 random undirected edges, random weights. After a sum a
layer runs by itself, on bits that are made of floats.

Run: .venv/bin/python benchmarks/residual.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import bignn
from bignn.graph.graph import from_arrays
from bignn.lab.bench.timing import measure
from bignn.runtime import PackedModel

NODES, EDGES, FEATURES, HIDDEN, CLASSES, LAYERS = 169_343, 1_166_243, 128, 256, 40, 4


def make_model(rng: np.random.Generator, *, is_residual: bool) -> PackedModel:
    """Make a packed Bi-GCN with random weights."""
    operations: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}

    def add(op: str, *inputs: str, **parameters: Any) -> str:
        operations.append({"op": op, "in": [*inputs], "out": f"v{len(operations)}", **parameters})
        return str(operations[-1]["out"])

    def layer(value: str, inputs: int, outputs: int) -> str:
        name = str(len(arrays))
        signs = rng.choice([-1.0, 1.0], (outputs, inputs)).astype(np.float32)
        arrays[f"{name}.words"] = bignn.bits.pack(signs)
        arrays[f"{name}.alpha"] = np.full(outputs, 0.1, dtype=np.float32)
        bits = add("binarize", value)
        product = add("binary_linear", bits, words=f"{name}.words", alpha=f"{name}.alpha")
        return add("aggregate", product, aggr="gcn", edge_bits=7)

    h = layer("x", FEATURES, HIDDEN)
    for _ in range(LAYERS - 2):
        z = layer(h, HIDDEN, HIDDEN)
        h = add("add", h, z) if is_residual else z
    layer(h, HIDDEN, CLASSES)
    return PackedModel(operations, arrays, FEATURES)


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    ends = rng.integers(0, NODES, (2, EDGES))
    arrays = {
        "x": rng.normal(size=(NODES, FEATURES)).astype(np.float32),
        "edge_index": np.concatenate([ends, ends[::-1]], axis=1),
    }
    chain, residual = (make_model(rng, is_residual=some) for some in (False, True))
    graph = bignn.pack_graph(from_arrays(arrays), like=chain)
    times = measure(
        {"chain": lambda: chain.predict(graph), "residual": lambda: residual.predict(graph)}
    )
    for name, seconds in times.items():
        ratio = seconds.median / times["chain"].median
        print(f"{name:<10} {1e3 * seconds.median:8.1f} ms {ratio:6.2f}x")
