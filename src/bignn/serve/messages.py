"""What requests and answers look like: fields as JSON, or the same as an Arrow IPC stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from bignn.errors import printable
from bignn.graph import SparseRows
from bignn.serve import arrow
from bignn.serve.limits import RequestError

JSON = "application/json"


@dataclass(frozen=True)
class Answer:
    """Rows that are answered, and what is said of them together.

    Attributes:
        name: what the rows are called.
        columns: arrays of equal lengths by name, of one number per row or of several. A negative
            class is none.
        about: further fields.

    """

    name: str
    columns: Mapping[str, NDArray[Any]]
    about: Mapping[str, Any] = field(default_factory=dict)


def media_type(header: str) -> str:
    """Return the type that a header names, without its parameters."""
    return header.partition(";")[0].strip().lower()


def read(body: bytes, content_type: str, known: Sequence[str]) -> dict[str, Any]:
    """Read the fields of a request; ``known`` are those that it may have."""
    kind = media_type(content_type)
    if kind == arrow.ARROW:
        fields = arrow.read(body)
    elif kind == JSON:
        fields = _read_json(body)
    else:
        got = f"'{printable(kind)}'" if kind else "none"
        line = f"'Content-Type' must be {JSON} or {arrow.ARROW}, got {got}"
        raise RequestError(415, line)
    if unknown := sorted(set(fields) - set(known)):
        line = f"'{printable(unknown[0])}' is not known here; a request has {', '.join(known)}"
        raise RequestError(400, line)
    return fields


def write(answer: Answer, content_type: str, accept: str) -> tuple[bytes, str]:
    """Write an answer in the form that is accepted, or else that of the request."""
    accepted = [media_type(part) for part in accept.split(",")]
    is_open = accepted in ([""], ["*/*"])
    if arrow.ARROW in accepted or (is_open and media_type(content_type) == arrow.ARROW):
        return arrow.write(answer.columns, answer.about), arrow.ARROW
    return _write_json(answer), JSON


def nodes_of(name: str, value: Any) -> NDArray[Any] | None:
    """Convert a list of node ids or names to an array; None stays."""
    found = _array(name, value, "a list of node ids or names")
    if found is not None:
        _check_ids(name, found, "a list of node ids or names", num_axes=1)
    return found


def edges_of(name: str, value: Any) -> NDArray[Any] | None:
    """Convert edges to an array [2, n] of node ids and names; None stays."""
    expected = "two lists of one length, sources and targets, of node ids or names"
    found = _array(name, value, expected)
    if found is None:
        return None
    if found.shape == (0,):  # an empty list
        return np.empty((2, 0), dtype=np.int64)
    _check_ids(name, found, expected, num_axes=2)
    if len(found) != 2:
        raise RequestError(400, f"'{name}' must be {expected}, got {len(found)} lists")
    return found


def weights_of(name: str, value: Any) -> NDArray[Any] | None:
    """Convert a list of weights to an array; None stays."""
    expected = "a list of numbers"
    found = _array(name, value, expected)
    if found is not None and found.size and (found.ndim != 1 or found.dtype.kind not in "iuf"):
        raise RequestError(400, f"'{name}' must be {expected}, got {_in_words(found, 1)}")
    return found


def features_of(name: str, value: Any, num_features: int) -> NDArray[Any] | SparseRows | None:
    """Convert rows of features: lists of numbers, or the columns of those that are not 0."""
    if not isinstance(value, dict):
        expected = f"rows of {num_features} numbers"
        rows = _array(name, value, expected)
        if rows is not None and rows.size and (rows.ndim > 2 or rows.dtype.kind not in "iufb"):
            raise RequestError(400, f"'{name}' must be {expected}, got {_in_words(rows, 2)}")
        return rows
    if not {"columns"} <= set(value) <= {"columns", "values"}:
        raise RequestError(
            400, f"'{name}' must have 'columns' and perhaps 'values', got {sorted(value)}"
        )
    columns = _rows_of(name, "columns", value["columns"])
    values = None if value.get("values") is None else _rows_of(name, "values", value["values"])
    lengths = [len(row) for row in columns]
    if values is not None and [len(row) for row in values] != lengths:
        got = f"{_counts(lengths)} columns and {_counts([len(row) for row in values])} values"
        line = f"'{name}' must have as many 'values' as 'columns' in every row, got {got}"
        raise RequestError(400, line)
    indices = np.concatenate([np.empty(0, dtype=np.int64), *columns])
    numbers = np.ones(len(indices)) if values is None else np.concatenate([np.empty(0), *values])
    if indices.dtype.kind not in "iu" or numbers.dtype.kind not in "iuf":
        odd = indices if indices.dtype.kind not in "iu" else numbers
        line = f"'{name}' must have whole numbers as columns and numbers as values"
        raise RequestError(400, f"{line}, got {_in_words(odd, 1)}")
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < num_features:
        bad = int(indices.min()) if int(indices.min()) < 0 else int(indices.max())
        raise RequestError(400, f"'{name}' must have columns in 0..{num_features - 1}, got {bad}")
    with np.errstate(over="ignore"):
        taken = numbers.astype(np.float32)
    if not np.isfinite(taken).all():
        largest, bad = np.finfo(np.float32).max, numbers[~np.isfinite(taken)][0]
        line = f"'{name}' must be within float32's range, {largest:.1e} at most in size, got {bad}"
        raise RequestError(400, line)
    offsets = np.cumsum([0, *lengths], dtype=np.int64)
    shape = (len(columns), num_features)
    return SparseRows(offsets, indices.astype(np.int64), taken, shape)


def type_in_words(value: object) -> str:
    """Return what JSON calls the type of a value."""
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false"}
    number = "a number" if isinstance(value, int | float) else "null"
    return names.get(type(value), number)


def _array(name: str, value: Any, expected: str) -> NDArray[Any] | None:
    """Convert lists to an array, in which numbers among texts stay numbers; None stays."""
    if value is None or isinstance(value, np.ndarray):
        return value
    if not isinstance(value, list):
        raise RequestError(400, f"'{name}' must be {expected}, got {type_in_words(value)}")
    try:
        found = np.asarray(value)
        return np.array(value, dtype=np.object_) if found.dtype.kind == "U" else found
    except (ValueError, TypeError, OverflowError):
        line = f"'{name}' must be {expected}, got lists of several lengths"
        raise RequestError(400, line) from None


def _check_ids(name: str, found: NDArray[Any], expected: str, *, num_axes: int) -> None:
    """Refuse what are no ids and names, or not in as many lists as they should be."""
    items = found.ravel().tolist() if found.dtype.kind == "O" else []
    is_fine = found.dtype.kind in "iu" or (
        found.dtype.kind == "O" and all(isinstance(item, str) or _is_id(item) for item in items)
    )
    if found.size and (not is_fine or found.ndim != num_axes):
        raise RequestError(400, f"'{name}' must be {expected}, got {_in_words(found, num_axes)}")


def _is_id(item: object) -> bool:
    return isinstance(item, int) and not isinstance(item, bool) and abs(item) < 2**63


def _in_words(found: NDArray[Any], num_axes: int) -> str:
    """Return what an array holds in the words of JSON; ``num_axes`` is how many it should have."""
    if found.ndim < num_axes:
        return "a list without lists in it"
    if found.ndim > num_axes:
        return "lists in lists"
    kinds = {"f": "numbers with fractions", "b": "true or false", "u": "a number past 64 bits"}
    if found.dtype.kind != "O":
        return kinds.get(found.dtype.kind, "texts")
    others = [item for item in found.ravel().tolist() if not isinstance(item, str)]
    odd = [item for item in others if not _is_id(item)]
    if odd and isinstance(odd[0], int) and not isinstance(odd[0], bool):
        return "a number past 64 bits"
    return type_in_words(odd[0]) if odd else "texts"


def _counts(lengths: list[int]) -> str:
    """Return the lengths of the first rows, for messages."""
    return f"{lengths[:4]}" if len(lengths) < 5 else f"{lengths[:4]}..."


def _rows_of(name: str, part: str, value: Any) -> list[NDArray[Any]]:
    """Convert lists of several lengths to arrays."""
    expected = f"'{name}' must have a list of lists as '{part}', one per row"
    if not isinstance(value, list):
        raise RequestError(400, f"{expected}, got {type_in_words(value)}")
    if odd := [row for row in value if not isinstance(row, list | np.ndarray)]:
        raise RequestError(400, f"{expected}, got {type_in_words(odd[0])} in the list")
    made = [np.asarray(row if len(row) else np.empty(0, dtype=np.int64)) for row in value]
    if any(row.ndim != 1 for row in made):
        raise RequestError(400, f"{expected}, got lists in lists")
    return made


def _read_json(body: bytes) -> dict[str, Any]:
    def refuse(constant: str) -> NoReturn:
        raise RequestError(400, f"the body must have finite numbers, got {constant}")

    try:
        fields = json.loads(body, parse_constant=refuse)
    except UnicodeDecodeError:
        raise RequestError(400, "the body must be JSON in UTF-8") from None
    except RecursionError:
        raise RequestError(400, "the body must be JSON, got lists nested too deeply") from None
    except ValueError as error:
        raise RequestError(400, f"the body must be JSON: {printable(error)}") from None
    if not isinstance(fields, dict):
        raise RequestError(400, f"the body must be a JSON object, got {type_in_words(fields)}")
    return fields


def _write_json(answer: Answer) -> bytes:
    names = tuple(answer.columns)
    columns = [_plain(name, column) for name, column in answer.columns.items()]
    rows = [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]
    document = {answer.name: rows, **answer.about}
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def _plain(name: str, column: NDArray[Any]) -> list[Any]:
    """Convert a column to lists; what is not there is None."""
    made: list[Any] = column.tolist()
    if name == "class":
        return [None if number < 0 else number for number in made]
    if column.dtype.kind == "f" and np.isnan(column).any():
        return [None if np.isnan(row).any() else row for row in column.tolist()]
    return made
