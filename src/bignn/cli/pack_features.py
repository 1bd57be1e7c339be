"""The command ``bignn pack-features``."""

from __future__ import annotations

import argparse
from typing import Any

from bignn.cli.command import Report, add_threads, command, set_threads


def add_pack_features(commands: Any) -> None:
    """Add ``bignn pack-features``."""
    parser = command(
        commands,
        "pack-features",
        _pack_features,
        "Pack features of any size to the bits of a store, in constant memory; continues where it "
        "was stopped.",
    )
    add = parser.add_argument
    add("features", help="a .npy, .npz (CSR) or .parquet file with a row per node, or a folder of "
        "such shards, read in natural order (part-2 before part-10)")  # fmt: skip
    add("-o", "--out", required=True, metavar="DIR", help="the store's folder")
    add("--like", metavar="MODEL", help="a .bignn file whose input statistics and bits are used "
        "(default: statistics of these features)")  # fmt: skip
    add("--input-bits", default="sign", help="bits without --like: sign, one per feature, or "
        "rotate:K, signs of random rotations, K per feature (default: sign)")  # fmt: skip
    add("--normalize-rows", action="store_true", help="scale each row to absolute sum 1 first, "
        "without --like")  # fmt: skip
    add("--seed", type=int, default=0, help="seed of a rotation (default: 0)")
    add("--labels", metavar="FILE", help="a .npz file with y and, if there are splits, train_idx, "
        "val_idx and test_idx, for training from the store")  # fmt: skip
    add_threads(add)


def _pack_features(options: argparse.Namespace) -> Report:
    from bignn.runtime.store.pack_features import describe, pack_features

    if options.threads is not None:
        set_threads(options.threads)
    report = pack_features(
        options.features,
        options.out,
        like=options.like,
        input_bits=options.input_bits,
        normalize_rows=options.normalize_rows,
        seed=options.seed,
        labels=options.labels,
    )
    return report, describe
