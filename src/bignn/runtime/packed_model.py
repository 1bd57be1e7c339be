"""The packed model: predicts graphs, explains its plan, saves and opens itself."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn import kernels
from bignn.errors import FileError, InputError, input_error
from bignn.graph import Graphs
from bignn.kernels.edge_kinds import WITH_SELF_LOOPS
from bignn.kernels.layer import HIDDEN_EDGE_BITS, Edges, SparseBits
from bignn.kernels.packed_layers import PackedLayers
from bignn.kernels.reference import first_largest
from bignn.runtime import executor, tensors
from bignn.runtime.backends.bound_layers import BoundLayers, RunLayer, run_once
from bignn.runtime.backends.cpu import CpuBackend
from bignn.runtime.features import take_features
from bignn.runtime.neighbourhood import Surroundings
from bignn.runtime.network import understand
from bignn.runtime.operations import FIRST_VERSION_EDGE_BITS
from bignn.runtime.packed_graph import Members, PackedGraph
from bignn.runtime.packings import Packings
from bignn.runtime.planner import Plan
from bignn.runtime.values import Bits, Floats, Value

VERSION = 2
_HEADER = frozenset(["format", "version", "num_features", "operations", "about"])

#: What a prediction gives of each node, or of each graph.
Output = Literal["classes", "probabilities", "labels", "label_probabilities", "logits", "values"]
#: A packed graph, or one that is packed when it is first predicted.
AnyGraph = PackedGraph | Graphs

#: How the names of arrays of weights and of their scales end.
_WEIGHTS = (".weight", "_weight", ".words", ".alpha", ".att_src", ".att_dst")


class ModelSizes(NamedTuple):
    """Bytes of a packed model's arrays.

    Attributes:
        weights: weights as bits or floats, their scales α, attention vectors: what the paper counts
            as model size.
        biases: biases, and means and scales of batch normalisation between layers.
        input: statistics by which features are standardised before their signs are taken.

    """

    weights: int
    biases: int
    input: int


class PackedModel:
    """A trained model as bits, scales and a list of operations; runs without torch.

    Made by :func:`bignn.pack`, or read from a file by :meth:`open`. Predictions of a model with
    binary features and weights are the same to the last bit for any number of threads, instruction
    set, plan, and choice of nodes; what is float in others runs in NumPy, where sums round as they
    come. Several threads may predict at once.

    Attributes:
        operations: the model as data (docs/format.md).
        arrays: the arrays that the operations name.
        num_features: features per node that the model reads.
        about: free-form facts that travel with the model, such as where it was trained.

    """

    def __init__(
        self,
        operations: Sequence[Mapping[str, Any]],
        arrays: Mapping[str, NDArray[Any]],
        num_features: int,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        self.arrays = dict(arrays)
        self.network = understand(operations, self.arrays, num_features)
        self.operations = [dict(step) for step in operations]
        self.num_features = num_features
        self.about = dict(about or {})
        self.input_digest = self.network.input.digest()
        self._cpu = CpuBackend(self.network.layers)
        self._bound_layers = BoundLayers()
        self._packings = Packings(self)

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles and copies go through the model's own bytes, with all the checks of a file.
        return _from_bytes, (tensors.to_bytes(self.arrays, self._header()),)

    @property
    def num_classes(self) -> int:
        """Number of outputs: classes, labels or values."""
        return self.network.num_classes

    @property
    def num_hops(self) -> int:
        """How many hops away a prediction looks, at most."""
        return self.network.num_hops

    @property
    def nbytes(self) -> int:
        """Bytes of the packed arrays: the sum of :attr:`sizes`."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def sizes(self) -> ModelSizes:
        """Bytes of the packed arrays, grouped by purpose."""
        weights = biases = inputs = 0
        for name, array in self.arrays.items():
            if name.startswith("input."):
                inputs += array.nbytes
            elif name.endswith(_WEIGHTS):
                weights += array.nbytes
            else:
                biases += array.nbytes
        return ModelSizes(weights, biases, inputs)

    def predict(
        self,
        graph: AnyGraph,
        nodes: ArrayLike | None = None,
        *,
        output: Output = "classes",
        plan: str | None = None,
        backend: str | None = None,
    ) -> NDArray[Any]:
        """Predict every node, or some; of a model that pools, every graph, or some.

        Args:
            graph: a packed graph (:func:`bignn.pack_graph`), or a :class:`bignn.Graph` or a PyG
                ``Data``, which is packed first; the packing is kept while the graph lives, and made
                anew if any number in the graph has changed. Or many graphs, a PyG ``Batch`` or a
                list, which is packed at every call.
            nodes: ids, in any order, repetitions allowed; only what they depend on is computed.
                None for all nodes. Of a model that pools, numbers of graphs.
            output: ``"classes"`` int64 [n]; ``"probabilities"`` of classes that exclude each other
                (softmax), float32 [n, num_classes]; ``"labels"`` bool, whether each of several
                labels that do not exclude each other is there (a logit over 0), and
                ``"label_probabilities"`` (sigmoid); ``"logits"`` float32, which are the
                ``"values"`` of a regression or an embedding.
            plan: forces ways, see :meth:`explain`; None lets the planner choose.
            backend: a name from ``bignn.kernels.available_backends()``; None for the fastest.

        """
        _check_output(output)
        chosen, packed = kernels.checked_backend(backend), self._packed(graph)
        if nodes is None:
            values = _in_given_order(self._run(packed, output, plan, chosen), self._places(packed))
            return _finished(values, output)
        places = self._places(packed)
        if self.network.is_pooled:
            wanted = _row_ids("nodes", nodes, packed.num_graphs, "numbers of graphs")
        else:
            wanted = _row_ids("nodes", nodes, packed.num_nodes, "node ids")
        if wanted.size == 0:
            if output == "classes":
                return np.empty(0, dtype=np.int64)
            return _finished(np.empty((0, self.num_classes), dtype=np.float32), output)
        rows = wanted if places is None else places[wanted]
        unique, place = np.unique(rows, return_inverse=True)
        values = _finished(self._run_some(packed, unique, output, plan, chosen), output)
        return values[place]

    def score_pairs(
        self, graph: AnyGraph, pairs: ArrayLike, *, backend: str | None = None
    ) -> NDArray[np.float32]:
        """Score pairs of nodes by the dot products of their values: how likely a link is.

        Args:
            graph: as in :meth:`predict`.
            pairs: node ids [2, n], as PyG's ``edge_label_index``; only what these nodes depend on
                is computed.
            backend: as in :meth:`predict`.

        Returns:
            float32 [n]; a sigmoid makes probabilities of them.

        """
        if self.network.is_pooled:
            raise InputError("a model that pools makes values of graphs, which have no links")
        ids = np.asarray(pairs)
        if ids.ndim != 2 or len(ids) != 2:
            raise input_error("pairs", "node ids [2, n]", f"shape {list(ids.shape)}")
        packed = self._packed(graph)
        ids = _row_ids("pairs", ids.reshape(-1), packed.num_nodes, "node ids")
        nodes, place = np.unique(ids, return_inverse=True)
        values = self.predict(packed, nodes, output="values", backend=backend)
        source, target = place.reshape(2, -1)
        scores: NDArray[np.float32] = np.einsum("nd,nd->n", values[source], values[target])
        return scores

    def _places(self, graph: PackedGraph) -> NDArray[np.int64] | None:
        """Return the row of each node; None where rows are in the given order, as of graphs."""
        return None if self.network.is_pooled else graph.places

    def stream(
        self,
        graph: AnyGraph,
        *,
        output: Output = "classes",
        block: int = 65536,
        plan: str | None = None,
        backend: str | None = None,
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Predict all nodes by blocks, ``(slice of nodes, values)``.

        A binary model makes one block of floats at a time, where ``predict`` makes them all.
        """
        _check_output(output)
        if not isinstance(block, int) or block < 1:
            raise input_error("block", "a number of nodes, at least 1", repr(block))
        chosen, packed = kernels.checked_backend(backend), self._packed(graph)
        return self._blocks(packed, output, block, plan, chosen)

    def _blocks(
        self, graph: PackedGraph, output: Output, block: int, plan: str | None, backend: str
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        blocks: Iterator[tuple[int, NDArray[Any]]]
        if self.network.rest:
            values = _in_given_order(self._run(graph, "logits", plan, backend), self._places(graph))
            blocks = ((at, values[at : at + block]) for at in range(0, len(values), block))
        else:
            planned = self._cpu.plan(graph, plan, backend)
            bound = self._cpu.bind(graph, planned, backend, in_given_order=True)
            blocks = bound.run_in_blocks(block)
        for begin, some in blocks:
            classes = first_largest(some) if output == "classes" else some
            yield slice(begin, begin + len(some)), _finished(classes, output)

    def explain(
        self,
        graph: AnyGraph,
        *,
        plan: str | None = None,
        backend: str | None = None,
        measure: bool = True,
    ) -> Plan:
        """Plan how a graph is predicted: each layer's way, and what every way is predicted to cost.

        With ``measure`` each layer's plan also has the time it took. ``plan`` forces ways: one
        letter for all layers or one per layer, ``T`` (transform, then gather), ``G`` (gather bits,
        then transform) or, for a first layer whose bits are stored sparse, ``S``.
        """
        packed = self._packed(graph)
        if not self.network.layers:
            raise InputError(
                "only a model with binary features and weights has ways to choose from and explain"
            )
        chosen = kernels.checked_backend(backend)
        explained = copy.deepcopy(self._cpu.plan(packed, plan, chosen))
        if measure:
            with self._cpu.lent(packed, explained, chosen) as bound:
                for _ in range(2):  # the first touches fresh memory
                    bound.run_kept() if self.network.rest else bound.run_to_classes()
                for number, layer in enumerate(explained.layers):
                    layer.measured = bound.seconds(number)
                    layer.record_bytes = bound.bytes_per_column(number)
        return explained

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PackedModel:
        """Open a ``.bignn`` file that holds a packed model."""
        return tensors.open_as(path, {tensors.MODEL_FORMAT: from_file})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a ``.bignn`` file (docs/format.md)."""
        tensors.check_suffix(path, tensors.MODEL_SUFFIX)
        tensors.write(path, self.arrays, self._header())

    def _header(self) -> dict[str, Any]:
        return {
            "format": tensors.MODEL_FORMAT,
            "version": VERSION,
            "num_features": self.num_features,
            "operations": self.operations,
            "about": self.about,
        }

    def __repr__(self) -> str:
        widths = [layer.num_outputs for layer in self.network.layers]
        if self.network.rest:
            widths.append(self.num_classes)
        sizes = " -> ".join(str(size) for size in (self.num_features, *widths))
        kind = "binary" if self.network.is_binary else "with floats"
        size = self.sizes.weights + self.sizes.biases
        return f"PackedModel({sizes}, {kind}, {size:,} bytes of weights)"

    def _packed(self, graph: AnyGraph) -> PackedGraph:
        """Pack a graph if it is not packed, and refuse one that does not fit the model."""
        packed = graph if isinstance(graph, PackedGraph) else self._packings.of(graph)
        fix = "make it with bignn.pack_graph(graph, like=model)"
        if packed.input_digest != self.input_digest:
            expected, got = "packed with this model's input statistics", "one packed with others"
            raise input_error("graph", expected, got, fix)
        is_bits = not isinstance(packed.features, np.ndarray)
        num_columns = self.network.input.num_columns
        if packed.num_features != num_columns or is_bits != self.network.input.binarize:
            kind = "bits" if self.network.input.binarize else "floats"
            got = f"{packed.num_features} as {'bits' if is_bits else 'floats'}"
            raise input_error("graph", f"one with {num_columns} features as {kind}", got)
        if packed.adjacency == "gcn" and not self.network.aggregations <= {*WITH_SELF_LOOPS}:
            expected, got = "one whose edges are as they were given", "one with self-loops added"
            raise input_error("graph", expected, got, fix)
        return packed

    def _run(
        self, graph: PackedGraph, output: Output, plan: str | None, backend: str
    ) -> NDArray[Any]:
        if not self.network.layers:
            _check_no_plan(plan)
            return self._run_rest(graph, None, None, output, backend)
        planned = self._cpu.plan(graph, plan, backend)
        with self._cpu.lent(graph, planned, backend) as bound:
            return self._run_bound(graph, bound, None, output, backend)

    def _run_some(
        self,
        graph: PackedGraph,
        nodes: NDArray[np.int64],
        output: Output,
        plan: str | None,
        backend: str,
    ) -> NDArray[Any]:
        around = Surroundings(graph, self.network, nodes)
        if not self.network.layers:
            _check_no_plan(plan)
            return self._run_rest(graph, None, around, output, backend)
        bound = self._cpu.bind_around(graph, around, plan, backend)
        return self._run_bound(graph, bound, around, output, backend)

    def _run_bound(
        self,
        graph: PackedGraph,
        bound: PackedLayers,
        around: Surroundings | None,
        output: Output,
        backend: str,
    ) -> NDArray[Any]:
        """Run packed layers and the operations after them."""
        if self.network.rest:
            bound.run_kept()
            return self._run_rest(graph, bound, around, output, backend)
        return bound.run_to_classes() if output == "classes" else bound.run_to_values()

    def _run_rest(
        self,
        graph: PackedGraph,
        bound: PackedLayers | None,
        around: Surroundings | None,
        output: Output,
        backend: str,
    ) -> NDArray[Any]:
        """Run the operations that no packed layer does, for all nodes or some."""
        network = self.network
        values: dict[str, Value] = {}
        if any(network.source in step.inputs for step in network.rest):
            values[network.source] = _input_value(graph, None if around is None else around.first)
        for name, (number, form) in network.kept.items():
            assert bound is not None
            kept = bound.kept(number, form)
            width = network.layers[number].num_outputs
            values[name] = Bits(kept[0], kept[1], width) if form == "bits" else kept

        def edges(aggr: str, taken: str, made: str) -> Edges:
            if around is None:
                return graph.edges(aggr)
            return around.edges(aggr, around.values[taken], around.values[made])

        def members(taken: str, made: str) -> Members:
            if around is None:
                return graph.members()
            return around.members(around.values[taken], around.values[made])

        def run(rows: Mapping[str, NDArray[np.int64]] | None, run_layer: RunLayer) -> Floats:
            return executor.run(network.rest, values, rows, edges, run_layer, backend, members)

        if around is not None:
            logits = run(around.values, run_once(backend))
            return first_largest(logits) if output == "classes" else logits
        with self._bound_layers.lent(graph, backend) as run_layer:
            logits = run(None, run_layer)
            # The next prediction overwrites a layer's values.
            return first_largest(logits) if output == "classes" else np.array(logits)


def _check_output(output: str) -> None:
    if output not in get_args(Output):
        raise input_error("output", f"one of {list(get_args(Output))}", repr(output))


def _check_no_plan(plan: str | None) -> None:
    if plan is not None:
        raise input_error("plan", "None for a model that is not all bits", repr(plan))


def _in_given_order(values: NDArray[Any], places: NDArray[np.int64] | None) -> NDArray[Any]:
    """Put the rows of a graph's nodes back into the order that nodes were given in."""
    return values if places is None else values[places]


def _finished(values: NDArray[Any], output: Output) -> NDArray[Any]:
    if output == "labels":
        return values > 0
    if output == "label_probabilities":
        with np.errstate(over="ignore"):
            values = np.float32(1) / (np.float32(1) + np.exp(-values))
    if output == "probabilities":
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    return values


def _input_value(graph: PackedGraph, nodes: NDArray[np.int64] | None) -> Value:
    """Return features of all nodes or of some, as a value."""
    features = graph.features
    if isinstance(features, np.ndarray):
        return features if nodes is None else features[nodes]
    assert graph.beta is not None
    some = features if nodes is None else take_features(features, nodes)
    words = (some.dense() if isinstance(some, SparseBits) else some).words
    return Bits(words, graph.beta if nodes is None else graph.beta[nodes], graph.num_features)


def _row_ids(argument: str, nodes: ArrayLike, num_rows: int, what: str) -> NDArray[np.int64]:
    try:
        ids = np.atleast_1d(np.asarray(nodes))
    except ValueError:  # lists of unequal lengths
        raise input_error(argument, f"a list of {what}", "lists of several lengths") from None
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        got = f"{ids.dtype} of shape {list(ids.shape)}"
        raise input_error(
            argument, f"a list of {what}", got, "for a mask, pass np.flatnonzero(mask)"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= num_rows:
        bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise input_error(argument, f"{what} in 0..{num_rows - 1}", bad)
    return ids.astype(np.int64)


def from_file(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> PackedModel:
    """Make a model from the arrays and header of a file, checked."""
    version = header.get("version")
    if type(version) is not int or version not in (1, VERSION):
        raise FileError(f"version {version!r} is not known, expected {VERSION}")
    about = header.get("about", {})
    if not isinstance(about, dict):
        raise FileError("'about' is not an object")
    if unknown := sorted(set(header) - _HEADER):
        raise FileError(f"it has an unknown part '{unknown[0][:40]}'; a newer bignn may read it")
    operations: Any = header.get("operations")
    if version == 1 and isinstance(operations, list):
        operations = [_from_first_version(step) for step in operations]
    # A model is small: copies, so that it does not depend on the file.
    copies = {name: np.array(array) for name, array in arrays.items()}
    model = PackedModel(operations, copies, header.get("num_features"), about)  # type: ignore[arg-type]
    used = {name for step in model.operations for name in step.values() if isinstance(name, str)}
    if unused := sorted(set(arrays) - used):
        raise FileError(f"no operation uses array '{unused[0][:40]}'")
    return model


def _from_first_version(step: Any) -> Any:
    """Rename the parameter ``norm`` of version 1's ``aggregate`` to ``aggr``."""
    if (
        isinstance(step, dict)
        and step.get("edge_bits", HIDDEN_EDGE_BITS) not in FIRST_VERSION_EDGE_BITS
    ):
        expected = list(FIRST_VERSION_EDGE_BITS)
        raise FileError(f"'edge_bits' of a file of version 1 must be one of {expected}")
    if not isinstance(step, dict) or step.get("op") != "aggregate" or "norm" not in step:
        return step
    return {("aggr" if key == "norm" else key): value for key, value in step.items()}


def _from_bytes(content: bytes) -> PackedModel:
    arrays, header = tensors.from_bytes(content)
    return from_file(arrays, header)
