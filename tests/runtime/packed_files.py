"""Packed models and graphs of every kind, their files in version 1, and what must hold of a file:
it is refused in one line, or gives an object that works.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import make_graph, make_packed_model
from numpy.typing import NDArray
from packed_family import make_chain, make_gin, make_jumping
from safetensors.numpy import save

import bignn
from bignn import FileError, Graph, InputError, PackedGraph, PackedModel, pack_graph
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.runtime import tensors

Arrays = dict[str, NDArray[Any]]
Header = dict[str, Any]
Change = Callable[[Header, Arrays], Any]


@cache
def models() -> dict[str, PackedModel]:
    """Models of 140 features ("gcn"), of 6 ("floats"), and of 70."""
    weight = np.random.default_rng(0).standard_normal((3, 6)).astype(np.float32)
    operations: list[dict[str, Any]] = [
        {"op": "linear", "in": ["x"], "out": "a", "weight": "weight"},
        {"op": "aggregate", "in": ["a"], "out": "b", "aggr": "gcn", "edge_bits": 20},
    ]
    return {
        "gcn": make_packed_model([140, 9, 3], batch_norm=True),
        "floats": PackedModel(operations, {"weight": weight}, 6),
        "sage": make_chain(["sage", "sage"]),
        "gat": make_chain(["gat", "gat"]),
        "jumping": make_jumping("gat", binary_head=True),
        "gin": make_gin(),
    }


@cache
def graphs() -> dict[str, PackedGraph]:
    """Graphs for these models, with features in every form."""
    dense = pack_graph(make_graph(12, 140), like=models()["gcn"])
    sparse = pack_graph(make_graph(40, 140, like_words=True), like=models()["gcn"])
    assert isinstance(dense.features, DenseBits)
    assert isinstance(sparse.features, SparseBits)
    labels = {"y": np.arange(12) % 3, "train_idx": np.array([3, 1])}
    weights = np.random.default_rng(0).random(dense.num_entries).astype(np.float32)
    return {
        "dense bits": replace(dense, labels=labels, weights=weights),
        "sparse bits": sparse,
        "floats": pack_graph(make_graph(9, 6), like=models()["floats"]),
        "plain": pack_graph(make_graph(12, 70), like=models()["sage"]),
        "plain floats": pack_graph(make_graph(12, 70), like=models()["gin"]),
        "in locality order": pack_graph(
            make_graph(30, 70), like=models()["sage"], order="locality"
        ),
        "named": pack_graph(named_graph(), like=models()["sage"], order="locality"),
    }


def named_graph() -> Graph:
    """A graph whose nodes and classes have names."""
    names = [f"node {number} é" for number in range(10)]
    classes = ["red", "green", "blue"]
    graph = make_graph(10, 70)
    return replace(graph, y=np.arange(10) % 3, node_names=names, class_names=classes)


def content_of(packed: PackedModel | PackedGraph, folder: Path) -> tuple[Arrays, Header]:
    """Arrays and header of a file, to be changed."""
    path = folder / f"content{'.bignn' if isinstance(packed, PackedModel) else '.bigraph'}"
    packed.save(path)
    arrays, header = tensors.read(path)
    copies = {name: np.array(values) for name, values in arrays.items()}
    path.unlink()
    return copies, header


def version_1(
    packed: PackedModel | PackedGraph, folder: Path, *, with_digest: bool = True
) -> bytes:
    """The file that version 1 made of a model or a graph; its first releases wrote no digest."""
    arrays, header = content_of(packed, folder)
    header["version"] = 1
    for step in header.get("operations", []):
        if "aggr" in step:
            step["norm"] = step.pop("aggr")
    if "degree_scale" in arrays:
        arrays["norm"] = arrays.pop("degree_scale")
    text = json.dumps(header)
    metadata = {"bignn": text}
    if with_digest:
        metadata["digest"] = tensors.digest_of(text, arrays)
    return bytes(save(arrays, metadata=metadata))


def changed_file(packed: PackedModel | PackedGraph, path: Path, change: Change) -> Path:
    """Write a file of changed content with the digests of what it holds."""
    arrays, header = content_of(packed, path.parent)
    change(header, arrays)
    tensors.write(path, arrays, header)
    return path


def with_header(header: bytes, data: bytes = b"") -> bytes:
    """Bytes of a file with this header."""
    return len(header).to_bytes(8, "little") + header + data


def refused(path: Path, match: str) -> None:
    """The file is refused in one line that names it."""
    with pytest.raises(FileError, match=match) as error:
        bignn.open(path)
    assert "\n" not in str(error.value)
    assert str(path) in str(error.value)


def is_refused(path: Path) -> bool:
    """Whether the file is refused, in one line that names it; if not, what it gives works."""
    # Numbers may be absurd; they may overflow, but nothing may break.
    with np.errstate(all="ignore"):
        try:
            opened = bignn.open(path)
        except FileError as error:
            assert "\n" not in str(error)
            assert str(path) in str(error)
            return True
        check_works(opened)
    return False


def check_works(opened: Any) -> None:
    """Use an opened object in every way there is, with whatever fits it."""
    pairs: list[tuple[PackedModel, PackedGraph]]
    if isinstance(opened, PackedModel):
        pairs = [(opened, graph) for graph in graphs().values()]
    else:
        assert isinstance(opened, PackedGraph)
        pairs = [(known, opened) for known in models().values()]
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
