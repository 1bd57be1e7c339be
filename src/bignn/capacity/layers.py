"""The values of a trained model's layers for every node: input, hidden layers, output."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from numpy.typing import NDArray
from torch import Tensor, nn

from bignn.errors import input_error
from bignn.graph import GraphLike, as_graph
from bignn.nn import GATConv, GCNConv, GINConv, JumpingHead, Linear, SAGEConv, SGConv
from bignn.nn.evaluation import evaluating, naming_width_errors

#: Modules that read a layer's values as a whole; modules inside them are not visited.
_READERS: tuple[type[nn.Module], ...] = (
    *(GCNConv, SAGEConv, GATConv, GINConv, SGConv, JumpingHead, Linear),
    *(pyg.MessagePassing, pyg.JumpingKnowledge, pyg.Linear, nn.Linear),
)

Visit = Callable[[str, NDArray[Any]], None]


@torch.no_grad()
def visit_layers(model: nn.Module, graph: GraphLike, visit: Visit) -> None:
    """Run the model once on the whole graph and visit each layer's values [N, d], in order.

    The calls are ``visit("input", x)``, ``visit("hidden 1", h)``, ..., ``visit("output", logits)``.
    A hidden layer is what a convolution or a linear map reads, the first one excepted: values after
    aggregation, normalisation and activation, which the paper takes entropies of. Values that
    several modules read are visited once; outputs that a jumping head reads side by side are
    layers of their own. The model runs in evaluation mode; afterwards every module's mode is as
    before.
    """
    if not isinstance(model, nn.Module):
        raise input_error("model", "a trained torch.nn.Module", type(model).__name__)
    graph = as_graph(graph)
    where = next((p.device for p in model.parameters()), torch.device("cpu"))
    features = graph.dense_x()
    x = torch.from_numpy(features).to(where)
    rest = [torch.from_numpy(graph.edge_index).to(where)]
    if graph.edge_weight is not None:
        rest.append(torch.from_numpy(graph.edge_weight).to(where))
    visit("input", features)
    del features
    with (
        evaluating(model),
        naming_width_errors("model", x.shape[1]),
        _HiddenLayers(model, x, visit),
    ):
        out = model(x, *rest)
    if not isinstance(out, Tensor) or out.ndim != 2 or len(out) != graph.num_nodes:
        came = f"shape {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
        raise input_error("model", "one that returns a tensor [nodes, classes]", came)
    visit("output", _numpy(out))


class _HiddenLayers:
    """A context in which values that the model's readers read are visited, but the first one's."""

    def __init__(self, model: nn.Module, x: Tensor, visit: Visit) -> None:
        self._model, self._visit = model, visit
        self._num_nodes = len(x)
        self._shown = {_fingerprint(x)}
        self._count = 0
        self._is_first = True
        self._hooks = ExitStack()

    def __enter__(self) -> None:
        for reader in _readers(self._model):
            # Before the hooks of converted layers, which read the same value as bits.
            hook = reader.register_forward_pre_hook(self._read, prepend=True, with_kwargs=True)
            self._hooks.callback(hook.remove)
            if isinstance(reader, pyg.JumpingKnowledge):
                hook = reader.register_forward_hook(self._joined)
                self._hooks.callback(hook.remove)

    def __exit__(self, *error: object) -> None:
        self._hooks.close()

    def _read(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = args[0] if args else next(iter(kwargs.values()), None)
        is_first, self._is_first = self._is_first, False
        # Heads read a list of layers, the last of them unread so far; PyG's bipartite convolutions
        # a pair of the same.
        for value in given if isinstance(given, list | tuple) else [given]:
            if not isinstance(value, Tensor) or value.ndim != 2 or len(value) != self._num_nodes:
                continue
            known = _fingerprint(value) in self._shown
            self._shown.add(_fingerprint(value))
            if not known and not is_first:
                self._count += 1
                self._visit(f"hidden {self._count}", _numpy(value))

    def _joined(self, module: nn.Module, args: Any, out: Any) -> None:
        """Note layers side by side, which are no new layer."""
        if isinstance(out, Tensor):
            self._shown.add(_fingerprint(out))


def _fingerprint(values: Tensor) -> tuple[object, ...]:
    """Identify values by what they are, since dropout in evaluation makes a new tensor."""
    total = values.sum(dtype=torch.float64)
    length = torch.linalg.vector_norm(values.to(torch.promote_types(values.dtype, torch.float32)))
    if length == 0:  # dead layers look alike and are not the same
        return (object(),)
    return (tuple(values.shape), float(total), float(length))


def _readers(module: nn.Module) -> Iterator[nn.Module]:
    for child in module.children():
        if isinstance(child, _READERS):
            yield child
        else:
            yield from _readers(child)


def _numpy(values: Tensor) -> NDArray[Any]:
    values = values.detach().cpu()
    # NumPy does not have every float of 16 bits.
    array: NDArray[Any] = (values.float() if values.element_size() < 4 else values).numpy()
    return np.asarray(array)
