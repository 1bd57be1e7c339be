"""Operations after and among packed layers: the same on every backend, for all nodes or some."""

import numpy as np
import pytest
from conftest import make_arrays

import bignn
from bignn import kernels
from bignn.graph.graph import from_arrays
from bignn.kernels import native, reference
from bignn.runtime import PackedModel


def residual_model(aggr: str, widths: tuple[int, int] = (33, 5)) -> PackedModel:
    """Three layers with sums of their results between them, one of a value with itself."""
    rng = np.random.default_rng(0)
    operations: list[dict[str, object]] = []
    arrays: dict[str, np.ndarray] = {}

    def add(op: str, *inputs: str, **parameters: object) -> str:
        out = f"v{len(operations)}"
        for key, given in parameters.items():
            if isinstance(given, np.ndarray):
                arrays[f"{out}.{key}"] = given
                parameters[key] = f"{out}.{key}"
        operations.append({"op": op, "in": list(inputs), "out": out, **parameters})
        return out

    def layer(value: str, inputs: int, outputs: int) -> str:
        signs = rng.choice([-1.0, 1.0], (outputs, inputs)).astype(np.float32)
        alpha = rng.random(outputs, dtype=np.float32)
        product = add("binary_linear", value, words=kernels.pack_rows(signs), alpha=alpha)
        total = add("aggregate", product, aggr=aggr, edge_bits=17)
        if aggr == "sum":
            total = add("add", total, add("scale", product, factor=1.25))
        return add("bias", total, bias=rng.normal(size=outputs).astype(np.float32))

    hidden, classes = widths
    h = layer(add("binarize", "x"), 20, hidden)
    z = layer(add("binarize", h), hidden, hidden)
    h = add("add", h, z)
    y = layer(add("binarize", h), hidden, hidden)
    h = add("add", y, h, y)
    layer(add("binarize", h), hidden, classes)
    return PackedModel(operations, arrays, 20)


@pytest.mark.parametrize("aggr", ["gcn", "mean", "sum"])
def test_layers_after_sums_are_the_same_everywhere(aggr: str) -> None:
    model = residual_model(aggr)
    assert model.network.is_binary
    graph = bignn.pack_graph(from_arrays(make_arrays(num_nodes=90, num_features=20)), like=model)
    expected = model.predict(graph, output="logits", backend="reference")
    some = [5, 89, 5, 0]
    for backend in kernels.available_backends():
        logits = model.predict(graph, output="logits", backend=backend)
        assert np.array_equal(logits, expected)
        few = model.predict(graph, some, output="logits", backend=backend)
        assert np.array_equal(few, expected[some])


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 63, 64, 65, 130])
def test_signs_and_scales_of_rows_are_those_of_the_reference(columns: int) -> None:
    rng = np.random.default_rng(columns)
    for num_rows in (0, 1, 3, 4, 7):
        x = rng.normal(size=(num_rows, columns)).astype(np.float32)
        x[rng.random(x.shape) < 0.1] = -0.0
        words, beta = reference.binarize(x)
        for backend in native.supported():
            made = native.binarize(x, backend)
            assert np.array_equal(made[0], words)
            assert np.array_equal(made[1], beta)
