"""The packed model: predicts on packed graphs, explains its plan, saves itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn import kernels
from bignn.errors import FileError, InputError, input_error
from bignn.kernels.chain import Chain, Output
from bignn.kernels.operands import Edges, SparseBits
from bignn.kernels.reference import first_largest
from bignn.runtime import executor, tensors
from bignn.runtime.bound import BoundLayers
from bignn.runtime.executor import Bits, Value
from bignn.runtime.features import digest
from bignn.runtime.neighbourhood import Surroundings, take_features
from bignn.runtime.network import understand
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.planner import Plan

VERSION = 1

Kind = Literal["classes", "probabilities", "logits"]

#: How the names of arrays of weights and of their scales end.
_WEIGHTS = (".weight", ".words", ".alpha", ".att_src", ".att_dst")


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
        arrays: the arrays the operations name.
        num_features: features per node that it reads.
        about: free-form facts that travel with it, such as where it was trained.

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
        self.input_digest = digest(self.network.input)
        self._bound = BoundLayers(self.network)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return self.network.num_classes

    @property
    def num_hops(self) -> int:
        """How far a prediction looks around, at most: an SGC convolution counts as its hops."""
        return self.network.num_hops

    @property
    def nbytes(self) -> int:
        """Bytes of all its arrays: the sum of :attr:`sizes`."""
        return sum(array.nbytes for array in self.arrays.values())

    @property
    def sizes(self) -> ModelSizes:
        """The same by what they are for."""
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
        graph: PackedGraph,
        nodes: ArrayLike | None = None,
        *,
        output: Kind = "classes",
        plan: str | None = None,
        backend: str | None = None,
    ) -> NDArray[Any]:
        """Predicts every node, or some.

        Args:
            graph: packed with this model's input statistics (:func:`bignn.pack_graph`).
            nodes: ids, in any order, repetitions allowed; only what they depend on is computed.
                None for all nodes.
            output: ``"classes"`` int64 [n], ``"probabilities"`` or ``"logits"`` float32
                [n, num_classes].
            plan: forces a way, see :meth:`explain`; None lets the planner choose.
            backend: a name from ``bignn.kernels.available_backends()``; None for the fastest.

        """
        if output not in get_args(Kind):
            raise input_error("output", f"one of {list(get_args(Kind))}", repr(output))
        kernels.checked_backend(backend)
        self._check(graph)
        if nodes is None:
            return self._finish(self._run(graph, output, plan, backend), output)
        wanted = _node_ids(nodes, graph.num_nodes)
        if wanted.size == 0:
            shape = (0,) if output == "classes" else (0, self.num_classes)
            return np.empty(shape, dtype=np.int64 if output == "classes" else np.float32)
        unique, place = np.unique(wanted, return_inverse=True)
        values = self._finish(self._run_some(graph, unique, output, plan, backend), output)
        return values[place]

    def stream(
        self,
        graph: PackedGraph,
        *,
        output: Kind = "classes",
        block: int = 65536,
        plan: str | None = None,
        backend: str | None = None,
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Predicts all nodes by blocks, ``(slice of nodes, values)``: of a binary model one block
        of floats exists at a time, where ``predict`` would make them all.
        """
        if output not in get_args(Kind):
            raise input_error("output", f"one of {list(get_args(Kind))}", repr(output))
        if not isinstance(block, int) or block < 1:
            raise input_error("block", "a number of nodes, at least 1", repr(block))
        kernels.checked_backend(backend)
        self._check(graph)
        return self._blocks(graph, output, block, plan, backend)

    def _blocks(
        self,
        graph: PackedGraph,
        output: Kind,
        block: int,
        plan: str | None,
        backend: str | None,
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        blocks: Iterator[tuple[int, NDArray[Any]]]
        if self.network.rest:
            values = self._run(graph, "logits", plan, backend)
            blocks = ((at, values[at : at + block]) for at in range(0, len(values), block))
        else:
            chosen = kernels.checked_backend(backend)
            blocks = self._bound.chain(graph, "blocks", plan, chosen).run_in_blocks(block)
        for begin, some in blocks:
            classes = first_largest(some) if output == "classes" else some
            yield slice(begin, begin + len(some)), self._finish(classes, output)

    def explain(
        self,
        graph: PackedGraph,
        *,
        plan: str | None = None,
        backend: str | None = None,
        measure: bool = True,
    ) -> Plan:
        """How this graph is predicted: per layer the way chosen, what each way is predicted to
        cost, bytes touched, and (unless ``measure=False``) the time it took.

        ``plan`` forces ways as in :meth:`predict`: one letter for all layers or one per layer,
        ``T`` (transform, then gather), ``G`` (gather bits, then transform) or, for a first layer
        whose bits are stored sparse, ``S``.
        """
        self._check(graph)
        if not self.network.layers:
            raise InputError(
                "only a model with binary features and weights has ways to choose from and explain"
            )
        backend = kernels.checked_backend(backend)
        chosen = self._bound.plan(graph, plan, backend)
        if measure:
            output = self._chain_output("classes")
            with self._bound.lent(graph, output, chosen.ways, backend) as chain:
                for _ in range(2):  # the first touches fresh memory
                    chain.run_kept() if self.network.rest else chain.run()
                for number, layer in enumerate(chosen.layers):
                    layer.measured = chain.seconds[number]
                    layer.record_bytes = chain.bytes_per_column(number)
        return chosen

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PackedModel:
        """Opens a ``.bignn`` file that holds a packed model."""
        return tensors.open_as(path, {tensors.MODEL_FORMAT: from_file})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the model as a ``.bignn`` file (docs/format.md)."""
        header = {
            "format": tensors.MODEL_FORMAT,
            "version": VERSION,
            "num_features": self.num_features,
            "operations": self.operations,
            "about": self.about,
        }
        tensors.write(path, self.arrays, header)

    def __repr__(self) -> str:
        widths = [layer.num_outputs for layer in self.network.layers]
        if self.network.rest:
            widths.append(self.num_classes)
        sizes = " -> ".join(str(size) for size in (self.num_features, *widths))
        kind = "binary" if self.network.is_binary else "with floats"
        size = self.sizes.weights + self.sizes.biases
        return f"PackedModel({sizes}, {kind}, {size:,} bytes of weights)"

    def _check(self, graph: PackedGraph) -> None:
        if not isinstance(graph, PackedGraph):
            fix = "make one with bignn.pack_graph(graph, like=model)"
            raise input_error("graph", "a packed graph", type(graph).__name__, fix)
        if graph.input_digest != self.input_digest:
            raise input_error(
                "graph",
                "packed with this model's input statistics",
                "one packed with other statistics",
                "make it with bignn.pack_graph(graph, like=model)",
            )
        is_bits = not isinstance(graph.features, np.ndarray)
        if graph.num_features != self.num_features or is_bits != self.network.input.binarize:
            kind = "bits" if self.network.input.binarize else "floats"
            got = f"{graph.num_features} as {'bits' if is_bits else 'floats'}"
            raise input_error("graph", f"one with {self.num_features} features as {kind}", got)
        if graph.adjacency == "gcn" and not self.network.norms.isdisjoint(("mean", "sum")):
            raise input_error(
                "graph",
                "one whose edges are as they were given",
                "one with every node among its neighbours",
                "make it with bignn.pack_graph(graph, like=model)",
            )

    def _run(
        self, graph: PackedGraph, output: Kind, plan: str | None, backend: str | None
    ) -> NDArray[Any]:
        backend = kernels.checked_backend(backend)
        if not self.network.layers:
            self._check_no_plan(plan)
            return self._run_rest(graph, None, None, output, backend)
        ways = self._bound.ways(graph, plan, backend)
        with self._bound.lent(graph, self._chain_output(output), ways, backend) as chain:
            if not self.network.rest:
                return chain.run()
            chain.run_kept()
            return self._run_rest(graph, chain, None, output, backend)

    def _run_some(
        self,
        graph: PackedGraph,
        nodes: NDArray[np.int64],
        output: Kind,
        plan: str | None,
        backend: str | None,
    ) -> NDArray[Any]:
        backend = kernels.checked_backend(backend)
        around = Surroundings(graph, self.network, nodes)
        if not self.network.layers:
            self._check_no_plan(plan)
            return self._run_rest(graph, None, around, output, backend)
        made = self._chain_output(output)
        chain = self._bound.chain_around(graph, around, made, plan, backend)
        if not self.network.rest:
            return chain.run()
        chain.run_kept()
        return self._run_rest(graph, chain, around, output, backend)

    def _chain_output(self, output: Kind) -> Output:
        """What packed layers make for it; where others follow, what those need."""
        if self.network.rest:
            return "kept"
        return "classes" if output == "classes" else "values"

    def _run_rest(
        self,
        graph: PackedGraph,
        chain: Chain | None,
        around: Surroundings | None,
        output: Kind,
        backend: str,
    ) -> NDArray[Any]:
        """What no packed layer does, of all nodes or of some."""
        network = self.network
        values: dict[str, Value] = {}
        if any(network.source in step.inputs for step in network.rest):
            values[network.source] = _input_value(graph, None if around is None else around.first)
        for name, (number, form) in network.kept.items():
            assert chain is not None
            kept = chain.kept[number, form]
            width = network.layers[number].num_outputs
            values[name] = Bits(kept[0], kept[1], width) if form == "bits" else kept

        def edges(norm: str, taken: str, made: str) -> Edges:
            if around is None:
                return graph.edges(norm)
            return around.edges(norm, around.values[taken], around.values[made])

        rows = None if around is None else around.values
        logits = executor.run(network.rest, values, rows, edges, backend)
        return first_largest(logits) if output == "classes" else logits

    def _check_no_plan(self, plan: str | None) -> None:
        if plan is not None:
            raise input_error("plan", "None for a model that is not all bits", repr(plan))

    def _finish(self, values: NDArray[Any], output: Kind) -> NDArray[Any]:
        if output == "probabilities":
            values = np.exp(values - values.max(axis=1, keepdims=True))
            values /= values.sum(axis=1, keepdims=True)
        return values


def _input_value(graph: PackedGraph, nodes: NDArray[np.int64] | None) -> Value:
    """The features of all nodes or of some."""
    features = graph.features
    if isinstance(features, np.ndarray):
        return features if nodes is None else features[nodes]
    assert graph.beta is not None
    some = features if nodes is None else take_features(features, nodes)
    words = (some.dense() if isinstance(some, SparseBits) else some).words
    return Bits(words, graph.beta if nodes is None else graph.beta[nodes], graph.num_features)


def _node_ids(nodes: ArrayLike, num_nodes: int) -> NDArray[np.int64]:
    ids = np.atleast_1d(np.asarray(nodes))
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        got = f"{ids.dtype} of shape {list(ids.shape)}"
        raise input_error(
            "nodes", "a list of node ids", got, "for a mask, pass np.flatnonzero(mask)"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= num_nodes:
        bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise input_error("nodes", f"node ids in 0..{num_nodes - 1}", bad)
    return ids.astype(np.int64)


def from_file(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> PackedModel:
    """A model from the arrays and header of a file, checked."""
    if type(header.get("version")) is not int or header["version"] != VERSION:
        raise FileError(f"version {header.get('version')!r} is not known, expected {VERSION}")
    about = header.get("about", {})
    if not isinstance(about, dict):
        raise FileError("'about' is not an object")
    # A model is small: copies, so that it does not depend on the file.
    copies = {name: np.array(array) for name, array in arrays.items()}
    model = PackedModel(header.get("operations"), copies, header.get("num_features"), about)  # type: ignore[arg-type]
    used = {name for step in model.operations for name in step.values() if isinstance(name, str)}
    if unused := sorted(set(arrays) - used):
        raise FileError(f"no operation uses array '{unused[0][:40]}'")
    return model
