"""Networks that are not all bits (GCN, Bi-GCN-F, Bi-GCN-W), in NumPy: what is float stays float."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.kernels.layers import DenseBits, Edges, Features, SparseBits
from bignn.runtime.operations import Convolution

Floats = NDArray[np.float32]

# Neighbours are summed in blocks of about this many numbers.
_BLOCK_VALUES = 1 << 22


def run(
    convolutions: Sequence[Convolution],
    edges: Sequence[Edges],
    norms: Sequence[Floats],
    features: Features | Floats,
    beta: Floats | None,
) -> Floats:
    """The last layer's values.

    Args:
        convolutions: the layers.
        edges: of each layer.
        norms: factor of each layer's sources.
        features: the first layer's input, as bits with ``beta`` or as floats.
        beta: scales of bits.

    """
    h: Floats
    if isinstance(features, DenseBits | SparseBits):
        assert beta is not None
        words = (features.dense() if isinstance(features, SparseBits) else features).words
        h = bits.unpack(words, convolutions[0].num_inputs) * beta[:, None]
    else:
        h = features
    for number, (convolution, block, norm) in enumerate(
        zip(convolutions, edges, norms, strict=True)
    ):
        if convolution.binarize and number > 0:
            h = np.where(h >= 0, np.float32(1), np.float32(-1)) * np.abs(h).mean(
                axis=1, keepdims=True
            )
        z = h @ _weight(convolution).T
        if convolution.alpha is not None:
            z *= convolution.alpha
        h = _aggregate(z, block, norm) + convolution.bias
        if convolution.mean is not None and convolution.scale is not None:
            h = (h - convolution.mean) * convolution.scale
        if convolution.relu:
            h = np.maximum(h, 0)
    return h


def _weight(convolution: Convolution) -> Floats:
    if convolution.alpha is None:
        return convolution.weight  # type: ignore[return-value]
    return bits.unpack(convolution.weight, convolution.num_inputs).astype(np.float32)  # type: ignore[arg-type]


def _aggregate(z: Floats, edges: Edges, norm: Floats) -> Floats:
    z = z * norm[:, None]
    out = np.zeros((edges.num_rows, z.shape[1]), dtype=np.float32)
    per_row = max(1, len(edges.ids) // max(1, edges.num_rows)) * z.shape[1]
    size = max(1, _BLOCK_VALUES // per_row)
    for start in range(0, edges.num_rows, size):
        block = edges.rows(start, min(start + size, edges.num_rows))
        terms = z[block.ids]
        if block.weights is not None:
            terms *= block.weights[:, None]
        filled = np.flatnonzero(np.diff(block.offsets))  # reduceat cannot sum nothing
        if filled.size:
            sums = np.add.reduceat(terms, block.offsets[filled], axis=0)
            out[start + filled] = sums
    return out * edges.target_factor[:, None]
