r"""Counts bytes and operations by the paper's rules, and adds them up.

Of a layer with weights W [d_in, d_out], on N nodes and \|E\| undirected edges:

===================  ==================================  ======================================
what                 float                               binary
===================  ==================================  ======================================
weights, bytes       4 d_in d_out                        d_in d_out / 8 + 4 d_out (alpha)
features, bytes      4 N d                               N d / 8 + 4 N (beta)
extraction           N d_in d_out                        N d_in d_out / 64 + 2 N d_out
aggregation          \|E\| d_out                         the same
attention, bytes     4 · 2 d_out                         the same, in floats
attention            \|E\| (2 d_out + 3)                 the same
===================  ==================================  ======================================

An operation is a cycle: one multiplication and one addition, or 64 binary ones. Extraction is
accelerated only where weights and features are both binary. GraphSAGE has two products, SGC one and
a sum per hop, both at the width of the outputs; heads are columns side by side. Attention computes
a · (z_i || z_j) of every edge anew, then LeakyReLU, exponential and division, these three once per
edge whatever the heads: so the printed figures of GAT and Bi-GAT have it (per head, OGBN-Products
would round to 2.18e11, not 2.17e11; without them OGBN-Arxiv to 2.41e9, not 2.42e9).

An input encoder (:mod:`bignn.runtime.input_bits`) makes K d bits of d features, and d above is then
K d. It stores 3 p bits for each of K rotations, which take ``3 p log2 p`` additions of a node by
fast transforms (it runs as one product of matrices); or K d thresholds of 4 bytes, an addition
each; or K d learned directions of d + 8 bytes, d operations each. It runs once, when a graph is
packed, so it is counted by itself, with the statistics (8 d bytes, 2 d operations), and not in the
totals: ``input_bytes``, ``input_ops``.

Not counted, as in the paper: biases, normalisation, activations, self-loops, the second direction
of an edge, the edges' own memory, the mean over output heads. K = 1024 bytes, M = 1024² bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bignn.cost.architecture import Architecture, CountedLayer
from bignn.cost.sizes import Sizes
from bignn.errors import input_error
from bignn.graph import GraphLike, as_graph
from bignn.runtime.input_bits import NUM_DIAGONALS, rotation_size

_FLOAT = 4  # bytes
_BINARY_PER_CYCLE = 64
# Multiplications by alpha and beta of an output.
_SCALES = 2
# LeakyReLU, exponential, division of an edge's score.
_SCORE = 3


@dataclass(frozen=True)
class LayerRatios:
    """Ratios of a float layer's costs to its binary version's.

    ``model`` is Eq. pc-l, ``extraction`` Eq. S-fe, ``full`` Eq. S-full.
    """

    model: float
    extraction: float
    full: float


@dataclass(frozen=True)
class Ratios:
    """Ratios of a float model's costs to its binary version's; ``data`` is Eq. DC."""

    model: float
    data: float
    extraction: float
    full: float
    layers: tuple[LayerRatios, ...]


@dataclass(frozen=True)
class LayerCost:
    """Costs of one layer. Numbers are exact; those of binary layers may be fractions."""

    layer: CountedLayer
    model_bytes: float
    extraction_ops: float
    aggregation_ops: float

    @property
    def cycle_ops(self) -> float:
        """Cycle operations of extraction and aggregation."""
        return self.extraction_ops + self.aggregation_ops

    def compared(self, other: LayerCost) -> LayerRatios:
        """Divide the other layer's costs by this one's."""
        return LayerRatios(
            other.model_bytes / self.model_bytes,
            other.extraction_ops / self.extraction_ops,
            other.cycle_ops / self.cycle_ops,
        )


@dataclass(frozen=True)
class Cost:
    """Costs of a model on a graph.

    Attributes:
        architecture, sizes: the model and the graph.
        data_bytes: bytes of the features as the first layer reads them.
        layers: costs of the layers.
        input_bytes: bytes of a binary model's input stage.
        input_ops: cycle operations of a binary model's input stage, once for every node.

    """

    architecture: Architecture
    sizes: Sizes
    data_bytes: float
    layers: tuple[LayerCost, ...]
    input_bytes: float = 0
    input_ops: float = 0

    @property
    def model_bytes(self) -> float:
        """Bytes of weights, their scales and attention vectors."""
        return sum(layer.model_bytes for layer in self.layers)

    @property
    def extraction_ops(self) -> float:
        """Cycle operations of all products."""
        return sum(layer.extraction_ops for layer in self.layers)

    @property
    def cycle_ops(self) -> float:
        """Cycle operations to predict every node."""
        return sum(layer.cycle_ops for layer in self.layers)

    def compared(self, other: Cost) -> Ratios:
        """Divide another model's costs by this one's, as a float twin's by a binary model's."""
        if len(self.layers) != len(other.layers):
            expected = f"a model of as many layers ({len(self.layers)})"
            raise input_error("other", expected, f"{len(other.layers)}")
        pairs = zip(self.layers, other.layers, strict=True)
        return Ratios(
            other.model_bytes / self.model_bytes,
            other.data_bytes / self.data_bytes,
            other.extraction_ops / self.extraction_ops,
            other.cycle_ops / self.cycle_ops,
            tuple(mine.compared(theirs) for mine, theirs in pairs),
        )


def estimate(model: Any, graph: GraphLike | Sizes | str) -> Cost:
    """Estimate what a model costs on a graph, by the paper's rules (see the module).

    Args:
        model: a :class:`bignn.nn.GNN`, its ``config`` or such a mapping, a recipe, or an
            :class:`Architecture`.
        graph: a :class:`bignn.Graph`, a PyG ``Data``, :class:`Sizes`, or a name that ``bignn
            datasets`` lists, whose published sizes are then taken.

    """
    if isinstance(graph, str):
        sizes = Sizes.published(graph)
    elif isinstance(graph, Sizes):
        sizes = graph
    else:
        expected = "a bignn.Graph, a PyG Data, bignn.cost.Sizes or the name of a dataset"
        sizes = Sizes.of(as_graph(graph, expected))
    architecture = Architecture.of(model, sizes)
    layers = tuple(_layer_cost(layer, sizes) for layer in architecture.layers)
    bits = architecture.has_binary_features
    data = _matrix_bytes(architecture.num_inputs, sizes.nodes, bits)
    return Cost(architecture, sizes, data, layers, *_input_cost(architecture, sizes))


def _input_cost(architecture: Architecture, sizes: Sizes) -> tuple[float, float]:
    """Return bytes and operations of the input stage."""
    if not architecture.has_binary_features:
        return 0, 0
    features, encoder = sizes.features, architecture.encoder
    stored: float = 2 * _FLOAT * features
    operations = 2 * features
    if encoder is not None and encoder.kind == "threshold":
        stored += _FLOAT * encoder.num_bits(features)
        operations += encoder.num_bits(features)
    elif encoder is not None and encoder.kind == "learned":
        stored += (features + 2 * _FLOAT) * encoder.num_bits(features)
        operations += features * encoder.num_bits(features)
    elif encoder is not None:
        length = rotation_size(features)
        signs = encoder.per_feature * NUM_DIAGONALS * length
        stored += signs / 8
        operations += signs * int(math.log2(length))
    return stored, sizes.nodes * operations


def _matrix_bytes(length: int, count: int, is_binary: bool) -> float:
    """Return bytes of ``count`` vectors of a length; binary ones have a scale each."""
    entries = length * count
    return entries / 8 + _FLOAT * count if is_binary else _FLOAT * entries


def _layer_cost(layer: CountedLayer, sizes: Sizes) -> LayerCost:
    nodes, edges, outputs = sizes.nodes, sizes.edges, layer.outputs
    weights = _matrix_bytes(layer.inputs, outputs, layer.binary_weights)
    product: float = nodes * layer.inputs * outputs
    if layer.binary_weights and layer.binary_features:
        product = product / _BINARY_PER_CYCLE + _SCALES * nodes * outputs
    vectors = 2 * outputs if layer.attends else 0
    scores = edges * (vectors + _SCORE) if layer.attends else 0
    return LayerCost(
        layer,
        layer.products * weights + _FLOAT * vectors,
        layer.products * product,
        layer.sums * edges * layer.sum_width + scores,
    )
