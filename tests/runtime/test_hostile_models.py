"""Files that are something else, and packed models whose content makes no sense: a one-line
FileError, whatever they hold.
"""

import json
import os
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from packed_files import (
    Arrays,
    Change,
    Header,
    changed_file,
    graphs,
    is_refused,
    models,
    refused,
    with_header,
)

import bignn
from bignn import InputError, PackedGraph, PackedModel, kernels
from bignn.runtime import tensors


def test_what_no_file_can_be_called_is_refused_in_one_line(tmp_path: Path) -> None:
    model = make_packed_model([30, 9, 3])
    graph = bignn.pack_graph(make_graph(9, 30), like=model)
    wrong: list[Any] = [None, 7, "", b"a.bigraph", "a" * 300 + ".bigraph", "a\0.bigraph"]
    for path in wrong:
        for use in (bignn.open, PackedModel.open, PackedGraph.open, model.save, graph.save):
            with pytest.raises(InputError, match=r"^'path' must be a path") as error:
                use(path)
            assert "\n" not in str(error.value)
    os.mkfifo(tmp_path / "pipe.bignn")  # opening it would wait for a writer
    refused(tmp_path / "pipe.bignn", "is a pipe; give a packed model")


def test_facts_that_json_cannot_hold_are_refused(tmp_path: Path) -> None:
    for about in ({"when": object()}, {"loss": float("nan")}):
        model = make_packed_model([30, 9, 3])
        model.about = about
        with pytest.raises(InputError, match=r"^'about' must be made of what JSON holds, got"):
            model.save(tmp_path / "model.bignn")
    assert not list(tmp_path.iterdir())


def test_hostile_class_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    for names, match in (
        (["a", "b"], r"'class_names' must be a name for each of the model's outputs \(3\), got 2"),
        (["a", "b", "a"], "'class_names' must be different names, got 'a' more than once"),
        (["a", "b", ""], "'class_names' must be names that are not empty"),
        (["a", "b", "c\nd"], "'class_names' must be names without line breaks"),
        (["a", "b", "\ud800"], "'class_names' must be text that UTF-8 can hold"),
        ("abc", "'class_names' must be a list of texts"),
        ([1.5, 2, 3], "'class_names' must be a list of texts"),
        ({"a": 1, "b": 2, "c": 3}, "'class_names' must be a list of texts"),
    ):
        change = partial(set_class_names, names)
        refused(changed_file(models()["gcn"], path, change), match)
    changed_file(models()["gcn"], path, partial(set_class_names, ["é", "b", "7"]))
    assert PackedModel.open(path).class_names == ("é", "b", "7")


def set_class_names(names: Any, header: Header, _: Arrays) -> None:
    header["class_names"] = names


def test_what_is_not_a_packed_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.bignn"
    refused(path, "does not exist")
    refused(tmp_path, "is a folder; give a packed model")

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
        with_header(b"{}"),
        with_header(b"[]"),
        with_header(b"null"),
        with_header(b'{"__metadata__": {}}'),
        with_header(b'{"__metadata__": {"bignn": ""}}'),
        with_header(b'{"__metadata__": {"bignn": "["}}'),
        with_header(b'{"__metadata__": {"bignn": 5}}'),
        with_header(b'{"__metadata__": {"bignn": "' + b"[" * 100_000 + b'"}}'),
        with_header(b'{"__metadata__": {"bignn": "[]"}}'),
        with_header(b'{"__metadata__": {"bignn": "7"}}'),
        with_header(b'{"__metadata__": {"bignn": "' + b"7" * 5000 + b'"}}'),
        with_header(b'{"__metadata__": {"bignn": "null"}}'),
        with_header(b"[" * 100_000),
        with_header(b'{"a": ' * 50_000),
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
        {"degree_scale": entry("I16", [64], 0, 128)},
    ]
    for places in cases:
        path.write_bytes(
            with_header(json.dumps({"__metadata__": metadata, **places}).encode(), data)
        )
        refused(path, "is not a packed bignn file")
    twice = json.dumps(
        {"__metadata__": metadata, "degree_scale": entry("F32", [4], 0, 16), "NORM": whole}
    )
    path.write_bytes(with_header(twice.replace("NORM", "degree_scale").encode(), data))
    refused(path, "array 'offsets' is missing")


def test_hostile_models_are_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "model.bignn", models()["gcn"]
    linear = next(n for n, step in enumerate(model.operations) if step["op"] == "binary_linear")
    scale = "input.scale"

    no_lists: list[Any] = [None, [], {}, 5, True, "abc"]
    no_steps: list[Any] = [None, 5, "ab", [], {}, {"op": []}, {"op": {}}, {"op": None}]

    def nothing(header: Header, arrays: Arrays) -> None:
        header["operations"] = []
        arrays.clear()

    cases: list[tuple[Change, str]] = [
        (lambda h, a: h.update(version=3), "version 3 is not known, expected 2"),
        (lambda h, a: h.update(version=True), "version True is not known"),
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
        refused(changed_file(model, path, change), match)


def test_an_unknown_part_of_a_models_header_is_refused(tmp_path: Path) -> None:
    def change(header: Header, arrays: Arrays) -> None:
        header["quantiles"] = [0.5]

    path = changed_file(models()["gcn"], tmp_path / "model.bignn", change)
    refused(path, "unknown part 'quantiles'; a newer bignn may read it")


def absurd(*values: float) -> Change:
    """All floats but the statistics, which the fingerprint knows, of these values in turn."""

    def change(header: Header, arrays: Arrays) -> None:
        for name, some in arrays.items():
            if some.dtype == np.float32 and not name.startswith("input."):
                some[:] = np.resize(values, some.shape)

    return change


def test_a_file_may_hold_absurd_numbers(tmp_path: Path) -> None:
    """Finite is all that is asked of them: overflow breaks nothing, and is alike everywhere."""
    path = tmp_path / "model.bignn"
    plain = make_packed_model([140, 9, 3])
    for values in ((3e38, -3e38, 1e-45, 0), (3.5e37,), (3.5e37, 0, 0), (0,), (-1e-45,), (1e20, -1)):
        assert not is_refused(changed_file(plain, path, absurd(*values)))
        opened = bignn.open(path)
        assert isinstance(opened, PackedModel)
        for name in ("dense bits", "sparse bits"):
            expected = opened.predict(graphs()[name], backend="reference")
            assert ((expected >= 0) & (expected < 3)).all()
            for backend in kernels.available_backends():
                for plan in ("TT", "TG", "GT", "GG"):
                    got = opened.predict(graphs()[name], backend=backend, plan=plan)
                    assert np.array_equal(got, expected), (values, backend, plan)


def test_scales_that_multiply_out_of_range_are_refused(tmp_path: Path) -> None:
    path = changed_file(models()["gcn"], tmp_path / "model.bignn", absurd(3e38, -3e38))
    refused(path, "multiply out of range")
