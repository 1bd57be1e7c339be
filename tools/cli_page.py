"""docs/cli.md: every command and its options, from the parsers that read them."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from bignn.cli.run_command import make_parser

HEAD = """\
# The command line

`bignn COMMAND --help` says the same. Every command takes `--json`: one document on stdout, progress
on stderr. Exit code 0; 2 where the command line cannot be read (`--epochs ten`); 1 for anything
else that fails, wrong values too (`--epochs -3`), told in one line; 130 when interrupted. What
datasets there are is in [datasets.md](datasets.md), how the commands are used together in the
[README](../README.md) and the [guide](guide.md). This page is written by `make docs`.
"""

#: argparse's own groups; all others are options too.
_TITLES = {"positional arguments": "argument", "options": "option"}


def cli_page() -> str:
    """The whole page."""
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
        said = (action.help or "(default: %(default)s)") % {**vars(action), "prog": "bignn"}
        yield f"| {_cell(shown)} | {_cell(said)} |\n"


def _positional(action: argparse.Action) -> str:
    name = action.metavar or action.dest
    return {"*": f"[{name} ...]", "?": f"[{name}]"}.get(str(action.nargs), str(name))


def _value(action: argparse.Action) -> str:
    """What follows an option, with the blank before it."""
    if action.nargs == 0 or isinstance(action, argparse.BooleanOptionalAction):
        return ""
    if action.metavar is None and action.choices is not None:
        return " {" + ",".join(map(str, action.choices)) + "}"
    return f" {action.metavar or action.dest.upper()}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
