"""The packed model: predicts graphs, explains its plan, saves and opens itself."""

from __future__ import annotations

import copy
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn import kernels
from bignn.errors import FileError, InputError, input_error
from bignn.graph import Graphs
from bignn.graph.hetero import EdgeType, HeteroDataLike
from bignn.graph.names import class_names_of
from bignn.kernels.cuda.device import cuda_device
from bignn.kernels.edge_kinds import WITH_SELF_LOOPS, WeightUse
from bignn.kernels.reference import first_largest
from bignn.runtime import tensors
from bignn.runtime.backends.gpu import checked_device, device_number, is_gpu
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.model_file import header_of, read_header
from bignn.runtime.neighbourhood import AnyPackedGraph, find_surroundings
from bignn.runtime.network import understand
from bignn.runtime.network_runner import NetworkRunner
from bignn.runtime.new_nodes import read_new_nodes, with_new_nodes
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.packings import Packings
from bignn.runtime.planner import Plan
from bignn.runtime.predicted_values import (
    Output,
    check_output,
    checked_rows,
    chosen_output,
    finished,
    in_given_order,
)

if TYPE_CHECKING:
    from bignn.runtime.live.live_graph import LiveGraph

#: A packed graph, or one that is packed when it is first predicted.
AnyGraph = PackedGraph | PackedHeteroGraph | Graphs | HeteroDataLike

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
        num_features: features per node that the model reads; of all types together in a
            heterogeneous model.
        about: free-form facts that travel with the model, such as where it was trained.
        edge_weight: what the weights of a graph's edges are to the model: ``"used"``; ``"ignored"``
            if it was trained without any; ``"refused"`` if only some of its layers weigh edges.
        class_names: names of the outputs in the order of their numbers; None where classes go by
            their numbers.
        output: what predictions give unless told otherwise: ``"classes"``; ``"labels"`` or
            ``"values"`` of a model that was trained for these.

    """

    def __init__(
        self,
        operations: Sequence[Mapping[str, Any]],
        arrays: Mapping[str, NDArray[Any]],
        num_features: int | dict[str, int],
        about: Mapping[str, Any] | None = None,
        *,
        relations: Sequence[EdgeType] = (),
        edge_weight: WeightUse = "used",
        class_names: Sequence[str] | None = None,
        output: Output = "classes",
    ) -> None:
        check_output(output)
        self.arrays = dict(arrays)
        self.network = understand(operations, self.arrays, num_features, relations, edge_weight)
        self.edge_weight, self.output = edge_weight, output
        self.operations = [dict(step) for step in operations]
        widths = num_features if isinstance(num_features, dict) else {"": num_features}
        self.num_features = sum(widths.values())
        self.about = dict(about or {})
        self.class_names = checked_class_names(class_names, self.num_classes)
        self.input_digest = self.network.input.digest()
        self._runner = NetworkRunner(self.network)
        self._packings = Packings(self)
        # The last packed graph that was found to fit: neither it nor the model changes.
        self._fitting: Callable[[], PackedGraph | None] = lambda: None

    def __reduce__(self) -> tuple[Any, ...]:
        # Pickles and copies go through the model's own bytes, with all the checks of a file.
        return _from_bytes, (tensors.to_bytes(*self.parts()),)

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
        output: Output | None = None,
        plan: str | None = None,
        backend: str | None = None,
        device: str = "cpu",
    ) -> NDArray[Any]:
        """Predict every node, or some; of a model that pools, every graph, or some.

        Args:
            graph: a packed graph (:func:`bignn.pack_graph`), or a :class:`bignn.Graph` or a PyG
                ``Data``, which is packed first; the packing is kept while the graph lives, and made
                anew if any number in the graph has changed. Or many graphs, a PyG ``Batch`` or a
                list, which is packed at every call. For a heterogeneous model a ``HeteroData``;
                the nodes of the type that the model was packed for are predicted.
            nodes: ids, or names where the graph has them, in any order, repetitions allowed; only
                what they depend on is computed, unless computing all nodes takes less. None for all
                nodes. Of a model that pools, numbers of graphs.
            output: ``"classes"`` int64 [n]; ``"probabilities"`` of classes that exclude each other
                (softmax), float32 [n, num_classes]; ``"labels"`` bool, whether each of several
                labels that do not exclude each other is there (a logit over 0), and
                ``"label_probabilities"`` (sigmoid); ``"logits"`` float32, which are the
                ``"values"`` of a regression or an embedding. None for the model's own,
                :attr:`output`: classes, unless it was trained for labels or values.
            plan: forces ways, see :meth:`explain`; None lets the planner choose.
            backend: a name from ``bignn.kernels.available_backends()``; None for the fastest.
            device: ``"cpu"``, or ``"cuda"`` (``"cuda:1"`` ...) for a GPU, where the same bits are
                computed; the graph is copied to it once, and stays there while it lives.

        """
        output = chosen_output(output, self.output)
        chosen, packed = self._kind(backend, device), self._packed(graph)
        if nodes is None:
            values = in_given_order(
                self._runner.run(packed, output, plan, chosen), self._places(packed)
            )
            return finished(values, output)
        places = self._places(packed)
        if self.network.is_pooled:
            assert isinstance(packed, PackedGraph)
            wanted = checked_rows("nodes", nodes, packed.num_graphs, "numbers of graphs")
        else:
            names = packed.node_names if isinstance(packed, PackedGraph) else None
            num_nodes = self._num_nodes(packed)
            wanted = checked_rows("nodes", nodes, num_nodes, "node ids", names, by_name=True)
        if wanted.size == 0:
            if output == "classes":
                return np.empty(0, dtype=np.int64)
            return finished(np.empty((0, self.num_classes), dtype=np.float32), output)
        rows = wanted if places is None else places[wanted]
        unique = _distinct(rows, self._num_nodes(packed))
        around = None
        if not is_gpu(chosen):
            seconds = self._runner.predicted_seconds(packed, plan, chosen)
            around = find_surroundings(packed, self.network, unique, seconds)
        if around is None:
            return finished(self._runner.run(packed, output, plan, chosen)[rows], output)
        values = finished(self._runner.run_some(packed, around, output, plan, chosen), output)
        return values[np.searchsorted(unique, rows)]

    def _kind(self, backend: str | None, device: str) -> str:
        """Return what runs: an instruction set, or the name of a GPU."""
        if not is_gpu(checked_device(device)):
            return kernels.checked_backend(backend)
        if backend is not None:
            raise input_error("backend", f"None on {device!r}", repr(backend))
        cuda_device(device_number(device))  # an error where it cannot be used
        if (why := self._runner.gpu.why_not(device)) is not None:
            warnings.warn(f"predicted on the CPU: {why}", stacklevel=3)
            return kernels.checked_backend(None)
        return device

    def predict_new(
        self,
        graph: AnyGraph,
        x: Any,
        edges: ArrayLike,
        *,
        edge_weight: ArrayLike | None = None,
        output: Output | None = None,
        backend: str | None = None,
    ) -> NDArray[Any]:
        """Predict nodes that are not in a graph, without changing it.

        The answers are those of the graph with these nodes and edges added, to the last bit.

        Args:
            graph: as in :meth:`predict`; packed once (:func:`bignn.pack_graph`), it is not read
                again by every call.
            x: features of the new nodes, as rows [n, d]: an array, a tensor or a SciPy matrix.
            edges: [2, m], sources and targets, between new nodes, numbered -1 (the first), -2, ...
                or from the graph's number of nodes on, and others, by number or name. A node reads
                its sources: edges from new nodes to old ones count as far as the old ones are read
                in turn.
            edge_weight: a weight per edge; None for all ones.
            output: as in :meth:`predict`.
            backend: as in :meth:`predict`.

        """
        output = chosen_output(output, self.output)
        if self.network.is_pooled:
            raise InputError("a model that pools makes answers of graphs; predict a graph instead")
        packed = self._of_one_relation(graph)
        names = packed.node_names
        added = read_new_nodes(self.network, packed.num_nodes, names, x, edges, edge_weight)
        part, new = with_new_nodes(self.network, packed, added)
        return self.predict(part, new, output=output, backend=backend)

    def live(self, graph: AnyGraph, *, keep_sums: bool = True) -> LiveGraph:
        """Make a live graph: answers that are kept, and brought up to date as the graph changes.

        Args:
            graph: as in :meth:`predict`; it is copied, and later changes of it do not count.
            keep_sums: keep what the layers after the first add up over neighbours, 4 bytes per node
                and output. Updates take a fraction of the time then; without, a live graph is a
                fraction of the size.

        """
        from bignn.runtime.live.live_graph import LiveGraph, check_model

        check_model(self)
        return LiveGraph(self, self._of_one_relation(graph), keep_sums=keep_sums)

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
        ids = checked_rows("pairs", ids.reshape(-1), self._num_nodes(packed), "node ids")
        nodes, place = np.unique(ids, return_inverse=True)
        values = self.predict(packed, nodes, output="values", backend=backend)
        source, target = place.reshape(2, -1)
        scores: NDArray[np.float32] = np.einsum("nd,nd->n", values[source], values[target])
        return scores

    def _of_one_relation(self, graph: AnyGraph) -> PackedGraph:
        """Pack a graph if it is not packed; refuse models that tell types of edges apart."""
        if self.network.relations or self.network.num_relations:
            raise InputError(
                "a model with types of edges predicts graphs as they are: new nodes and updates "
                "cannot name types yet; pack the changed graph instead"
            )
        packed = self._packed(graph)
        assert isinstance(packed, PackedGraph)
        return packed

    def _num_nodes(self, graph: AnyPackedGraph) -> int:
        """Count the nodes that are predicted."""
        if isinstance(graph, PackedHeteroGraph):
            return graph.nodes[str(self.network.result_type)].num_nodes
        return graph.num_nodes

    def _places(self, graph: AnyPackedGraph) -> NDArray[np.int64] | None:
        """Return the row of each node; None where rows are in the given order, as of graphs."""
        if self.network.is_pooled or isinstance(graph, PackedHeteroGraph):
            return None
        return graph.places

    def stream(
        self,
        graph: AnyGraph,
        *,
        output: Output | None = None,
        block: int = 65536,
        plan: str | None = None,
        backend: str | None = None,
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Predict all nodes by blocks, ``(slice of nodes, values)``.

        A binary model makes one block of floats at a time, where ``predict`` makes them all.
        """
        output = chosen_output(output, self.output)
        if not isinstance(block, int) or block < 1:
            raise input_error("block", "a number of nodes, at least 1", repr(block))
        chosen, packed = kernels.checked_backend(backend), self._packed(graph)
        return self._blocks(packed, output, block, plan, chosen)

    def _blocks(
        self, graph: AnyPackedGraph, output: Output, block: int, plan: str | None, backend: str
    ) -> Iterator[tuple[slice, NDArray[Any]]]:
        blocks: Iterator[tuple[int, NDArray[Any]]]
        if self.network.rest:
            values = in_given_order(
                self._runner.run(graph, "logits", plan, backend), self._places(graph)
            )
            blocks = ((at, values[at : at + block]) for at in range(0, len(values), block))
        else:
            assert isinstance(graph, PackedGraph)
            planned = self._runner.cpu.plan(graph, plan, backend)
            bound = self._runner.cpu.bind(graph, planned, backend, in_given_order=True)
            blocks = bound.run_in_blocks(block)
        for begin, some in blocks:
            classes = first_largest(some) if output == "classes" else some
            yield slice(begin, begin + len(some)), finished(classes, output)

    def explain(
        self,
        graph: AnyGraph,
        *,
        plan: str | None = None,
        backend: str | None = None,
        device: str = "cpu",
        measure: bool = True,
    ) -> Plan:
        """Plan how a graph is predicted: each layer's way, and what every way is predicted to cost.

        With ``measure`` each layer's plan also has the time it took. ``plan`` forces ways: one
        letter for all layers or one per layer, ``T`` (transform, then gather), ``G`` (gather bits,
        then transform) or, for a first layer whose bits are stored sparse, ``S``. ``device`` is as
        in :meth:`predict`.
        """
        packed = self._packed(graph)
        if not self.network.layers:
            raise InputError(
                "only a model with binary features and weights has ways to choose from and explain"
            )
        chosen = self._kind(backend, device)
        where = self._runner.backend(chosen)
        assert isinstance(packed, PackedGraph)
        explained = copy.deepcopy(where.plan(packed, plan, chosen))
        if measure:
            with where.lent(packed, explained, chosen) as bound:
                for _ in range(2):  # the first touches fresh memory
                    bound.run_kept() if self.network.rest else bound.run_to_classes()
                for number, layer in enumerate(explained.layers):
                    layer.measured = bound.seconds(number)
                    layer.record_bytes = bound.bytes_per_column(number)
        return explained

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> PackedModel:
        """Open a ``.bignn`` file that holds a packed model."""
        return tensors.open_as(path, {tensors.MODEL_FORMAT: cls.from_parts})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to a ``.bignn`` file (docs/format.md)."""
        tensors.check_suffix(path, tensors.MODEL_SUFFIX)
        tensors.write(path, *self.parts())

    def parts(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return the arrays and the header of the model's file."""
        return self.arrays, header_of(self)

    @classmethod
    def from_parts(
        cls, arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]
    ) -> PackedModel:
        """Make a model of the arrays and the header of a file, checked."""
        given = read_header(header)
        # A model is small: copies, so that it does not depend on the file.
        model = cls(arrays={name: np.array(array) for name, array in arrays.items()}, **given)
        try:
            names = header.get("class_names")
            model.class_names = checked_class_names(names, model.num_classes)
        except InputError as error:
            raise FileError(str(error)) from None
        used = {
            name for step in model.operations for name in step.values() if isinstance(name, str)
        }
        if unused := sorted(set(arrays) - used):
            raise FileError(f"no operation uses array '{unused[0][:40]}'")
        return model

    def __repr__(self) -> str:
        widths = [layer.num_outputs for layer in self.network.layers]
        if self.network.rest:
            widths.append(self.num_classes)
        inputs: Any = self.network.num_features
        if isinstance(inputs, dict):
            inputs = " + ".join(f"{width} {kind}" for kind, width in inputs.items())
        sizes = " -> ".join(str(size) for size in (inputs, *widths))
        kind = "binary" if self.network.is_binary else "with floats"
        size = self.sizes.weights + self.sizes.biases
        if (node_type := self.about.get("node_type")) is not None:
            kind = f"of '{node_type}' nodes, {kind}"
        return f"PackedModel({sizes}, {kind}, {size:,} bytes of weights)"

    def _packed(self, graph: AnyGraph) -> AnyPackedGraph:
        """Pack a graph if it is not packed, and refuse one that does not fit the model."""
        if isinstance(graph, PackedGraph) and self._fitting() is graph:
            return graph
        packed = self._packings.of(graph) if not isinstance(graph, AnyPackedGraph) else graph
        fix = "make it with bignn.pack_graph(graph, like=model)"
        if self.network.inputs or isinstance(packed, PackedHeteroGraph):
            if not self._reads(packed):
                raise input_error("graph", "one packed for this model", repr(packed), fix)
            return packed
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
        if packed.weights is not None and self.edge_weight != "used":
            expected = "one packed without edge weights, as the model was trained"
            raise input_error("graph", expected, "one with weights", fix)
        relations = self.network.num_relations
        if relations and packed.edge_types is None:
            raise input_error("graph", "one with edge types", "one packed without", fix)
        if relations and packed.num_relations > relations:
            expected = f"one with edge types below {relations}, the model's relations"
            raise input_error("graph", expected, packed.num_relations - 1)
        self._fitting = weakref.ref(packed)
        return packed

    def _reads(self, graph: AnyPackedGraph) -> bool:
        """Whether a graph has the types and relations of a heterogeneous model."""
        if not isinstance(graph, PackedHeteroGraph) or graph.relations != self.network.relations:
            return False
        digests = {kind: nodes.input_digest for kind, nodes in graph.nodes.items()}
        stages = self.network.inputs.items()
        return all(digests.get(kind) == stage.digest() for kind, (stage, _) in stages)


def checked_class_names(names: Any, num_classes: int) -> tuple[str, ...] | None:
    """Return names of a model's classes, one each and different; None as it is."""
    if names is None:
        return None
    checked = class_names_of(names)
    if len(checked) != num_classes:
        expected = f"a name for each of the model's outputs ({num_classes})"
        raise input_error("class_names", expected, f"{len(checked)} names")
    return checked


def _distinct(rows: NDArray[np.int64], limit: int) -> NDArray[np.int64]:
    """Return the distinct rows, rising."""
    if 64 * len(rows) < limit:
        return np.unique(rows)
    is_there = np.zeros(limit, dtype=np.bool_)  # no sorting of many
    is_there[rows] = True
    return np.flatnonzero(is_there)


def _from_bytes(content: bytes) -> PackedModel:
    return PackedModel.from_parts(*tensors.from_bytes(content))
