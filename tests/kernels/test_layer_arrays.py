"""Arrays that do not fit never reach native code."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from layer_problems import make_problem, misaligned

from bignn import _native

PROBLEM = make_problem(3, [65, 40, 7], [[2] * 9, [3] * 9], 9, weighted=True)
LAYER, EDGES = PROBLEM.layers[0], PROBLEM.edges[0]
FEATURES: Any = PROBLEM.features
COLUMNS = 40

#: Native objects by name: how each is made, and its arrays.
MAKERS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "weights": (
        lambda **arrays: _native.LayerWeights(
            arrays["words"], 65, arrays["scale"], arrays["shift"], 17
        ),
        {"words": LAYER.words, "scale": LAYER.scale, "shift": LAYER.shift},
    ),
    "own part": (
        lambda **arrays: _native.LayerWeights(
            LAYER.words, 65, LAYER.scale, LAYER.shift, 17, _native.OwnPart(**arrays)
        ),
        {"words": LAYER.words, "scale": LAYER.scale},
    ),
    "attention": (
        lambda **arrays: _native.LayerWeights(
            LAYER.words, 65, LAYER.scale, LAYER.shift, 17, None,
            _native.Attention(2, False, 0.2, **arrays),
        ),
        {
            "values": np.zeros((4, 65), dtype=np.int32),
            "sigma": np.ones(4, dtype=np.float32),
            "end_scale": LAYER.scale,
        },
    ),
    "edges": (
        lambda **arrays: _native.Edges(**arrays, num_sources=9),
        {
            "offsets": EDGES.offsets,
            "ids": EDGES.ids,
            "weights": EDGES.weights,
            "target_factor": EDGES.target_factor,
            "own_ids": np.arange(9, dtype=np.int32),
        },
    ),
    "sparse bits": (
        lambda **arrays: _native.SparseBits(**arrays, num_bits=65),
        {"offsets": FEATURES.offsets, "inputs": FEATURES.inputs, "base": FEATURES.base},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MAKERS)
def test_arrays_that_do_not_fit_are_refused_before_they_are_read(name: str) -> None:
    make, arrays = MAKERS[name]
    make(**arrays)
    for key, values in arrays.items():
        # Nor is a copy made of what is not as it must be: it would be gone when it is read.
        strided = np.repeat(values, 2, axis=-1)[..., ::2]
        for broken in (values[:-1], values.astype(np.float64), strided):
            if key == "offsets" and broken.shape != values.shape:
                continue  # fewer rows, which other arrays have too
            with pytest.raises((ValueError, TypeError)):
                make(**{**arrays, key: broken})
        with pytest.raises(ValueError, match="is not aligned"):
            make(**{**arrays, key: misaligned(values)})


def native_features() -> _native.SparseBits:
    return _native.SparseBits(FEATURES.offsets, FEATURES.inputs, FEATURES.base, 65)


def test_what_does_not_fit_together_is_refused() -> None:
    for edge_bits in (0, 21):
        with pytest.raises(ValueError, match="'edge_bits' is out of range"):
            _native.LayerWeights(LAYER.words, 65, LAYER.scale, LAYER.shift, edge_bits)
    with pytest.raises(ValueError, match="outputs do not fit the columns"):
        _native.LayerWeights(LAYER.words, 65, LAYER.scale, LAYER.shift[:7], 17)
    for bad in (65, -1, 2**31 - 1):
        inputs = FEATURES.inputs.copy()
        inputs[-1] = bad
        with pytest.raises(ValueError, match="'inputs' names bits that do not exist"):
            _native.SparseBits(FEATURES.offsets, inputs, FEATURES.base, 65)
    for name in ("mmx", ""):
        with pytest.raises(ValueError, match=f"no '{name}' kernels"):
            _native.PackedLayers(name, native_features(), PROBLEM.beta)
    with pytest.raises(ValueError, match="'source_factor' has fewer than 9 items"):
        _native.PackedLayers("portable", native_features(), PROBLEM.beta[:8])
    layers = _native.PackedLayers("portable", native_features(), PROBLEM.beta)
    first, second = (layer.native for layer in PROBLEM.layers)
    edges = [block.native for block in PROBLEM.edges]
    for weights, way, line in (
        (second, "T", "layers do not fit each other"),
        (first, "X", "'way' must be T, G or S"),
        (first, "", "'way' must be T, G or S"),
    ):
        with pytest.raises(ValueError, match=line):
            layers.add(weights, edges[0], way, None, False, False)
    layers.add(first, edges[0], "S", None, False, False)
    with pytest.raises(ValueError, match="only a first layer of sparse bits"):
        layers.add(second, edges[1], "S", None, False, False)
    few = make_problem(3, [40, 7], [[1]], 4).edges[0]
    with pytest.raises(ValueError, match="edges do not fit the rows before them"):
        layers.add(second, few.native, "T", None, False, False)


def test_results_have_their_places_checked(instruction_set: str) -> None:
    empty = _native.PackedLayers(instruction_set, native_features(), PROBLEM.beta)
    with pytest.raises(ValueError, match="there are no layers"):
        empty.run_kept()
    layers = PROBLEM.bind("TT", instruction_set)._native
    for classes in (np.empty(9, dtype=np.int32), np.empty(8, dtype=np.int64)):
        with pytest.raises((ValueError, TypeError)):
            layers.run_to_classes(classes)
    for values in (
        np.empty((9, 6), dtype=np.float32),
        np.empty((9, 7), dtype=np.float64),
        np.empty((9, 14), dtype=np.float32)[:, ::2],
    ):
        with pytest.raises((ValueError, TypeError)):
            layers.run_to_values(values)
    with pytest.raises(ValueError, match="run_hidden comes first"):
        layers.run_rows(0, 1, np.empty((1, 7), dtype=np.float32))
    layers.run_hidden()
    for begin, end, rows in ((0, 10, 10), (3, 2, 0), (0, 2, 1)):
        with pytest.raises(ValueError, match="there are no such rows"):
            layers.run_rows(begin, end, np.empty((rows, 7), dtype=np.float32))
    with pytest.raises(ValueError, match="the layer keeps no such thing"):
        layers.kept_values(0)
    with pytest.raises(ValueError, match="no such layer has run"):
        layers.seconds(2)
