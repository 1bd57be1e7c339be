"""Shared by all commands: adding a command, and arguments that several of them take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from bignn.errors import input_error
from bignn.files import check_writable
from bignn.kernels.threads import get_num_threads, set_num_threads

#: The result of a command: the JSON document, and the function that formats it as text.
Report = tuple[dict[str, Any], Callable[[dict[str, Any]], str]]


class Parser(argparse.ArgumentParser):
    """An argument parser that reports wrong usage in one line, without all options before it."""

    def error(self, message: str) -> NoReturn:
        """Print one line and end the process with exit code 2."""
        self.exit(2, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")

    def by_flags(self, message: str) -> str:
        """Replace the Python argument that a message begins with by its flag.

        ``'weight_decay' must be ...`` becomes ``--weight-decay must be ...``.
        """
        # A list as the user typed it.
        message = re.sub(
            r"got \[([\d., -]*)\]", lambda found: f"got {found[1].replace(' ', '')}", message
        )
        name = re.match(r"'([\w-]+)' ", message)
        flags = {
            action.dest: next(flag for flag in action.option_strings if flag.startswith("--"))
            for action in self._actions
            if action.option_strings
        }
        if name is None or name[1].replace("-", "_") not in flags:
            return message
        return f"{flags[name[1].replace('-', '_')]} {message[name.end() :]}"


def command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], Report | None], summary: str
) -> Parser:
    """Add a command; ``run`` returns None in a process that has nothing to report."""
    parser: Parser = commands.add_parser(
        name, help=summary, description=summary, allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    parser.set_defaults(run=run, parser=parser)
    return parser


def numbers(text: str) -> tuple[int, ...]:
    """Parse an argument such as ``25,10``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected whole numbers separated by commas, got '{text}'"
        ) from None


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Make a parser of names; argparse's own choices would refuse an argument left out."""

    def parse(text: str) -> str:
        if text not in names:
            known = ", ".join(names)
            raise argparse.ArgumentTypeError(f"invalid choice: '{text}' (choose from {known})")
        return text

    return parse


def add_dataset(add: Callable[..., Any], more: str = "") -> None:
    """Add the argument ``dataset``; ``more`` describes what else it may be."""
    add("dataset", help="a name that 'bignn datasets' lists, the name of a .npz file in "
        f"$BIGNN_DATA, or the path of one{more}")  # fmt: skip


def add_jobs(add: Callable[..., Any], work: str) -> None:
    """Add ``--jobs``."""
    add("--jobs", type=int, default=1, metavar="J", help=f"processes that {work} at the same time "
        "and share the threads (default: 1)")  # fmt: skip


def add_device(add: Callable[..., Any], work: str = "train", note: str = "") -> None:
    """Add ``--device``."""
    add("--device", default="cpu", type=_device, help=f"where to {work}: cpu, cuda or cuda:N{note} "
        "(default: cpu)")  # fmt: skip


def _device(text: str) -> str:
    kind, _, index = text.partition(":")
    if text not in ("cpu", "cuda") and not (kind == "cuda" and index.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected cpu, cuda or cuda:N, got '{text}'")
    return text


def add_threads(add: Callable[..., Any], note: str = "") -> None:
    """Add ``--threads``."""
    add("--threads", type=int, metavar="N", help=f"number of threads{note} (default: "
        "OMP_NUM_THREADS, or all cores)")  # fmt: skip


def add_timeout(add: Callable[..., Any]) -> None:
    """Add ``--timeout``."""
    add("--timeout", type=float, metavar="SECONDS", help="time that processes of torchrun wait for "
        "one that does not answer (default: 300)")  # fmt: skip


def set_threads(threads: int | None) -> None:
    """Set the number of threads, and torch's if torch is loaded; None sets the default."""
    set_num_threads(get_num_threads() if threads is None else threads)


def check_plot(path: str | None) -> None:
    """Check that a figure can be written to a file, before any work is done for it."""
    if path is None:
        return
    from bignn.lab.report.figures import FORMATS
    from bignn.lab.report.packages import check_lab

    if Path(path).suffix.lower() not in FORMATS:
        raise input_error("plot", f"a file name ending in {', '.join(FORMATS)}", repr(path))
    check_lab()
    check_writable(path)
