"""Packed graphs whose content makes no sense: a one-line FileError, whatever they hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from packed_files import Arrays, Change, Header, changed_file, graphs, is_refused, refused

import bignn
from bignn import InputError, PackedGraph


def put(name: str, place: Any, value: Any) -> Change:
    def change(header: Header, arrays: Arrays) -> None:
        arrays[name][place] = value

    return change


def test_hostile_graphs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.bigraph"
    cases: list[tuple[Change, str]] = [
        (lambda h, a: h.update(version=3), "version 3 with adjacency 'gcn' is not known"),
        (lambda h, a: h.update(adjacency="mean"), "adjacency 'mean' is not known"),
        (lambda h, a: h.pop("adjacency"), "adjacency None is not known"),
        (lambda h, a: h.update(direction="in"), "it has an unknown part 'direction'"),
        (lambda h, a: a.update(weightr=a["degree_scale"]), "it has an unknown part 'weightr'"),
        (lambda h, a: a.update(norm=a["degree_scale"]), "it has an unknown part 'norm'"),
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
        (lambda h, a: a.update(degree_scale=a["degree_scale"][None]), r"must be float32 \[None\]"),
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
            refused(changed_file(graphs()[name], path, change), match)


def test_hostile_names_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.bigraph"
    data, offsets = "node_names", "node_names_offsets"
    cases: list[tuple[Change, str]] = [
        (put(data, 0, 0xFF), "'node_names' is not UTF-8"),
        (put(data, 3, 10), "'node_names' must be names without line breaks"),
        (put(offsets, 0, 1), "'node_names' has offsets that do not rise from 0 to 90"),
        (put(offsets, 3, 2**62), "'node_names' has offsets that do not rise"),
        (put(offsets, -1, 91), "'node_names' has offsets that do not rise"),
        (put(offsets, 1, 0), "'node_names' must be names that are not empty"),
        (put(offsets, 1, 8), "'node_names' is not UTF-8"),  # in the middle of a letter
        (lambda h, a: a.pop(offsets), "'node_names' must be text, or UTF-8 with"),
        (lambda h, a: a.pop(data), "'node_names_offsets' is there without 'node_names'"),
        (lambda h, a: a.update({data: a["offsets"]}), "'node_names' must be UTF-8 as uint8"),
        (lambda h, a: a.update({offsets: a["beta"]}), "'node_names' must be UTF-8 as uint8"),
        (lambda h, a: a.update({offsets: a[offsets][:0]}), "'node_names' must be bytes"),
        (lambda h, a: h.update(class_names=["red"]), "'class_names' has no name for class 2"),
        (lambda h, a: h.update(class_names=["a", "b", "a"]), "'class_names' must be different"),
        (lambda h, a: h.update(class_names="abc"), "'class_names' must be a list of texts"),
        (lambda h, a: h.update(class_names=[1.5, 2, 3]), "'class_names' must be a list of texts"),
        (lambda h, a: h.update(class_names={"a": 1}), "'class_names' must be a list of texts"),
        (lambda h, a: h.update(version=1), "it has an unknown part 'class_names'"),
    ]  # fmt: skip
    for change, match in cases:
        refused(changed_file(graphs()["named"], path, change), match)

    def add_a_name(header: Header, arrays: Arrays) -> None:
        arrays[data] = np.concatenate([arrays[data], [65]]).astype(np.uint8)
        arrays[offsets] = np.append(arrays[offsets], len(arrays[data]))

    refused(changed_file(graphs()["named"], path, add_a_name), "has 11 names for 10 nodes")
    # The same name twice is found where a name is looked up.
    changed_file(graphs()["named"], path, put(data, 14, ord("0")))
    opened = PackedGraph.open(path)
    assert opened.node_names is not None
    assert opened.node_names[0] == opened.node_names[1]
    with pytest.raises(InputError, match="different names, got 'node 0 é' more than once"):
        opened.node_names.numbers(["node 3 é"])


def test_hostile_features_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.bigraph"
    words, inputs = "features.words", "features.inputs"
    offsets, base, x = "features.offsets", "features.base", "features.x"
    padding = np.uint64(1 << 63)
    cases: dict[str, list[tuple[Change, str]]] = {
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
            refused(changed_file(graphs()[name], path, change), match)


def test_a_graph_of_no_nodes_works(tmp_path: Path) -> None:
    def nothing(header: Header, arrays: Arrays) -> None:
        for key in list(arrays):
            if key.startswith("labels."):
                del arrays[key]
            elif key != "features.base":
                arrays[key] = arrays[key][: "offsets" in key]

    for name in ("dense bits", "sparse bits", "floats"):
        path = changed_file(graphs()[name], tmp_path / "graph.bigraph", nothing)
        assert not is_refused(path), name
        opened = bignn.open(path)
        assert isinstance(opened, PackedGraph)
        assert opened.num_nodes == opened.num_entries == 0, name


def test_nodes_without_neighbours_work(tmp_path: Path) -> None:
    """Not even themselves: no graph of ours is like that, but a file may be."""

    def alone(header: Header, arrays: Arrays) -> None:
        arrays["offsets"][:] = 0
        arrays["ids"] = arrays["ids"][:0]
        if "weights" in arrays:
            arrays["weights"] = arrays["weights"][:0]

    for name, graph in graphs().items():
        assert not is_refused(changed_file(graph, tmp_path / f"{name}.bigraph", alone)), name
