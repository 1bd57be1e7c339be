"""Packed models in files, pickles and processes without torch."""

import copy
import pickle
import pickletools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import make_graph
from packed_models import NODES, as_floats, for_each_case, packed_case

import bignn
from bignn import FileError, PackedGraph, PackedModel


@for_each_case
def test_a_file_gives_the_same_model_back(case: str, tmp_path: Path) -> None:
    model, graph = packed_case(case)
    model = PackedModel(model.operations, model.arrays, model.num_features, {"trained on": "toys"})
    path = tmp_path / "model.bignn"
    model.save(path)
    opened = PackedModel.open(path)
    assert opened.operations == model.operations
    assert opened.about == model.about
    assert opened.num_features == model.num_features
    assert opened.input_digest == model.input_digest
    assert opened.nbytes == model.nbytes
    assert opened.arrays.keys() == model.arrays.keys()
    assert all(np.array_equal(opened.arrays[key], model.arrays[key]) for key in model.arrays)
    path.unlink()  # an opened model does not depend on its file
    logits = model.predict(graph, output="logits")
    assert opened.predict(graph, output="logits").tobytes() == logits.tobytes()
    opened.save(str(path))
    again = bignn.open(str(path))
    assert isinstance(again, PackedModel)
    assert again.predict(graph, output="logits").tobytes() == logits.tobytes()


def test_what_is_opened_as_another_kind_is_refused(
    binary: PackedModel, binary_graph: PackedGraph, tmp_path: Path
) -> None:
    model, graph = tmp_path / "model.bignn", tmp_path / "graph.bigraph"
    binary.save(model)
    binary_graph.save(graph)
    assert isinstance(PackedModel.open(model), PackedModel)
    assert isinstance(PackedGraph.open(graph), PackedGraph)
    with pytest.raises(FileError, match="h' holds a packed graph, expected a packed model"):
        PackedModel.open(graph)
    with pytest.raises(FileError, match="n' holds a packed model, expected a packed graph"):
        PackedGraph.open(model)
    with pytest.raises(FileError, match="does not exist"):
        PackedGraph.open(tmp_path / "nothing")


def test_a_deployment_needs_no_torch(
    binary: PackedModel, binary_graph: PackedGraph, tmp_path: Path
) -> None:
    other = as_floats(binary)
    raw = make_graph(NODES, 300, like_words=True)
    np.savez(tmp_path / "raw.npz", x=raw.dense_x(), edge_index=raw.edge_index)
    binary.save(tmp_path / "binary.bignn")
    other.save(tmp_path / "floats.bignn")
    binary_graph.save(tmp_path / "graph.bigraph")
    code = """
import sys
sys.modules.update(torch=None, torch_geometric=None, tqdm=None)
import bignn, numpy as np
graph = bignn.open("graph.bigraph")
raw = bignn.load("raw.npz")
for name in ("binary", "floats"):
    model = bignn.open(f"{name}.bignn")
    assert model.num_classes == 5
    again = bignn.pack_graph(raw, like=model)
    np.save(f"{name}.npy", model.predict(graph, output="logits"))
    np.save(f"{name}-some.npy", model.predict(again, [4, 2], output="logits"))
assert not any(name == "torch" and module for name, module in sys.modules.items())
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    expected = binary.predict(binary_graph, output="logits")
    assert np.load(tmp_path / "binary.npy").tobytes() == expected.tobytes()
    assert np.load(tmp_path / "binary-some.npy").tobytes() == expected[[4, 2]].tobytes()
    np.testing.assert_allclose(np.load(tmp_path / "floats.npy"), expected, rtol=1e-3, atol=1e-3)


@for_each_case
def test_pickles_and_copies_go_through_the_models_own_bytes(case: str) -> None:
    """So that a pickle is checked as a file is, and carries nothing but the model."""
    model, graph = packed_case(case)
    expected = model.predict(graph, output="logits")
    function, arguments = model.__reduce__()
    assert [type(argument) for argument in arguments] == [bytes]
    content = pickle.dumps(model)
    names = [opcode.name for opcode, *_ in pickletools.genops(content)]
    assert sum("BYTES" in name for name in names) == names.count("REDUCE") == 1
    assert not {"BUILD", "NEWOBJ", "EMPTY_DICT", "EMPTY_LIST"} & set(names)
    for again in (pickle.loads(content), copy.deepcopy(model), copy.copy(model)):
        assert again is not model
        assert (again.operations, again.about) == (model.operations, model.about)
        assert again.predict(graph, output="logits").tobytes() == expected.tobytes()
    for place in range(0, len(arguments[0]), 97):
        damaged = bytearray(arguments[0])
        damaged[place] ^= 4
        with pytest.raises(FileError) as error:
            function(bytes(damaged))
        assert "\n" not in str(error.value)
