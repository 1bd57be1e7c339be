"""A user's graph with trained models, as a problem for the benchmarks' contenders."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bignn.errors import input_error
from bignn.graph import Graph, SparseRows
from bignn.kernels.compressed_rows import compress_edges
from bignn.kernels.gcn_degrees import gcn_degree_scale, with_self_loops
from bignn.lab.bench.contenders import Contender, contenders_of
from bignn.lab.bench.problems import (
    MODELS,
    Floats,
    Problem,
    float_features,
    sparse_features,
)
from bignn.nn import GNN, GATConv, SAGEConv
from bignn.nn.features import SparseFeatures
from bignn.runtime import PackedGraph, pack_graph

#: Nodes of the graph on which libraries are warmed up.
_FEW = 256


@dataclass(frozen=True, eq=False)
class NeighbourRows:
    """A graph's neighbours in compressed rows: of A + I with edge weights, and of A."""

    offsets: NDArray[np.int64]
    ids: NDArray[Any]
    weights: Floats | None
    degree_scale: Floats
    adjacency_rows: tuple[NDArray[np.int64], NDArray[Any]]

    @classmethod
    def of(cls, graph: Graph) -> NeighbourRows:
        """Return the rows of a graph, as :func:`bignn.pack_graph` makes them."""
        source, target = graph.edge_index
        num_nodes = graph.num_nodes
        offsets, ids, _ = compress_edges(source, target, None, num_nodes)
        edges = source, target, graph.edge_weight
        return cls(
            *compress_edges(*with_self_loops(*edges, num_nodes), num_nodes),
            gcn_degree_scale(*edges, num_nodes),
            (offsets, ids),
        )


class ComparedProblem(Problem):
    """A graph, a trained float model, and its trained binary twin where there is one.

    Differs from the other problems: the float contenders have the float model's own weights, so
    they predict what it does, and its own widths, which need not be the twin's.
    """

    def __init__(
        self,
        graph: Graph,
        float_model: GNN,
        binary: GNN | None = None,
        neighbours: NeighbourRows | None = None,
    ) -> None:
        config = float_model.config
        conv = config["conv"]
        super().__init__(graph.name, conv if conv in ("sage", "gat") else "gcn")
        self.graph, self.float_model = graph, float_model
        if binary is not None:
            self.model = binary
        self.activation = config["activation"]
        width = config["hidden_channels"] * config["heads"]
        num_hidden = config["num_layers"] - (config["jk"] is None)
        self.sizes = (graph.num_features, *[width] * num_hidden, config["out_channels"])
        self.neighbours = NeighbourRows.of(graph) if neighbours is None else neighbours
        self.offsets, self.ids = self.neighbours.offsets, self.neighbours.ids
        self.degree_scale, self.entry_weights = (
            self.neighbours.degree_scale,
            self.neighbours.weights,
        )

    @property
    def heads(self) -> list[int]:
        """Attention heads of each layer of the float model; 1 without attention."""
        return [c.heads if isinstance(c, GATConv) else 1 for c in self.float_model.layers]

    @cached_property
    def weights(self) -> list[Tensor]:
        """See the base class."""
        return [_linear(conv).weight.detach() for conv in self.float_model.layers]

    @cached_property
    def biases(self) -> list[Tensor]:
        """See the base class."""
        layers = self.float_model.layers
        found: list[Any] = [c.lin_l.bias if isinstance(c, SAGEConv) else c.bias for c in layers]
        return [bias.detach() for bias in found]

    @cached_property
    def own_weights(self) -> list[Tensor]:
        """See the base class."""
        layers = self.float_model.layers
        return [conv.lin_r.weight.detach() for conv in layers if isinstance(conv, SAGEConv)]

    @cached_property
    def attention(self) -> list[Tensor]:
        """See the base class."""
        return [
            torch.cat([conv.att_src, conv.att_dst]).detach()
            for conv in self.float_model.layers
            if isinstance(conv, GATConv)
        ]

    @property
    def adjacency_rows(self) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """A in compressed rows; unlike the base class, with the graph's own self-loops."""
        return self.neighbours.adjacency_rows

    def raw_features(self) -> Floats:
        """See the base class."""
        normalize_rows = self.float_model.input_stage.normalize_rows
        return float_features(self.graph, normalize_rows=normalize_rows)

    def sparse_features(self) -> SparseRows | None:
        """See the base class."""
        normalize_rows = self.float_model.input_stage.normalize_rows
        return sparse_features(self.graph, normalize_rows=normalize_rows)

    def packed_graph(self, x: Floats | None = None) -> PackedGraph:
        """See the base class."""
        return pack_graph(self.graph, like=self.packed)

    def few_nodes(self) -> ComparedProblem:
        """Return a problem of the same models on the first nodes, for libraries to warm up on."""
        graph = self.graph
        count = min(_FEW, graph.num_nodes)
        kept = (graph.edge_index < count).all(axis=0)
        x = graph.x
        if isinstance(x, SparseRows):
            end = x.indptr[count]
            some = (x.indptr[: count + 1], x.indices[:end], x.values[:end])
            x = SparseRows(*some, (count, graph.num_features))
        else:
            x = x[:count]
        weight = None if graph.edge_weight is None else graph.edge_weight[kept]
        few = Graph(x, graph.edge_index[:, kept], weight)
        return ComparedProblem(few, self.float_model, getattr(self, "model", None))


def _linear(conv: Any) -> Any:
    return conv.lin_l if isinstance(conv, SAGEConv) else conv.lin


class OwnTorch(Contender):
    """Our float model in torch as it was trained; the graph is a sparse matrix, and so are features
    that are mostly 0.
    """

    problem: ComparedProblem

    def __init__(self, problem: ComparedProblem) -> None:
        super().__init__(problem)
        self.model = copy.deepcopy(problem.float_model).eval()
        # Rows are normalised when the features are made, as for the others.
        setattr(self.model, "input_stage", nn.Identity())  # noqa: B010
        graph = problem.graph
        self.edges = torch.from_numpy(graph.edge_index)
        weight = graph.edge_weight
        self.edge_weight = None if weight is None else torch.from_numpy(weight)
        if self.model.config["conv"] != "gat":  # remembered, as a part of the structure
            self.model.adjacency(self.edges, self.edge_weight, graph.num_nodes)

    def load(self) -> None:
        """See the base class."""
        x = torch.from_numpy(self.problem.raw_features())
        self.x = SparseFeatures(x) if SparseFeatures.pays_for(x) else x

    @torch.no_grad()
    def run(self) -> Tensor:
        """See the base class."""
        logits: Tensor = self.model(self.x, self.edges, self.edge_weight)
        return logits.argmax(dim=1)


def float_contenders(model: GNN) -> Mapping[str, Any]:
    """Return the ways to run a trained float model, by name: those of the benchmarks where they
    compute the same network, otherwise our own model in torch.
    """
    config = model.config
    if config["binarize"] != "none":
        raise input_error("model", "a float one", f"binarize='{config['binarize']}'")
    plain = (config["jk"], config["norm"], config["out_heads"]) == (None, "none", 1)
    if config["conv"] not in MODELS or not plain:
        return {"torch": OwnTorch}
    kinds = contenders_of(config["conv"])
    return {key: kind for key, kind in kinds.items() if key not in ("packed", "simulated")}
