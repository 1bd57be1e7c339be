"""Pooling in a model that is traced: PyG's functions and modules that make a row of each graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch_geometric.nn as pyg
from torch import Tensor, fx, nn
from torch_geometric.nn.pool import glob

#: What PyG's modules make of the nodes of a graph.
_MODULES: dict[type[nn.Module], str] = {
    pyg.MeanAggregation: "mean",
    pyg.SumAggregation: "sum",
    pyg.MaxAggregation: "max",
}
#: Modules that are one step of a forward: those above, and others that no packed operation does.
POOLING_MODULES = (pyg.Aggregation,)


def pool_graphs(x: Tensor, batch: Tensor, aggr: str) -> Tensor:
    """Stand for a call of ``global_mean_pool`` or another pooling function in a traced forward."""
    raise NotImplementedError


@contextmanager
def recorded_pools() -> Iterator[None]:
    """Record PyG's pooling functions and modules as single steps while a forward is traced.

    The function that all pooling functions call is replaced, however a model has imported them; and
    the checks that aggregation modules make of their arguments before their forward are left out.
    """
    scatter, call = glob.scatter, pyg.Aggregation.__call__

    def record(x: Any, batch: Any, *args: Any, reduce: str, **kwargs: Any) -> Any:
        if not isinstance(x, fx.Proxy):
            return scatter(x, batch, *args, reduce=reduce, **kwargs)
        return x.tracer.create_proxy("call_function", pool_graphs, (x, batch, reduce), {})

    def record_module(module: nn.Module, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, fx.Proxy):
            return call(module, x, *args, **kwargs)
        return nn.Module.__call__(module, x, *args, **kwargs)

    glob.scatter, pyg.Aggregation.__call__ = record, record_module
    try:
        yield
    finally:
        glob.scatter, pyg.Aggregation.__call__ = scatter, call


def pooling_of(node: fx.Node, module: nn.Module | None) -> tuple[str, Any] | None:
    """Find what a call pools by: its aggregation and the graph of each node; None if it does not.

    Args:
        node: the call in a traced forward.
        module: the module that is called; None for a function.

    """
    if module is None:
        return (str(node.args[2]), node.args[1]) if node.target is pool_graphs else None
    if type(module) not in _MODULES:
        return None
    others = {key: some for key, some in node.kwargs.items() if key not in ("x", "index")}
    if len(node.args) > 2 or others:
        return None
    index = node.args[1] if len(node.args) > 1 else node.kwargs.get("index")
    return _MODULES[type(module)], index
