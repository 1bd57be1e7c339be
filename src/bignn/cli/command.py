"""What all commands share: how one is added, and arguments that several take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from bignn.errors import input_error
from bignn.files import check_writable
from bignn.kernels.threads import get_num_threads, set_num_threads

#: What a command returns: the document, and what makes text of it.
Report = tuple[dict[str, Any], Callable[[dict[str, Any]], str]]


class Parser(argparse.ArgumentParser):
    """One line for wrong usage, instead of all options and then the line."""

    def error(self, message: str) -> NoReturn:
        """Ends with exit code 2."""
        self.exit(2, f"{self.prog}: error: {message}; see '{self.prog} --help'\n")

    def by_flags(self, message: str) -> str:
        """A message about an argument in Python, ``'weight_decay' must be ...``, with the name that
        it has on this command line.
        """
        name = re.match(r"'([\w-]+)' ", message)
        flag = "" if name is None else f"--{name[1].replace('_', '-')}"
        if name is None or flag not in self._option_string_actions:
            return message
        return f"{flag} {message[name.end() :]}"


def command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], Report | None], summary: str
) -> Parser:
    """Adds a command; None from ``run`` means that another process has the word."""
    parser: Parser = commands.add_parser(name, help=summary, description=summary)
    parser.add_argument("--json", action="store_true", help="print one JSON document on stdout")
    parser.set_defaults(run=run, parser=parser)
    return parser


def numbers(text: str) -> tuple[int, ...]:
    """The type of an argument such as ``25,10``."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers such as 25,10, got '{text}'") from None


def add_device(add: Callable[..., Any], note: str = "") -> None:
    """Adds ``--device``."""
    add("--device", default="cpu", type=_device, help=f"where to train: cpu, cuda or cuda:N{note} "
        "(default: cpu)")  # fmt: skip


def _device(text: str) -> str:
    kind, _, index = text.partition(":")
    if text not in ("cpu", "cuda") and not (kind == "cuda" and index.isdecimal()):
        raise argparse.ArgumentTypeError(f"expected cpu, cuda or cuda:N, got '{text}'")
    return text


def add_threads(add: Callable[..., Any], note: str = "to work with") -> None:
    """Adds ``--threads``."""
    add("--threads", type=int, metavar="N", help=f"threads {note} (default: OMP_NUM_THREADS, or "
        "all cores)")  # fmt: skip


def set_threads(threads: int | None) -> None:
    """Sets the number of threads, torch's too if it is loaded: None is the default for both."""
    set_num_threads(get_num_threads() if threads is None else threads)


def checked_plot(path: str | None) -> None:
    """Refuses a file that cannot be drawn to, before the work whose result it would show."""
    if path is None:
        return
    from bignn.lab.report.figures import FORMATS
    from bignn.lab.report.packages import check_lab

    if Path(path).suffix.lower() not in FORMATS:
        raise input_error("plot", f"a file name ending in {', '.join(FORMATS)}", repr(path))
    check_lab()
    check_writable(path)
