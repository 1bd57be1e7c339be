"""A layer over ranges of rows gives what the whole layer gives, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest
from layer_problems import Problem, attentive, make_edges, make_layer, same, with_own

from bignn.errors import InputError
from bignn.kernels import available_backends, reference
from bignn.kernels.edge_rounding import bounded
from bignn.kernels.layer import BinaryLayer, DenseBits, Edges, dense_words
from bignn.kernels.layer_reference import layer_values
from bignn.runtime.layer_ranges import LayerOverRows, LayerSources


def layers() -> dict[str, BinaryLayer]:
    rng = np.random.default_rng(3)
    plain = make_layer(rng, 65, 33)
    return {
        "plain": plain,
        "own": with_own(plain, rng),
        "heads": attentive(plain, rng, 3, averages=False),
        "averaged": attentive(make_layer(rng, 65, 21), rng, 3, averages=True),
    }


def problem(layer: BinaryLayer, *, weighted: bool) -> Problem:
    rng = np.random.default_rng(5)
    degrees = [*rng.integers(0, 9, 60), 70, 0, 1]
    edges = make_edges(rng, degrees, len(degrees), weighted=weighted)
    edges = replace(edges, source_scale=rng.random(len(degrees), dtype=np.float32))
    words = dense_words(DenseBits(rng.integers(0, 2**63, (len(degrees), 2), dtype=np.uint64)))
    words[:, 1] &= 1
    return Problem([layer], [edges], DenseBits(words), rng.random(len(degrees), dtype=np.float32))


def sources_of(case: Problem) -> LayerSources:
    return LayerSources.of(dense_words(case.features), case.beta, case.edges[0].source_scale)


@pytest.mark.parametrize("backend", available_backends())
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["plain", "own", "heads", "averaged"])
def test_ranges_equal_the_whole(kind: str, weighted: bool, backend: str) -> None:
    layer = layers()[kind]
    case = problem(layer, weighted=weighted)
    edges, sources = case.edges[0], sources_of(case)
    expected = layer_values(layer, edges, sources.words, sources.factor)
    words, beta = reference.binarize(expected)
    for way in ("G", "T"):
        bound = LayerOverRows(layer, sources, way=way, backend=backend)
        for begin, end in ((0, edges.num_rows), (0, 1), (7, 29), (58, edges.num_rows), (5, 5)):
            some = edges.rows(begin, end)
            assert same(bound.values(some), expected[begin:end]), kind
            assert same(bound.classes(some), reference.first_largest(expected[begin:end]))
            made = bound.bits(some)
            assert same(made[0], words[begin:end])
            assert same(made[1], bounded(beta)[begin:end])


def test_rows_of_another_numbering() -> None:
    layer = layers()["own"]
    case = problem(layer, weighted=False)
    edges, sources = case.edges[0], sources_of(case)
    rows = np.array([9, 3, 60, 3])
    expected = layer_values(layer, edges, sources.words, sources.factor)[rows]
    assert same(LayerOverRows(layer, sources).values(edges.taken(rows)), expected)


def test_what_does_not_fit_is_refused() -> None:
    layer = layers()["own"]
    case = problem(layer, weighted=False)
    sources = sources_of(case)
    with pytest.raises(InputError, match=r"'words' must be \[sources, 2\] for a layer of 65"):
        LayerOverRows(layer, LayerSources(sources.words[:, :1].copy(), sources.factor))
    with pytest.raises(InputError, match="'factor' must be one per source"):
        LayerOverRows(layer, LayerSources(sources.words, sources.factor[1:]))
    bound = LayerOverRows(layer, sources)
    edges = case.edges[0].rows(0, 9)
    assert edges.own_ids is not None
    with pytest.raises(InputError, match=r"'ids' must be in 0\.\.62, got"):
        bound.values(replace(edges, ids=edges.ids + 63))
    with pytest.raises(InputError, match=r"'own_ids' must be in 0\.\.62"):
        bound.values(replace(edges, own_ids=edges.own_ids - 1))
    with pytest.raises(InputError, match="'edges' must be of 63 sources, got 62"):
        bound.values(replace(edges, num_sources=62))
    longer = Edges(np.zeros(70, np.int64), edges.ids[:0], None, np.ones(69, np.float32), 63)
    with pytest.raises(InputError, match="'edges' have 69 rows, more than 63 sources"):
        bound.values(longer)
