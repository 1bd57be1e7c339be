"""Damaged and hostile files: a one-line FileError, or an object that works. Never anything else.

``BIGNN_CORRUPTIONS=10000 pytest tests/runtime/test_corruption.py`` tries that many per file.
"""

import copy
import hashlib
import json
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from numpy.typing import NDArray
from packed_family import make_chain, make_gin, make_jumping
from safetensors.numpy import save_file

import bignn
from bignn import FileError, InputError, PackedGraph, PackedModel, kernels, pack_graph
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.runtime import tensors

CORRUPTIONS = int(os.environ.get("BIGNN_CORRUPTIONS", "300"))
MODELS = ["model", "sage", "gat", "jumping", "gin"]
FILES = [*MODELS, "dense bits", "sparse bits", "floats", "plain"]

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]


@pytest.fixture(scope="module")
def model() -> PackedModel:
    return make_packed_model([140, 9, 3], batch_norm=True)


@pytest.fixture(scope="module")
def float_model() -> PackedModel:
    weight = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    operations: list[dict[str, Any]] = [
        {"op": "linear", "in": ["x"], "out": "a", "weight": "weight"},
        {"op": "aggregate", "in": ["a"], "out": "b", "aggr": "gcn", "edge_bits": 20},
    ]
    return PackedModel(operations, {"weight": weight}, 6)


@pytest.fixture(scope="module")
def family() -> dict[str, PackedModel]:
    """Models of 70 features."""
    return {
        "sage": make_chain(["sage", "sage"]),
        "gat": make_chain(["gat", "gat"]),
        "jumping": make_jumping("gat", binary_head=True),
        "gin": make_gin(),
    }


@pytest.fixture(scope="module")
def graphs(
    model: PackedModel, float_model: PackedModel, family: dict[str, PackedModel]
) -> dict[str, PackedGraph]:
    dense = pack_graph(make_graph(12, 140), like=model)
    sparse = pack_graph(make_graph(40, 140, like_words=True), like=model)
    assert isinstance(dense.features, DenseBits)
    assert isinstance(sparse.features, SparseBits)
    labels = {"y": np.arange(12) % 3, "train_idx": np.array([3, 1])}
    weights = np.random.default_rng(0).random(dense.num_entries).astype(np.float32)
    return {
        "dense bits": replace(dense, labels=labels, weights=weights),
        "sparse bits": sparse,
        "floats": pack_graph(make_graph(9, 6), like=float_model),
        "plain": pack_graph(make_graph(12, 70), like=family["sage"]),
        "plain floats": pack_graph(make_graph(12, 70), like=family["gin"]),
    }


@pytest.fixture(params=FILES)
def content(
    request: pytest.FixtureRequest,
    model: PackedModel,
    family: dict[str, PackedModel],
    graphs: dict[str, PackedGraph],
    tmp_path: Path,
) -> bytes:
    """A whole file, without the digest, which would hide what else is checked."""
    path = tmp_path / "whole"
    ({"model": model} | family | graphs)[request.param].save(path)
    arrays, header = tensors.read(path)
    save_file(arrays, path, metadata={"bignn": json.dumps(header)})
    return path.read_bytes()


@pytest.mark.parametrize("flip", [1, 128, 255])
def test_a_flipped_byte_of_a_model_is_refused_in_one_line(
    flip: int, float_model: PackedModel, tmp_path: Path
) -> None:
    path = tmp_path / "model.bignn"
    float_model.save(path)
    whole = path.read_bytes()
    PackedModel.open(path)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= flip
        path.write_bytes(damaged)
        with pytest.raises(FileError) as caught:
            PackedModel.open(path)
        assert "\n" not in str(caught.value)


def test_a_flipped_weight_is_told_by_the_digest_and_a_graph_only_on_demand(
    model: PackedModel, graphs: dict[str, PackedGraph], tmp_path: Path
) -> None:
    path = tmp_path / "file"
    model.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(FileError, match="its digest is not that of its content"):
        PackedModel.open(path)
    dense = graphs["dense bits"]
    assert isinstance(dense.features, DenseBits)
    dense.save(path)
    assert PackedGraph.open(path, verify=True).num_nodes == dense.num_nodes
    one_more = dense.features.words[0, 0] ^ np.uint64(1)
    whole = path.read_bytes()
    place = whole.index(dense.features.words[0].tobytes())
    changed = whole[:place] + one_more.tobytes() + whole[place + 8 :]
    path.write_bytes(changed)
    assert PackedGraph.open(path).num_nodes == dense.num_nodes
    with pytest.raises(FileError, match="its digest is not that of its content"):
        PackedGraph.open(path, verify=True)
    arrays, header = tensors.read(path)
    save_file(arrays, path, metadata={"bignn": json.dumps(header)})  # as older versions wrote it
    with pytest.raises(FileError, match="it has no digest to verify"):
        PackedGraph.open(path, verify=True)


def test_the_digest_is_the_one_that_the_format_describes(
    float_model: PackedModel, tmp_path: Path
) -> None:
    path = tmp_path / "model.bignn"
    float_model.save(path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    metadata = header.pop("__metadata__")
    assert list(header) == ["weight"]
    hashed = hashlib.blake2b(metadata["bignn"].encode(), digest_size=16)
    hashed.update(b"weight <f4 [3, 6];" + whole[8 + size :])
    assert metadata["digest"] == hashed.hexdigest()


@pytest.fixture
def works(
    model: PackedModel,
    float_model: PackedModel,
    family: dict[str, PackedModel],
    graphs: dict[str, PackedGraph],
) -> Callable[[Any], None]:
    """Uses an opened object in every way there is, where what it is used with fits."""

    def use(opened: Any) -> None:
        pairs: list[tuple[PackedModel, PackedGraph]]
        if isinstance(opened, PackedModel):
            pairs = [(opened, graph) for graph in graphs.values()]
        else:
            assert isinstance(opened, PackedGraph)
            pairs = [(known, opened) for known in (model, float_model, *family.values())]
        for predictor, graph in pairs:
            if predictor.input_digest != graph.input_digest:
                continue
            as_given = not predictor.network.aggregations.isdisjoint(("mean", "sum"))
            if as_given and graph.adjacency == "gcn":
                with pytest.raises(InputError, match="'graph' must be one"):
                    predictor.predict(graph)
                continue
            if predictor.num_features != graph.num_features:  # whole, but not the model's
                with pytest.raises(InputError, match="'graph' must be one with"):
                    predictor.predict(graph)
                continue
            assert predictor.predict(graph).shape == (graph.num_nodes,)
            logits = predictor.predict(graph, output="logits")
            assert logits.shape == (graph.num_nodes, predictor.num_classes)
            some = range(min(2, graph.num_nodes))
            assert predictor.predict(graph, some).shape == (len(some),)
            if predictor.network.layers:
                predictor.predict(graph, plan="G")
                predictor.predict(graph, plan="T")
        assert repr(opened)

    return use


def open_or_refuse(path: Path, works: Callable[[Any], None]) -> bool:
    """Whether the file was refused."""
    # Numbers may be absurd; they may overflow, but nothing may break.
    with np.errstate(all="ignore"):
        try:
            opened = bignn.open(path)
        except FileError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
            return True
        works(opened)
    return False


def refused(path: Path, match: str) -> None:
    with pytest.raises(FileError, match=match) as error:
        bignn.open(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


# --- Damage ------------------------------------------------------------------------------------


def test_the_whole_file_works(content: bytes, works: Callable[[Any], None], tmp_path: Path) -> None:
    path = tmp_path / "file.bignn"
    path.write_bytes(content)
    assert not open_or_refuse(path, works)


def test_a_file_cut_short_anywhere_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.bignn"
    path.write_bytes(content)
    for size in range(len(content) - 1, -1, -1):
        os.truncate(path, size)
        refused(path, "is not a packed bignn file")


@pytest.mark.parametrize("more", [b"\0", b"more", bytes(4096)])
def test_a_file_with_something_after_its_end_is_refused(
    content: bytes, more: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "file.bignn"
    path.write_bytes(content + more)
    refused(path, "is not a packed bignn file")


def corrupted(content: bytes, rng: np.random.Generator) -> bytes:
    """Flipped bits, other bytes, zeros, or pieces of the file elsewhere; in the header or after."""
    damaged = bytearray(content)
    header = 8 + int.from_bytes(content[:8], "little")
    low, high = (0, header) if rng.random() < 0.5 else (header, len(content))
    kind = rng.integers(5)
    if kind < 2:
        for place in rng.integers(low, high, rng.integers(1, 4)):
            damaged[place] = damaged[place] ^ 1 << rng.integers(8) if kind else rng.integers(256)
        return bytes(damaged)
    start, size = int(rng.integers(low, high)), int(rng.integers(1, 30))
    end = min(start + size, len(content))
    if kind == 2:
        damaged[start:end] = bytes(end - start)
    else:
        source = int(rng.integers(0, len(content) - size))
        piece = content[source : source + end - start]
        # In place of what was there, or pushed in between with the file growing.
        damaged[start : end if kind == 3 else start] = piece
    return bytes(damaged)


def test_random_damage(content: bytes, works: Callable[[Any], None], tmp_path: Path) -> None:
    rng = np.random.default_rng(len(content))
    path = tmp_path / "file.bignn"
    outcomes = []
    for _ in range(CORRUPTIONS):
        path.write_bytes(corrupted(content, rng))
        outcomes.append(open_or_refuse(path, works))
    # Damage to numbers leaves a file that is valid; damage to structure does not.
    assert True in outcomes
    assert False in outcomes


# --- Files that are something else -------------------------------------------------------------


def test_what_is_not_a_packed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.bignn"
    refused(path, "does not exist")
    refused(tmp_path, "is not a file")

    class Dangerous:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "executed"),)

    arrays = {"a": np.ones(3, dtype=np.float32)}
    contents: list[bytes] = [
        b"",
        b"\0" * 7,
        b"\0" * 8,
        b"\0" * 100,
        b"\xff" * 100,
        pickle.dumps(Dangerous()),
        pickle.dumps({"format": "bignn-model"}),
        b"PK\x03\x04" + bytes(100),
        (2**63).to_bytes(8, "little") + b"{}",
        (2**64 - 1).to_bytes(8, "little") + b"{}",
        (2**40).to_bytes(8, "little") + b"{}",
        raw(b"{}"),
        raw(b"[]"),
        raw(b"null"),
        raw(b'{"__metadata__": {}}'),
        raw(b'{"__metadata__": {"bignn": ""}}'),
        raw(b'{"__metadata__": {"bignn": "["}}'),
        raw(b'{"__metadata__": {"bignn": 5}}'),
        raw(b'{"__metadata__": {"bignn": "' + b"[" * 100_000 + b'"}}'),
        raw(b'{"__metadata__": {"bignn": "[]"}}'),
        raw(b'{"__metadata__": {"bignn": "7"}}'),
        raw(b'{"__metadata__": {"bignn": "' + b"7" * 5000 + b'"}}'),
        raw(b'{"__metadata__": {"bignn": "null"}}'),
        raw(b"[" * 100_000),
        raw(b'{"a": ' * 50_000),
    ]
    for content in contents:
        path.write_bytes(content)
        refused(path, "is not a packed bignn file")
    assert not (tmp_path / "executed").exists()
    for header in ({}, {"format": None}, {"format": "bignn"}, {"format": ["a"]}):
        tensors.write(path, arrays, header)
        refused(path, "is neither a packed model nor a packed graph")
    tensors.write(path, arrays, {"format": "bignn-checkpoint"})
    refused(path, "make a packed model of it with 'bignn pack'")


def raw(header: bytes, data: bytes = b"") -> bytes:
    return len(header).to_bytes(8, "little") + header + data


def entry(dtype: str, shape: list[Any], begin: Any, end: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_places_that_lie_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.bignn"
    header = {"format": "bignn-graph", "version": 1, "adjacency": "gcn"}
    metadata = {"bignn": json.dumps(header | {"num_features": 4, "input": ""})}
    data = bytes(64)
    whole = entry("F32", [16], 0, 64)
    cases: list[dict[str, Any]] = [
        {"degree_scale": entry("F32", [17], 0, 64)},
        {"degree_scale": entry("F32", [16], 0, 68)},
        {"degree_scale": entry("F32", [16], 4, 68)},
        {"degree_scale": entry("F32", [16], 64, 0)},
        {"degree_scale": entry("F32", [16], -64, 0)},
        {"degree_scale": entry("F32", [-16], 0, 64)},
        {"degree_scale": entry("F32", [2**63, 2], 0, 64)},
        {"degree_scale": entry("F32", [2**62, 4], 0, 64)},
        {"degree_scale": entry("F32", [1.5], 0, 64)},
        {"degree_scale": entry("F32", [16], 0, "64")},
        {"degree_scale": entry("F99", [16], 0, 64)},
        {"degree_scale": entry("F32", [16], 0, 2**64 + 64)},
        {"degree_scale": {"dtype": "F32", "shape": [16]}},
        {"degree_scale": 7},
        {"degree_scale": whole, "ids": whole},  # the same bytes twice
        {"degree_scale": entry("F32", [8], 0, 32), "ids": entry("F32", [4], 48, 64)},  # with a gap
        {"degree_scale": entry("F16", [32], 0, 64)},
        {"degree_scale": entry("BOOL", [64], 0, 64)},
        {"degree_scale": entry("BF16", [32], 0, 64)},
        {"degree_scale": entry("F64", [8], 0, 64)},
        {"degree_scale": entry("U8", [64], 0, 64)},
    ]
    for places in cases:
        path.write_bytes(raw(json.dumps({"__metadata__": metadata, **places}).encode(), data))
        refused(path, "is not a packed bignn file")
    twice = json.dumps(
        {"__metadata__": metadata, "degree_scale": entry("F32", [4], 0, 16), "NORM": whole}
    )
    path.write_bytes(raw(twice.replace("NORM", "degree_scale").encode(), data))
    refused(path, "array 'offsets' is missing")


def test_arrays_that_are_not_aligned_are_read(
    model: PackedModel, graphs: dict[str, PackedGraph], tmp_path: Path
) -> None:
    """Other writers may pad their headers otherwise."""
    path = tmp_path / "file.bignn"
    for name in ("dense bits", "sparse bits"):
        expected = model.predict(graphs[name], output="logits")
        graphs[name].save(path)
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        for blanks in range(1, 8):
            header = content[8 : 8 + size] + b" " * blanks
            path.write_bytes(raw(header, content[8 + size :]))
            opened = bignn.open(path)
            assert isinstance(opened, PackedGraph)
            assert all(
                some.flags.aligned for some in (opened.offsets, opened.ids, opened.degree_scale)
            )
            assert np.array_equal(model.predict(opened, output="logits"), expected)


# --- Hostile models ----------------------------------------------------------------------------


def model_file(model: PackedModel, path: Path, change: Callable[[Header, Arrays], Any]) -> Path:
    header: Header = {
        "format": "bignn-model",
        "version": 1,
        "num_features": model.num_features,
        "operations": copy.deepcopy(model.operations),
        "about": {},
    }
    arrays = {name: values.copy() for name, values in model.arrays.items()}
    change(header, arrays)
    tensors.write(path, arrays, header)
    return path


def test_hostile_models_are_refused(model: PackedModel, tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    linear = next(n for n, step in enumerate(model.operations) if step["op"] == "binary_linear")
    scale = "input.scale"

    no_lists: list[Any] = [None, [], {}, 5, True, "abc"]
    no_steps: list[Any] = [None, 5, "ab", [], {}, {"op": []}, {"op": {}}, {"op": None}]

    def nothing(header: Header, arrays: Arrays) -> None:
        header["operations"] = []
        arrays.clear()

    cases: list[tuple[Callable[[Header, Arrays], Any], str]] = [
        (lambda h, a: h.update(version=2), "version 2 is not known, expected 1"),
        (lambda h, a: h.update(version="1"), "version '1' is not known"),
        (lambda h, a: h.pop("version"), "version None is not known"),
        (lambda h, a: h.update(about=[]), "'about' is not an object"),
        (lambda h, a: h.update(about="me"), "'about' is not an object"),
        *[
            (lambda h, a, n=n: h.update(operations=n), "list of operations is missing or too long")
            for n in no_lists
        ],
        *[
            (lambda h, a, n=n: h.update(operations=[n]), "is unknown; a newer bignn may know it")
            for n in no_steps
        ],
        (nothing, "list of operations is missing"),
        (lambda h, a: h["operations"][0].update(op="eval"), "operation 'eval' is unknown"),
        (lambda h, a: h["operations"].pop(linear), "which no operation before it makes"),
        (lambda h, a: h["operations"].pop(0), "which no operation before it makes"),
        (lambda h, a: h["operations"].reverse(), "which no operation before it makes"),
        (lambda h, a: h["operations"][linear].update({"in": ["x"]}), "no operation uses value"),
        (lambda h, a: h["operations"].extend([{"op": "relu"}] * 10_000), "missing or too long"),
        (lambda h, a: a.pop(scale), "array 'input.scale' is missing"),
        (lambda h, a: a.update(more=a[scale]), "no operation uses array 'more'"),
        (lambda h, a: a.update({scale: a[scale][:-1]}), r"must be float32 \[140\], got"),
        (lambda h, a: a.update({scale: a[scale].view(np.int32)}), "got int32"),
        (lambda h, a: a.update({scale: a[scale] * np.float32(np.nan)}), "not finite"),
        (lambda h, a: a.update({scale: a[scale] * np.float32(np.inf)}), "not finite"),
        (lambda h, a: a.update({"layers.0.words": ~a["layers.0.words"]}), "padding bits"),
        (lambda h, a: a.update({"layers.0.words": a["layers.0.words"][:, :2]}), "must be uint64"),
        (lambda h, a: a.update({"layers.0.words": a["layers.0.words"][:0]}), "must be float32"),
        *[
            (lambda h, a, n=n: h.update(num_features=n), "number of features is missing or out")
            for n in (0, -140, 2**31, 2**63, 10**40, 140.0, "140", None, [140])
        ],
        *[
            (lambda h, a, n=n: h.update(num_features=n), r"array 'input\.mean' must be float32")
            for n in (139, 141, 192, 2**31 - 1)
        ],
    ]  # fmt: skip
    for change, match in cases:
        refused(model_file(model, path, change), match)


def absurd(*values: float) -> Callable[[Header, Arrays], None]:
    """All floats but the statistics, which the fingerprint knows, of these values in turn."""

    def change(header: Header, arrays: Arrays) -> None:
        for name, some in arrays.items():
            if some.dtype == np.float32 and not name.startswith("input."):
                some[:] = np.resize(values, some.shape)

    return change


def test_a_file_may_hold_absurd_numbers(
    works: Callable[[Any], None], graphs: dict[str, PackedGraph], tmp_path: Path
) -> None:
    """Finite is all that is asked of them: overflow breaks nothing, and is alike everywhere."""
    path = tmp_path / "model.bignn"
    plain = make_packed_model([140, 9, 3])
    for values in ((3e38, -3e38, 1e-45, 0), (3.5e37,), (3.5e37, 0, 0), (0,), (-1e-45,), (1e20, -1)):
        assert not open_or_refuse(model_file(plain, path, absurd(*values)), works)
        opened = bignn.open(path)
        assert isinstance(opened, PackedModel)
        for name in ("dense bits", "sparse bits"):
            expected = opened.predict(graphs[name], backend="reference")
            assert ((expected >= 0) & (expected < 3)).all()
            for backend in kernels.available_backends():
                for plan in ("TT", "TG", "GT", "GG"):
                    got = opened.predict(graphs[name], backend=backend, plan=plan)
                    assert np.array_equal(got, expected), (values, backend, plan)


def test_scales_that_multiply_out_of_range_are_refused(model: PackedModel, tmp_path: Path) -> None:
    path = model_file(model, tmp_path / "model.bignn", absurd(3e38, -3e38))
    refused(path, "multiply out of range")


# --- Hostile graphs ----------------------------------------------------------------------------


def graph_file(graph: PackedGraph, path: Path, change: Callable[[Header, Arrays], Any]) -> Path:
    graph.save(path)
    mapped, header = tensors.read(path)
    arrays = {name: np.array(values) for name, values in mapped.items()}
    del mapped
    change(header, arrays)
    tensors.write(path, arrays, header)
    return path


def put(name: str, place: Any, value: Any) -> Callable[[Header, Arrays], None]:
    def change(header: Header, arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


def test_hostile_graphs_are_refused(graphs: dict[str, PackedGraph], tmp_path: Path) -> None:
    path = tmp_path / "graph.bigraph"
    cases: list[tuple[Callable[[Header, Arrays], Any], str]] = [
        (lambda h, a: h.update(version=2), "version 2 with adjacency 'gcn' is not known"),
        (lambda h, a: h.update(adjacency="mean"), "adjacency 'mean' is not known"),
        (lambda h, a: h.pop("adjacency"), "adjacency None is not known"),
        (lambda h, a: h.pop("input"), "fingerprint of the input statistics is missing"),
        (lambda h, a: h.update(input=7), "fingerprint of the input statistics is missing"),
        *[
            (lambda h, a, n=n: h.update(num_features=n), "number of features is missing or out")
            for n in (0, -1, 2**31, 10**40, 1.0, "140", None)
        ],
        *[
            (lambda h, a, n=n: h.update(num_features=n), "must be uint64|padding bits|not in 0")
            for n in (128, 193, 2**31 - 1)
        ],
        (put("offsets", 3, 0), "'offsets' does not rise from 0 to"),
        (put("offsets", 3, 10**6), "'offsets' does not rise from 0 to"),
        (put("offsets", 3, -(2**63)), "'offsets' does not rise from 0 to"),
        (put("offsets", 0, 1), "'offsets' does not rise from 0 to"),
        (put("offsets", 0, -1), "'offsets' does not rise from 0 to"),
        (put("offsets", -1, 10**6), "'offsets' does not rise from 0 to"),
        (put("offsets", -1, 2**63 - 1), "'offsets' does not rise from 0 to"),
        (lambda h, a: a.update(offsets=a["offsets"][:-1]), r"'offsets' must be int64 \["),
        (lambda h, a: a.update(offsets=a["offsets"][:0]), r"'offsets' must be int64 \["),
        (lambda h, a: a.update(ids=a["ids"][:-1]), "'offsets' does not rise from 0 to"),
        (put("ids", 5, 10**6), r"'ids' has numbers that are not in 0\.\."),
        (put("ids", 5, -1), r"'ids' has numbers that are not in 0\.\."),
        (put("ids", 5, -(2**31)), r"'ids' has numbers that are not in 0\.\."),
        (put("degree_scale", 1, np.nan), "'degree_scale' has values that are not finite"),
        (put("degree_scale", 1, np.inf), "'degree_scale' has values that are not finite"),
        (put("degree_scale", 1, -0.5), "'degree_scale' has negative values"),
        (put("beta", 1, np.nan), "'beta' has values that are not finite"),
        (put("beta", 1, -1e-30), "'beta' has negative values"),
        (lambda h, a: a.update(beta=a["beta"][:-1]), r"'beta' must be float32 \["),
        (lambda h, a: a.update(degree_scale=a["degree_scale"][:-1]), "must be int64"),
        (lambda h, a: a.update(ids=a["ids"].astype(np.float32)), "'ids' must be int32"),
        (lambda h, a: a.update(ids=a["ids"].astype(np.uint64)), "'ids' must be int32"),
        (lambda h, a: a.update(degree_scale=a["degree_scale"][None]), r"'degree_scale' must be float32 \[None\]"),
        (lambda h, a: a.update(weights=a["degree_scale"]), r"'weights' must be float32 \["),
        (lambda h, a: a.update({"labels.y": a["offsets"]}), r"'labels\.y' has .* values for"),
        (lambda h, a: a.update({"labels.y": a["degree_scale"]}), r"'labels\.y' must be int64"),
        (lambda h, a: a.update({"labels.val_idx": np.array([-1])}), "numbers that are not nodes"),
        (lambda h, a: a.update({"labels.test_idx": np.array([0, 40])}), "that are not nodes"),
        *[
            (lambda h, a, name=name: a.pop(name), f"array '{name}' is missing")
            for name in ("offsets", "ids", "degree_scale", "beta")
        ],
    ]  # fmt: skip
    for name in ("dense bits", "sparse bits"):
        for change, match in cases:
            refused(graph_file(graphs[name], path, change), match)


def test_hostile_features_are_refused(graphs: dict[str, PackedGraph], tmp_path: Path) -> None:
    path = tmp_path / "graph.bigraph"
    words, inputs = "features.words", "features.inputs"
    offsets, base, x = "features.offsets", "features.base", "features.x"
    padding = np.uint64(1 << 63)
    cases: dict[str, list[tuple[Callable[[Header, Arrays], Any], str]]] = {
        "dense bits": [
            (put(words, (3, -1), padding), "padding bits of the features are not 0"),
            (put(words, (-1, -1), np.uint64(1 << 12)), "padding bits of the features are not 0"),
            (lambda h, a: a.update({words: a[words][:-1]}), "'features.words' must be uint64"),
            (lambda h, a: a.update({words: a[words][:, :-1]}), "'features.words' must be uint64"),
            (lambda h, a: a.update({words: a[words].view(np.int64)}), "'features.words' must be"),
            (lambda h, a: a.pop(words), "array 'features.offsets' is missing"),
            (put("weights", 2, -1), "'weights' has negative values"),
            (put("weights", 2, np.nan), "'weights' has values that are not finite"),
            (lambda h, a: a.update(weights=a["weights"][:-1]), "'weights' must be float32"),
            (put("labels.train_idx", 0, 12), "numbers that are not nodes"),
        ],
        "sparse bits": [
            (put(inputs, 0, 140), r"'features.inputs' has numbers that are not in 0\.\.139"),
            (put(inputs, -1, -1), r"'features.inputs' has numbers that are not in 0\.\.139"),
            (lambda h, a: a.update({inputs: a[inputs][::-1]}), "does not rise within each row"),
            (put(offsets, 5, 10**6), "'features.offsets' does not rise"),
            (put(offsets, -1, 0), "'features.offsets' does not rise"),
            (put(base, -1, padding), "padding bits of the features are not 0"),
            (lambda h, a: a.update({base: a[base][:-1]}), "'features.base' must be uint64"),
            (lambda h, a: a.update({inputs: a[inputs].astype(np.int64)}), "must be int32"),
            (lambda h, a: a.pop(base), "array 'features.base' is missing"),
            (lambda h, a: a.pop(inputs), "array 'features.inputs' is missing"),
            (lambda h, a: a.pop(offsets), "array 'features.offsets' is missing"),
        ],
        "floats": [
            (put(x, (1, 1), np.nan), "'features.x' has values that are not finite"),
            (lambda h, a: a.update({x: a[x][:, :-1]}), "'features.x' must be float32"),
            (lambda h, a: a.update({x: a[x].astype(np.int32)}), "'features.x' must be float32"),
            (lambda h, a: h.update(num_features=7), "'features.x' must be float32"),
            (lambda h, a: a.pop(x), "array 'beta' is missing"),
        ],
    }  # fmt: skip
    for name, changes in cases.items():
        for change, match in changes:
            refused(graph_file(graphs[name], path, change), match)


@pytest.mark.parametrize("name", ["dense bits", "sparse bits", "floats"])
def test_a_graph_of_no_nodes_works(
    name: str,
    graphs: dict[str, PackedGraph],
    works: Callable[[Any], None],
    tmp_path: Path,
) -> None:
    def nothing(header: Header, arrays: Arrays) -> None:
        for key in list(arrays):
            if key.startswith("labels."):
                del arrays[key]
            elif key != "features.base":
                arrays[key] = arrays[key][: "offsets" in key]

    path = graph_file(graphs[name], tmp_path / "graph.bigraph", nothing)
    assert not open_or_refuse(path, works)
    opened = bignn.open(path)
    assert isinstance(opened, PackedGraph)
    assert opened.num_nodes == opened.num_entries == 0


def test_nodes_without_neighbours_work(
    graphs: dict[str, PackedGraph], works: Callable[[Any], None], tmp_path: Path
) -> None:
    """Not even themselves: no graph of ours is like that, but a file may be."""

    def alone(header: Header, arrays: Arrays) -> None:
        arrays["offsets"][:] = 0
        arrays["ids"] = arrays["ids"][:0]
        if "weights" in arrays:
            arrays["weights"] = arrays["weights"][:0]

    for name, graph in graphs.items():
        path = graph_file(graph, tmp_path / f"{name}.bignn", alone)
        assert not open_or_refuse(path, works)
