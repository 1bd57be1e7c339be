"""Models of the whole family as lists of operations, made without torch, and what formulas say
in float64 with dense matrices.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn import Graph, PackedModel, bits

Arrays = dict[str, NDArray[Any]]
Doubles = NDArray[np.float64]

SIZES = (70, 36, 36, 5)


class Writer:
    """Collects operations and their arrays."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.operations: list[dict[str, Any]] = []
        self.arrays: Arrays = {}

    def floats(self, *shape: int) -> NDArray[np.float32]:
        return self.rng.standard_normal(shape).astype(np.float32)

    def add(self, op: str, *values: str, **parameters: Any) -> str:
        number = len(self.operations)
        step: dict[str, Any] = {"op": op, "in": list(values), "out": f"v{number}"}
        for key, value in parameters.items():
            if isinstance(value, np.ndarray):
                step[key] = f"{number}.{key}"
                self.arrays[step[key]] = value
            else:
                step[key] = value
        self.operations.append(step)
        return f"v{number}"

    def binary_linear(self, value: str, inputs: int, outputs: int) -> str:
        alpha = (0.5 + self.floats(outputs) ** 2) / np.float32(inputs**0.5)
        words = bits.pack(self.floats(outputs, inputs))
        return self.add("binary_linear", value, words=words, alpha=alpha)

    def linear(self, value: str, inputs: int, outputs: int) -> str:
        return self.add("linear", value, weight=self.floats(outputs, inputs) / np.float32(6))

    def bias(self, value: str, width: int) -> str:
        return self.add("bias", value, bias=self.floats(width) / np.float32(9))

    def batch_norm(self, value: str, width: int) -> str:
        mean, scale = self.floats(width) / np.float32(9), 1 + self.floats(width) ** 2
        return self.add("batch_norm", value, mean=mean, scale=scale)

    def convolution(self, kind: str, value: str, inputs: int, outputs: int, edge_bits: int) -> str:
        if kind == "gat" or kind == "gat mean":
            heads = 3 if kind == "gat mean" else 2
            columns = outputs * heads if kind == "gat mean" else outputs
            z = self.binary_linear(value, inputs, columns)
            vectors = [self.floats(heads, columns // heads) / np.float32(4) for _ in range(2)]
            return self.add(
                "attention", z, att_src=vectors[0], att_dst=vectors[1], concat=kind == "gat",
                negative_slope=0.2, edge_bits=edge_bits,
            )  # fmt: skip
        aggr = {"sage": "mean", "mean-gcn": "mean_self"}.get(kind, kind)
        z = self.binary_linear(value, inputs, outputs)
        out = self.add("aggregate", z, aggr=aggr, edge_bits=edge_bits)
        if kind == "sage":
            out = self.add("add", out, self.binary_linear(value, inputs, outputs))
        return out

    def model(self, num_features: int = SIZES[0]) -> PackedModel:
        return PackedModel(self.operations, self.arrays, num_features)


def make_chain(
    kinds: list[str], seed: int = 0, *, batch_norm: bool = True, edge_bits: int | None = None
) -> PackedModel:
    """Binary convolutions of these kinds; with ``edge_bits``, as trained with so many."""
    writer = Writer(seed)
    value = "x"
    sizes = [*SIZES[: len(kinds)], SIZES[-1]]
    for number, kind in enumerate(kinds):
        value = writer.add("binarize", value)
        last = number == len(kinds) - 1
        inputs, outputs = sizes[number], sizes[number + 1]
        if last and kind == "gat":
            kind = "gat mean"
        of_edges = (20 if last else 17) if edge_bits is None else edge_bits
        value = writer.convolution(kind, value, inputs, outputs, of_edges)
        value = writer.bias(value, outputs)
        if batch_norm and not last:
            value = writer.batch_norm(value, outputs)
    return writer.model()


def make_jumping(kind: str, seed: int = 0, *, binary_head: bool) -> PackedModel:
    """Two convolutions and a map of both their outputs."""
    writer = Writer(seed)
    value, width = "x", 36
    hidden: list[str] = []
    binarized: list[str] = []
    for number in range(2):
        value = writer.add("binarize", value)
        binarized.append(value)
        value = writer.convolution(kind, value, SIZES[number], width, 17)
        value = writer.batch_norm(writer.bias(value, width), width)
        hidden.append(value)
    if binary_head:
        parts = [binarized[1], writer.add("binarize", hidden[1])]
        value = writer.add("add", *[writer.binary_linear(part, width, 5) for part in parts])
    else:
        value = writer.linear(writer.add("concat", *hidden), 2 * width, 5)
    writer.bias(value, 5)
    return writer.model()


def make_gin(seed: int = 0) -> PackedModel:
    """Sums of floats, then a binary perceptron; twice."""
    writer = Writer(seed)
    value, width = "x", SIZES[0]
    for outputs in (24, 5):
        sums = writer.add("aggregate", value, aggr="sum", edge_bits=17)
        value = writer.add("add", sums, writer.add("scale", value, factor=1.25))
        value = writer.binary_linear(writer.add("binarize", value), width, 20)
        value = writer.batch_norm(value, 20)
        value = writer.binary_linear(writer.add("binarize", value), 20, outputs)
        value = writer.bias(value, outputs)  # no sums of 0, whose sign is the rounding's
        width = outputs
    return writer.model()


def make_floats(kind: str, seed: int = 0) -> PackedModel:
    """Float models: "sgc", "sage", "gat"."""
    writer = Writer(seed)
    value = writer.add("normalize_rows", "x")
    if kind == "sgc":
        for _ in range(3):
            value = writer.add("aggregate", value, aggr="gcn", edge_bits=17)
        writer.bias(writer.linear(value, SIZES[0], 5), 5)
        return writer.model()
    for inputs, outputs in ((SIZES[0], 12), (12, 5)):
        z = writer.linear(value, inputs, outputs)
        if kind == "gat":
            heads = 3 if outputs == 12 else 5
            vectors = [writer.floats(heads, outputs // heads) for _ in range(2)]
            out = writer.add(
                "attention", z, att_src=vectors[0], att_dst=vectors[1], concat=True,
                negative_slope=0.1, edge_bits=17,
            )  # fmt: skip
        else:
            out = writer.add("aggregate", z, aggr="mean", edge_bits=17)
            out = writer.add("add", out, writer.linear(value, inputs, outputs))
        value = writer.add("elu" if kind == "gat" else "relu", out)
    return writer.model()


# --- In float64 --------------------------------------------------------------------------------


def plain_matrix(graph: Graph) -> Doubles:
    """How often j is a neighbour of i."""
    matrix = np.zeros((graph.num_nodes, graph.num_nodes))
    np.add.at(matrix, (graph.edge_index[1], graph.edge_index[0]), 1)
    return matrix


def formula(model: PackedModel, graph: Graph) -> Doubles:
    """The model's logits by its operations, in float64."""
    plain = plain_matrix(graph)
    looped = plain.copy()
    np.fill_diagonal(looped, 1)
    degree = looped.sum(axis=1)
    matrices = {
        "gcn": looped / np.sqrt(np.outer(degree, degree)),
        "mean_self": looped / degree[:, None],
        "mean": plain / np.maximum(plain.sum(axis=1), 1)[:, None],
        "sum": plain,
    }
    values: dict[str, Doubles] = {"x": graph.dense_x().astype(np.float64)}
    for step in model.operations:
        taken = [values[name] for name in step["in"]]
        x = taken[0]
        given = {
            key: model.arrays[name]
            for key, name in step.items()
            if isinstance(name, str) and name in model.arrays
        }
        match step["op"]:
            case "normalize_rows":
                out = x / np.maximum(np.abs(x).sum(axis=1, keepdims=True), 1e-300)
            case "binarize":
                out = np.where(x >= 0, 1, -1) * np.abs(x).mean(axis=1, keepdims=True)
            case "binary_linear":
                out = x @ bits.unpack(given["words"], x.shape[1]).T.astype(float) * given["alpha"]
            case "linear":
                out = x @ given["weight"].T.astype(float)
            case "aggregate":
                out = matrices[step["aggr"]] @ x
            case "attention":
                out = _attention(step, given, looped, x)
            case "add":
                out = np.sum(taken, axis=0)
            case "concat":
                out = np.concatenate(taken, axis=1)
            case "bias":
                out = x + given["bias"]
            case "batch_norm":
                out = (x - given["mean"]) * given["scale"]
            case "scale":
                out = x * step["factor"]
            case "relu":
                out = np.maximum(x, 0)
            case _:
                assert step["op"] == "elu"
                out = np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1)
        values[step["out"]] = out
    return values[model.operations[-1]["out"]]


def _attention(step: dict[str, Any], given: Arrays, looped: Doubles, x: Doubles) -> Doubles:
    parts = []
    heads, channels = given["att_src"].shape
    for head in range(heads):
        z = x[:, head * channels : (head + 1) * channels]
        scores = (z @ given["att_dst"][head])[:, None] + (z @ given["att_src"][head])[None]
        scores = np.where(scores >= 0, scores, step["negative_slope"] * scores)
        shares = looped * np.exp(scores - scores.max(axis=1, keepdims=True))
        parts.append(shares / shares.sum(axis=1, keepdims=True) @ z)
    return np.concatenate(parts, axis=1) if step["concat"] else np.mean(parts, axis=0)
