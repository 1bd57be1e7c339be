"""Writes docs/cli.md: every command and its options, from the parsers that read them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bignn.cli.run_command import make_parser

HEAD = """\
# The command line

`bignn COMMAND --help` shows the same. Every command takes `--json`: one document on stdout, and
progress on stderr. The exit code is 0 on success; 2 where the command line is wrong
(`--epochs ten`, `--epochs -3`); 130 after Ctrl-C (0 of `bignn serve`, which ends so); 1 for every
other failure, such as a damaged file. Each failure prints one line. [datasets.md](datasets.md)
lists the datasets; the [README](../README.md) and the [guide](guide.md) show how the commands are
used together. This page is written by `make docs`.
"""

#: argparse's own groups; all others are options too.
_TITLES = {"positional arguments": "argument", "options": "option"}


def cli_page() -> str:
    """Write the whole page."""
    parsers = _commands(make_parser())
    table = "".join(
        f"| [`bignn {name}`](#bignn-{name}) | {_cell(parser.description or '')} |\n"
        for name, parser in parsers.items()
    )
    sections = "".join(_section(name, parser) for name, parser in parsers.items())
    return f"{HEAD}\n| | |\n|---|---|\n{table}{sections}"


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    (found,) = (
        action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
    )
    return dict(found.choices)


def _section(name: str, parser: argparse.ArgumentParser) -> str:
    positional = [action for action in parser._actions if not action.option_strings]
    usage = " ".join([f"bignn {name}", *map(_positional, positional), "[options]"])
    parts = [f"\n## bignn {name}\n\n{parser.description}\n\n```\n{usage}\n```\n"]
    for group in parser._action_groups:
        rows = "".join(_rows(group._group_actions))
        if not rows:
            continue
        title = _TITLES.get(str(group.title), f"{group.title}: option")
        parts.append(f"\n| {title} | |\n|---|---|\n{rows}")
    return "".join(parts)


def _rows(actions: list[argparse.Action]) -> Iterator[str]:
    for action in actions:
        if isinstance(action, argparse._HelpAction) or "--json" in action.option_strings:
            continue
        value = _value(action)
        names = action.option_strings or [_positional(action)]
        shown = ", ".join(f"`{name}{value if action.option_strings else ''}`" for name in names)
        about = (action.help or "(default: %(default)s)") % {**vars(action), "prog": "bignn"}
        yield f"| {_cell(shown)} | {_cell(about)} |\n"


def _positional(action: argparse.Action) -> str:
    name = action.metavar or action.dest
    return {"*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), str(name))


def _value(action: argparse.Action) -> str:
    """Return the value that follows an option, with the blank before it."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return ""
    if action.metavar is None and action.choices is not None:
        return " {" + ",".join(map(str, action.choices)) + "}"
    return f" {action.metavar or action.dest.upper()}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
