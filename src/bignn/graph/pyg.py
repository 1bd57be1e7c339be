"""Converts PyG's ``Data`` to a graph and back. Only :func:`to_pyg` imports torch, when called."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import suppress
from copy import copy
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, input_error, missing_extra
from bignn.graph.graph import SPLITS, Graph, from_arrays
from bignn.graph.names import Names, names_to_arrays

if TYPE_CHECKING:
    from torch_geometric.data import Data


class DataLike(Protocol):
    """The part of a PyG ``Data`` that type checkers see."""

    @property
    def x(self) -> Any:
        """Node features [N, d]."""

    @property
    def edge_index(self) -> Any:
        """Sources and targets [2, E]."""


#: The types that functions accept as a graph.
GraphLike = Graph | DataLike


def as_graph(
    graph: GraphLike,
    expected: str = "a bignn.Graph or a PyG Data",
    *,
    needs_labels: bool = True,
) -> Graph:
    """Return a graph as it is, and convert a PyG ``Data``; refuse anything else in one line.

    Where labels are not needed, those that are no classes of nodes are left out.
    """
    if isinstance(graph, Graph):
        return graph
    graph = only_graph(graph)
    if not is_data(graph):
        raise input_error("graph", expected, type(graph).__name__, _how_to_convert(graph))
    if needs_labels:
        return from_pyg(graph)
    arrays = _features_and_edges(graph)
    arrays |= _names(graph)
    with suppress(InputError, TypeError):  # such as types that NumPy does not have
        return from_arrays({**arrays, **_labels(graph, arrays["x"])}, name="data")
    return from_arrays(arrays, name="data")


def from_pyg(data: DataLike, name: str = "data") -> Graph:
    """Convert a PyG ``Data`` to a :class:`bignn.Graph`; arrays may share memory with it.

    Args:
        data: takes from it ``x`` (made dense), ``edge_index``, ``edge_weight``, ``edge_type``
            (whole numbers [E]), ``y`` and the masks ``train_mask``, ``val_mask`` and
            ``test_mask``; a mask without a True counts as absent. ``node_names`` is a name per
            node, ``class_names`` (or ``label_names``) one per class: lists of texts or whole
            numbers. ``edge_attr`` is left out with a warning: PyG's convolutions do not use it as
            weights by themselves, and codes of edge types would be wrong weights. A PyG ``Dataset``
            of one graph stands for this graph; where it has OGB's ``get_idx_split()``, that is
            the split.
        name: name of the graph, for messages.

    """
    graph = only_graph(data)
    if not is_data(graph):
        raise input_error("data", "a PyG Data", type(data).__name__, _how_to_convert(data))
    arrays = _features_and_edges(graph)
    return from_arrays({**arrays, **_labels(graph, arrays["x"]), **_names(graph)}, name=name)


def is_dataset(value: Any) -> bool:
    """Whether a value has what a PyG ``Dataset`` has."""
    return all(hasattr(value, name) for name in ("indices", "get", "len"))


def only_graph(data: Any) -> Any:
    """Return the one graph of a PyG ``Dataset``, with its split; anything else as it is."""
    if not is_dataset(data):
        return data
    if len(data) != 1:
        fix = "choose one, dataset[0], or pass list(dataset) to predict whole graphs"
        raise input_error("data", "a data set of one graph", f"one of {len(data)}", fix)
    graph = data[0]
    if hasattr(data, "get_idx_split") and getattr(graph, "train_mask", None) is None:
        graph = copy(graph)
        for part, ids in data.get_idx_split().items():  # as OGB's data sets have it
            mask = graph.y.new_zeros(graph.num_nodes).bool()
            mask[ids] = True
            graph[f"{part.replace('valid', 'val')}_mask"] = mask
    return graph


def _how_to_convert(value: Any) -> str:
    """Return the function that makes a graph of another library's object."""
    library = type(value).__module__.split(".")[0]
    if library in ("networkx", "scipy", "dgl"):
        return f"convert it with bignn.from_{library}"
    if isinstance(value, Mapping) and "edge_index" in value:
        return "convert it with bignn.from_ogb"
    return "see bignn.load"


def _names(data: Any) -> dict[str, NDArray[Any]]:
    """Return the names of nodes and classes; a ``Batch`` has lists of them, which are left out."""
    if getattr(data, "batch", None) is not None:
        return {}
    classes = getattr(data, "class_names", None)
    given = {
        "node_names": _names_of_batch(data, getattr(data, "node_names", None)),
        "class_names": getattr(data, "label_names", None) if classes is None else classes,
    }
    arrays: dict[str, NDArray[Any]] = {}
    for key, names in given.items():
        if names is not None:
            arrays |= names_to_arrays(key, names)
    return arrays


def _names_of_batch(data: Any, names: Any) -> Any:
    """Return the names of some nodes of a graph, where a ``Data`` has those of all of it."""
    if not isinstance(names, Names) or len(names) == data.num_nodes:
        return names
    numbers = getattr(data, "n_id", None)
    if numbers is not None:  # a loader's batch
        return [names[number] for number in array_of("n_id", numbers).tolist()]
    warnings.warn(
        f"'node_names' are those of {len(names)} nodes, not of {data.num_nodes}, and are left out",
        stacklevel=5,
    )
    return None


def _features_and_edges(data: DataLike) -> dict[str, NDArray[Any]]:
    if data.x is None:
        raise InputError("'data' has no node features x; give every node a feature vector")
    if data.edge_index is None:
        raise InputError("'data' has no edge_index; leave out ToSparseTensor, which drops it")
    edges = array_of("edge_index", data.edge_index)
    arrays = {"x": array_of("x", data.x, as_floats=True), "edge_index": edges}
    weight = getattr(data, "edge_weight", None)
    if weight is None and getattr(data, "edge_attr", None) is not None:
        warnings.warn(
            "'edge_attr' is not used; if it holds weights that the model is called with, set "
            "data.edge_weight = data.edge_attr.view(-1)",
            stacklevel=4,
        )
    if weight is not None:
        arrays["edge_weight"] = array_of("edge_weight", weight, as_floats=True)
    if (types := _edge_types(data, edges)) is not None:
        arrays["edge_type"] = types
    return arrays


def _edge_types(data: Any, edges: NDArray[Any]) -> NDArray[Any] | None:
    """Return the relation of each edge; None where the attribute is something else."""
    given = getattr(data, "edge_type", None)
    if not (hasattr(given, "layout") and hasattr(given, "to_dense")):
        return None
    types = array_of("edge_type", given)
    if types.ndim != 1:  # such as a row per edge, of models that read it in another way
        return None
    if types.dtype.kind not in "iu" or types.shape != edges.shape[1:]:
        expected = f"whole numbers, one relation per edge [{edges.shape[-1]}]"
        got = f"{types.dtype} of shape {list(types.shape)}"
        raise input_error("edge_type", expected, got, "mend it, or leave it out")
    return types


def _labels(data: Any, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return the labels and splits; a split is one of labels."""
    if getattr(data, "y", None) is None:
        return {}
    arrays = {"y": array_of("y", data.y)}
    for key in SPLITS:
        mask_name = key.replace("_idx", "_mask")
        if getattr(data, mask_name, None) is None:
            continue
        mask = array_of(mask_name, getattr(data, mask_name))
        if mask.shape != x.shape[:1] or mask.dtype != np.bool_:
            fix = ""
            if mask.ndim == 2:
                fix = "of several splits, choose one: data.train_mask = data.train_mask[:, 0], ..."
            elif len(mask) == len(arrays["y"]):
                fix = f"'y' has {len(mask)} rows too: does 'x' lack some?"
            expected = f"one boolean per row of 'x' [{len(x)}]"
            got = f"{mask.dtype} of shape {list(mask.shape)}"
            raise input_error(mask_name, expected, got, fix)
        if mask.any():
            arrays[key] = np.flatnonzero(mask)
    return arrays


def to_pyg(graph: GraphLike) -> Data:
    """Copy a graph into a PyG ``Data``; needs torch and PyG.

    Args:
        graph: a :class:`bignn.Graph`.

    Returns:
        A ``Data`` with dense ``x`` and, where the graph has them, ``edge_weight``, ``edge_type``,
        ``y``, ``train_mask``, ``val_mask``, ``test_mask``, ``node_names`` and ``class_names``. It
        shares no array with the graph but that of names.

    """
    try:
        import torch
        from torch_geometric.data import Data
    except ImportError as error:
        if (line := missing_extra("bignn.to_pyg", error)) is None:
            raise
        raise ImportError(line, name=error.name) from error

    graph = as_graph(graph)
    data = Data(
        x=torch.tensor(graph.dense_x()),
        edge_index=torch.tensor(graph.edge_index),
        num_nodes=graph.num_nodes,
    )
    if graph.edge_weight is not None:
        data.edge_weight = torch.tensor(graph.edge_weight)
    if graph.edge_type is not None:
        data.edge_type = torch.tensor(graph.edge_type)
    if graph.y is not None:
        data.y = torch.tensor(graph.y)
    for key in SPLITS:
        ids = getattr(graph, key)
        if ids is not None:
            mask = torch.zeros(graph.num_nodes, dtype=torch.bool)
            mask[torch.from_numpy(ids)] = True
            data[key.replace("_idx", "_mask")] = mask
    for key in ("node_names", "class_names"):
        if (names := getattr(graph, key)) is not None:
            data[key] = Names.of(names, key)
    return data


def is_data(value: Any) -> bool:
    """Whether a value has what a PyG ``Data`` has."""
    return not isinstance(value, type) and hasattr(value, "x") and hasattr(value, "edge_index")


def any_array(name: str, values: Any) -> NDArray[Any]:
    """Return a tensor, an array or a list as an array."""
    if hasattr(values, "layout") and hasattr(values, "to_dense"):
        return array_of(name, values)
    try:
        return np.asarray(values)
    except ValueError:  # lists of unequal lengths
        raise input_error(name, "an array", "lists of several lengths") from None


def array_of(name: str, tensor: Any, *, as_floats: bool = False) -> NDArray[Any]:
    """Return a tensor of a PyG ``Data``, wherever it is, as a dense array."""
    if not (hasattr(tensor, "layout") and hasattr(tensor, "to_dense")):
        raise input_error(name, "a tensor in the PyG Data", type(tensor).__name__)
    if as_floats and tensor.is_complex():
        raise input_error(name, "of real numbers", tensor.dtype, "pass its real part")
    if tensor.is_meta:
        raise input_error(name, "a tensor with values", "one on the meta device")
    dense = tensor.detach().cpu()
    if str(dense.layout) != "torch.strided":  # to_dense of a strided EdgeIndex is an adjacency
        dense = dense.to_dense()
    # NumPy has no bfloat16.
    array: NDArray[Any] = (dense.float() if as_floats else dense).numpy()
    return array
