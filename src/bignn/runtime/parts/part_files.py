"""Files of parts (``.bigpart``): a folder has one for each part; opened with every check."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.bits import words_per_row
from bignn.errors import FileError, InputError, input_error
from bignn.files import check_writable, checked_path, remove_leftovers
from bignn.graph import SPLITS, Graph, SparseRows
from bignn.graph.names import class_names_of
from bignn.kernels.layer import DenseBits
from bignn.runtime import tensors
from bignn.runtime.encoders import ENCODER_ARRAYS, kind_with, stored_encoder
from bignn.runtime.graph_checks import check_array, check_compressed, check_features
from bignn.runtime.input_bits import NUM_DIAGONALS, rotation_size
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.parts.assignment import MOST_PARTS, By
from bignn.runtime.parts.graph_part import GraphPart, Partition, PartSizes, StoredBits, cut
from bignn.runtime.store import is_store
from bignn.runtime.tensors import PART_FORMAT, PART_SUFFIX

VERSION = 1
_NAME = re.compile(rf"part-(\d{{1,4}}){re.escape(PART_SUFFIX)}")

_NEEDED = ("nodes", "halo", "halo_offsets", "sent", "sent_offsets", "offsets", "ids")
_OPTIONAL = ("weights", "y", *SPLITS)
_X = ("x",)
_SPARSE_X = ("x_indptr", "x_indices", "x_data")
#: Of a part of a store: bits and scales, and the numbers of the stage that made them.
_STORED_X = ("x_words", "x_beta")
_OF_STAGE = tuple(f"input_{name}" for name in ("mean", "scale", *ENCODER_ARRAYS))
_FACTS = {field.name for field in fields(Partition)}
_MOST = 1 << 48  # of any size in a header


def part_path(folder: str | os.PathLike[str], number: int) -> Path:
    """Return the path of a part in its folder."""
    return Path(folder) / f"part-{number}{PART_SUFFIX}"


def is_partition(folder: str | os.PathLike[str]) -> bool:
    """Whether a path is a folder with parts of a graph."""
    path = Path(folder)
    return path.is_dir() and any(_NAME.fullmatch(entry.name) for entry in path.iterdir())


def write_parts(
    graph: Graph,
    num_parts: int,
    folder: str | os.PathLike[str],
    by: By = "auto",
    report: Callable[[PartSizes], object] = lambda _sizes: None,
) -> Partition:
    """Cut a graph into parts and write a file for each; parts of another number are removed.

    ``report`` is called with the sizes of every part that is written.
    """
    target = checked_folder(folder)
    partition = None
    for part in cut(graph, num_parts, by):
        if partition is None:
            remove_parts(target)
        tensors.write(part_path(target, part.number), *_to_file(part))
        partition = part.partition
        report(part.sizes)
    assert partition is not None
    return partition


def checked_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder that parts are written to; refuse one that cannot be."""
    target = checked_path(folder, "out", "a folder")
    if target.exists() and not target.is_dir():
        raise input_error("out", "a folder", f"the file '{target}'")
    if is_store(target):
        raise input_error("out", "a folder of its own for the parts", f"the store '{target}'")
    check_writable(part_path(target, 0))
    return target


def remove_parts(folder: Path) -> None:
    """Remove the parts of an earlier graph: none of them fits the new ones."""
    for entry in folder.iterdir() if folder.is_dir() else ():
        if (found := _NAME.fullmatch(entry.name)) is not None:
            remove_leftovers(part_path(folder, int(found[1])))
            entry.unlink(missing_ok=True)


def open_part(
    folder: str | os.PathLike[str], number: int | None = None, num_processes: int | None = None
) -> GraphPart:
    """Open the part of one process, read whole and compared with its digest.

    Args:
        folder: the folder of the parts; only the file of this part need be there.
        number: the part's, which is the process's rank; None for what ``torchrun`` says.
        num_processes: how many processes there are, which must be as many as parts; None for what
            ``torchrun`` says.

    """
    folder = checked_path(folder)
    number = int(os.environ.get("RANK", "0")) if number is None else number
    if num_processes is None:
        num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    if not is_partition(folder):
        make = f"'bignn partition GRAPH -k {num_processes} -o {folder}'"
        raise FileError(f"'{folder}' has no parts of a graph ({PART_SUFFIX}); {make} writes them")
    path = part_path(folder, number)
    is_there = path.exists()
    if not is_there:  # another part says how many there are
        names = (_NAME.fullmatch(entry.name) for entry in folder.iterdir())
        known = min(int(found[1]) for found in names if found)
        path = part_path(folder, known)
    part = tensors.open_as(path, {PART_FORMAT: _from_file}, verify=True)
    count = part.partition.num_parts
    if count != num_processes:
        _check_one_cut(folder, path, part.partition)
        start = f"start 'torchrun --nproc-per-node {count}'"
        raise InputError(
            f"'{folder}' has {count} parts, for as many processes, and {num_processes} run; {start}"
            if count > 1
            else f"'{folder}' has one part, for one process, and {num_processes} run; leave "
            "torchrun out, or cut the graph into as many parts"
        )
    if not is_there:
        raise FileError(
            f"'{part_path(folder, number)}' does not exist; copy it to this machine, or start the "
            "process that needs it where it is"
        )
    if part.number != number:
        raise FileError(f"'{path}' is part {part.number} of its graph; give it its own name again")
    return part


def _check_one_cut(folder: Path, path: Path, partition: Partition) -> None:
    """Refuse a folder with parts of several graphs or cuts, where their number misleads."""
    for entry in sorted(folder.iterdir()):
        if _NAME.fullmatch(entry.name):
            facts = tensors.read(entry)[1].get("partition")
            if not isinstance(facts, dict) or facts.get("digest") != partition.digest:
                raise FileError(
                    f"'{path}' and '{entry.name}' are parts of different cuts; copy the parts of "
                    "one 'bignn partition' there"
                )


def part_header(
    partition: Partition, number: int, stage: InputSpec | None = None
) -> dict[str, Any]:
    """Return the header of a part's file; ``stage`` is that of a store's features."""
    header = {
        "format": PART_FORMAT,
        "version": VERSION,
        "number": number,
        "partition": partition.facts(),
    }
    if stage is not None:
        header["input"] = {"normalize_rows": stage.normalize_rows}
    return header


def stage_arrays(stage: InputSpec) -> dict[str, NDArray[Any]]:
    """Return the numbers of a store's input stage as a part's file has them."""
    encoded = {} if stage.encoder is None else stage.encoder.stored()
    named = {"mean": stage.mean, "scale": stage.scale, **encoded}
    return {f"input_{name}": array for name, array in named.items() if array is not None}


def _to_file(part: GraphPart) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    arrays = {key: getattr(part, key) for key in _NEEDED}
    arrays |= {key: some for key in _OPTIONAL if (some := getattr(part, key)) is not None}
    stage = None
    if isinstance(part.x, StoredBits):
        stage = part.x.stage
        arrays |= {"x_words": part.x.words, "x_beta": part.x.beta, **stage_arrays(stage)}
    elif isinstance(part.x, SparseRows):
        arrays |= {"x_indptr": part.x.indptr, "x_indices": part.x.indices, "x_data": part.x.values}
    else:
        arrays["x"] = part.x
    return arrays, part_header(part.partition, part.number, stage)


def _from_file(arrays: Mapping[str, NDArray[Any]], header: Mapping[str, Any]) -> GraphPart:
    version = header.get("version")
    if type(version) is not int or version != VERSION:
        raise FileError(f"version {version!r} is not known, expected {VERSION}")
    if unknown := sorted(set(header) - {"format", "version", "number", "partition", "input"}):
        raise FileError(f"it has an unknown part '{unknown[0][:40]}'; a newer bignn may read it")
    partition, number = _partition(header.get("partition")), header.get("number")
    if type(number) is not int or not 0 <= number < partition.num_parts:
        raise FileError(f"its number is not in 0..{partition.num_parts - 1}")
    is_stored = "input" in header
    of_x = _STORED_X if is_stored else _SPARSE_X if "x_indptr" in arrays else _X
    for key in (*_NEEDED, *of_x):
        if key not in arrays:
            raise FileError(f"array '{key}' is missing")
    allowed = {*_NEEDED, *_OPTIONAL, *of_x, *(_OF_STAGE if is_stored else ())}
    if unknown := sorted(set(arrays) - allowed):
        raise FileError(f"it has an unknown array '{unknown[0][:40]}'; a newer bignn may read it")
    _check(partition, number, arrays)
    x: Any = arrays.get("x")
    if is_stored:
        x = _stored_bits(partition, arrays, header["input"])
    elif x is None:
        indptr, indices, values = (arrays[key] for key in _SPARSE_X)
        x = SparseRows(indptr, indices, values, (len(arrays["nodes"]), partition.num_features))
    needed: dict[str, Any] = {key: arrays[key] for key in _NEEDED}
    optional: dict[str, Any] = {key: arrays.get(key) for key in _OPTIONAL}
    part = GraphPart(partition, number, x=x, **needed | optional)
    try:
        if not is_stored:
            part.features_graph()
    except InputError as error:
        raise FileError(str(error)) from None
    return part


def _stored_bits(
    partition: Partition, arrays: Mapping[str, NDArray[Any]], stage: Any
) -> StoredBits:
    """Read bits and scales of a store, and the stage that made them."""
    is_right = isinstance(stage, dict) and set(stage) == {"normalize_rows"}
    if not is_right or not isinstance(stage["normalize_rows"], bool):
        raise FileError("what it says of its input stage is not complete")
    # Copies, which may be written to where files may not.
    found = {
        name.removeprefix("input_"): np.array(arrays[name]) for name in _OF_STAGE if name in arrays
    }
    size = partition.num_features
    width = len(found["directions"]) if "directions" in found else None
    for name, (dtype, shape) in {
        "mean": (np.float32, (size,)),
        "scale": (np.float32, (size,)),
        "diagonals": (np.uint64, (None, NUM_DIAGONALS, words_per_row(rotation_size(size)))),
        "thresholds": (np.float32, (size, None)),
        "directions": (np.int8, (None, size)),
        "direction_steps": (np.float32, (width,)),
        "direction_offsets": (np.int32, (width,)),
    }.items():
        if name in found:
            check_array(f"input_{name}", found[name], [dtype], shape)
    encoder = None if (kind := kind_with(found)) is None else stored_encoder(kind, size, found)
    spec = InputSpec(
        size, stage["normalize_rows"], found.get("mean"), found.get("scale"), True, encoder
    )
    count, beta = len(arrays["nodes"]), arrays["x_beta"]
    check_features("", DenseBits(arrays["x_words"]), beta, count, spec.num_columns)
    return StoredBits(arrays["x_words"], beta, spec)


def _partition(facts: Any) -> Partition:
    """Read what all parts have in common."""
    if not isinstance(facts, dict) or set(facts) != _FACTS:
        raise FileError("what it says of the partition is not complete")
    for name, value in facts.items():
        kind = Partition.__annotations__[name]
        is_right = {
            "str": isinstance(value, str),
            "int": type(value) is int and 0 <= value < _MOST,
            "int | None": value is None or (type(value) is int and 0 <= value < _MOST),
            "bool": isinstance(value, bool),
        }.get(kind, True)
        if not is_right:
            raise FileError(f"its '{name}' is {str(value)[:40]!r}")
    if not 1 <= facts["num_parts"] <= MOST_PARTS or facts["num_features"] < 1:
        raise FileError("its sizes are out of range")
    names = facts["class_names"]
    try:
        known = None if names is None else class_names_of(names)
    except InputError as error:
        raise FileError(str(error)) from None
    return Partition(**{**facts, "class_names": known})


def _check(partition: Partition, number: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that do not fit each other."""
    nodes, halo, sent = (arrays[key] for key in ("nodes", "halo", "sent"))
    for key in ("nodes", "halo", "sent"):
        check_array(key, arrays[key], [np.int64], (None,))
    num_nodes, num_parts = len(nodes), partition.num_parts
    if not num_nodes:
        raise FileError("it has no nodes")
    for key in ("nodes", "halo"):
        ids = arrays[key]
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < partition.num_nodes:
            raise FileError(f"array '{key}' has numbers that are not nodes")
    if (np.diff(nodes) <= 0).any():
        raise FileError("array 'nodes' does not rise")
    if len(np.intersect1d(nodes, halo)) or len(np.unique(halo)) != len(halo):
        raise FileError("array 'halo' has nodes twice, or the part's own")
    check_compressed("halo_offsets", arrays["halo_offsets"], "halo", halo, num_parts,
                     partition.num_nodes)  # fmt: skip
    check_compressed("sent_offsets", arrays["sent_offsets"], "sent", sent, num_parts, num_nodes)
    for key in ("halo_offsets", "sent_offsets"):
        if arrays[key][number] != arrays[key][number + 1]:
            raise FileError(f"by '{key}' it exchanges rows with itself")
    ids, local = arrays["ids"], num_nodes + len(halo)
    check_array("ids", ids, [np.int32, np.int64], (None,))
    check_compressed("offsets", arrays["offsets"], "ids", ids, num_nodes, local)
    if "weights" in arrays:
        check_array("weights", arrays["weights"], [np.float32], ids.shape)
        if (arrays["weights"] < 0).any():
            raise FileError("array 'weights' has negative values")
    if "x" in arrays:
        check_array("x", arrays["x"], [np.float32], (num_nodes, partition.num_features))
    elif "x_indptr" in arrays:
        check_compressed("x_indptr", arrays["x_indptr"], "x_indices", arrays["x_indices"],
                         num_nodes, partition.num_features)  # fmt: skip
        check_array("x_indices", arrays["x_indices"], [np.int64], (None,))
        check_array("x_data", arrays["x_data"], [np.float32], arrays["x_indices"].shape)
    _check_labels(partition, arrays, num_nodes)


def _check_labels(partition: Partition, arrays: Mapping[str, NDArray[Any]], num_nodes: int) -> None:
    if "y" in arrays:
        y = arrays["y"]
        check_array("y", y, [np.int64], (num_nodes,))
        if not -1 <= int(y.min()) <= int(y.max()) < partition.num_classes:
            raise FileError("array 'y' has numbers that are not classes")
    for key in SPLITS:
        if key not in arrays:
            continue
        idx = arrays[key]
        check_array(key, idx, [np.int64], (None,))
        if "y" not in arrays:
            raise FileError(f"array '{key}' comes without 'y'")
        if len(idx) and not 0 <= int(idx.min()) <= int(idx.max()) < num_nodes:
            raise FileError(f"array '{key}' has numbers that are not rows")
