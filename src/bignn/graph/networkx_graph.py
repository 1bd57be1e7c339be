"""Converts graphs of NetworkX, by what their objects have; does not import it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error, printable
from bignn.graph.graph import SPLITS, UNLABELLED, Graph
from bignn.graph.libraries import MAKE_FEATURES, Split, made_graph, without_empty
from bignn.graph.names import unless_numbers
from bignn.graph.pyg import any_array


def from_networkx(
    graph: Any,
    x: str | Sequence[str] | None = "x",
    y: str | None = "y",
    *,
    weight: str | None = "weight",
    features: str | None = None,
    split: Split | None = None,
    seed: int = 0,
    name: str = "networkx",
) -> Graph:
    """Convert a NetworkX graph to a :class:`bignn.Graph`.

    Nodes are numbered in the order of ``graph.nodes``, and keep their names, unless these are the
    numbers 0, 1, ... already. An undirected edge becomes two; parallel edges stay.

    Args:
        graph: a ``Graph``, ``DiGraph``, ``MultiGraph`` or ``MultiDiGraph``.
        x: the node attribute that holds features, a number or a list of numbers; or several, side
            by side. Ignored where no node has ``"x"``.
        y: the node attribute that holds the label: a whole number, or a text, whose classes are
            numbered in sorted order and keep their names; None or absent where it is unknown.
            Another name than the default must be at some node; None for no labels.
        weight: the edge attribute that holds weights, NetworkX's ``"weight"`` by default; an edge
            without it has weight 1, as in NetworkX. None for no weights. Another name than the
            default must be at some edge.
        features: makes features of nodes that have none, as in :func:`bignn.from_scipy`.
        split: as in :func:`bignn.from_scipy`; by default the node attributes ``train_mask``,
            ``val_mask`` and ``test_mask`` (booleans), where there are any.
        seed: as in :func:`bignn.from_scipy`.
        name: name of the graph, for messages.

    """
    if not all(hasattr(graph, part) for part in ("nodes", "edges", "is_directed")):
        raise input_error("graph", "a NetworkX graph", type(graph).__name__)
    nodes = list(graph.nodes)
    place = {node: number for number, node in enumerate(nodes)}
    attributes = [graph.nodes[node] for node in nodes]
    wanted = [x] if isinstance(x, str) else list(x or ())
    if wanted == ["x"] and not any("x" in some for some in attributes):
        wanted = []
    pairs, weights = [], []
    for source, target, some in graph.edges(data=True):
        pairs.append((place[source], place[target]))
        weights.append(some.get(weight, None) if weight is not None else None)
    edges = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    if weight not in (None, "weight") and pairs and all(some is None for some in weights):
        raise input_error("weight", "an edge attribute", f"'{weight}', which no edge has")
    of_edges = _weights(weights)
    if not graph.is_directed():
        other = edges[0] != edges[1]
        edges = np.concatenate([edges, edges[::-1, other]], axis=1)
        if of_edges is not None:
            of_edges = np.concatenate([of_edges, of_edges[other]])
    labels, classes = (None, None) if y is None else _labels(y, attributes)
    names = [str(node) for node in nodes]
    return made_graph(
        edges,
        of_edges,
        len(nodes),
        _features(wanted, nodes, attributes) if wanted else None,
        features,
        name,
        y=labels,
        split=_split(attributes) if split is None and labels is not None else split,
        seed=seed,
        node_names=unless_numbers(names),
        class_names=classes,
    )


def _weights(weights: list[Any]) -> NDArray[np.float64] | None:
    """Return the weights of edges, 1 where an edge has none; None where no edge has one."""
    if all(weight is None or weight == 1 for weight in weights):
        return None
    try:
        return np.array([1.0 if weight is None else float(weight) for weight in weights])
    except (TypeError, ValueError):
        bad = next(weight for weight in weights if not isinstance(weight, int | float | None))
        fix = "pass weight=None, or the attribute that holds weights"
        raise input_error("weight", "an edge attribute of numbers", repr(bad), fix) from None


def _features(
    wanted: Iterable[str], nodes: list[Any], attributes: list[Mapping[str, Any]]
) -> NDArray[np.float64]:
    """Return the features of all nodes, attributes side by side."""
    parts = []
    for key in wanted:
        lacking = next(
            (node for node, some in zip(nodes, attributes, strict=True) if key not in some), None
        )
        if lacking is not None:
            fix = (
                "give it to every node"
                if any(key in some for some in attributes)
                else MAKE_FEATURES
            )
            got = f"none at node {lacking!r}"
            raise input_error("x", f"a node attribute; '{key}' must be at every node", got, fix)
        try:
            rows = np.array([any_array(key, some[key]) for some in attributes], dtype=np.float64)
        except (TypeError, ValueError):
            expected = f"numbers, or lists of one length, in '{key}'"
            raise input_error("x", expected, "others") from None
        parts.append(rows.reshape(len(nodes), -1))
    return np.concatenate(parts, axis=1)


def _labels(
    key: str, attributes: list[Mapping[str, Any]]
) -> tuple[NDArray[np.int64] | None, list[str] | None]:
    """Return classes, and their names where they are texts."""
    found = [some.get(key) for some in attributes]
    if all(label is None for label in found):
        if key != "y" and not any(key in some for some in attributes):
            raise input_error("y", "a node attribute", f"'{printable(key)}', which no node has")
        return None, None
    if any(isinstance(label, str) for label in found):
        names = sorted({str(label) for label in found if label is not None})
        number = {name: place for place, name in enumerate(names)}
        numbers = [UNLABELLED if label is None else number[str(label)] for label in found]
        return np.array(numbers, dtype=np.int64), names
    try:
        numbers = [UNLABELLED if label is None else int(label) for label in found]
    except (TypeError, ValueError):
        raise input_error("y", f"whole numbers or texts in '{key}'", "others") from None
    if any(label is not None and label != int(label) for label in found):
        raise input_error("y", f"whole numbers or texts in '{key}'", "fractions")
    return np.array(numbers, dtype=np.int64), None


def _split(attributes: list[Mapping[str, Any]]) -> dict[str, NDArray[Any]]:
    """Return the split that masks of nodes make."""
    masks = {key: key.replace("_idx", "_mask") for key in SPLITS}
    return without_empty(
        {
            key: np.flatnonzero([bool(some.get(mask, False)) for some in attributes])
            for key, mask in masks.items()
        }
    )
