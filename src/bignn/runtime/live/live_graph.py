"""The live graph: a packed model's answers for a graph that changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn import kernels
from bignn.bits import Words, words_per_row
from bignn.errors import FileError, InputError, input_error, printable
from bignn.graph.names import Names
from bignn.kernels import native
from bignn.kernels.edge_kinds import EDGE_KINDS
from bignn.kernels.gcn_degrees import gcn_degree_scale
from bignn.kernels.layer import MOST_INPUTS_OF_G, DenseBits, dense_words
from bignn.runtime.live import changes as changes_
from bignn.runtime.live.changes import Changes
from bignn.runtime.live.fair_lock import FairLock
from bignn.runtime.network import PackedStep
from bignn.runtime.operations import Operation
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.predicted_values import Output, checked_rows, chosen_output, finished

if TYPE_CHECKING:
    from bignn.runtime.live.journal import Journal
    from bignn.runtime.packed_model import PackedModel

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


class LayerWork(NamedTuple):
    """What the last update did in one layer.

    Attributes:
        rows: rows brought up to date, since something that they read had changed.
        changed: rows that came out other than they were; for the last layer, other classes.
        moved: rows whose kept sums were moved; the others were computed from all they read.
        seconds: how long it took.

    """

    rows: int
    changed: int
    moved: int
    seconds: float


class LiveGraph:
    """A model's answers for a graph that changes, made by :meth:`bignn.PackedModel.live`.

    The bits and scales that every layer reads are kept. An update computes the rows again that read
    something that changed, layer by layer, and stops where bits and scales come out as they were.
    Whatever was updated, every answer is that of the changed graph packed anew, to the last bit.

    Nodes keep their numbers: new ones are numbered from :attr:`num_nodes` on, and a removed one
    stays as a number without edges and without an answer (class -1, labels False, other outputs
    NaN).

    Threads may predict while one updates: each answer is of the state before an update or after it.

    Attributes:
        model: the packed model.
        node_names: names of the nodes that the graph had at first, if they had names.

    """

    def __init__(self, model: PackedModel, graph: PackedGraph, *, keep_sums: bool = True) -> None:
        check_model(model)
        features, beta = graph.bits
        if graph.num_nodes >= 2**31:
            raise input_error("graph", "one of fewer than 2**31 nodes", graph.num_nodes)
        self.model = model
        self._name, self._adjacency = graph.name, graph.adjacency
        self.node_names, self._class_names = graph.node_names, graph.class_names
        self._node_ids = None if graph.node_ids is None else graph.node_ids.astype(np.int64)
        self._places = graph.places
        self._is_removed = np.zeros(graph.num_nodes, dtype=np.bool_)
        self._lock = FairLock()
        self._journal: Journal | None = None
        self._layers = native.live_layers(
            kernels.checked_backend(None),
            (graph.offsets, graph.ids.astype(np.int32, copy=False), graph.weights),
            graph.adjacency == "gcn",
            keep_sums,
            dense_words(features),
            beta,
        )
        for layer in model.network.layers:
            self._layers.add(layer.native, *_kind_arguments(layer.aggr))
        self._layers.refresh()

    @property
    def num_nodes(self) -> int:
        """Number of nodes, removed ones included."""
        return int(self._layers.num_nodes)

    @property
    def removed(self) -> Ints:
        """The numbers of the removed nodes, rising."""
        return np.sort(self._ids(np.flatnonzero(self._is_removed)))

    @property
    def nbytes(self) -> int:
        """Bytes of all that is kept: edges in both directions, bits, scales and sums of layers."""
        orders = [part for part in (self._node_ids, self._places) if part is not None]
        return int(self._layers.nbytes) + sum(part.nbytes for part in orders)

    @property
    def work(self) -> list[LayerWork]:
        """What the last update did, layer by layer; at first, the run over all rows."""
        return [LayerWork(*some) for some in self._layers.work]

    def predict(
        self, nodes: ArrayLike | None = None, *, output: Output | None = None
    ) -> NDArray[Any]:
        """Read the answers of some nodes, or of all.

        Args:
            nodes: ids or names, in any order, repetitions allowed; None for all nodes.
            output: as in :meth:`bignn.PackedModel.predict`. Classes are read; all others are
                computed from the last layer's sources, which are kept. Of removed nodes, classes
                are -1, labels False and numbers NaN.

        """
        output = chosen_output(output, self.model.output)
        num_nodes = self.num_nodes
        wanted = np.arange(num_nodes) if nodes is None else nodes
        ids = checked_rows("nodes", wanted, num_nodes, "node ids", self.node_names, by_name=True)
        rows = self._rows(ids)
        if output == "classes":
            classes = np.empty(len(rows), dtype=np.int64)
            self._layers.classes(rows, classes)
            return classes
        values = np.empty((len(rows), self.model.num_classes), dtype=np.float32)
        self._layers.values(rows, values)
        return finished(values, output)

    def predict_new(
        self,
        x: Any,
        edges: ArrayLike,
        *,
        edge_weight: ArrayLike | None = None,
        output: Output | None = None,
    ) -> NDArray[Any]:
        """Predict nodes that are not in the graph, without changing it.

        Args:
            x: features of the new nodes, as rows [n, d]: an array, a tensor or a SciPy matrix.
            edges: [2, m], between new nodes and others, as in
                :meth:`bignn.PackedModel.predict_new`. Where other threads may add nodes meanwhile,
                call new nodes -1 (the first), -2, and so on.
            edge_weight: a weight per edge; None for all ones.
            output: as in :meth:`predict`.

        """
        from bignn.runtime.live.new_answers import NewQuestion, predict_new

        output = chosen_output(output, self.model.output)
        (answer,) = predict_new(self, [NewQuestion(x, edges, edge_weight)], output)
        if isinstance(answer, InputError):
            raise answer
        return answer

    def update(
        self,
        *,
        nodes: ArrayLike | None = None,
        x: Any = None,
        add_nodes: Any = None,
        remove_edges: ArrayLike | None = None,
        add_edges: ArrayLike | None = None,
        edge_weight: ArrayLike | None = None,
        remove_nodes: ArrayLike | None = None,
    ) -> Ints:
        """Make changes, all of them or, where an argument is wrong, none.

        They are made in the order of the arguments, so that an edge that is removed and added in
        one call has its new weight, and added edges may name added nodes. Nodes go by their numbers
        or, where the graph has them, by names. Edges are directed, as in ``edge_index``: give an
        undirected one in both directions. Where the graph is kept on disk (:meth:`save`), changes
        are there before this returns.

        Args:
            nodes: nodes that get other features, each once.
            x: their features, as rows [n, d]: an array, a tensor or a SciPy matrix.
            add_nodes: features of new nodes, likewise.
            remove_edges: [2, n]; every copy of each goes. Each must exist, but for self-loops where
                the model gives every node one: these get the weight 1 again.
            add_edges: [2, n]; an edge that exists is there once more, as in a graph that names it
                twice. Nodes that this call adds are -1 (the first), -2, ..., or are numbered from
                :attr:`num_nodes` on.
            edge_weight: a weight per added edge; None for all ones.
            remove_nodes: nodes that lose all edges and their answer; their numbers stay taken.

        Returns:
            The nodes whose class is another now, rising; new and removed ones are among them. The
            class of a model of labels or values is its largest output, too.

        """
        with self._lock:
            made = self._checked(
                nodes, x, add_nodes, remove_edges, add_edges, edge_weight, remove_nodes
            )
            if self._journal is not None:
                self._journal.append(made)
            return self._apply(made)

    def packed_graph(self) -> PackedGraph:
        """Return the graph as it is now, packed; removed nodes are nodes without edges."""
        with self._lock:
            edges = offsets, ids, weights = self._layers.edges()
            words, beta = self._layers.state(0)
            num_nodes = self.num_nodes
            target = np.repeat(np.arange(num_nodes), np.diff(offsets))
            scale = gcn_degree_scale(ids, target, weights, num_nodes)
            node_ids = None if self._node_ids is None else self._node_ids.astype(np.int32)
            return self._packed_rows(words, beta, edges, scale, node_ids, self.node_names)

    def _packed_rows(
        self,
        words: Words,
        beta: Floats,
        edges: tuple[Ints, NDArray[Any], Floats | None],
        degree_scale: Floats,
        node_ids: NDArray[np.int32] | None = None,
        node_names: Names | None = None,
    ) -> PackedGraph:
        """Make a packed graph of copies of the graph's rows; all, or some by their places."""
        num_columns = self.model.network.input.num_columns
        return PackedGraph(
            DenseBits(words.reshape(len(beta), words_per_row(num_columns))),
            num_columns,
            beta,
            *edges,
            degree_scale,
            self.model.input_digest,
            {},
            self._name,
            self._adjacency,
            node_ids,
            node_names=node_names,
            class_names=self._class_names,
        )

    def _inputs_of(self, rows: Ints) -> tuple[Words, Floats, Floats]:
        """Copy what the first layer reads of some rows: bits, scales, and GCN's degree scales."""
        words, beta, scales = self._layers.inputs(rows, *_kind_arguments("gcn"))
        return words, beta, scales

    def _present_rows(self, argument: str, ids: Ints, limit: int) -> Ints:
        """Return the rows of nodes below ``limit``, others as they are; refuse removed ones."""
        rows = ids.copy()
        rows[ids < limit] = self._rows(ids[ids < limit])
        self._check_present(argument, rows)
        return rows

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the graph and its model to a ``.biglive`` file, and keep it up to date from now on.

        Every later update is added to a journal beside the file, ``PATH.journal``, and is on disk
        before :meth:`update` returns; saving again writes the file anew and starts the journal
        afresh. A process that is killed at any moment loses no update that had returned.
        """
        from bignn.runtime.live import stored

        with self._lock:
            journal = stored.save(path, self, self._is_removed, self._journal)
            if self._journal is not None:
                self._journal.close()
            self._journal = journal

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, keep_sums: bool = True) -> LiveGraph:
        """Open a ``.biglive`` file and make the updates of its journal.

        A last record that was not written to its end, as where a process was killed, is dropped
        with a warning. One process at a time may have a live graph open.

        Args:
            path: the file; its journal lies beside it. Both must be writable, and of one state: a
                journal of another one is refused and left as it is.
            keep_sums: as in :meth:`bignn.PackedModel.live`.

        """
        from bignn.runtime.live import stored

        return stored.open_live(path, keep_sums=keep_sums)

    def close(self) -> None:
        """Stop keeping the graph on disk; it can be opened again, by other processes too."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()
            self._journal = None

    def _replay(self, changes: Changes) -> None:
        """Make changes of a journal, which are in it already."""
        try:
            self._apply(changes)
        except ValueError as error:
            raise FileError(f"the journal does not fit the graph ({error})") from None

    def _attach(self, journal: Journal) -> None:
        """Write every later update to a journal."""
        self._journal = journal

    def __repr__(self) -> str:
        return (
            f"LiveGraph({self._name!r}, nodes={self.num_nodes}, "
            f"layers={len(self.model.network.layers)}, {self.nbytes:,} bytes)"
        )

    def _checked(
        self,
        nodes: Any,
        x: Any,
        add_nodes: Any,
        remove_edges: Any,
        add_edges: Any,
        edge_weight: Any,
        remove_nodes: Any,
    ) -> Changes:
        """Check the arguments of an update, and convert them to rows."""
        stage, before, names = self.model.network.input, self.num_nodes, self.node_names
        given = changes_.read_nodes("nodes", nodes, before, names)
        if (nodes is None) != (x is None):
            raise input_error("x", "given together with 'nodes'", "one of them alone")
        parts = [changes_.read_rows(stage, x, "x")] if x is not None else []
        if parts and len(parts[0][1]) != len(given):
            raise input_error("x", f"a row per node ({len(given)})", f"{len(parts[0][1])} rows")
        if add_nodes is not None:
            parts.append(changes_.read_rows(stage, add_nodes, "add_nodes"))
        num_added = 0 if add_nodes is None else len(parts[-1][1])
        after = before + num_added
        removed = changes_.read_edges("remove_edges", remove_edges, before, names)
        add_edges = changes_.with_new_numbers("add_edges", add_edges, before, num_added, names)
        added = changes_.read_edges("add_edges", add_edges, after)
        use = self.model.edge_weight
        weights = changes_.read_weights("edge_weight", edge_weight, added.shape[1], use)
        gone = changes_.read_nodes("remove_nodes", remove_nodes, before, names)
        rows = [self._rows(part) for part in (given, removed, added, gone)]
        for argument, part in (
            ("nodes", rows[0]),
            ("add_edges", rows[2]),
            ("remove_nodes", rows[3]),
        ):
            self._check_present(argument, part)
        if (missing := int(self._layers.first_missing(rows[1]))) >= 0:
            source, target = (self._shown(node) for node in removed[:, missing].tolist())
            raise input_error("remove_edges", "edges that exist", f"{source} -> {target}")
        parts.append(changes_.no_rows(stage))
        words, beta = (np.concatenate(some) for some in zip(*parts, strict=True))
        return Changes(num_added, rows[0], words, beta, rows[1], rows[2], weights, rows[3])

    def _check_present(self, argument: str, rows: Ints) -> None:
        old = rows[rows < self.num_nodes]
        if self._is_removed[old].any():
            node = int(self._ids(old[self._is_removed[old]])[0])
            got = f"node {self._shown(node)}"
            raise input_error(argument, "nodes that were not removed", got)

    def _shown(self, node: int) -> str:
        """Return what messages call a node: its name, or its number if it has none."""
        if self.node_names is None or node >= len(self.node_names):
            return str(node)
        return f"'{printable(self.node_names[node])}'"

    def _apply(self, made: Changes) -> Ints:
        """Make checked changes."""
        changed = self._layers.update(
            made.nodes,
            made.num_added,
            made.words,
            made.beta,
            made.removed_edges,
            made.added_edges,
            made.weights,
            made.removed_nodes,
        )
        if made.num_added:
            new = np.arange(self.num_nodes - made.num_added, self.num_nodes)
            self._is_removed = np.concatenate([self._is_removed, np.zeros(len(new), np.bool_)])
            if self._places is not None and self._node_ids is not None:
                self._places = np.concatenate([self._places, new])
                self._node_ids = np.concatenate([self._node_ids, new])
        self._is_removed[made.removed_nodes] = True
        return np.sort(self._ids(changed))

    def _rows(self, ids: Ints) -> Ints:
        """Return the rows of nodes; those of new nodes are their numbers."""
        places = self._places
        if places is None:
            return ids
        rows = ids.copy()
        is_old = ids < len(places)
        rows[is_old] = places[ids[is_old]]
        return rows

    def _ids(self, rows: Ints) -> Ints:
        return rows if self._node_ids is None else self._node_ids[rows]


def check_model(model: PackedModel) -> None:
    """Refuse a model that has parts which do not run natively, and name them."""
    network = model.network
    if not native.is_available():
        raise InputError(f"a live graph needs the native kernels: {native.why_not('portable')}")
    if network.rest or not network.layers:
        others = list(dict.fromkeys(_step_name(step) for step in network.rest))
        raise InputError(
            "a live graph needs a model whose layers all run on bits, one after the other; this "
            f"one also has {', '.join(others) if others else 'no such layer'}"
        )
    if network.layers[0].num_inputs > MOST_INPUTS_OF_G:
        raise InputError(
            f"a live graph needs a model of at most {MOST_INPUTS_OF_G} features, this one reads "
            f"{network.layers[0].num_inputs}"
        )


def _step_name(step: Operation | PackedStep) -> str:
    return (
        "a layer that several values are read by"
        if isinstance(step, PackedStep)
        else f"'{step.op}'"
    )


def _kind_arguments(aggr: str) -> tuple[str, str, bool, float]:
    kind = EDGE_KINDS[aggr]
    return kind.loops, kind.factor, kind.is_weighted, kind.own_weight
