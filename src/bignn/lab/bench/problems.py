"""The problems of the benchmarks: models on real graphs, and on random ones of published sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from bignn.config import Activation
from bignn.graph import Graph, SparseRows, load
from bignn.lab.bench.shapes import SHAPES, skewed_graph
from bignn.nn import GNN, GATConv
from bignn.packing import pack
from bignn.runtime import PackedGraph, PackedModel, pack_graph
from bignn.runtime.features import read_features
from bignn.runtime.input_stage import absolute_sums, normalized
from bignn.train.fit import fit
from bignn.train.recipes import recipe

Floats = NDArray[np.float32]

#: Rows that are normalised at a time: what that takes on the way stays small beside the whole.
_BLOCK = 64

#: Models that the benchmarks run, and what they are called.
MODELS = {"gcn": "Bi-GCN", "sage": "Bi-GraphSAGE", "gat": "Bi-GAT"}
ModelName = Literal["gcn", "sage", "gat"]

#: Bits of edge weights, as recipes take them: "none" for float weights, None for the recipe's own.
EdgeBits = int | Literal["none"] | None


class Problem(ABC):
    """A graph, a binary model on it, and the weights of a float model of the same sizes.

    Structure is there from the start; contenders make features and weights of their own, so that
    memory can be measured from one point to the other.
    """

    name: str
    conv: ModelName
    sizes: tuple[int, ...]
    #: A + I in compressed rows.
    offsets: NDArray[np.int64]
    ids: NDArray[np.int32]
    #: D^-1/2 of A + I.
    degree_scale: Floats
    #: Weights of the entries of A + I; None where all are 1. GraphSAGE and GAT do not use them.
    entry_weights: Floats | None = None
    model: GNN
    #: The activation between the layers of the float model.
    activation: Activation = "relu"

    def __init__(self, name: str, conv: ModelName, backend: str | None = None) -> None:
        self.name, self.conv = name, conv
        #: The backend of the packed model; None for the fastest.
        self.backend = backend

    @property
    def num_nodes(self) -> int:
        """The number of nodes N."""
        return len(self.degree_scale)

    @cached_property
    def packed(self) -> PackedModel:
        """The binary model, packed."""
        return pack(self.model)

    @cached_property
    def weights(self) -> list[torch.Tensor]:
        """Weights [d_out, d_in] of the float model."""
        return _normal([(d_out, d_in) for d_in, d_out in pairwise(self.sizes)], seed=1)

    @cached_property
    def biases(self) -> list[torch.Tensor]:
        """Biases [d_out] of the float model."""
        return [torch.zeros(len(weight)) for weight in self.weights]

    @cached_property
    def own_weights(self) -> list[torch.Tensor]:
        """Weights of the nodes' own features [d_out, d_in], for GraphSAGE."""
        return _normal([tuple(weight.shape) for weight in self.weights], seed=2)

    @cached_property
    def attention(self) -> list[torch.Tensor]:
        """Attention vectors [2, heads, channels] of the float GAT, those of sources first."""
        widths = zip(self.heads, self.sizes[1:], strict=True)
        return _normal([(2, heads, size // heads) for heads, size in widths], seed=3)

    @property
    def heads(self) -> list[int]:
        """Attention heads of each layer, side by side; 1 without attention."""
        return [conv.heads if isinstance(conv, GATConv) else 1 for conv in self.model.layers]

    @cached_property
    def rows(self) -> NDArray[np.int32]:
        """The row of each entry of A + I."""
        return np.repeat(np.arange(self.num_nodes, dtype=np.int32), np.diff(self.offsets))

    @cached_property
    def edge_values(self) -> Floats:
        """The entries of Â."""
        values = self.degree_scale[self.rows] * self.degree_scale[self.ids]
        return values if self.entry_weights is None else values * self.entry_weights

    @cached_property
    def adjacency_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """A in compressed rows, without self-loops."""
        kept = self.rows != self.ids
        offsets = np.zeros(self.num_nodes + 1, dtype=np.int64)
        np.cumsum(np.bincount(self.rows[kept], minlength=self.num_nodes), out=offsets[1:])
        return offsets, self.ids[kept]

    @property
    def packed_neighbours(self) -> tuple[NDArray[np.int64], NDArray[Any], Floats | None]:
        """Offsets, ids and weights that the packed model reads."""
        if self.conv == "sage":
            return (*self.adjacency_rows, None)
        return self.offsets, self.ids, self.entry_weights

    def graph_of(self, features: Any, beta: Floats | None) -> PackedGraph:
        """Return a packed graph of these features and the neighbours that the model reads."""
        num_columns = self.packed.network.input.num_columns
        return PackedGraph(
            features, num_columns, beta, *self.packed_neighbours, self.degree_scale,
            self.packed.input_digest, name=self.name,
            adjacency="plain" if self.conv == "sage" else "gcn",
        )  # fmt: skip

    @abstractmethod
    def raw_features(self) -> Floats:
        """Return the features as the float model reads them [N, d]."""

    def model_input(self) -> Floats:
        """Return the features as the binary model in torch reads them [N, d]."""
        return self.raw_features()

    def sparse_features(self) -> SparseRows | None:
        """Return :meth:`raw_features` in compressed rows; None where the graph's are dense.

        The arrays may be the graph's own.
        """
        return None

    @abstractmethod
    def packed_graph(self, x: Floats | None = None) -> PackedGraph:
        """Return the graph with features packed for the binary model (from ``x`` if passed)."""

    def binary_input(self) -> Floats:
        """Return the features whose signs and scales the binary model takes [N, d]."""
        return self.packed.network.input.normalized(self.raw_features())


class CitationProblem(Problem):
    """A real graph and a binary model with the paper's widths, trained for some epochs."""

    def __init__(
        self,
        name: str,
        *,
        conv: ModelName = "gcn",
        epochs: int = 40,
        edge_bits: EdgeBits = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(name, conv, backend)
        self.graph = load(name)
        chosen = recipe(f"bi-{conv}", epochs=max(1, epochs), edge_bits=edge_bits)
        torch.manual_seed(0)
        self.model = chosen.build(self.graph)
        config = self.model.config
        width = config["hidden_channels"] * (config["heads"] if conv == "gat" else 1)
        num_hidden = config["num_layers"] - 1
        self.sizes = (self.graph.num_features, *[width] * num_hidden, self.graph.num_classes)
        if epochs:
            fit(self.model, self.graph, chosen.settings, seed=0, progress=False)
        else:
            self.model.fit_input(torch.from_numpy(self.graph.dense_x()))
        self.model.eval()
        whole = self.packed_graph().edges("gcn")
        # Copies: torch warns of arrays that cannot be written to.
        self.offsets, self.ids = whole.offsets.copy(), whole.ids.copy()
        self.degree_scale = whole.target_factor.copy()

    def raw_features(self) -> Floats:
        """Return bags of words or tf-idf; rows are normalised as in float GCN."""
        assert self.packed.network.input.normalize_rows
        return float_features(self.graph, normalize_rows=True)

    def model_input(self) -> Floats:
        """See the base class; the model normalises rows itself."""
        return self.graph.dense_x()

    def sparse_features(self) -> SparseRows | None:
        """See the base class."""
        return sparse_features(self.graph, normalize_rows=True)

    def packed_graph(self, x: Floats | None = None) -> PackedGraph:
        """See the base class."""
        return pack_graph(self.graph, like=self.packed)


class ShapeProblem(Problem):
    """A random graph of a published size with skewed degrees, random features and weights."""

    def __init__(
        self,
        name: str,
        *,
        conv: ModelName = "gcn",
        scale: float = 1.0,
        edge_bits: EdgeBits = None,
        backend: str | None = None,
    ) -> None:
        super().__init__(name, conv, backend)
        shape = SHAPES[name]
        self.sizes = shape.sizes
        num_nodes = max(2, round(shape.num_nodes * scale))
        num_edges = max(1, round(shape.num_edges * scale))
        self.offsets, self.ids = skewed_graph(num_nodes, num_edges, np.random.default_rng(0))
        self.degree_scale = (1 / np.sqrt(np.diff(self.offsets))).astype(np.float32)
        torch.manual_seed(0)
        # Attention has two heads that share the width, and one in the last layer.
        heads = 2 if conv == "gat" else 1
        self.model = GNN(
            shape.sizes[0],
            shape.sizes[1] // heads,
            len(shape.sizes) - 1,
            shape.sizes[-1],
            conv=conv,
            heads=heads,
            binarize="both",
            normalize_rows=False,
            edge_bits=recipe(f"bi-{conv}", edge_bits=edge_bits).edge_bits,
        )
        self.model.input_stage.is_fitted.fill_(True)  # mean 0, scale 1: the features are normal
        self.model.load_state_dict(self.model.state_dict())
        self.model.eval()

    def raw_features(self) -> Floats:
        """Return standard normal numbers."""
        generator = np.random.default_rng(2)
        return generator.standard_normal((self.num_nodes, self.sizes[0]), dtype=np.float32)

    def packed_graph(self, x: Floats | None = None) -> PackedGraph:
        """See the base class."""
        x = self.raw_features() if x is None else x
        nothing = np.zeros((2, 0), dtype=np.int64)
        stage = self.packed.network.input
        features, beta = read_features(stage, Graph(x, nothing))
        return self.graph_of(features, beta)


def make_problem(name: str, *, scale: float = 1.0, epochs: int = 40, **options: Any) -> Problem:
    """Make the problem of a shape, scaled, or of a dataset, whose model is trained for epochs."""
    if name in SHAPES:
        return ShapeProblem(name, scale=scale, **options)
    return CitationProblem(name, epochs=epochs, **options)


def _normal(shapes: Sequence[tuple[int, ...]], seed: int) -> list[torch.Tensor]:
    """Draw normal numbers, divided by the root of the last dimension."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(*shape, generator=generator) / shape[-1] ** 0.5 for shape in shapes]


def float_features(graph: Graph, *, normalize_rows: bool) -> Floats:
    """Return a copy of a graph's features as float models read them [N, d].

    No other array of this size is made on the way, so that peak memory is what they take.
    """
    x = np.array(graph.x) if isinstance(graph.x, np.ndarray) else graph.x.toarray()
    for start in range(0, len(x) if normalize_rows else 0, _BLOCK):
        rows = slice(start, start + _BLOCK)
        x[rows] = normalized(
            x[rows], normalize_rows=True, mean=None, scale=None, absolute_sums=absolute_sums
        )
    return x


def sparse_features(graph: Graph, *, normalize_rows: bool) -> SparseRows | None:
    """Return the float model's features in compressed rows; None where the graph's are dense."""
    x = graph.x
    if not isinstance(x, SparseRows) or not normalize_rows:
        return None if isinstance(x, np.ndarray) else x
    rows = np.repeat(np.arange(graph.num_nodes), np.diff(x.indptr))
    total = np.bincount(rows, np.abs(x.values), minlength=graph.num_nodes)
    values = (x.values / np.where(total > 0, total, 1)[rows]).astype(np.float32)
    return SparseRows(x.indptr, x.indices, values, x.shape)
