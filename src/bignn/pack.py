"""A trained module as packed bits: the weights it needs and the features it reads."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bignn import kernels
from bignn.binarize import binarize_weight
from bignn.errors import wrong
from bignn.graph import Graph
from bignn.nn import GCN, BinaryRows

Arrays = dict[str, NDArray[Any]]


def packed_weights(model: GCN) -> Arrays:
    """Per layer: ``words`` (signs of W, a row per output), ``alpha`` and ``bias`` (float32)."""
    if not model.binarization.weights:
        raise wrong("model", "one with binary weights", f"binarize={model.config['binarize']!r}")
    arrays: Arrays = {}
    for layer, conv in enumerate(model.layers):
        signs, alpha = binarize_weight(conv.lin.weight.detach().cpu())
        arrays[f"{layer}.words"] = kernels.pack_rows(signs.numpy())
        arrays[f"{layer}.alpha"] = alpha[:, 0].numpy()
        assert conv.bias is not None
        arrays[f"{layer}.bias"] = conv.bias.detach().cpu().numpy()
    return arrays


def packed_features(model: GCN, graph: Graph) -> Arrays:
    """The graph's features as the model reads them: ``words`` (signs, a row per node), ``beta``."""
    with torch.no_grad():
        rows = copy.deepcopy(model.input_norm).cpu()(torch.from_numpy(graph.dense_x()))
    if not isinstance(rows, BinaryRows):
        raise wrong("model", "one with binary features", f"binarize={model.config['binarize']!r}")
    return {"words": rows.words.numpy().view(np.uint64), "beta": rows.beta[:, 0].numpy()}
