"""Finding out what a model is to learn: the nodes of a graph, many graphs, or links."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data, HeteroData

from bignn.errors import InputError, input_error
from bignn.graph import SPLITS, Graph, as_graph
from bignn.graph.pyg import array_of, is_data, is_dataset, only_graph
from bignn.runtime.parts.graph_part import GraphPart
from bignn.runtime.store import Store
from bignn.train.batches import Batch, edge_types_of, full_batch
from bignn.train.graph_sets import GraphSet, GraphSetProblem, split_off
from bignn.train.hetero_problem import HeteroProblem, check_hetero, labelled_type
from bignn.train.links import LinkProblem, pairs_of
from bignn.train.parts.part_problem import PartProblem
from bignn.train.parts.training_halo import GradientForm
from bignn.train.problem import LearningProblem, NodeProblem
from bignn.train.store_problem import StoreProblem
from bignn.train.tasks import Loss, Task, task_of

#: Share of a list of graphs that validation takes where none is given.
_VALIDATION_SHARE = 0.1


def find_problem(
    graph: Any,
    val: Any,
    test: Any,
    loss: Loss | None,
    batch_size: int,
    seed: int,
    device: torch.device,
    halo_gradients: GradientForm = "float",
    node_type: str | None = None,
) -> LearningProblem:
    """Find what the arguments of :func:`bignn.fit` ask for; they are described there."""
    if is_dataset(graph) and len(graph) == 1:
        graph = only_graph(graph)
    if node_type is not None and not isinstance(graph, HeteroData):
        expected = "left out for a graph of one type of nodes"
        raise input_error("node_type", expected, repr(node_type))
    if isinstance(graph, Store):
        for name, given in (("val", val), ("test", test)):
            if given is not None:
                raise input_error(name, "left out for a store, which has its own", type(given))
        return StoreProblem(graph, loss if callable(loss) else None, device)
    if _is_many(graph):
        training = GraphSet(graph, "graph", batch_size, device).check()
        if val is None and not training.is_list:
            raise input_error("val", "given for a loader", None, "pass another loader or a list")
        if val is None or isinstance(val, int | float):
            share = _VALIDATION_SHARE if val is None else val
            training, validation = split_off(training, share, seed)
        else:
            validation = GraphSet(val, "val", batch_size, device).check()
        tested = None if test is None else GraphSet(test, "test", batch_size, device).check()
        return GraphSetProblem(training, validation, tested, loss, device)
    if getattr(graph, "edge_label_index", None) is not None:
        if isinstance(loss, str) and loss != "bce":
            raise input_error("loss", "a function, or 'bce', for links", repr(loss))
        if val is None:
            raise input_error("val", "a PyG Data with edge_label_index", None)
        return LinkProblem(
            pairs_of(graph, "graph", device),
            pairs_of(val, "val", device),
            None if test is None else pairs_of(test, "test", device),
            loss if callable(loss) else None,
        )
    for name, given in (("val", val), ("test", test)):
        if given is not None:
            fix = f"a graph says its own by {name}_mask ({name}_idx)"
            raise input_error(
                name, "left out for the nodes of one graph", type(given).__name__, fix
            )
    if isinstance(graph, HeteroData):
        return hetero_problem(graph, node_type, loss, device)
    if isinstance(graph, GraphPart):
        return PartProblem(graph, loss, device, halo_gradients)
    return node_problem(graph, loss, device)


def _is_many(graph: Any) -> bool:
    """Whether these are many graphs: a list, a data set, a loader, or a ``Batch`` with their y."""
    if isinstance(graph, list | tuple | Dataset | DataLoader):
        return True
    y, batch = getattr(graph, "y", None), getattr(graph, "batch", None)
    return batch is not None and y is not None and len(y) != len(batch)


def hetero_problem(
    data: HeteroData, node_type: str | None, loss: Loss | None, device: torch.device
) -> HeteroProblem:
    """Take the nodes of one type in a heterogeneous graph."""
    chosen = labelled_type(data, node_type)
    check_hetero(data)
    nodes = data[chosen]
    # The targets and the split are checked as those of a graph without edges.
    names = ("y", "train_mask", "val_mask", "test_mask", "class_names")
    given = {name: nodes[name] for name in names if nodes.get(name) is not None}
    x, edge_index = torch.ones(int(nodes.num_nodes), 1), torch.empty((2, 0), dtype=torch.long)
    return HeteroProblem(node_problem(Data(x, edge_index, **given), loss, device), data, chosen)


def node_problem(graph: Any, loss: Loss | None, device: torch.device) -> NodeProblem:
    """Take the nodes of one graph, with classes, labels or values."""
    y = None if isinstance(graph, Graph) else getattr(graph, "y", None)
    if is_data(graph) and not isinstance(graph, Graph):
        _refuse_empty_masks(graph)
    if isinstance(y, Tensor) and y.ndim == 2 and y.shape[1] == 1 and not y.is_floating_point():
        y = y[:, 0]
    if isinstance(y, Tensor):
        task = task_of(y, loss)
        if task.kind != "classes":
            return _of_other_targets(graph, y, task, device)
    elif is_data(graph) and not isinstance(graph, Graph):
        _refuse_without_labels(graph)
    classes = as_graph(_without_edge_attr(graph))
    whole = full_batch(classes, device)
    whole = replace(whole, data=_on_device(graph, whole.x, device))
    function = loss if callable(loss) else None
    assert classes.val_idx is not None
    return NodeProblem(
        classes,
        whole,
        Task("classes", classes.num_classes, function),
        torch.from_numpy(classes.val_idx).to(device),
        None if classes.test_idx is None else torch.from_numpy(classes.test_idx).to(device),
        _ids_of(graph, device),
    )


def _refuse_without_labels(data: Any) -> None:
    """Refuse a Data without a tensor y; name the masks only where they are absent too."""
    if (y := getattr(data, "y", None)) is not None:
        fix = "number the classes: torch.tensor([0, 2, 1, ...])"
        raise input_error("y", "a tensor in the PyG Data", f"a {type(y).__name__}", fix)
    masks = ("train_mask", "val_mask")
    absent = ["y", *(name for name in masks if getattr(data, name, None) is None)]
    fix = "y is a class id per node (or labels, or numbers)"
    raise InputError(f"data: training needs {', '.join(absent)}; {fix}")


def _of_other_targets(data: Any, y: Tensor, task: Task, device: torch.device) -> NodeProblem:
    """Take labels or values of nodes, which a :class:`bignn.Graph` does not hold, from a Data."""
    graph = as_graph(_without_edge_attr(data), needs_labels=False)
    if graph.y is not None:  # whole numbers that are to be learned as values
        graph = replace(graph, y=None, train_idx=None, val_idx=None, test_idx=None)
    if len(y) != graph.num_nodes:
        got = f"shape {list(y.shape)}"
        raise input_error("y", f"targets of {graph.num_nodes} nodes, one row each", got)
    idx = [_masked(data, key.replace("_idx", "_mask"), device) for key in SPLITS]
    if idx[0] is None or idx[1] is None:
        fix = "PyG's RandomNodeSplit makes them"
        raise InputError(f"{graph.name}: training needs a train_mask and a val_mask; {fix}")
    weight, x = graph.edge_weight, torch.from_numpy(graph.dense_x()).to(device)
    whole = Batch(
        x,
        torch.from_numpy(graph.edge_index).to(device),
        None if weight is None else torch.from_numpy(weight).to(device),
        y.to(device),
        idx[0],
        edge_type=edge_types_of(graph, device),
        data=_on_device(data, x, device),
    )
    return NodeProblem(graph, whole, task, idx[1], idx[2], _ids_of(data, device))


def _ids_of(data: Any, device: torch.device) -> Tensor | None:
    """Return the features of a ``Data`` where they are whole numbers."""
    x = data.get("x") if isinstance(data, Data) else None
    if not isinstance(x, Tensor) or x.dtype not in (torch.int64, torch.int32) or x.is_sparse:
        return None
    return x.to(device)


def _on_device(data: Any, x: Any, device: torch.device) -> Data | None:
    """Return a copy of a ``Data`` on a device, whose features are there; None for another graph."""
    if not isinstance(data, Data):
        return None
    data = copy(data)
    data.x = x
    return data.to(device)


def _without_edge_attr(data: Any) -> Any:
    """Return a ``Data`` without features of edges: the model tells whether they are used."""
    if not isinstance(data, Data):
        return data
    data = copy(data)
    data.edge_attr = None
    return data


def _refuse_empty_masks(data: Any) -> None:
    """Refuse a train_mask or val_mask that is False everywhere."""
    for name in ("train_mask", "val_mask"):
        mask = getattr(data, name, None)
        if isinstance(mask, Tensor) and not bool(mask.any()):
            raise input_error(name, "True at some nodes", "False at all of them")


def _masked(data: Any, name: str, device: torch.device) -> Tensor | None:
    """Return the numbers of the nodes in a mask; None if there is no mask, or no node in it."""
    if getattr(data, name, None) is None:
        return None
    mask = torch.from_numpy(array_of(name, getattr(data, name)))
    if mask.dtype != torch.bool or mask.shape != (data.num_nodes,):
        got = f"{str(mask.dtype).removeprefix('torch.')} of shape {list(mask.shape)}"
        raise input_error(name, f"one boolean per node [{data.num_nodes}]", got)
    nodes = mask.nonzero()[:, 0].to(device)
    return nodes if len(nodes) else None
