"""The command ``bignn``: arguments in, one table or one JSON document out. A file per command.

Importing this package imports nothing else, so that Ctrl-C while the rest loads is caught here.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        from bignn.cli.run_command import run_command

        return run_command(arguments)
    except KeyboardInterrupt:
        print("bignn: interrupted", file=sys.stderr)
        return 130
