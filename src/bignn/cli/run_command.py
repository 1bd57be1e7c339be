"""Reads the command line, runs one command and prints its report.

Progress and messages go to stderr. The exit code is 0 on success, 2 where the command line cannot
be read, 130 after Ctrl-C and 1 for any other failure; a failure prints one clear line.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

import bignn
from bignn.cli.bench import add_bench
from bignn.cli.capacity import add_capacity
from bignn.cli.command import Parser
from bignn.cli.compare import add_compare
from bignn.cli.convert import add_convert
from bignn.cli.cost import add_cost
from bignn.cli.datasets import add_datasets
from bignn.cli.demo import add_demo
from bignn.cli.doctor import add_doctor
from bignn.cli.pack import add_pack
from bignn.cli.pack_edges import add_pack_edges
from bignn.cli.pack_features import add_pack_features
from bignn.cli.partition import add_partition
from bignn.cli.predict import add_predict
from bignn.cli.report import add_report
from bignn.cli.reproduce import add_reproduce
from bignn.cli.serve import add_serve
from bignn.cli.synth import add_synth
from bignn.cli.train import add_train
from bignn.errors import InputError, missing_extra


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options, unknown = make_parser().parse_known_args(arguments)
    if unknown:
        options.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    try:
        done = options.run(options)
    except (InputError, OSError) as error:
        message = " ".join(str(error).split()) or type(error).__name__
        line = options.parser.by_flags(message)
        # One about a flag is of the same kind as those that argparse finds.
        return _fail(options, line, code=2 if line.startswith("--") else 1)
    except MemoryError:
        return _fail(options, _OUT_OF_MEMORY)
    except ImportError as error:
        if (line := missing_extra(f"'bignn {options.command}'", error)) is None:
            raise
        return _fail(options, line)
    except RuntimeError as error:
        if not _is_out_of_memory(error):
            raise
        return _fail(options, _OUT_OF_MEMORY)
    except KeyboardInterrupt:
        hints = {
            "train": "; the same command with --resume continues",
            **dict.fromkeys(
                ("capacity", "compare", "reproduce", "pack-features", "pack-edges", "synth"),
                "; the same command continues from there",
            ),
        }
        hint = hints.get(options.command, "")
        print(f"bignn {options.command}: interrupted{hint}", file=sys.stderr)
        return 130
    if done is None:
        return 0
    report, describe = done
    try:
        print(json.dumps(report, allow_nan=False) if options.json else describe(report), flush=True)
    except BrokenPipeError:  # the reader of the pipe has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # Otherwise Python tries to write the rest again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _fail(options, f"cannot write to stdout: {error.strerror}")
    return 0


_OUT_OF_MEMORY = (
    "out of memory; use a smaller graph or model (--hidden, --layers), or a machine with more"
)


def _fail(options: argparse.Namespace, line: str, *, code: int = 1) -> int:
    print(f"bignn {options.command}: error: {line}", file=sys.stderr)
    return code


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Recognise torch's errors: on the CPU it raises a plain RuntimeError."""
    signs = ("can't allocate memory", "out of memory", "Storage size calculation overflowed")
    return any(sign in str(error) for sign in signs)


def make_parser() -> Parser:
    """Make the parser of all commands."""
    parser = Parser(
        prog="bignn", description="Binary graph neural networks that are really binary."
    )
    parser.add_argument("--version", action="version", version=f"bignn {bignn.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (
        *(add_compare, add_train, add_convert, add_pack, add_partition, add_predict, add_serve),
        *(add_pack_features, add_pack_edges, add_synth),
        *(add_bench, add_cost, add_capacity, add_reproduce, add_report),
        *(add_demo, add_datasets, add_doctor),
    ):
        add(commands)
    return parser
