"""Reads tables of numbers and JSON files of published datasets, with one line per fault."""

from __future__ import annotations

import json
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from bignn.errors import FileError
from bignn.files import check_regular_file

_AGAIN = "get the file again"


def read_numbers(file: Path, dtype: DTypeLike, *, header: bool = False) -> NDArray[Any]:
    """Read a table [rows, columns] of numbers separated by commas, .csv or .csv.gz.

    ``np.loadtxt`` reads the compressed stream in chunks, checks every row, and was the fastest way
    to parse decimals that was tried: 7 million a second, ``np.fromstring`` 5, ``float`` 5. (For
    integers ``np.fromstring`` reaches 30 million a second against 12; not worth a second way.)
    """
    check_regular_file(file, "a table of numbers", _AGAIN)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            return np.loadtxt(
                str(file), dtype, delimiter=",", comments=None, ndmin=2, skiprows=int(header)
            )
    # UserWarning: an empty table. DeprecationWarning: an integer written as a float.
    except (ValueError, OverflowError, Warning) as error:
        reason = " ".join(str(error).split())
        raise FileError(f"'{file}' is not a table of numbers ({reason[:200]}); {_AGAIN}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"'{file}' is not readable ({error}); {_AGAIN}") from None


def read_json(file: Path) -> dict[str, Any]:
    """Read a JSON object."""
    check_regular_file(file, "a JSON file", _AGAIN)
    try:
        document = json.loads(file.read_bytes())
    except (ValueError, RecursionError, OSError) as error:
        raise FileError(f"'{file}' is not readable JSON ({error}); {_AGAIN}") from None
    if not isinstance(document, dict):
        raise FileError(f"'{file}' must hold a JSON object, got {type(document).__name__}")
    return document


def node_ids(file: Path, what: str, values: object) -> NDArray[np.int64]:
    """Convert a list of ids from a JSON file; ``what`` names the list in messages."""
    if isinstance(values, list) and all(type(value) is int for value in values):
        try:
            return np.array(values, dtype=np.int64)
        except OverflowError:
            pass
    raise FileError(f"'{file}': {what} must be a list of integers; {_AGAIN}")


def by_node(file: Path, document: dict[str, Any], num_nodes: int) -> list[Any]:
    """Sort the values of a JSON object by its keys, node ids as text; None where there is none."""
    values: list[Any] = [None] * num_nodes
    for key, value in document.items():
        if not (key.isascii() and key.isdigit() and len(key) < 11 and int(key) < num_nodes):
            raise FileError(
                f"'{file}': keys must be node ids in 0..{num_nodes - 1}, got '{key[:40]}'"
            )
        values[int(key)] = value
    return values
