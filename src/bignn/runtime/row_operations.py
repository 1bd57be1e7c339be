"""Operations that compute each row from the same row of what they take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from bignn import bits, kernels
from bignn.errors import InputError
from bignn.kernels import native, reference
from bignn.kernels.edge_rounding import bounded
from bignn.runtime.activations import ACTIVATION_FUNCTIONS, sigmoid
from bignn.runtime.input_stage import absolute_sums, normalized
from bignn.runtime.operations import Operation, encoder_in
from bignn.runtime.values import Bits, Floats, Value, floats_of


def run_on_rows(
    step: Operation, taken: Sequence[Value], backend: str, spare: Floats | None = None
) -> Value:
    """Run an operation.

    Args:
        step: the operation.
        taken: the values it takes.
        backend: backend of products of bits.
        spare: one of the first two values, if it may be overwritten; large arrays cost more to
            allocate than to add.

    """
    first, arrays = taken[0], step.arrays
    if step.op == "binary_linear":
        return _binary_product(step, first, backend)
    if step.op == "binarize":
        return binarized(floats_of(first), backend)
    x = floats_of(first)
    out: Floats
    match step.op:
        case "linear":
            out = x @ arrays["weight"].T
        case "normalize_rows":
            out = normalized(
                x, normalize_rows=True, mean=None, scale=None, absolute_sums=absolute_sums
            )
        case "standardize" | "batch_norm":
            out = (x - arrays["mean"]) * arrays["scale"]
        case "rotate" | "threshold" | "learned":
            out = encoder_in(step).encode(x)
        case "bias":
            out = np.add(x, arrays["bias"], out=spare)
        case "scale":
            out = np.multiply(x, np.float32(step.parameters["factor"]), out=spare)
        case "relu":
            out = np.maximum(x, np.float32(0), out=spare)
        case "elu":
            out = np.where(x > 0, x, np.expm1(np.minimum(x, np.float32(0))))
        case "activation":
            function = ACTIVATION_FUNCTIONS[step.parameters["kind"]]
            out = function(x, np.float32(step.parameters["parameter"]))
        case "prelu":
            out = np.asarray(np.where(x > 0, x, x * arrays["slope"]), dtype=np.float32)
        case "shift":
            out = x + np.float32(step.parameters["amount"])
        case "softmax":
            out = softmax(x)
        case "layer_norm":
            out = _layer_norm(x, **step.parameters)
        case "unit_length":
            out = np.divide(x, np.maximum(lengths(x), np.float32(step.parameters["eps"])))
        case "length":
            out = lengths(x)
        case "embedding":
            out = _embedding(arrays["weight"], x[:, int(step.parameters["column"])])
        case "concat":
            out = np.concatenate([floats_of(value) for value in taken], axis=1)
        case "lstm_attention":
            out = _lstm_attention(arrays, [floats_of(value) for value in taken])
        case _:
            combine = _COMBINATIONS[step.op]
            out = combine(x, floats_of(taken[1]), out=spare)
            for value in taken[2:]:
                fits = out.shape[1] == step.width  # it may be of one column so far
                out = combine(out, floats_of(value), out=out if fits else None)
    return out


_COMBINATIONS: dict[str, np.ufunc] = {
    "add": np.add,
    "multiply": np.multiply,
    "maximum": np.maximum,
}


def softmax(x: Floats) -> Floats:
    """Compute ``exp(x) / Σ exp(x)`` of each row."""
    shares = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))


def lengths(x: Floats) -> Floats:
    """Compute the Euclidean length of each row: [N, d] -> [N, 1]."""
    squares = np.square(x, dtype=np.float64).sum(axis=1, keepdims=True)
    return np.asarray(np.sqrt(squares), dtype=np.float32)


def _layer_norm(x: Floats, *, groups: int, eps: float, center: bool) -> Floats:
    parts = x.reshape(len(x), groups, x.shape[1] // groups)
    if center:
        parts = parts - parts.mean(axis=2, keepdims=True, dtype=np.float64).astype(np.float32)
    squares = np.square(parts, dtype=np.float64).mean(axis=2, keepdims=True)
    made: Floats = (parts / np.sqrt(squares + eps).astype(np.float32)).reshape(x.shape)
    return made


def _embedding(weight: Floats, ids: Floats) -> Floats:
    if ids.size and not (ids.min() >= 0 and ids.max() < len(weight)):
        bad = ids.min() if ids.min() < 0 else ids.max()
        raise InputError(f"the features have id {bad:g}; the model's embedding has {len(weight)}")
    places = ids.astype(np.int64)
    if (places != ids).any():
        bad = ids[places != ids][0]
        raise InputError(f"the features have id {bad:g}; the model's embedding takes whole numbers")
    return weight[places]


def _lstm_attention(arrays: Mapping[str, Floats], layers: list[Floats]) -> Floats:
    """Weigh layers by scores of an LSTM that reads them from both ends, and add them up."""
    hidden = len(arrays["attention"]) // 2
    scores = np.zeros((len(layers[0]), len(layers)), dtype=np.float32)
    order = list(range(len(layers)))
    for prefix, attention, numbers in (
        ("", arrays["attention"][:hidden], order),
        ("reverse_", arrays["attention"][hidden:], order[::-1]),
    ):
        state = cell = np.zeros((len(layers[0]), hidden), dtype=np.float32)
        for number in numbers:
            gates = (
                layers[number] @ arrays[f"{prefix}input_weight"].T
                + state @ arrays[f"{prefix}hidden_weight"].T
                + arrays[f"{prefix}bias"]
            )
            take, forget, new, show = np.split(gates, 4, axis=1)
            cell = sigmoid(forget) * cell + sigmoid(take) * np.tanh(new)
            state = sigmoid(show) * np.tanh(cell)
            scores[:, number] += state @ attention
    shares = softmax(scores)
    out = layers[0] * shares[:, :1]
    for number in order[1:]:
        out = out + layers[number] * shares[:, number : number + 1]
    return out


def binarized(x: Floats, backend: str) -> Bits:
    """Take the signs of rows, and their scales β."""
    if backend == "reference":
        words, beta = reference.binarize(x)
    else:
        words, beta = native.binarize(native.readable(x, np.float32), backend)
    return Bits(words, bounded(beta), x.shape[1])


def _binary_product(step: Operation, value: Value, backend: str) -> Floats:
    words = step.arrays["words"]
    alpha: Floats = step.arrays["alpha"]
    if isinstance(value, Bits):
        dots = kernels.xnor_matmul(value.words, words, step.num_inputs, backend=backend)
        return dots.astype(np.float32) * value.beta[:, None] * alpha
    signs = bits.unpack(words, step.num_inputs).astype(np.float32)
    return np.asarray(value @ signs.T) * alpha
