"""Estimates from sampled parts are right on average, by enumeration and by many draws."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from bignn import InputError
from bignn.kernels import fastgcn, native
from bignn.kernels.fastgcn import SampledLayer, column_norms, sample_layer
from bignn.kernels.saint_weights import Coverage, edge_importance
from bignn.kernels.sampling import Choice, CompressedGraph, induced_subgraph

BACKENDS = ["reference", *native.supported()[:1]]
ROWS = np.array([0, 3, 0, 1, 2, 2, 0, 3, 1])
IDS = np.array([1, 2, 1, 0, 2, 0, 3, 0, 1])  # 0 has the neighbour 1 twice
GRAPH = CompressedGraph.from_edges(ROWS, IDS, 4)
WEIGHTS = np.array([0.5, -1, 0.25, 2, 1, 0.75, 3, 0.1, 0.3], dtype=np.float32)
MATRIX = np.zeros((4, 4))
np.add.at(MATRIX, (ROWS, IDS), WEIGHTS)
TARGETS = np.array([3, 0, 2])


class Drawn(Choice):
    """A choice whose draws are given."""

    items: tuple[int, ...] = ()

    def draw(self, count: int, *, seed: int) -> NDArray[np.int64]:
        return np.array(self.items[:count])


def as_matrix(layer: SampledLayer, num_targets: int) -> NDArray[np.float64]:
    dense = np.zeros((num_targets, 4))
    np.add.at(dense, (layer.targets, layer.nodes[layer.sources]), layer.weights)
    return dense


def test_column_norms_add_repeated_edges_up_first() -> None:
    assert np.allclose(column_norms(GRAPH, WEIGHTS), (MATRIX**2).sum(axis=0))
    empty = CompressedGraph.from_edges([], [], 3)
    assert column_norms(empty, np.empty(0, np.float32)).tolist() == [0, 0, 0]
    with pytest.raises(InputError, match="'weights' must be one per edge"):
        column_norms(GRAPH, WEIGHTS[1:])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize(("targets", "near"), [([3, 0, 2], [0, 1, 2, 3]), ([3, 2], [0, 2])])
def test_a_layers_expectation_is_the_product(
    backend: str, count: int, targets: list[int], near: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over every outcome of the draws, by its probability; only neighbours are drawn."""
    monkeypatch.setattr(fastgcn, "Choice", Drawn)
    norms = column_norms(GRAPH, WEIGHTS)
    probabilities = norms[near] / norms[near].sum()
    mean = np.zeros((len(targets), 4))
    for items in product(range(len(near)), repeat=count):
        Drawn.items = items
        layer = sample_layer(
            GRAPH, WEIGHTS, np.array(targets), norms, count, seed=0, backend=backend
        )
        assert set(layer.nodes) == {near[item] for item in items}
        assert set(layer.sources) == set(range(len(layer.nodes)))
        mean += probabilities[list(items)].prod() * as_matrix(layer, len(targets))
    assert np.allclose(mean, MATRIX[targets], atol=1e-6)


def test_a_layers_draws() -> None:
    norms = column_norms(GRAPH, WEIGHTS)
    drawn = np.array(
        [
            as_matrix(sample_layer(GRAPH, WEIGHTS, TARGETS, norms, 5, seed=seed), 3)
            for seed in range(3000)
        ]
    )
    error = np.abs(drawn.mean(axis=0) - MATRIX[TARGETS])
    assert (error <= 4.5 * drawn.std(axis=0) / 3000**0.5 + 1e-6).all()
    assert drawn.std(axis=0).max() > 0.1
    with pytest.raises(InputError, match="'count' must be 1 or more"):
        sample_layer(GRAPH, WEIGHTS, TARGETS, norms, 0, seed=0)


def test_importance_of_edges() -> None:
    sources, targets = IDS.tolist(), ROWS.tolist()
    expected = [
        1 / sources.count(u) + 1 / targets.count(v) for u, v in zip(sources, targets, strict=True)
    ]
    assert np.allclose(edge_importance(IDS, ROWS, 4), expected)


def test_coefficients_are_counts() -> None:
    subgraphs = [[0, 1], [0, 1, 3], [2], [0, 3], [1, 2, 3]]
    coverage = Coverage(5, len(ROWS))  # a node 4 that is never met
    graph = CompressedGraph.from_edges(ROWS, IDS, 5)
    for nodes in subgraphs:
        coverage.add(np.array(nodes), induced_subgraph(graph, nodes).numbers)
    met = [sum(v in nodes for nodes in subgraphs) for v in range(5)]
    assert met == [3, 3, 2, 3, 0]
    assert np.allclose(coverage.node_norm(), [5 / (c or 0.1) / 5 for c in met])
    both = [
        sum(u in nodes and v in nodes for nodes in subgraphs)
        for u, v in zip(IDS, ROWS, strict=True)
    ]
    expected = [met[v] / c if c else 1e4 for v, c in zip(ROWS, both, strict=True)]
    assert np.allclose(coverage.edge_norm(ROWS), expected)
    assert 0 in both
    assert Coverage(2, 1).edge_norm(np.array([1])).tolist() == [np.float32(0.1)]


def test_coefficients_remove_the_bias() -> None:
    """Over the subgraphs that were counted, weighted sums are those of the whole graph."""
    rng = np.random.default_rng(0)
    subgraphs = [np.flatnonzero(rng.random(4) < 0.7) for _ in range(200)]
    coverage = Coverage(4, len(ROWS))
    parts = [induced_subgraph(GRAPH, nodes) for nodes in subgraphs]
    for nodes, edges in zip(subgraphs, parts, strict=True):
        coverage.add(nodes, edges.numbers)
    loss, x = rng.standard_normal(4), rng.standard_normal(4)
    node_norm, edge_norm = coverage.node_norm(), coverage.edge_norm(ROWS)
    losses = [(node_norm[nodes] * loss[nodes]).sum() for nodes in subgraphs]
    assert np.isclose(np.mean(losses), loss.mean())
    sums = np.zeros(4)
    for nodes, edges in zip(subgraphs, parts, strict=True):
        messages = edge_norm[edges.numbers] * WEIGHTS[edges.numbers] * x[nodes[edges.sources]]
        np.add.at(sums, nodes[edges.targets], messages)
    assert np.allclose(sums / coverage.nodes, MATRIX @ x)
