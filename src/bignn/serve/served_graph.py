"""The graph behind the service: a live one that is updated, or one that stays as it is.

Everything here blocks, and is called from threads: questions from one, updates from another.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, InputError, input_error
from bignn.graph.names import NameList, Names
from bignn.runtime import LiveGraph, PackedModel
from bignn.runtime.hetero_graph import PackedHeteroGraph
from bignn.runtime.live.journal import header_of
from bignn.runtime.live.live_graph import check_model
from bignn.runtime.live.new_answers import NewQuestion, predict_new
from bignn.runtime.live.stored import journal_path
from bignn.runtime.neighbourhood import AnyPackedGraph
from bignn.runtime.predict_file import open_graph
from bignn.runtime.tensors import LIVE_SUFFIX, check_suffix, digest_of

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]

#: A journal is written into the file when it is larger than this and than the file.
_LEAST_JOURNAL = 64 << 20
#: Bytes of a journal without updates: the state's name has always the same length.
_EMPTY_JOURNAL = len(header_of("0" * 32))


class MadeUpdate(NamedTuple):
    """What an update changed.

    Attributes:
        nodes: the nodes whose class is another now, rising; new and removed ones among them.
        classes: their classes now, -1 of removed ones.
        num_nodes: number of nodes after the update.
        num_added: how many of them the update added; they are the last ones.

    """

    nodes: Ints
    classes: Ints
    num_nodes: int
    num_added: int

    def come_and_gone(self) -> Ints:
        """Return the nodes that were added or removed, rising."""
        is_new = self.nodes >= self.num_nodes - self.num_added
        found: Ints = self.nodes[is_new | (self.classes == -1)]
        return found


class ServedGraph(ABC):
    """A graph with a model's answers for its nodes.

    Attributes:
        model: the packed model.
        path: the file that updates are kept in; None where they are not kept.
        why_fixed: one line that says why there are no updates; empty where there are.
        live_bytes: bytes of the live graph after the last update; 0 without one.
        node_names: names of the nodes that the graph had at first; None if they have none.

    """

    def __init__(
        self, model: PackedModel, path: Path | None, why_fixed: str, node_names: Names | None
    ) -> None:
        self.model, self.path, self.why_fixed = model, path, why_fixed
        self.live_bytes = 0
        self.node_names = node_names

    def named(self, nodes: Ints, classes: Ints | None) -> dict[str, NDArray[Any]]:
        """Return the columns of an answer: nodes and classes, with names where they have some."""
        columns: dict[str, NDArray[Any]] = {"node": nodes}
        if self.node_names is not None:
            columns["name"] = _names_of(nodes, self.node_names)
        if classes is not None:
            columns["class"] = classes
            if self.model.class_names is not None:
                columns["class_name"] = _names_of(classes, self.model.class_names)
        return columns

    @abstractmethod
    def classes(self) -> Ints:
        """Return the class of every node, -1 of removed ones."""

    @abstractmethod
    def logits(self, nodes: Ints) -> Floats:
        """Compute the logits of some nodes, NaN of removed ones."""

    @abstractmethod
    def logits_of_new(self, questions: Sequence[NewQuestion]) -> Sequence[Floats | InputError]:
        """Compute the logits of new nodes; bad questions get their error."""

    def update(self, changes: Mapping[str, Any]) -> MadeUpdate:
        """Make the changes of one request."""
        raise InputError(self.why_fixed)

    def journal_bytes(self) -> int:
        """Return the bytes of updates that are not in the file yet."""
        return 0 if self.path is None else journal_path(self.path).stat().st_size

    @abstractmethod
    def close(self) -> None:
        """Let the graph go; its updates are in its file."""


class FixedGraph(ServedGraph):
    """A graph that stays as it is, for models that have no live graph."""

    def __init__(self, model: PackedModel, graph: AnyPackedGraph, why_fixed: str) -> None:
        names = None if isinstance(graph, PackedHeteroGraph) else graph.node_names
        super().__init__(model, None, why_fixed, names)
        self._graph = graph
        self._classes = model.predict(graph, output="classes")

    def classes(self) -> Ints:
        """Return the class of every node."""
        return self._classes

    def logits(self, nodes: Ints) -> Floats:
        """Compute the logits of some nodes."""
        return self.model.predict(self._graph, nodes, output="logits")

    def logits_of_new(self, questions: Sequence[NewQuestion]) -> Sequence[Floats | InputError]:
        """Compute the logits of new nodes, each question by itself."""
        answers: list[Floats | InputError] = []
        for x, edges, edge_weight in questions:
            try:
                found = self.model.predict_new(
                    self._graph, x, edges, edge_weight=edge_weight, output="logits"
                )
            except InputError as error:
                answers.append(error)
            else:
                answers.append(found)
        return answers

    def close(self) -> None:
        """Do nothing: nothing is kept."""


class ServedLiveGraph(ServedGraph):
    """A live graph, kept in a file if it has a path."""

    def __init__(self, live: LiveGraph, path: Path | None) -> None:
        super().__init__(live.model, path, "", live.node_names)
        self._live = live
        self.live_bytes = live.nbytes
        self._most_journal = self._journal_bound()

    def classes(self) -> Ints:
        """Return the class of every node, -1 of removed ones."""
        return self._live.predict(output="classes")

    def logits(self, nodes: Ints) -> Floats:
        """Compute the logits of some nodes, NaN of removed ones."""
        return self._live.predict(nodes, output="logits")

    def logits_of_new(self, questions: Sequence[NewQuestion]) -> Sequence[Floats | InputError]:
        """Compute the logits of new nodes, all questions in one run."""
        return predict_new(self._live, questions, "logits")

    def update(self, changes: Mapping[str, Any]) -> MadeUpdate:
        """Make the changes of one request; edges to its new nodes call them -1, -2, ..."""
        live, before = self._live, self._live.num_nodes
        nodes = live.update(**changes)
        self.live_bytes = live.nbytes
        classes = live.predict(nodes, output="classes")
        if (size := self.journal_bytes()) > self._most_journal:
            self._most_journal = 2 * size  # where it cannot be saved, the journal goes on
            with suppress(FileError):
                self._save()
        return MadeUpdate(nodes, classes, live.num_nodes, live.num_nodes - before)

    def close(self) -> None:
        """Write the journal's updates into the file, and close both."""
        try:
            if self.path is not None and self.journal_bytes() > _EMPTY_JOURNAL:
                self._save()
        finally:
            self._live.close()

    def _save(self) -> None:
        assert self.path is not None
        self._live.save(self.path)
        self._most_journal = self._journal_bound()

    def _journal_bound(self) -> int:
        return max(_LEAST_JOURNAL, 0 if self.path is None else self.path.stat().st_size)


def open_served(model_path: str, graph: str | None, live_path: str | None) -> ServedGraph:
    """Open what ``bignn serve MODEL GRAPH --live FILE`` names.

    A live graph's file stands for model and graph, and is kept up to date. ``live_path`` is made
    of the graph when it does not exist, and opened instead of the graph when it does.
    """
    if model_path.endswith(LIVE_SUFFIX):
        if graph is not None or live_path is not None:
            raise InputError(f"'{model_path}' has a model and a graph in it; give nothing else")
        return _open_live(model_path, None)
    if graph is None:
        raise input_error("graph", "given unless 'model' is a .biglive file", "none")
    model = PackedModel.open(model_path)
    if model.network.is_pooled:
        raise InputError(f"'{model_path}' pools: it makes answers of graphs, and has none of nodes")
    if graph.endswith(LIVE_SUFFIX):
        if live_path is not None:
            raise input_error("live", "left out for a graph that is a .biglive file", live_path)
        return _open_live(graph, model)
    if live_path is not None:
        check_suffix(live_path, LIVE_SUFFIX, "live")
        try:
            check_model(model)
        except InputError as error:
            line = f"{error}; leave --live out to serve a graph that stays as it is"
            raise InputError(line) from None
        if Path(live_path).exists():
            return _open_live(live_path, model)
    packed = open_graph(graph, model)
    try:
        live = model.live(packed)
    except InputError as error:
        if live_path is not None:
            raise
        return FixedGraph(model, packed, f"this graph cannot be changed: {error}")
    if live_path is not None:
        live.save(live_path)
    return ServedLiveGraph(live, None if live_path is None else Path(live_path))


def _open_live(path: str, model: PackedModel | None) -> ServedGraph:
    live = LiveGraph.open(path)
    if model is not None and _digest(live.model) != _digest(model):
        live.close()
        raise FileError(f"'{path}' was made with another model; serve it as 'bignn serve {path}'")
    return ServedLiveGraph(live, Path(path))


def _digest(model: PackedModel) -> str:
    arrays, header = model.parts()
    return digest_of(json.dumps(header, sort_keys=True), arrays)


def _names_of(numbers: Ints, names: NameList) -> NDArray[np.object_]:
    """Return the names of numbers, None of those that have none."""
    found = np.empty(len(numbers), dtype=object)
    for place, number in enumerate(numbers.tolist()):
        found[place] = names[number] if 0 <= number < len(names) else None
    return found
