"""Packs features of any size to a store's bits and scales, in constant memory."""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from bignn.bits import words_per_row
from bignn.config.input_bits import SIGN, parse_input_bits
from bignn.errors import FileError, InputError, counted, input_error
from bignn.files import checked_path
from bignn.graph.readers.feature_shards import (
    FeatureBlock,
    FeatureShard,
    feature_blocks,
    feature_shards,
)
from bignn.kernels import native
from bignn.runtime.encoders import encoder_of
from bignn.runtime.features import pack_rows_of
from bignn.runtime.input_bits import NUM_DIAGONALS, rotation_size
from bignn.runtime.input_stage import InputSpec
from bignn.runtime.packed_model import PackedModel
from bignn.runtime.store.ahead import read_ahead
from bignn.runtime.store.column_statistics import ColumnStatistics
from bignn.runtime.store.pack_labels import pack_labels, read_labels
from bignn.runtime.store.progress import ProgressLines, describe_files, duration, files_report
from bignn.runtime.store.store import FEATURES, MOST_NODES, check_same_nodes
from bignn.runtime.store.unfinished import UnfinishedPart

#: Bytes of floats that are read at a time, and the number of rows that blocks are multiples of.
_BLOCK_BYTES = 1 << 25
_BLOCK_UNIT = 4096


def pack_features(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    like: str | os.PathLike[str] | None = None,
    input_bits: str = SIGN,
    normalize_rows: bool = False,
    seed: int = 0,
    labels: str | os.PathLike[str] | None = None,
    progress: bool = True,
) -> dict[str, Any]:
    """Pack a file of features, or a folder of shards, to the features of a store.

    A killed run is continued by the next one of the same arguments, to the same bytes.

    Args:
        path: a .npy, .npz (CSR) or .parquet file, or a folder of them, read in natural order, where
            ``part-2`` comes before ``part-10``.
        out: the store's folder.
        like: a packed model whose input stage is used; None takes statistics of these features.
        input_bits: without ``like``, ``"sign"`` or ``"rotate:K"``.
        normalize_rows: without ``like``, whether rows are scaled to absolute sum 1 first.
        seed: the seed of a rotation.
        labels: a .npz file with ``y`` and splits, checked before any work and packed after it.
        progress: write lines about it on stderr.

    """
    shards = feature_shards(path)
    num_rows, num_columns = sum(shard.num_rows for shard in shards), shards[0].num_columns
    if not 0 < num_rows <= MOST_NODES:
        raise FileError(f"'{path}' must hold 1 to {MOST_NODES:,} rows, got {num_rows:,}")
    check_same_nodes(checked_path(out), FEATURES, num_rows)
    if labels is not None:
        read_labels(labels, num_rows)  # what is wrong there is said now, and not after hours
    stage = None if like is None else _stage_of(like, num_columns)
    if stage is not None and (input_bits != SIGN or normalize_rows):
        raise InputError("'like' comes with the model's input bits; leave the other options out")
    encoder = parse_input_bits(input_bits, num_columns)
    if encoder is not None and encoder.kind != "rotate":
        raise input_error("input_bits", "'sign' or 'rotate:K' for a store", repr(input_bits),
                          "others are made with a model: pack with --like MODEL")  # fmt: skip
    identity = {
        "shards": [shard.facts() for shard in shards],
        "stage": None if stage is None else stage.digest(),
        "input_bits": input_bits,
        "normalize_rows": normalize_rows,
        "seed": seed,
    }
    block_rows = _block_rows(num_columns)
    start = time.perf_counter()
    with UnfinishedPart(checked_path(out), FEATURES, identity) as part:
        part.note_replaced()
        resumed = part.was_begun
        if stage is None:
            stage = _fitted_stage(part, shards, block_rows, input_bits, normalize_rows, seed,
                                  progress=progress)  # fmt: skip
        statistics_seconds = time.perf_counter() - start
        write_features(part, stage, shards, block_rows, progress=progress)
    if labels is not None:
        pack_labels(labels, checked_path(out), num_rows)
    return {
        "out": str(out),
        "num_nodes": num_rows,
        "num_features": num_columns,
        "num_bits": stage.num_columns,
        "resumed": resumed,
        **files_report([shard.path for shard in shards]),
        "bytes_read": sum(shard.path.stat().st_size for shard in shards),
        "seconds": time.perf_counter() - start,
        "statistics_seconds": statistics_seconds,
    }


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`pack_features`."""
    rate = report["bytes_read"] / max(report["seconds"], 1e-9) / 1e6
    return (
        f"{counted(report['num_nodes'], 'node')}, {counted(report['num_features'], 'feature')} as "
        f"{counted(report['num_bits'], 'bit')} each, in {duration(report['seconds'])} "
        f"({rate:.0f} MB/s)\n{describe_files(report)}wrote {report['out']}"
    )


def _block_rows(num_columns: int) -> int:
    """Choose the rows of a block: whole parts of statistics, and few megabytes."""
    return max(1, _BLOCK_BYTES // (4 * num_columns * _BLOCK_UNIT)) * _BLOCK_UNIT


def _stage_of(like: str | os.PathLike[str], num_columns: int) -> InputSpec:
    stage = PackedModel.open(like).network.input
    if not stage.binarize:
        raise input_error("like", "a model with binary features", f"'{like}', which reads floats")
    if stage.num_features != num_columns:
        expected = f"a model of {counted(num_columns, 'feature')}"
        raise input_error("like", expected, f"one of {stage.num_features}")
    return stage


def _fitted_stage(
    part: UnfinishedPart,
    shards: list[FeatureShard],
    block_rows: int,
    input_bits: str,
    normalize_rows: bool,
    seed: int,
    *,
    progress: bool,
) -> InputSpec:
    """Take the statistics of all rows; the first of two passes."""
    num_columns = shards[0].num_columns
    statistics = ColumnStatistics(num_columns, normalize_rows=normalize_rows)
    if "statistics" in part.state:
        statistics.restore(part.state["statistics"])
    total = sum(shard.num_rows for shard in shards)
    lines = ProgressLines("statistics", total, statistics.num_rows, is_shown=progress)
    for block in read_ahead(feature_blocks(shards, block_rows, statistics.num_rows)):
        _check_finite(block)
        statistics.add(block.x)
        part.state["statistics"] = statistics.as_json()
        part.record()
        lines.add(len(block.x))
    encoder = None
    asked = parse_input_bits(input_bits, num_columns)
    if asked is not None:
        shape = (asked.per_feature, NUM_DIAGONALS, rotation_size(num_columns))
        drawn = np.random.default_rng(seed).integers(0, 2, shape, dtype=np.int8)
        diagonals = (1 - 2 * drawn).astype(np.int8)
        encoder = encoder_of("rotate", num_columns, {"diagonals": diagonals})
    mean, scale = statistics.mean_and_scale(rotates=encoder is not None)
    return InputSpec(num_columns, normalize_rows, mean, scale, True, encoder)


def write_features(
    part: UnfinishedPart,
    stage: InputSpec,
    shards: list[FeatureShard],
    block_rows: int,
    *,
    progress: bool,
) -> None:
    """Write bits and scales, and finish the part; the second of two passes."""
    bits = part.writer("bits", "<u8", [words_per_row(stage.num_columns)])
    beta = part.writer("beta", "<f4", [])
    total = sum(shard.num_rows for shard in shards)
    lines = ProgressLines("bits", total, bits.part.num_rows, is_shown=progress)
    for block in read_ahead(feature_blocks(shards, block_rows, bits.part.num_rows)):
        _check_finite(block)
        words, scales = pack_rows_of(stage, block.x)
        bits.append(words)
        beta.append(scales)
        part.record()
        lines.add(len(block.x))
    finish_features(part, stage, total)


def finish_features(part: UnfinishedPart, stage: InputSpec, num_nodes: int) -> None:
    """Write the input stage beside the bits, and the manifest."""
    encoded = {} if stage.encoder is None else stage.encoder.arrays
    for name, values in {"mean": stage.mean, "scale": stage.scale, **encoded}.items():
        if values is not None:
            writer = part.writer(name, values.dtype.str, list(values.shape[1:]))
            if not writer.part.num_rows:
                writer.append(values)
    part.finish(
        {
            "num_nodes": num_nodes,
            "num_features": stage.num_features,
            "num_bits": stage.num_columns,
            "normalize_rows": stage.normalize_rows,
            "input_digest": stage.digest(),
        }
    )


def _check_finite(block: FeatureBlock) -> None:
    if native.is_available():
        row = native.unsound_row(block.x)
    else:
        sound = np.isfinite(block.x).all(axis=1)
        row = -1 if sound.all() else int(np.argmin(sound))
    if row >= 0:
        raise block.refuse(row)
