"""Packed models of several depths with graphs for them, and what must hold of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model

import bignn
from bignn import InputError, PackedGraph, PackedModel, pack_graph
from bignn.kernels.layer import SparseBits
from bignn.runtime import Output

NODES = 60
OUTPUTS: tuple[Output, ...] = ("classes", "logits", "probabilities")


def as_floats(model: PackedModel) -> PackedModel:
    """The same model with its last weight as floats, so that nothing of it runs packed."""
    operations = [dict(step) for step in model.operations]
    number = max(n for n, step in enumerate(operations) if step["op"] == "binary_linear")
    name = operations[number].pop("words")
    unused = operations[number].pop("alpha")
    signs = bignn.bits.unpack(model.arrays[name], model.network.layers[-1].num_inputs)
    weight = signs * model.arrays[unused][:, None]
    operations[number] |= {"op": "linear", "weight": name}
    arrays = {key: values for key, values in model.arrays.items() if key != unused}
    arrays[name] = weight.astype(np.float32)
    return PackedModel(operations, arrays, model.num_features)


@cache
def packed_case(name: str) -> tuple[PackedModel, PackedGraph]:
    """A model and its graph by the number of layers and the form of the features."""
    if name == "floats":  # not all bits
        model = as_floats(make_packed_model([300, 20, 5]))
    else:
        sizes = {"1": [300, 5], "2": [300, 20, 5], "3": [300, 20, 33, 5]}[name[0]]
        model = make_packed_model(sizes, batch_norm=True)
    is_sparse = name in ("2 sparse", "3 sparse", "floats")
    graph = pack_graph(make_graph(NODES, 300, like_words=is_sparse), like=model)
    assert isinstance(graph.features, SparseBits) == is_sparse
    return model, graph


#: Runs a test with every name that :func:`packed_case` takes.
for_each_case = pytest.mark.parametrize(
    "case", ["1 dense", "2 sparse", "3 dense", "3 sparse", "floats"]
)


def refused(call: Callable[[], Any], match: str) -> None:
    """The call is refused in one line."""
    with pytest.raises(InputError, match=match) as error:
        call()
    assert "\n" not in str(error.value)
