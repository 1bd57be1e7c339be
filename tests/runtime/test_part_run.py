"""Packed models on graphs in parts: the logits of one process, to the last bit."""

import threading
from dataclasses import replace

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from numpy.typing import NDArray
from packed_family import make_chain, make_floats, make_gin, make_jumping
from parts_in_threads import BoardExchange, predict_in_parts, run_parts

import bignn
from bignn import Graph, InputError, PackedModel, pack_graph
from bignn.graph import SparseRows
from bignn.kernels.layer import Edges
from bignn.runtime.layer_ranges import LayerOverRows, LayerSources
from bignn.runtime.parts import part_edges as edges_module
from bignn.runtime.parts.graph_part import GraphPart, cut
from bignn.runtime.parts.messages import from_message, message_bytes, to_message
from bignn.runtime.parts.part_edges import part_edges
from bignn.runtime.parts.part_run import PartRun, SentRows

COUNTS = (1, 2, 4, 7)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edges_module, "_BLOCK_ROWS", 8)


def assert_equal_in_parts(model: PackedModel, graph: Graph, **options: str) -> None:
    expected = model.predict(pack_graph(graph, like=model), output="logits")
    for count in COUNTS:
        found, _ = predict_in_parts(model, graph, count, **options)  # type: ignore[arg-type]
        assert np.array_equal(found, expected), count


@pytest.mark.parametrize("kind", ["gcn", "sage", "gat", "mean-gcn", "sum"])
@pytest.mark.parametrize("edge_bits", [None, 7])
def test_parts_equal_the_whole(kind: str, edge_bits: int | None) -> None:
    model = make_chain([kind, kind, kind], edge_bits=edge_bits)
    assert_equal_in_parts(model, make_graph(90, 70))


def test_every_way_is_equal() -> None:
    model, graph = make_chain(["gcn", "gat", "sage"]), make_graph(61, 70)
    for plan in ("T", "G", "TGT"):
        assert_equal_in_parts(model, graph, plan=plan)


def test_metis_parts_are_equal() -> None:
    pytest.importorskip("pymetis")
    assert_equal_in_parts(make_chain(["gcn", "sage"]), make_graph(90, 70), by="metis")


def test_edge_weights_count_as_in_the_whole() -> None:
    graph = make_graph(80, 70)
    weight = np.random.default_rng(1).random(graph.num_edges).astype(np.float32)
    graph = replace(graph, edge_weight=weight)
    for kind in ("gcn", "weighted_sum", "gcn_plain", "gcn_improved"):
        assert_equal_in_parts(make_chain([kind, kind], batch_norm=False), graph)
    model = make_chain(["gcn", "gcn"])
    ignoring = PackedModel(
        model.operations, model.arrays, model.num_features, edge_weight="ignored"
    )
    with pytest.warns(UserWarning, match="'edge_weight' is not used"):
        expected = ignoring.predict(graph, output="logits")
    assert np.array_equal(predict_in_parts(ignoring, graph, 3)[0], expected)
    refusing = PackedModel(
        model.operations, model.arrays, model.num_features, edge_weight="refused"
    )
    with pytest.raises(InputError, match="without edge weights"):
        predict_in_parts(refusing, graph, 2)


def test_sparse_features_have_the_scales_of_the_whole() -> None:
    """The form in which the whole graph would be read decides, not that of a part."""
    model = make_packed_model([300, 20, 5], batch_norm=True)
    dense = make_graph(60, 300, like_words=True)
    row, column = np.nonzero(dense.dense_x())
    indptr = np.zeros(61, dtype=np.int64)
    np.cumsum(np.bincount(row, minlength=60), out=indptr[1:])
    values = np.random.default_rng(0).random(len(row)).astype(np.float32) + np.float32(0.1)
    sparse = replace(dense, x=SparseRows(indptr, column.astype(np.int64), values, (60, 300)))
    # A row with most columns: alone its part would be read densely.
    full = dense.dense_x().copy()
    full[:9] = np.random.default_rng(2).random((9, 300))
    for graph in (sparse, replace(dense, x=full)):
        assert_equal_in_parts(model, graph)


def test_heads_and_residual_sums_run_in_parts() -> None:
    graph = make_graph(70, 70)
    for model in (make_jumping("gcn", binary_head=True), make_jumping("gat", binary_head=True)):
        assert_equal_in_parts(model, graph)
    model = make_jumping("sage", binary_head=False)  # the head adds up floats, row by row
    expected = model.predict(pack_graph(graph, like=model), output="logits")
    found, _ = predict_in_parts(model, graph, 3)
    assert np.allclose(found, expected, atol=1e-5)


def test_a_part_without_edges_still_sends_its_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 70)).astype(np.float32)
    # All edges lead from the first half to the second.
    edges = np.array([[0, 1, 2, 3, 0], [4, 5, 6, 7, 7]])
    for kind in ("sum", "gcn"):
        assert_equal_in_parts(make_chain([kind, kind], batch_norm=False), Graph(x, edges))


def test_models_that_read_floats_of_neighbours_are_refused() -> None:
    graph = make_graph(20, 70)
    for model, why in (
        (make_floats("sage"), "first layer does not read bits"),
        (make_gin(), "first layer does not read bits"),
    ):
        with pytest.raises(InputError, match=f"'model' must be .* {why}.*one process") as caught:
            predict_in_parts(model, graph, 2)
        assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match=r"'dataset' must be a graph with 70 features .* got 9"):
        predict_in_parts(make_chain(["gcn"]), make_graph(20, 9), 2)


def test_halos_as_floats_give_the_same_and_cost_more() -> None:
    graph = make_graph(90, 70)
    for kind in ("gcn", "gat"):
        model = make_chain([kind, kind])
        (few, bits), (many, floats) = (
            predict_in_parts(model, graph, 3, form=form) for form in ("bits", "floats")
        )
        assert np.array_equal(few, many)
        rows = sum(part.num_halo for part in cut(graph, 3, "ranges"))
        assert bits == rows * (9 + 4 + 5 + 4)  # 70 bits, then 36
        assert floats == rows * 4 * (70 + 36)


def test_bits_are_a_small_share_of_floats() -> None:
    """As counted for 602 columns (reddit) and 128 (arxiv)."""
    for columns, least in ((602, 25), (128, 20)):
        assert message_bytes(columns, "floats") >= least * message_bytes(columns)
        words = np.zeros((3, -(-columns // 64)), dtype=np.uint64)
        sources = LayerSources(words, np.ones(3, dtype=np.float32))
        assert to_message(sources, columns, "bits").shape == (3, message_bytes(columns))


@pytest.mark.parametrize("kind", ["learned", "rotate", "threshold"])
def test_encoded_features_are_counted_as_what_they_were(kind: str) -> None:
    """Floats would cross as the 20 features, not as the 4 bits that each of them becomes."""
    torch = pytest.importorskip("torch")
    from bignn.nn import GCN

    graph = make_graph(90, 20)
    encoded = GCN(20, 36, 2, 3, binarize="both", input_bits=f"{kind}:4")
    encoded.fit_input(torch.from_numpy(graph.dense_x()))
    network = bignn.pack(encoded.eval()).network

    def sent(part: GraphPart, exchange: BoardExchange) -> list[SentRows]:
        run = PartRun(network, part, exchange)
        run.logits()
        return run.exchanged

    parts = list(cut(graph, 2, "ranges"))
    for part, found in zip(parts, run_parts(parts, sent), strict=True):
        rows = len(part.sent)
        assert found == [(rows, 20, rows * (10 + 4)), (rows, 36, rows * (5 + 4))]


@pytest.mark.parametrize("columns", [1, 7, 8, 63, 64, 65, 602])
def test_messages_hold_every_bit(columns: int) -> None:
    rng = np.random.default_rng(columns)
    for rows in (0, 1, 5):
        words = rng.integers(0, 2**63, (rows, -(-columns // 64)), dtype=np.uint64)
        if columns % 64:
            words[:, -1] &= np.uint64((1 << (columns % 64)) - 1)
        factor = rng.random(rows).astype(np.float32) + np.float32(0.1)
        for form in ("bits", "floats"):
            message = to_message(LayerSources(words, factor), columns, form)
            found = from_message(message, columns, form)
            assert np.array_equal(found.words, words)
            assert np.array_equal(found.factor, factor)


def test_rows_that_read_no_halo_do_not_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are computed after the exchange began and before it ends."""
    events: dict[int, list[str]] = {0: [], 1: []}
    here = threading.local()
    values = LayerOverRows.values

    def watched_values(self: LayerOverRows, edges: Edges) -> NDArray[np.float32]:
        events[here.number].append(f"{edges.num_rows} rows")
        return values(self, edges)

    class Watched(BoardExchange):
        def start(self, rows: NDArray[np.uint8]) -> BoardExchange:
            events[self.number].append("start")
            return super().start(rows)

        def wait(self) -> NDArray[np.uint8]:
            events[self.number].append("wait")
            return super().wait()

    def run(part: GraphPart, exchange: BoardExchange) -> list[str]:
        here.number = part.number
        PartRun(make_chain(["gcn"]).network, part, Watched(exchange.board, part.number)).logits()
        edges = part_edges(part, "gcn")
        assert sorted([*edges.inner_rows, *edges.outer_rows]) == list(range(part.num_nodes))
        inner, outer = (f"{len(rows)} rows" for rows in (edges.inner_rows, edges.outer_rows))
        return ["start", inner, "wait", outer]

    monkeypatch.setattr(LayerOverRows, "values", watched_values)
    expected = run_parts(list(cut(make_graph(90, 70), 2, "ranges")), run)
    assert [events[0], events[1]] == expected
    assert "0 rows" not in expected[0]
