"""Files of format version 1: two things were called ``norm``, and headers had no digest."""

import copy
from pathlib import Path

import numpy as np
import pytest
from packed_files import graphs, models, refused, version_1

import bignn
from bignn import FileError, PackedGraph, PackedModel


@pytest.mark.parametrize("with_digest", [True, False])
def test_files_of_version_1_open_and_predict_the_same(with_digest: bool, tmp_path: Path) -> None:
    path = tmp_path / "old.bignn"
    tried = 0
    for model in models().values():
        content = version_1(model, tmp_path, with_digest=with_digest)
        if any(step["op"] == "aggregate" for step in model.operations):
            assert b'\\"norm\\": ' in content
            assert b"aggr\\" not in content
        path.write_bytes(content)
        opened = PackedModel.open(path)
        assert opened.operations == model.operations
        for name, graph in graphs().items():
            as_given = not model.network.aggregations.isdisjoint(("mean", "sum"))
            if model.input_digest != graph.input_digest or (as_given and graph.adjacency == "gcn"):
                continue
            if graph.node_ids is not None:  # version 1 had no order
                continue
            path.write_bytes(version_1(graph, tmp_path, with_digest=with_digest))
            assert b'"norm"' in path.read_bytes()
            old = bignn.open(path)
            assert isinstance(old, PackedGraph)
            expected = model.predict(graph, output="logits")
            assert opened.predict(old, output="logits").tobytes() == expected.tobytes(), name
            tried += 1
    assert tried >= len(models())


def test_files_of_version_1_are_saved_as_files_of_today(tmp_path: Path) -> None:
    for packed in (models()["gcn"], graphs()["dense bits"]):
        path = tmp_path / ("file.bigraph" if isinstance(packed, PackedGraph) else "file.bignn")
        path.write_bytes(version_1(packed, tmp_path))
        opened = bignn.open(path)
        opened.save(path)
        content = path.read_bytes()
        assert b'\\"version\\": 2' in content
        assert b"header_digest" in content
        assert b'"norm"' not in content
        assert b'\\"norm\\"' not in content
        bignn.open(path)


def test_files_of_version_1_have_edge_bits_of_17_or_20(tmp_path: Path) -> None:
    operations = copy.deepcopy(models()["floats"].operations)
    path = tmp_path / "model.bignn"
    for edge_bits in (2, 7, 8, 17, 20):
        operations[-1]["edge_bits"] = edge_bits
        model = PackedModel(operations, models()["floats"].arrays, 6)
        model.save(path)
        assert PackedModel.open(path).operations == operations
        path.write_bytes(version_1(model, tmp_path))
        if edge_bits in (17, 20):
            PackedModel.open(path)
        else:
            refused(path, r"'edge_bits' of a file of version 1 must be one of \[17, 20\]")
    for wrong in (1, 9, 16, 21, 7.0, True):
        operations[-1]["edge_bits"] = wrong
        with pytest.raises(FileError, match="'edge_bits' of 'aggregate' must be one of"):
            PackedModel(operations, models()["floats"].arrays, 6)


def test_digests_of_version_1_count(tmp_path: Path) -> None:
    """A model's always, a graph's on demand."""
    path = tmp_path / "old.bigraph"
    graph = graphs()["dense bits"]
    for packed in (models()["gcn"], graph):
        content = bytearray(version_1(packed, tmp_path))
        place = 8 + int.from_bytes(content[:8], "little")
        if packed is graph:
            assert isinstance(graph.beta, np.ndarray)
            place = content.index(graph.beta.tobytes())
        content[place] ^= 1
        path.write_bytes(content)
        if packed is graph:
            assert PackedGraph.open(path).num_nodes == graph.num_nodes
            with pytest.raises(FileError, match="its digest is not that of its content"):
                PackedGraph.open(path, verify=True)
        else:
            refused(path, "its digest is not that of its content")
    path.write_bytes(version_1(graph, tmp_path, with_digest=False))
    with pytest.raises(FileError, match="it has no digest to verify"):
        PackedGraph.open(path, verify=True)
    # A file of today without its digests does not pass for an old one.
    path.write_bytes(
        version_1(graph, tmp_path, with_digest=False).replace(
            b'\\"version\\": 1', b'\\"version\\": 2'
        )
    )
    refused(path, "it has no digest of its header")
