"""Learning the nodes of one type in a heterogeneous graph: PyG's ``HeteroData``, in one batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch_geometric.data import HeteroData

from bignn.config import Settings
from bignn.errors import InputError, input_error
from bignn.graph.hetero import read_hetero
from bignn.nn.convert.hetero import is_of_edges
from bignn.train.batches import Batch
from bignn.train.distributed import World
from bignn.train.forward import KNOWN_ARGUMENTS, Forward, absent_argument
from bignn.train.problem import EveryNth, NodeProblem, digest_of

_MASKS = ("train_mask", "val_mask")


@dataclass(frozen=True)
class HeteroBatch(Batch):
    """A heterogeneous graph; ``y``, ``loss_nodes`` and the outputs are of one type of nodes.

    Attributes:
        hetero: the ``HeteroData``; ``x`` and ``edge_index`` of the batch are None.
        node_type: the type of nodes that is learned.

    """

    hetero: Any = None
    node_type: str = ""

    #: What a model of one type of nodes raises when it is given a value per type.
    call_errors: ClassVar = (TypeError, AttributeError, KeyError)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of features of all types of nodes."""
        return tuple(int(x.shape[-1]) for x in self.hetero.collect("x", True).values())

    def called_as(self, forward: Forward) -> tuple[str, str]:
        """Return how a model is called, and what to do where it cannot be."""
        how = "model(data)" if forward.takes_data else "model(x_dict, edge_index_dict, ...)"
        return how, "torch_geometric.nn.to_hetero, or HeteroConv, makes a model heterogeneous"

    def logits(self, model: nn.Module) -> Tensor:
        """Call the model with a ``HeteroData``, or with dictionaries; take the type's outputs."""
        forward = Forward.of(model)
        out = model(self.hetero) if forward.takes_data else self._of_dictionaries(model, forward)
        if isinstance(out, dict):
            if self.node_type not in out:
                expected = f"one that returns logits of '{self.node_type}' nodes"
                raise input_error("model", expected, f"those of {list(out)}")
            out = out[self.node_type]
        result: Tensor = out
        return result

    def _of_dictionaries(self, model: nn.Module, forward: Forward) -> Any:
        """Call the model with a value per type; a TypeError if it is one of plain graphs."""
        names = ("x", "edge_index") if forward.takes_any else forward.positional[:2]
        usual = [("x", "edge_index")[is_of_edges(name)] for name in names]
        leading = [self.hetero.collect(name, True) for name in usual]
        others = self._others(forward)
        try:
            return model(*leading, **others)
        except ValueError as error:  # a layer that expects a tensor
            if isinstance(error, InputError) and "got a dict" not in str(error):
                raise
            raise TypeError(str(error)) from error

    def _others(self, forward: Forward) -> dict[str, Any]:
        """Return the arguments after the first two: known ones, and what has no default."""
        given = {}
        for name in forward.positional[2:]:
            part = name.removesuffix("_dict")
            if name not in forward.needed and part not in KNOWN_ARGUMENTS:
                continue
            if found := self.hetero.collect(part, True):
                given[name] = found
            elif name in forward.needed:
                raise absent_argument(name)
        return given


class HeteroProblem(NodeProblem):
    """The nodes of one type in a heterogeneous graph.

    Args:
        of_type: the nodes of that type by themselves: their targets, task and split.
        data: the graph.
        node_type: the type.

    """

    def __init__(self, of_type: NodeProblem, data: HeteroData, node_type: str) -> None:
        data = copy(data).to(of_type.device)
        whole = _batch(data, node_type, of_type.whole.y, of_type.whole.loss_nodes)
        super().__init__(of_type.graph, whole, of_type.task, of_type.val_idx, of_type.test_idx)
        self.name, self.node_type, self._data = "data", node_type, data
        self.num_nodes = sum(int(data[kind].num_nodes or 0) for kind in data.node_types)

    def digest(self) -> str:
        """Return a fingerprint of all tensors of the graph, and of the type that is learned."""
        return digest_of([self.node_type, *_tensors(self._data)])

    def prepare(self, model: nn.Module, settings: Settings, world: World) -> None:
        """Refuse settings of other problems; training and validation see the whole graph."""
        if settings.inductive or settings.sampling is not None:
            fix = "give a loader as 'batches' for samples"
            expected = "without 'inductive' and 'sampling' for a HeteroData"
            raise input_error("settings", expected, "one", fix)
        super().prepare(model, settings, world)
        forward = Forward.of(model)
        read = {name.removesuffix("_dict") for name in forward.names}
        for name in ("edge_weight", "edge_attr"):
            is_there = bool(self._data.collect(name, True))
            if is_there and name not in read and not forward.takes_data and not forward.takes_any:
                line = f"'{name}' is not used: the forward of 'model' takes none"
                warnings.warn(line, stacklevel=2)

    def fit_input(self, model: nn.Module) -> None:
        """Do nothing: layers of a heterogeneous model centre their inputs themselves."""

    def batches(
        self, given: Iterable[Any] | None, model: nn.Module, settings: Settings, world: World
    ) -> tuple[Iterable[Any], bool]:
        """Return a loader's batches, or the whole graph."""
        if given is not None:
            return EveryNth(given, world.share), False
        return super().batches(None, model, settings, world)

    def as_batch(self, data: Any) -> Batch:
        """Convert what a loader yields: the loss is taken on its seeds, or on its train_mask."""
        if isinstance(data, Batch):
            return data
        if not isinstance(data, HeteroData) or data[self.node_type].get("y") is None:
            expected = f"of HeteroData with labels of '{self.node_type}' nodes"
            raise input_error("batches", expected, type(data).__name__)
        data = copy(data).to(self.device)
        nodes = data[self.node_type]
        is_learned = nodes.get("train_mask")
        if is_learned is None:
            is_learned = torch.ones(len(nodes.y), dtype=torch.bool, device=self.device)
        learned = is_learned[: nodes.get("batch_size")].nonzero()[:, 0]
        y = nodes.y.reshape(-1) if self.task.kind == "classes" else nodes.y
        return _batch(data, self.node_type, y, learned)


def _batch(data: HeteroData, node_type: str, y: Tensor, loss_nodes: Tensor) -> HeteroBatch:
    nothing: Any = None
    return HeteroBatch(nothing, nothing, None, y, loss_nodes, hetero=data, node_type=node_type)


def _tensors(data: HeteroData) -> Iterator[Tensor | str]:
    """Yield all tensors of a graph after their names, in an order that is always the same."""
    for kind in [*data.node_types, *data.edge_types]:
        for name, value in sorted(data[kind].items()):
            if isinstance(value, Tensor):
                yield f"{kind} {name}"
                yield value


def labelled_type(data: HeteroData, node_type: str | None) -> str:
    """Choose the type of nodes to learn: the given one, or the only one with labels and masks."""
    labelled = [kind for kind in data.node_types if data[kind].get("y") is not None]
    if node_type is not None and node_type not in data.node_types:
        raise input_error("node_type", f"one of {list(data.node_types)}", repr(node_type))
    if not labelled or (node_type is not None and node_type not in labelled):
        kind = node_type or next(iter(data.node_types), "paper")
        who = "no type of nodes has" if node_type is None else f"'{node_type}' nodes have no"
        fix = f"set data[{kind!r}].y, .train_mask and .val_mask"
        raise InputError(f"'graph' has nothing to learn: {who} labels; {fix}")
    split = {kind: [name for name in _MASKS if data[kind].get(name) is None] for kind in labelled}
    whole = [kind for kind in labelled if not split[kind]]
    if node_type is None and len(whole) > 1:
        fix = f"labels and masks are there for each; pass node_type={whole[0]!r}"
        raise input_error("node_type", f"one of {whole}", None, fix)
    chosen = node_type or (whole or labelled)[0]
    if split[chosen]:
        absent = " and ".join(split[chosen])
        fix = f"set data[{chosen!r}].{split[chosen][0]}, or use PyG's RandomNodeSplit"
        raise InputError(f"'graph' has labels of '{chosen}' nodes, but no {absent}; {fix}")
    return chosen


def check_hetero(data: HeteroData) -> None:
    """Refuse features that are not finite numbers and edges between nodes that do not exist."""
    widths = {
        kind: int(data[kind].x.shape[-1])
        for kind in data.node_types
        if data[kind].get("x") is not None
    }
    with_edges = [kind for kind in data.edge_types if data[kind].get("edge_index") is not None]
    read_hetero(data, widths, with_edges)
