"""A binary layer in NumPy: the result that every native way must give, to the last bit."""

import numpy as np
from numpy.typing import NDArray

from bignn.bits import Words
from bignn.kernels import attention, reference
from bignn.kernels.attention import Attention
from bignn.kernels.edge_rounding import round_edge_weights, round_row_weights
from bignn.kernels.layer import BinaryLayer, Edges, Floats


def layer_values(layer: BinaryLayer, edges: Edges, words: Words, factor: Floats) -> Floats:
    """Compute a layer's rows [rows, outputs] from the bits and scaled β of all sources."""
    dots = reference.xnor_matmul(words, layer.words, layer.num_inputs)
    if layer.attention is not None:
        return _attention_values(layer, layer.attention, edges, words, factor, dots)
    q, row_scale = round_edge_weights(
        edges.offsets, edges.ids, edges.weights, factor, edges.target_factor, layer.edge_bits
    )
    sums = reference.gather(dots, edges.offsets, edges.ids, q).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # as in the native code
        h = sums * row_scale[:, None] * layer.scale
        if layer.own is not None:
            own = np.arange(edges.num_rows) if edges.own_ids is None else edges.own_ids
            products = reference.xnor_matmul(words[own], layer.own.words, layer.num_inputs)
            h = h + products.astype(np.float32) * factor[own, None] * layer.own.scale
        return h + layer.shift


def _attention_values(
    layer: BinaryLayer,
    scored: Attention,
    edges: Edges,
    words: Words,
    factor: Floats,
    dots: NDArray[np.int32],
) -> Floats:
    scores = attention.scores(scored, words, layer.num_inputs, factor)
    parts: list[Floats] = []
    columns = np.split(np.arange(layer.num_columns), scored.heads)
    for head in range(scored.heads):
        x, share = attention.weights(
            scored, head, scores, edges.offsets, edges.ids, edges.own_ids, factor
        )
        q, row_scale = round_row_weights(edges.offsets, x, share, layer.edge_bits)
        sums = reference.gather(dots[:, columns[head]], edges.offsets, edges.ids, q)
        with np.errstate(over="ignore", invalid="ignore"):
            parts.append(sums.astype(np.float32) * row_scale[:, None])
    with np.errstate(over="ignore", invalid="ignore"):
        if not scored.averages:
            return np.concatenate(parts, axis=1) * scored.end_scale + layer.shift
        h = parts[0] * layer.scale[columns[0]]
        for part, of_head in zip(parts[1:], columns[1:], strict=True):
            h = h + part * layer.scale[of_head]
        return h * scored.end_scale + layer.shift
