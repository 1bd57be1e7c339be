"""The planner follows its costs, and obeys when told."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from bignn import InputError, bits
from bignn.kernels.attention import Attention
from bignn.kernels.layer import (
    BinaryLayer,
    DenseBits,
    Edges,
    Floats,
    OwnPart,
    PackedFeatures,
    SparseBits,
)
from bignn.runtime import Plan
from bignn.runtime.planner import plan_layers

NODES = 1000


def dense(num_bits: int = 64) -> DenseBits:
    return DenseBits(np.zeros((NODES, bits.words_per_row(num_bits)), dtype=np.uint64))


def sparse(deviations: int, num_bits: int = 64) -> SparseBits:
    return SparseBits(
        np.zeros(NODES + 1, dtype=np.int64),
        np.zeros(deviations, dtype=np.int32),
        np.zeros(bits.words_per_row(num_bits), dtype=np.uint64),
    )


def plan(
    *sizes: tuple[int, int],
    features: PackedFeatures | None = None,
    entries: int = 5 * NODES,
    backend: str = "avx512",
    forced: str | None = None,
) -> Plan:
    first = dense(sizes[0][0]) if features is None else features
    return plan_layers(
        [layer_of(*size) for size in sizes],
        [edges_of(entries)] * len(sizes),
        first,
        backend=backend,
        forced=forced,
    )


def layer_of(inputs: int, outputs: int) -> BinaryLayer:
    words = np.zeros((outputs, bits.words_per_row(inputs)), dtype=np.uint64)
    return BinaryLayer(words, inputs, ones(outputs), ones(outputs))


def edges_of(entries: int) -> Edges:
    """As many, without memory for them."""
    ids = np.broadcast_to(np.int32(0), entries)
    return Edges(np.zeros(NODES + 1, dtype=np.int64), ids, None, ones(NODES), NODES)


def ones(count: int) -> Floats:
    return np.ones(count, dtype=np.float32)


@pytest.mark.parametrize("backend", ["portable", "avx2", "avx512"])
def test_the_cheapest_way_is_chosen(backend: str) -> None:
    for deviations in (None, 0, 10_000, 10_000_000):
        check_the_cheapest_is_chosen(deviations, backend=backend)


def check_the_cheapest_is_chosen(deviations: int | None, *, backend: str) -> None:
    features = None if deviations is None else sparse(deviations)
    seen = set()
    for inputs in (1, 64, 300, 1433, 5000):
        for outputs in (1, 7, 64, 300):
            for entries in (NODES, 10 * NODES, 1000 * NODES):
                chosen = plan(
                    (inputs, outputs), (outputs, 7), features=features, entries=entries,
                    backend=backend,
                )  # fmt: skip
                for number, layer in enumerate(chosen.layers):
                    ways = {"T", "G"} | ({"S"} if features and number == 0 else set())
                    assert set(layer.seconds) == set(layer.bytes_touched) == ways
                    assert layer.seconds[layer.way] == min(layer.seconds.values())
                    assert all(seconds > 0 for seconds in layer.seconds.values())
                    assert all(touched > 0 for touched in layer.bytes_touched.values())
                    assert layer.measured is None
                    seen.add(layer.way)
    expected = {"T"} | ({"G"} if backend != "portable" else set())
    if deviations is not None and deviations < 10_000_000:
        expected.add("S")
    assert expected <= seen, deviations


def test_choices_follow_what_things_cost() -> None:
    # Few bits in, many columns out: gathering bits touches less. The other way round: records.
    assert plan((64, 4096), entries=100 * NODES).ways == "G"
    assert plan((4096, 64), entries=100 * NODES).ways == "T"
    # Sparse bits pay while they are few.
    few, many = sparse(2 * NODES, 1433), sparse(1000 * NODES, 1433)
    assert plan((1433, 64), features=few).ways == "S"
    assert plan((1433, 64), features=many).ways == "T"
    # Costs grow with what they count.
    small, large = plan((64, 64)).layers[0], plan((64, 64), entries=50 * NODES).layers[0]
    for way in ("T", "G"):
        assert small.seconds[way] < large.seconds[way]
        assert small.bytes_touched[way] < large.bytes_touched[way]


def test_forced_ways() -> None:
    cases = {"T": "TTT", "G": "GGG", "S": "STT", "t": "TTT"} | {
        **{"STG": "STG", "s,t,g": "STG", "G,G,T": "GGT", "tgg": "TGG"}
    }
    free = plan((64, 32), (32, 32), (32, 7), features=sparse(9))
    for forced, ways in cases.items():
        chosen = plan((64, 32), (32, 32), (32, 7), features=sparse(9), forced=forced)
        assert chosen.ways == ways
        assert [layer.way for layer in chosen.layers] == list(ways)
        # What the other ways would cost is still there.
        for layer, as_chosen in zip(chosen.layers, free.layers, strict=True):
            assert layer.seconds == as_chosen.seconds, forced
    assert plan((64, 32), (32, 7), features=sparse(9), forced="ST").ways == "ST"
    assert plan((64, 32), (32, 7), features=sparse(9), forced="s,t").ways == "ST"
    assert plan((64, 7), features=sparse(9), forced="S").ways == "S"
    assert plan((64, 7), forced="G").ways == "G"


def test_what_is_no_plan_is_refused() -> None:
    for forced in ("X", "", "TX", "TTT", "T G", "TS G", ",", "auto"):
        match = r"^'plan' must be one of T, G, S, or 2 of them"
        with pytest.raises(InputError, match=match) as error:
            plan((64, 32), (32, 7), features=sparse(9), forced=forced)
        assert "\n" not in str(error.value)
        assert str(error.value).endswith(f", got {forced!r}")


def test_sparse_ways_need_sparse_bits_and_the_first_layer() -> None:
    for forced in ("S", "ST", "S,G"):
        with pytest.raises(InputError, match=r"^'plan' must be 'T' or 'G' for .* dense bits, got"):
            plan((64, 32), (32, 7), forced=forced)
    for forced in ("TS", "SS", "g,s"):
        with pytest.raises(InputError, match=r"^'plan' must be 'S' for the first layer only, got"):
            plan((64, 32), (32, 7), features=sparse(9), forced=forced)


def test_layers_of_very_many_inputs_never_gather_bits() -> None:
    huge = (1 << 16) + 1
    assert plan((1 << 16, 4096), entries=1, forced="G").ways == "G"
    chosen = plan((huge, 4096), entries=1)
    assert chosen.ways == "T"
    assert math.isinf(chosen.layers[0].seconds["G"])
    for forced in ("G", "GT"):
        with pytest.raises(InputError, match=r"^'plan' must be 'T' for a layer of over 65536"):
            plan((huge, 8), (8, 7), forced=forced)
    assert plan((huge, 8), (8, 7), forced="TG").ways == "TG"


def test_a_plan_prints_as_a_table() -> None:
    chosen = plan((1433, 64), (64, 7), features=sparse(9, 1433))
    chosen.layers[0].measured = 0.0123
    header, first, second = str(chosen).splitlines()
    assert "way" in header
    assert "predicted ms" in header
    assert "measured ms" in header
    assert "1433x64" in first
    assert "S (sparse bits, then gather)" in first
    assert "12.300" in first
    assert "T " in first.split("12.300")[1]
    assert "G " in first.split("12.300")[1]
    assert "64x7" in second
    # Predictions are of one thread's work, and shown as shared by all.
    tables = [
        plan_layers(
            [layer_of(64, 7)], [edges_of(10**7)], dense(), backend="avx512", threads=threads
        )
        for threads in (1, 4)
    ]
    assert tables[0].layers[0].seconds == tables[1].layers[0].seconds
    alone, shared = (float(re.findall(r"\) +([\d.]+)", str(some))[0]) for some in tables)
    assert alone == pytest.approx(4 * shared, rel=1e-3)


def test_own_parts_and_heads_cost_more() -> None:
    plain = layer_of(256, 128)
    own = replace(plain, own=OwnPart(plain.words, plain.scale))
    values = np.zeros((4, 256), dtype=np.int32)
    attention = Attention(2, averages=False, slope=0.2, values=values, sigma=ones(4),
                          end_scale=plain.scale)  # fmt: skip
    heads = replace(plain, attention=attention)
    edges = [edges_of(10 * NODES)] * 3
    for backend in ("avx2", "avx512"):
        chosen = plan_layers([plain, own, heads], edges, dense(256), backend=backend)
        first, second, third = chosen.layers
        for way in ("T", "G"):
            assert second.seconds[way] > first.seconds[way]
            assert third.seconds[way] > first.seconds[way]
        more = {way: third.seconds[way] - first.seconds[way] for way in ("T", "G")}
        assert more["G"] > more["T"]


def test_work_is_counted_by_unit() -> None:
    """1000 rows of 100 bits (16 bytes), 20 columns (a record of 64), 5000 neighbours."""
    work = plan((100, 20)).layers[0].work
    common = {"row": 1000, "column": 1000 * 20, "neighbour": 5000}
    lines = {"near line": 5000, "next near line": 0}
    assert work["T"] == common | lines | {
        **{"xnor": 1000 * 128 * 64, "panel": 1000 * 4, "record": 5000 * 20},
    }
    assert work["G"] == common | lines | {
        **{"row of G": 1000, "neighbour of G": 5000, "bit": 5000 * 128, "table": 1000 * 128},
        **{"lookup": 1000 * 128 * 32},
    }  # fmt: skip
    wide, narrow = (
        plan((100, columns), features=sparse(7000, 100)).layers[0].work for columns in (20, 16)
    )
    signs = {"sparse": 7000 * 64, "sign near line": 7000}
    assert wide["S"] == common | lines | signs | {"record": 5000 * 20}
    assert narrow["S"]["sparse"] == 7000 * 64
    assert narrow["S"]["narrow sparse row"] == 1000
    assert narrow["T"]["xnor"] == 1000 * 128 * 16
    own = replace(layer_of(100, 20), own=OwnPart(layer_of(100, 20).words, ones(20)))
    both = plan_layers([own], [edges_of(5000)], dense(100), backend="avx512").layers[0].work
    assert both["T"]["xnor"] == 1000 * 128 * (64 + 32)  # own columns are not a record
    assert both["T"]["panel"] == 1000 * (4 + 2)
    assert both["G"]["xnor"] == 1000 * 128 * 32
    many = plan((100, 300), entries=40 * NODES, backend="avx512").layers[0].work
    assert many["T"]["next near line"] == 40 * NODES * 4  # 300 columns are five lines
    assert many["G"]["near line ahead"] == 40 * NODES
    assert many["G"]["bit of many"] == 40 * NODES * 128


def test_lines_are_priced_by_the_size_of_the_table() -> None:
    """Records of 64 bytes, tables up to 1, 8, 16 MiB and beyond."""
    features = DenseBits(np.zeros((1, 1), dtype=np.uint64))
    for nodes, line in ((16_384, "near"), (16_385, "shared"), (131_073, "wide"), (262_145, "far")):
        edges = replace(edges_of(7), num_sources=nodes)
        layer = plan_layers([layer_of(64, 64)], [edges], features, backend="avx512").layers[0]
        assert layer.work["T"][f"{line} line"] == 7
