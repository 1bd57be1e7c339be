"""A packed model on one part of a graph: before each layer the halo's bits come from other parts.

Rows that read no halo are computed while it is on its way. A row's sum is one of integers, so its
bits are those of the whole graph in one process, whoever computes it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from bignn import kernels
from bignn.errors import input_error
from bignn.kernels import native
from bignn.kernels.edge_kinds import EDGE_KINDS, split_relation
from bignn.kernels.layer import BinaryLayer, DenseBits, Edges, Way, dense_words
from bignn.kernels.reference import first_largest
from bignn.runtime import executor
from bignn.runtime.features import may_read_sparse, read_dense, read_sparse
from bignn.runtime.layer_ranges import LayerOverRows, LayerSources
from bignn.runtime.network import Network, PackedStep
from bignn.runtime.operations import GRAPHWIDE, NEIGHBOURLY
from bignn.runtime.parts.graph_part import GraphPart, StoredBits
from bignn.runtime.parts.messages import Exchange, MessageForm, from_message, to_message
from bignn.runtime.parts.part_edges import PartEdges, part_edges
from bignn.runtime.planner import plan_layers
from bignn.runtime.row_operations import binarized
from bignn.runtime.values import Bits, Floats, Value

T = TypeVar("T", bound=NDArray[Any])


def why_not_in_parts(network: Network) -> str | None:
    """Return why a model cannot run on parts of a graph; None if it can."""
    if network.inputs:
        return "it reads nodes of several types"
    if network.is_pooled:
        return "it pools whole graphs"
    if not network.layers:
        return "its first layer does not read bits"
    for step in network.rest:
        if isinstance(step, PackedStep):
            continue
        if step.op in NEIGHBOURLY:
            return f"its operation '{step.op}' reads neighbours' floats"
        if step.op in GRAPHWIDE:
            return f"its operation '{step.op}' takes statistics of all nodes"
    for name in network.aggregations:
        aggr, relation = split_relation(name)
        if relation is not None:
            return "its layers tell relations apart"
        if EDGE_KINDS[aggr].factor == "source_degree":
            return f"its sum '{aggr}' needs the edges that leave a node"
    return None


class SentRows(NamedTuple):
    """Rows that a part sent before a layer.

    Attributes:
        rows: how many.
        columns: numbers that a row stands for; of encoded features the features, not their bits.
        num_bytes: what was sent.

    """

    rows: int
    columns: int
    num_bytes: int


class PartRun:
    """A packed model bound to a part; computes its owned nodes.

    Args:
        network: the model.
        part: the part.
        exchange: what connects it with the other parts; all of them run the same layers.
        plan: forces ways, as in ``PackedModel.explain``.
        form: how rows are sent.

    Attributes:
        waited: seconds that layers waited for the halo.
        exchanged: what was sent in every exchange so far.

    """

    def __init__(
        self,
        network: Network,
        part: GraphPart,
        exchange: Exchange,
        *,
        plan: str | None = None,
        form: MessageForm = "bits",
    ) -> None:
        if (why := why_not_in_parts(network)) is not None:
            fix = "predict the whole graph in one process"
            raise input_error("model", "one of binary layers to run in parts", why, fix)
        if part.partition.num_features != network.input.num_features:
            expected = f"a graph with {network.input.num_features} features per node"
            raise input_error("dataset", expected, part.partition.num_features)
        self._network, self._part, self._exchange = network, part, exchange
        self._form = form
        self._is_weighted = _uses_weights(network, part)
        self._backend = kernels.checked_backend(None)
        self._edges: dict[str, PartEdges] = {}
        self.waited = 0.0
        self.exchanged: list[SentRows] = []
        self._first = self._read_features()
        self._ways = dict(zip(map(id, network.layers), self._plan(plan), strict=True))

    @property
    def ways(self) -> str:
        """The way of each packed layer."""
        return "".join(self._ways[id(layer)] for layer in self._network.layers)

    def logits(self) -> Floats:
        """Compute the logits of the owned nodes."""
        last = self._run_layers(classes=False)
        return self._run_rest() if self._network.rest else last

    def classes(self) -> NDArray[np.int64]:
        """Compute the classes of the owned nodes."""
        found = self._run_layers(classes=True)
        return first_largest(self._run_rest()) if self._network.rest else found

    def _run_layers(self, *, classes: bool) -> Any:
        """Run the layers at the front; keep what the rest reads, return the last one's result."""
        network, value = self._network, self._first
        self._values: dict[str, Value] = {network.source: value}
        names = {place: name for name, place in network.kept.items()}
        for number, layer in enumerate(network.layers):
            is_last = number == len(network.layers) - 1
            if is_last and not network.rest:
                if classes:
                    return self._run(layer, value, LayerOverRows.classes)
                return self._run(layer, value, LayerOverRows.values)
            if "values" in layer.keep:
                made = self._run(layer, value, LayerOverRows.values)
                self._values[names[number, "values"]] = made
                value = binarized(made, self._backend)
            else:
                words, beta = self._run_to_bits(layer, value)
                value = Bits(words, beta, layer.num_outputs)
            if "bits" in layer.keep:
                self._values[names[number, "bits"]] = value
        return None

    def _run_rest(self) -> Floats:
        """Run the operations after the front layers, packed ones among them, on owned rows."""

        def edges(aggr: str, _taken: str, _made: str) -> Edges:
            return self._part_edges(aggr).whole

        def run_layer(step: PackedStep, value: Bits, _edges: Edges) -> Floats:
            return self._run(step.layer, value, LayerOverRows.values)

        return executor.run(self._network.rest, self._values, None, edges, run_layer, self._backend)

    def _run(self, layer: BinaryLayer, value: Bits, make: Callable[[LayerOverRows, Edges], T]) -> T:
        """Compute one result of the owned rows."""
        edges = self._part_edges(layer.aggr)
        inner, outer = self._blocks(layer, value, make)
        some = inner if inner is not None else outer
        assert some is not None
        whole: Any = np.empty((edges.num_owned, *some.shape[1:]), dtype=some.dtype)
        if inner is not None:
            whole[edges.inner_rows] = inner
        if outer is not None:
            whole[edges.outer_rows] = outer
        return whole  # type: ignore[no-any-return]

    def _run_to_bits(self, layer: BinaryLayer, value: Bits) -> tuple[Any, Floats]:
        """Compute bits and scales of the owned rows."""
        edges = self._part_edges(layer.aggr)
        blocks = self._blocks(layer, value, LayerOverRows.bits)
        rows = (edges.inner_rows, edges.outer_rows)
        made = [(at, block) for at, block in zip(rows, blocks, strict=True) if block is not None]
        words = np.empty((edges.num_owned, made[0][1][0].shape[1]), dtype=np.uint64)
        beta = np.empty(edges.num_owned, dtype=np.float32)
        for at, block in made:
            words[at], beta[at] = block
        return words, beta

    def _blocks(
        self, layer: BinaryLayer, value: Bits, make: Callable[[LayerOverRows, Edges], Any]
    ) -> tuple[Any, Any]:
        """Compute the rows that read no halo, then those that do; None where there are none."""
        edges, num_bits = self._part_edges(layer.aggr), layer.num_inputs
        owned = LayerSources.of(value.words, value.beta, edges.source_scale)
        sent = self._part.sent
        message = to_message(
            LayerSources(owned.words[sent], owned.factor[sent]), num_bits, self._form
        )
        pending = self._exchange.start(message)
        columns = self._part.partition.num_features if value is self._first else num_bits
        self.exchanged.append(SentRows(len(sent), columns, message.nbytes))
        options: dict[str, Any] = {"way": self._way(layer), "backend": self._backend}
        inner = outer = None
        if len(edges.inner_rows):
            inner = make(LayerOverRows(layer, owned, **options), edges.inner)
        began = time.perf_counter()
        halo = from_message(pending.wait(), num_bits, self._form)
        self.waited += time.perf_counter() - began
        if len(edges.outer_rows):
            read = edges.outer_sources
            words = np.concatenate([owned.words, halo.words])[read]
            factor = np.concatenate([owned.factor, halo.factor])[read]
            outer = make(LayerOverRows(layer, LayerSources(words, factor), **options), edges.outer)
        return inner, outer

    def _way(self, layer: BinaryLayer) -> Way:
        if id(layer) not in self._ways:  # among the rest
            self._ways[id(layer)] = self._planned([layer], None)[0]
        return self._ways[id(layer)]

    def _plan(self, forced: str | None) -> list[Way]:
        return self._planned(self._network.layers, forced)

    def _planned(self, layers: list[BinaryLayer], forced: str | None) -> list[Way]:
        edges = [self._part_edges(layer.aggr).whole for layer in layers]
        features = DenseBits(self._first.words)
        threads = native.num_threads() if native.is_available() else 1
        plan = plan_layers(
            layers, edges, features, backend=self._backend, forced=forced, threads=threads
        )
        return [layer.way for layer in plan.layers]

    def _part_edges(self, aggr: str) -> PartEdges:
        if aggr not in self._edges:
            self._edges[aggr] = part_edges(self._part, aggr, weighted=self._is_weighted)
        return self._edges[aggr]

    def _read_features(self) -> Bits:
        """Apply the input stage to the owned nodes, in the form that the whole graph would be."""
        stage, partition = self._network.input, self._part.partition
        if isinstance(stored := self._part.x, StoredBits):
            if stored.stage.digest() != stage.digest():
                raise input_error(
                    "dataset", "parts of a store with this model's input statistics",
                    f"those of '{partition.name}'",
                    "pack its features again with --like MODEL.bignn, and cut it again",
                )  # fmt: skip
            return Bits(np.array(stored.words), np.array(stored.beta), stage.num_columns)
        graph, found = self._part.features_graph(), None
        entries = partition.x_entries
        if entries is not None and may_read_sparse(stage, entries, partition.num_nodes):
            sparse = read_sparse(stage, graph.x)  # type: ignore[arg-type]
            # Where the whole graph's would lose digits somewhere, all rows are read densely.
            if self._exchange.all_agree(flag=sparse is not None) and sparse is not None:
                features, beta = sparse
                found = dense_words(features), beta
        words, beta = read_dense(stage, graph) if found is None else found
        return Bits(words, beta, stage.num_columns)


def _uses_weights(network: Network, part: GraphPart) -> bool:
    """Whether edge weights count; refuses those that only some layers would read."""
    if part.weights is not None and network.edge_weight == "refused":
        expected = "a graph without edge weights, which only some of the model's layers read"
        raise input_error("dataset", expected, "one with 'edge_weight'")
    return network.edge_weight == "used"
