"""A binary layer in NumPy: what every native way must give, to the last bit."""

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words
from bignn.kernels import attention, reference
from bignn.kernels.attention import Attention
from bignn.kernels.operands import Edges, Floats, Weights


def layer_values(weights: Weights, edges: Edges, words: Words, factor: Floats) -> Floats:
    """A layer's rows [rows, outputs] from all sources' bits and their β times norm."""
    dots = reference.xnor_matmul(words, weights.words, weights.num_inputs)
    if weights.attention is not None:
        return _attention_values(weights, weights.attention, edges, words, factor, dots)
    q, row_scale = reference.quantize(
        edges.offsets, edges.ids, edges.weights, factor, edges.target_factor, weights.edge_bits
    )
    sums = reference.gather(dots, edges.offsets, edges.ids, q).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # as in the native code
        h = sums * row_scale[:, None] * weights.scale
        if weights.own is not None:
            own = np.arange(edges.num_rows) if edges.own is None else edges.own
            products = reference.xnor_matmul(words[own], weights.own.words, weights.num_inputs)
            h = h + products.astype(np.float32) * factor[own, None] * weights.own.scale
        return h + weights.shift


def _attention_values(
    weights: Weights,
    scored: Attention,
    edges: Edges,
    words: Words,
    factor: Floats,
    dots: NDArray[np.int32],
) -> Floats:
    scores = attention.scores(scored, words, weights.num_inputs, factor)
    parts: list[Floats] = []
    columns = np.split(np.arange(weights.num_columns), scored.heads)
    for head in range(scored.heads):
        x, share = attention.weights(
            scored, head, scores, edges.offsets, edges.ids, edges.own, factor
        )
        q, row_scale = reference.quantize_rows(edges.offsets, x, share, weights.edge_bits)
        sums = reference.gather(dots[:, columns[head]], edges.offsets, edges.ids, q)
        with np.errstate(over="ignore", invalid="ignore"):
            parts.append(sums.astype(np.float32) * row_scale[:, None])
    with np.errstate(over="ignore", invalid="ignore"):
        if not scored.averages:
            return np.concatenate(parts, axis=1) * scored.end_scale + weights.shift
        h = parts[0] * weights.scale[columns[0]]
        for part, of_head in zip(parts[1:], columns[1:], strict=True):
            h = h + part * weights.scale[of_head]
        return h * scored.end_scale + weights.shift
