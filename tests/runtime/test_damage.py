"""Damaged files: a one-line FileError, or an object that works. Never anything else.

``BIGNN_CORRUPTIONS=10000 pytest tests/runtime/test_damage.py`` tries that many per file.
"""

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from packed_files import graphs, is_refused, models, refused, version_1, with_header
from safetensors.numpy import save_file

import bignn
from bignn import FileError, InputError, PackedGraph, PackedModel
from bignn.kernels.layer import DenseBits, SparseBits
from bignn.runtime import tensors

CORRUPTIONS = int(os.environ.get("BIGNN_CORRUPTIONS", "300"))
FILES = ["gcn", "sage", "gat", "jumping", "gin", "dense bits", "sparse bits", "floats", "plain"]


@pytest.fixture(params=FILES)
def content(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    """A whole file of version 1, without the digest, which would hide what else is checked."""
    packed = (models() | graphs())[request.param]
    return version_1(packed, tmp_path, with_digest=False)


# --- Digests -----------------------------------------------------------------------------------


def test_a_flipped_byte_of_a_model_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    models()["floats"].save(path)
    whole = path.read_bytes()
    PackedModel.open(path)
    for place in range(len(whole)):
        for flip in (1, 128, 255):
            damaged = bytearray(whole)
            damaged[place] ^= flip
            path.write_bytes(damaged)
            with pytest.raises(FileError) as caught:
                PackedModel.open(path)
            assert "\n" not in str(caught.value)


def test_a_cut_or_grown_file_is_told_in_words_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    models()["floats"].save(path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    cut = "it is cut off in its header, or is another kind of file"
    for size in (8, 9, header - 1):
        path.write_bytes(whole[:size])
        refused(path, cut)
    for size in (header, len(whole) - 1):
        path.write_bytes(whole[:size])
        refused(path, f"it is cut off: {size:,} bytes, {len(whole):,} by its header")
    path.write_bytes(whole + b"\0")
    refused(path, f"something was added to it: {len(whole) + 1:,} bytes, {len(whole):,} by its")
    path.write_bytes(bytes(100))
    refused(path, "its header does not describe its arrays")


def assert_same_graph(opened: PackedGraph, graph: PackedGraph) -> None:
    """Everything that a file holds of a graph is the same."""
    for key in ("num_features", "input_digest", "adjacency"):
        assert getattr(opened, key) == getattr(graph, key), key
    arrays = {
        key: (getattr(opened, key), getattr(graph, key))
        for key in ("offsets", "ids", "weights", "degree_scale", "beta")
    }
    assert opened.labels.keys() == graph.labels.keys()
    arrays |= {key: (opened.labels[key], graph.labels[key]) for key in graph.labels}
    assert type(opened.features) is type(graph.features)
    if isinstance(graph.features, DenseBits | SparseBits):
        parts = vars(graph.features)
        arrays |= {key: (getattr(opened.features, key), parts[key]) for key in parts}
    for key, (got, expected) in arrays.items():
        assert (got is None) == (expected is None), key
        assert got is None or np.array_equal(got, expected), key


@pytest.mark.parametrize("name", ["dense bits", "sparse bits"])
def test_a_flipped_bit_of_a_graphs_header_never_changes_the_graph(
    name: str, tmp_path: Path
) -> None:
    """Without reading all of the file: of every byte of the header, one bit."""
    graph, path = graphs()[name], tmp_path / "graph.bigraph"
    graph.save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for place in range(8 + int.from_bytes(whole[:8], "little")):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        try:
            opened = PackedGraph.open(path)
        except FileError as error:
            assert "\n" not in str(error), place
        else:
            assert_same_graph(opened, graph)


def test_a_misspelt_array_is_not_a_missing_one(tmp_path: Path) -> None:
    """One bit makes ``weightr`` of ``weights``: a graph without weights would be another one."""
    path = tmp_path / "graph.bigraph"
    graphs()["dense bits"].save(path)
    whole = path.read_bytes()
    assert whole.count(b'"weights"') == 1
    path.write_bytes(whole.replace(b'"weights"', b'"weightr"'))
    refused(path, "its digest is not that of its content")


def test_a_key_of_metadata_that_is_not_known_is_refused(tmp_path: Path) -> None:
    """A digest under another name would not be compared."""
    for packed, name in ((graphs()["sparse bits"], "a.bigraph"), (models()["gcn"], "a.bignn")):
        path = tmp_path / name
        packed.save(path)
        whole = path.read_bytes()
        for key in (b'"digest"', b'"header_digest"'):
            assert whole.count(key) == 1
            path.write_bytes(whole.replace(key, key.replace(b"i", b"a")))
            refused(path, "its metadata has an unknown key")
        path.write_bytes(whole)
        mapped, header = tensors.read(path)
        arrays = {name: np.array(values) for name, values in mapped.items()}
        save_file(arrays, path, metadata={"bignn": json.dumps(header)})
        refused(path, "it has no digest of its header")
        text = json.dumps(header)
        of_header = tensors.digest_of(text, arrays, 1 << 16)
        save_file(arrays, path, metadata={"bignn": text, "header_digest": of_header})
        refused(path, "it has no digest to verify")


def test_a_large_array_of_a_graph_is_compared_on_demand(tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    model, dense = models()["gcn"], graphs()["dense bits"]
    with pytest.raises(InputError, match=r"'path' must be a file name ending in \.bignn, got"):
        model.save("x.txt")
    model.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    refused(path, "its digest is not that of its content")
    path = tmp_path / "graph.bigraph"
    assert isinstance(dense.features, DenseBits)
    assert dense.beta is not None
    # Small arrays are compared whenever a graph is opened; these features are no small array.
    repeated = 600
    words = np.tile(dense.features.words, (repeated, 1))
    assert words.nbytes > 1 << 16
    large = replace(
        dense,
        features=DenseBits(words),
        beta=np.tile(dense.beta, repeated),
        degree_scale=np.tile(dense.degree_scale, repeated),
        offsets=np.zeros(12 * repeated + 1, dtype=np.int64),
        ids=dense.ids[:0],
        weights=None,
        labels={},
    )
    for graph, is_small in ((dense, True), (large, False)):
        graph.save(path)
        assert PackedGraph.open(path, verify=True).num_nodes == graph.num_nodes
        whole = path.read_bytes()
        assert isinstance(graph.features, DenseBits)
        place = whole.index(graph.features.words[:12].tobytes())
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        if is_small:
            refused(path, "its digest is not that of its content")
        else:
            assert PackedGraph.open(path).num_nodes == graph.num_nodes
        with pytest.raises(FileError, match="its digest is not that of its content"):
            PackedGraph.open(path, verify=True)


def test_digests_are_those_that_the_format_describes(tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    models()["floats"].save(path)
    whole = path.read_bytes()
    size = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + size])
    metadata = header.pop("__metadata__")
    assert list(header) == ["weight"]
    hashed = hashlib.blake2b(metadata["bignn"].encode(), digest_size=16)
    hashed.update(b"weight <f4 [3, 6];" + whole[8 + size :])
    assert metadata["digest"] == hashed.hexdigest()
    assert metadata["header_digest"] == hashed.hexdigest()  # all of its arrays are small


# --- Whatever the digests ----------------------------------------------------------------------


def test_files_that_are_whole_cut_short_or_too_long(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.bignn"
    path.write_bytes(content)
    assert not is_refused(path)
    for more in (b"\0", b"more", bytes(4096)):
        path.write_bytes(content + more)
        refused(path, "is not a packed bignn file")
    path.write_bytes(content)
    for size in range(len(content) - 1, -1, -1):
        os.truncate(path, size)
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


def test_random_damage(content: bytes, tmp_path: Path) -> None:
    rng = np.random.default_rng(len(content))
    path = tmp_path / "file.bignn"
    outcomes = []
    for _ in range(CORRUPTIONS):
        path.write_bytes(corrupted(content, rng))
        outcomes.append(is_refused(path))
    # Damage to numbers leaves a file that is valid; damage to structure does not.
    assert True in outcomes
    assert False in outcomes


def test_arrays_that_are_not_aligned_are_read(tmp_path: Path) -> None:
    """Other writers may pad their headers otherwise."""
    path, model = tmp_path / "file.bigraph", models()["gcn"]
    for name in ("dense bits", "sparse bits"):
        expected = model.predict(graphs()[name], output="logits")
        graphs()[name].save(path)
        content = path.read_bytes()
        size = int.from_bytes(content[:8], "little")
        for blanks in range(1, 8):
            header = content[8 : 8 + size] + b" " * blanks
            path.write_bytes(with_header(header, content[8 + size :]))
            opened = bignn.open(path)
            assert isinstance(opened, PackedGraph)
            assert all(
                some.flags.aligned for some in (opened.offsets, opened.ids, opened.degree_scale)
            )
            assert np.array_equal(model.predict(opened, output="logits"), expected)
