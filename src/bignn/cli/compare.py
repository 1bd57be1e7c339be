"""The command ``bignn compare``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bignn.cli.command import (
    Report,
    add_dataset,
    add_device,
    add_jobs,
    add_threads,
    command,
    set_threads,
)
from bignn.cli.recipe_flags import add_recipe_flags


def add_compare(commands: Any) -> None:
    """Add ``bignn compare``."""
    parser = command(
        commands,
        "compare",
        _compare,
        "Compare float models with their binary twins on your graph: accuracy, sizes, memory, "
        "speed; the command to run first.",
    )
    add = parser.add_argument
    add_dataset(add)
    add("--models", default="gcn,bi-gcn,sage,bi-sage", metavar="NAMES", help="models of 'bignn "
        "train'; the float twin of a binary one is added (default: %(default)s)")  # fmt: skip
    add("--seeds", type=int, default=3, metavar="N", help="train with seeds 0 to N-1 (default: 3)")
    add("--distill", action="store_true", help="train the binary models as students of "
        "float teachers, and float students beside them")  # fmt: skip
    add("--quality", choices=("plain", "best"), default="plain", help="best: a row more for each "
        "binary model, trained as by 'bignn train --quality best' (default: plain)")  # fmt: skip
    add("--no-advice", action="store_true", help="do not try what may help a binary model that is "
        "behind its float twin on validation: a teacher, width, input bits")  # fmt: skip
    add_recipe_flags(parser, ("epochs", "patience", "hidden_channels", "input_bits"))
    add(
        "--bi-hidden",
        type=int,
        metavar="N",
        help="--hidden of binary models (default: as --hidden)",
    )
    add_device(add, "train", "; predictions are measured on the CPU")
    add_jobs(add, "train seeds")
    add_threads(add)
    add("--no-memory", action="store_true", help="do not measure peak memory")
    add("--out", metavar="DIR", help="folder for checkpoints; finished ones are not trained again "
        "(default: runs/compare-DATASET)")  # fmt: skip
    add("--page", metavar="FILE", help="page to write (default: report.html in --out)")


def _compare(options: argparse.Namespace) -> Report:
    from bignn.lab import compare
    from bignn.lab.report.write_page import checked_page, write_if_possible

    set_threads(options.threads)
    what = compare.Comparison(
        options.dataset,
        tuple(options.models.split(",")),
        options.seeds,
        options.distill,
        options.epochs,
        options.patience,
        options.hidden_channels,
        options.bi_hidden,
        options.input_bits,
        options.quality,
        not options.no_advice,
    )
    out = Path(options.out or what.folder)
    page = checked_page(options.page)
    report = compare.run(
        what, out, device=options.device, jobs=options.jobs, memory=not options.no_memory
    )
    report["page"] = write_if_possible(
        compare.document_of(report), page or out / "report.html", required=page is not None
    )
    return report, compare.describe
