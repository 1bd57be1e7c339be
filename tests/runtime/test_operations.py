"""Lists of operations: what is understood, and that everything else is refused in one line."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from numpy.typing import NDArray
from packed_family import Writer, make_chain, make_jumping

from bignn import FileError, Graph, PackedModel, pack_graph
from bignn.runtime.network import Network, understand
from bignn.runtime.operations import OPERATIONS

Steps = list[dict[str, Any]]


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return make_packed_model([70, 9, 3], batch_norm=True)


def numbered(steps: Steps) -> Steps:
    """The steps as a chain."""
    for number, step in enumerate(steps):
        step |= {"in": [f"v{number - 1}" if number else "x"], "out": f"v{number}"}
    return steps


def refused(operations: Any, arrays: Any, num_features: Any, match: str) -> None:
    with pytest.raises(FileError, match=match) as error:
        understand(operations, arrays, num_features)
    assert "\n" not in str(error.value)


def place(model: PackedModel, op: str) -> int:
    return next(n for n, step in enumerate(model.operations) if step["op"] == op)


def test_a_binary_chain_is_understood(model: PackedModel) -> None:
    network = understand(model.operations, model.arrays, 70)
    assert isinstance(network, Network)
    assert network.is_binary
    assert network.num_classes == 3
    assert network.input.normalize_rows
    assert network.input.binarize
    assert network.input.mean is not None
    first, last = network.layers
    assert (first.num_inputs, first.num_outputs) == (70, 9)
    assert (last.num_inputs, last.num_outputs) == (9, 3)
    assert (first.aggr, last.aggr) == ("gcn", "gcn")
    assert (first.edge_bits, last.edge_bits) == (17, 20)
    assert network.rest == []
    arrays = model.arrays
    np.testing.assert_allclose(
        first.scale, arrays["layers.0.alpha"] * arrays["norms.0.scale"], rtol=1e-6
    )
    shift = (arrays["layers.0.bias"] - arrays["norms.0.mean"]) * arrays["norms.0.scale"]
    np.testing.assert_allclose(first.shift, shift, rtol=1e-5, atol=1e-6)
    assert np.array_equal(last.shift, arrays["layers.1.bias"])


def test_a_float_chain_is_understood() -> None:
    arrays: dict[str, NDArray[Any]] = {
        "w": np.ones((4, 7), dtype=np.float32),
        "v": np.array([[3], [1]], dtype=np.uint64),
        "a": np.ones(2, dtype=np.float32),
    }
    steps = numbered(
        [
            {"op": "linear", "weight": "w"},
            {"op": "aggregate", "aggr": "gcn", "edge_bits": 17},
            {"op": "relu"},
            {"op": "binary_linear", "words": "v", "alpha": "a"},
            {"op": "aggregate", "aggr": "gcn", "edge_bits": 17},
        ]
    )
    network = understand(steps, arrays, 7)
    assert not network.is_binary
    assert not network.input.binarize
    assert not network.input.normalize_rows
    assert network.input.mean is None
    assert network.layers == []
    assert [getattr(step, "op", "layer") for step in network.rest] == [step["op"] for step in steps]
    assert network.num_classes == 2
    assert network.num_hops == 2


def test_names_of_values_are_free(model: PackedModel) -> None:
    steps = copy.deepcopy(model.operations)
    before = "x"
    for number, step in enumerate(steps):
        step["in"] = [before]
        before = step["out"] = f"anything {number}"
    assert understand(steps, model.arrays, 70).num_classes == 3


def test_the_number_of_features_is_checked(model: PackedModel) -> None:
    numbers: list[Any] = [None, "70", 70.0, 0, -70, 2**31, 10**30, [70], {}, True]
    for number in numbers:
        match = "number of features is missing or out of range"
        refused(model.operations, model.arrays, number, match)
    for number in (69, 71, 128, 64, 2**31 - 1):
        refused(model.operations, model.arrays, number, r"array 'input\.mean' must be float32")


def test_a_word_more_than_the_inputs_fill_is_refused(model: PackedModel) -> None:
    steps = numbered([dict(step) for step in model.operations[2:]])
    refused(
        steps, model.arrays, 64, r"'layers\.0\.words' must be uint64 \[None, 1\], got .*\[9, 2\]"
    )
    refused(steps, model.arrays, 65, "padding bits of a weight are not 0")


def test_what_is_no_list_of_operations_is_refused(model: PackedModel) -> None:
    no_lists: list[Any] = [None, [], {}, "abc", 5, True, {"a": 1}, [{}] * 10_001]
    for operations in no_lists:
        match = "list of operations is missing or too long"
        refused(operations, model.arrays, 70, match)
    no_steps: list[Any] = [None, 5, "relu", [], {}, {"op": None}, {"op": [1]}, {"op": "conv"}]
    for step in no_steps:
        for at in (0, 3, len(model.operations)):
            steps: list[Any] = list(model.operations)
            steps.insert(at, step)
            refused(steps, model.arrays, 70, "is unknown; a newer bignn may know it")


def test_every_operation_has_exactly_its_parameters(model: PackedModel) -> None:
    tried = set()
    for number, step in enumerate(model.operations):
        op = step["op"]
        tried.add(op)
        for key in (*step, "more"):
            if key == "op":
                continue
            steps = copy.deepcopy(model.operations)
            if key == "more":
                steps[number]["more"] = 1
            else:
                del steps[number][key]
            refused(steps, model.arrays, 70, rf"operation '{op}' must have exactly \[.*'op'.*\]")
        for name in OPERATIONS[op].arrays:
            for value in (None, 5, ["input.mean"], {"a": 1}, True):
                steps = copy.deepcopy(model.operations)
                steps[number][name] = value
                refused(steps, model.arrays, 70, rf"operation '{op}' must have exactly")
    assert {"standardize", "binarize", "binary_linear", "aggregate", "bias", "batch_norm"} <= tried


def test_unknown_aggregations_and_edge_bits_are_refused(model: PackedModel) -> None:
    wrong: dict[str, tuple[str, list[Any]]] = {
        "aggr": (r"\['gcn', .*\]", ["median", "", None, 3, ["gcn"], {"gcn": 1}]),
        "edge_bits": (
            r"\[2, .*, 8, 17, 20\]",
            [16, 9, 1, 0, -17, "17", None, True, [17], 17.0, 2**70],
        ),
    }
    for key, (known, values) in wrong.items():
        for value in values:
            steps = changed(model, "aggregate", **{key: value})
            match = rf"'{key}' of 'aggregate' must be one of {known}"
            refused(steps, model.arrays, 70, match)


def test_values_that_are_not_there_are_refused(model: PackedModel) -> None:
    changes: list[tuple[Callable[[Steps], None], str]] = [
        (lambda steps: steps[0].update({"in": ["y"]}), "takes 'y', which no operation before it"),
        (lambda steps: steps[0].update({"in": "x"}), "must be a list of one value"),
        (lambda steps: steps[0].update({"in": []}), "must be a list of one value"),
        (lambda steps: steps[0].update({"in": ["x", "x"]}), "must be a list of one value"),
        (lambda steps: steps[3].update({"in": [None]}), "must be a list of one value"),
        (lambda steps: steps[3].update({"in": None}), "must be a list of one value"),
        (lambda steps: steps[1].update({"in": ["x"]}), "no operation uses value 'v0'"),
        (lambda steps: steps[3].update({"in": ["v3"]}), "takes 'v3', which no operation before"),
        (lambda steps: steps[3].update({"in": ["v7"]}), "takes 'v7', which no operation before"),
        (lambda steps: steps[3].update({"out": "other"}), "takes 'v3', which no operation before"),
        (lambda steps: steps[3].update({"out": 3}), "'out' of 'binary_linear' must be a new name"),
        (lambda steps: steps[3].update({"out": "v1"}), "must be a new name, got 'v1'"),
        (lambda steps: steps[3].update({"out": "x"}), "must be a new name, got 'x'"),
        (lambda steps: steps[-1].update({"out": None}), "must be a new name"),
        (lambda steps: steps.reverse(), "which no operation before it makes"),
    ]
    for change, match in changes:
        steps = copy.deepcopy(model.operations)
        change(steps)
        refused(steps, model.arrays, 70, match)


def test_operations_in_no_order_that_makes_sense_are_refused(model: PackedModel) -> None:
    def with_order(*ops: str) -> Steps:
        known = {step["op"]: step for step in reversed(model.operations)}
        return numbered([dict(known.get(op, {"op": op})) for op in ops])

    cases = [
        (("normalize_rows", "standardize", "binarize"), "does not make the logits"),
        (("binarize", "binary_linear", "aggregate", "bias", "binarize"), "does not make the log"),
        (("binarize", "binarize", "binary_linear"), "'binarize' takes 'v0', which is binary"),
        (("binarize", "relu", "binary_linear"), "'relu' takes 'v0', which is binary"),
        (("binarize", "standardize", "binary_linear"), "'standardize' takes 'v0', which is bin"),
        (("binarize", "normalize_rows", "binary_linear"), "'normalize_rows' takes 'v0', which"),
        (("binary_linear", "standardize"), r"'input\.mean' must be float32 \[9\]"),
    ]
    for ops, match in cases:
        refused(with_order(*ops), model.arrays, 70, match)


def test_every_array_is_wanted_in_its_type_and_shape(model: PackedModel) -> None:
    for name, values in model.arrays.items():
        missing = {key: some for key, some in model.arrays.items() if key != name}
        refused(model.operations, missing, 70, f"array '{name}' is missing")
        other = np.float64 if values.dtype == np.float32 else np.int64
        bad: list[Any] = [
            values.astype(other),
            values.astype(np.float32 if values.dtype == np.uint64 else np.uint64),
            values.astype(values.dtype.newbyteorder()),
            values[None],
            values[..., 0],
            np.concatenate([values, values], axis=-1),
            values[..., :-1],
            np.zeros((), dtype=values.dtype),
        ]
        for some in bad:
            match = r"array '[a-z.0-9]+' must be (float32|uint64) \[.*\], got |has no outputs"
            refused(model.operations, model.arrays | {name: some}, 70, match)


def test_a_layer_needs_outputs(model: PackedModel) -> None:
    none = model.arrays | {
        "layers.1.words": np.empty((0, 1), dtype=np.uint64),
        "layers.1.alpha": np.empty(0, dtype=np.float32),
        "layers.1.bias": np.empty(0, dtype=np.float32),
    }
    refused(model.operations, none, 70, "a layer has no outputs")


def test_numbers_that_are_not_finite_are_refused(model: PackedModel) -> None:
    floats = [name for name, values in model.arrays.items() if values.dtype == np.float32]
    assert len(floats) == 8
    for name in floats:
        for value in (np.nan, np.inf, -np.inf):
            bad = model.arrays[name].copy()
            bad[-1] = value
            match = f"array '{name}' has values that are not finite"
            refused(model.operations, model.arrays | {name: bad}, 70, match)


def test_padding_bits_of_weights_must_be_0(model: PackedModel) -> None:
    for name, bit in (("layers.0.words", 70 - 64), ("layers.0.words", 63), ("layers.1.words", 9)):
        words = model.arrays[name].copy()
        words[-1, -1] |= np.uint64(1 << bit)
        refused(model.operations, model.arrays | {name: words}, 70, "padding bits of a weight")
    words = model.arrays["layers.0.words"] | np.array([0, 0b111111], dtype=np.uint64)
    understand(model.operations, model.arrays | {"layers.0.words": words}, 70)


# --- The family --------------------------------------------------------------------------------


def changed(model: PackedModel, op: str, **change: Any) -> Steps:
    steps = copy.deepcopy(model.operations)
    steps[place(model, op)] |= change
    return steps


def test_layers_are_recognised_by_their_shape() -> None:
    for kinds, aggregations in (
        (["gcn", "sage", "gat"], ["gcn", "mean", "attention"]),
        (["mean-gcn"], ["mean_self"]),
    ):
        network = make_chain(kinds).network
        assert [layer.aggr for layer in network.layers] == aggregations
        assert network.aggregations == set(aggregations)
        assert network.rest == []
    own, attention = (make_chain(["sage", "gat"]).network.layers[n] for n in (0, 1))
    assert own.own is not None
    assert attention.attention is not None
    assert attention.attention.averages
    assert (attention.num_columns, attention.num_outputs, attention.heads) == (15, 5, 3)


def test_layers_stand_anywhere_in_a_model() -> None:
    # Two side by side.
    writer = Writer()
    value = writer.add("binarize", "x")
    one, two = (
        writer.add("aggregate", writer.binary_linear(value, 70, 5), aggr="gcn", edge_bits=17)
        for _ in range(2)
    )
    writer.add("add", one, two)
    network = writer.model().network
    assert network.layers == []
    assert [getattr(step, "op", "layer") for step in network.rest] == ["layer", "layer", "add"]
    assert network.num_hops == 1
    # GIN's sum with the node itself, and one whose product something else reads.
    for reader, is_layer in (("add", True), ("concat", False)):
        writer = Writer()
        product = writer.binary_linear(writer.add("binarize", "x"), 70, 5)
        sums = writer.add("aggregate", product, aggr="sum", edge_bits=17)
        writer.add(reader, sums, writer.add("scale", product, factor=1.5))
        network = writer.model().network
        assert (len(network.layers) == 1) == is_layer
    # A layer whose sum something else reads too.
    writer = Writer()
    value = writer.add("binarize", "x")
    sums = writer.add("aggregate", writer.binary_linear(value, 70, 5), aggr="gcn", edge_bits=17)
    writer.add("add", writer.bias(sums, 5), sums)
    network = writer.model().network
    assert len(network.layers) == 1
    assert [getattr(step, "op", "layer") for step in network.rest] == ["bias", "add"]


def test_raw_features_that_are_read_twice_stay_as_they_are() -> None:
    writer = Writer()
    own = writer.linear("x", 70, 5)
    value = writer.binary_linear(writer.add("binarize", "x"), 70, 5)
    writer.add("add", own, value)
    network = writer.model().network
    assert not network.input.binarize
    assert network.source == "x"


def test_slopes_and_factors_are_numbers_in_their_range() -> None:
    model = make_chain(["gat"])
    slopes: list[Any] = [-0.1, 1.5, float("nan"), float("inf"), "0.2", None, True, 10**400]
    for slope in slopes:
        steps = changed(model, "attention", negative_slope=slope)
        match = r"'negative_slope' of 'attention' must be a number in \[0, 1\]"
        refused(steps, model.arrays, 70, match)
    factors: list[Any] = [float("inf"), float("nan"), None, "1", True, 1e39, 10**400]
    for factor in factors:
        steps = [{"op": "scale", "in": ["x"], "out": "y", "factor": factor}]
        refused(steps, {}, 7, "'factor' of 'scale' must be a number in")


def test_attention_must_fit_its_columns() -> None:
    model = make_chain(["gat", "gat"])
    step = model.operations[place(model, "attention")]
    for name in (step["att_src"], step["att_dst"]):
        values = model.arrays[name]
        for bad in (values[:1], values[:, :-1], values[None], values.ravel(), values[:0]):
            match = r"must be float32 \[|do not fit 36 columns|has no outputs"
            refused(model.operations, model.arrays | {name: bad}, 70, match)
    for concat in (None, 1, 0, "true", [True]):
        steps = changed(model, "attention", concat=concat)
        refused(steps, model.arrays, 70, r"'concat' of 'attention' must be one of \[True, False\]")


def test_attention_out_of_range_is_refused() -> None:
    model = make_chain(["gat"])
    arrays = dict(model.arrays)
    arrays[model.operations[place(model, "attention")]["att_src"]] *= np.float32(1e38)
    arrays[model.operations[place(model, "binary_linear")]["alpha"]] *= np.float32(1e30)
    refused(model.operations, arrays, 70, "attention multiply out of range")


def test_values_that_are_put_together_must_fit() -> None:
    def steps_of(*more: tuple[str, list[str]]) -> Steps:
        writer = Writer()
        writer.linear("x", 70, 5)
        writer.linear("x", 70, 6)
        writer.add("binarize", "x")
        steps = writer.operations
        steps += [{"op": op, "in": names, "out": f"w{n}"} for n, (op, names) in enumerate(more)]
        return steps

    arrays = {"0.weight": np.ones((5, 70), np.float32), "1.weight": np.ones((6, 70), np.float32)}
    for more, match in (
        ([("add", ["v0", "v1"])], "'add' takes values of different widths"),
        ([("add", ["v0"])], "'in' of 'add' must be a list of two or more values"),
        ([("add", ["v0", "v2"])], "'add' takes 'v2', which is binary"),
        ([("concat", ["v0", "v2"])], "'concat' takes 'v2', which is binary"),
        ([("concat", ["v0", "v1"])], "no operation uses value 'v2'"),
        ([("concat", ["v0"] * 1001)], "must be a list of two or more values"),
        ([("concat", ["v0", "w0"])], "takes 'w0', which no operation before it makes"),
        (
            [("concat", ["v0"] * 900), ("concat", ["w0"] * 900)],
            "'concat' makes 4050000 columns, over 65536",
        ),
    ):
        refused(steps_of(*more), arrays, 70, match)


@pytest.mark.parametrize("op", ["add", "multiply", "maximum"])
def test_values_of_one_column_meet_every_column(op: str) -> None:
    graph = make_graph(20, 70)
    writer = Writer()
    parts = [writer.linear("x", 70, width) for width in (1, 1, 5)]
    writer.add(op, *parts)
    model = PackedModel(writer.operations, writer.arrays, 70)
    a, b, c = (graph.dense_x() @ writer.arrays[f"{n}.weight"].T for n in range(3))
    function = {"add": np.add, "multiply": np.multiply, "maximum": np.maximum}[op]
    logits = model.predict(pack_graph(graph, like=model), output="logits")
    assert logits.shape == (20, 5)
    np.testing.assert_allclose(logits, function(function(a, b), c), rtol=1e-4, atol=1e-5)


def test_an_own_part_of_one_column_is_added_to_every_column() -> None:
    graph = make_graph(20, 70)

    def logits(last: str) -> NDArray[np.float32]:
        writer = Writer()
        bits = writer.add("binarize", "x")
        summed = writer.add(
            "aggregate", writer.binary_linear(bits, 70, 5), aggr="sum", edge_bits=20
        )
        writer.add(last, summed, writer.binary_linear(bits, 70, 1))
        model = PackedModel(writer.operations, writer.arrays, 70)
        return model.predict(pack_graph(graph, like=model), output="logits")

    apart = logits("concat")
    np.testing.assert_allclose(logits("add"), apart[:, :5] + apart[:, 5:], rtol=1e-5, atol=1e-5)


def test_the_last_operation_makes_the_logits() -> None:
    model = make_jumping("sage", binary_head=True)
    refused(model.operations[:-2], model.arrays, 70, "no operation uses value")
    more = [*model.operations, {"op": "binarize", "in": [model.operations[-1]["out"]], "out": "b"}]
    refused(more, model.arrays, 70, "the last operation does not make the logits")


@pytest.mark.parametrize("layer", [0, 1])
def test_a_relu_after_a_binary_layer_is_not_forgotten(layer: int) -> None:
    model = make_packed_model([100, 9, 3])
    steps = [dict(step) for step in model.operations]
    at = [number for number, step in enumerate(steps) if step["op"] == "bias"][layer] + 1
    steps.insert(at, {"op": "relu"})
    with_relu = PackedModel(numbered(steps), model.arrays, 100)
    assert with_relu.network.is_binary
    graph = pack_graph(make_graph(40, 100), like=with_relu)
    logits = with_relu.predict(graph, output="logits")
    if layer == 1:
        plain = np.maximum(model.predict(graph, output="logits"), 0)
        np.testing.assert_allclose(logits, plain, rtol=1e-3, atol=1e-4)
        assert (logits == 0).any()
    else:  # behind a ReLU every sign is +1, so that all columns of a row are alike
        assert not np.allclose(logits, model.predict(graph, output="logits"), atol=1e-2)


def test_attention_of_pairs_and_of_dots_must_fit_its_columns() -> None:
    arrays = {"att": np.ones((2, 3), dtype=np.float32)}
    pairs = {"op": "attention_v2", "att": "att", "concat": True, "self_loops": True}
    pairs |= {"negative_slope": 0.2}
    dots = {"op": "attention_dot", "heads": 2, "concat": False}
    assert understand(numbered([pairs]), arrays, 12).num_classes == 6
    assert understand(numbered([pairs | {"concat": False}]), arrays, 12).num_classes == 3
    assert understand(numbered([dots]), {}, 12).num_classes == 2
    refused(numbered([pairs]), arrays, 13, "twice 2 heads of 3 do not fit 13 columns")
    refused(numbered([dots]), {}, 14, "thrice 2 heads do not fit 14 columns")
    refused(numbered([dots | {"heads": 2.0}]), {}, 12, r"thrice 2\.0 heads do not fit")
    refused(numbered([dots | {"heads": 0}]), {}, 12, "'heads' of 'attention_dot' must be a number")
    assert understand(numbered([dots]), {}, 12).aggregations == {"sum"}
    assert understand(numbered([pairs]), arrays, 12).aggregations == {"attention"}


def test_a_norm_that_changes_nothing_leaves_its_argument_as_it_is() -> None:
    operations: Steps = [
        {"op": "linear", "in": ["x"], "out": "a", "weight": "w"},
        {
            "op": "graph_norm",
            "in": ["a"],
            "out": "b",
            "spread": "none",
            "center": False,
            "eps": 0.0,
        },
        {"op": "bias", "in": ["b"], "out": "c", "bias": "ten"},
        {"op": "add", "in": ["a", "c"], "out": "d"},
    ]
    arrays = {"w": np.eye(3, dtype=np.float32), "ten": np.full(3, 10, np.float32)}
    model = PackedModel(operations, arrays, 3)
    graph = Graph(np.ones((2, 3), np.float32), np.array([[0, 1], [1, 0]]))
    assert np.array_equal(model.predict(graph, output="logits"), np.full((2, 3), 12))
