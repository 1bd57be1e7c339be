"""Fields of requests and rows of answers as Arrow IPC streams. pyarrow is imported when used.

Whatever a stream holds, reading it gives arrays that are no larger than the stream, or a refusal:
streams that are compressed or name dictionaries are refused before they are read.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.errors import how_to_install, printable
from bignn.serve.limits import RequestError

#: The content type of streams.
ARROW = "application/vnd.apache.arrow.stream"


def read(body: bytes) -> dict[str, Any]:
    """Read a table whose columns are the fields of a request.

    A column of lists has one row, which is the field's value; a column of numbers is a list itself.
    """
    pa = _pyarrow()
    try:
        _check_messages(pa, body)
        table = pa.ipc.open_stream(body).read_all()
        table.validate(full=True)
    except RequestError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise RequestError(
            400, f"the body must be an Arrow IPC stream: {printable(error)}"
        ) from None
    if len(set(table.column_names)) != table.num_columns:
        raise RequestError(400, "the body has two columns of one name")
    return {
        name: _field(pa, name, table.column(name).combine_chunks()) for name in table.column_names
    }


def write(columns: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> bytes:
    """Write rows as a stream; further fields are JSON in the schema's metadata, as ``bignn``."""
    pa = _pyarrow()
    made = {}
    for name, column in columns.items():
        if column.ndim == 2:
            flat = pa.array(np.ascontiguousarray(column).reshape(-1))
            made[name] = pa.FixedSizeListArray.from_arrays(flat, column.shape[1])
        else:
            made[name] = pa.array(column, mask=column < 0 if name == "class" else None)
    table = pa.table(made).replace_schema_metadata({"bignn": json.dumps(about)})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _pyarrow() -> Any:
    try:
        import pyarrow as pa
        import pyarrow.ipc
    except ImportError:
        line = f"Arrow needs pyarrow, which the server does not have ({how_to_install('pyarrow')})"
        raise RequestError(415, f"{line}; send JSON") from None
    return pa


def _check_messages(pa: Any, body: bytes) -> None:
    """Refuse what could be larger than its bytes."""
    reader = pa.ipc.MessageReader.open_stream(body)
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.type == "dictionary":
            raise RequestError(400, "the body must be an Arrow IPC stream without dictionaries")
        if message.type == "record batch" and _is_compressed(message.metadata.to_pybytes()):
            raise RequestError(400, "the body must be an Arrow IPC stream without compression")


def _is_compressed(metadata: bytes) -> bool:
    """Whether a record batch names a codec: field 3 of field 2 of the flatbuffer ``Message``."""
    try:
        (root,) = struct.unpack_from("<I", metadata)
        header = _flatbuffer_field(metadata, root, 2)
        if header is None:
            return True
        (offset,) = struct.unpack_from("<I", metadata, header)
        return _flatbuffer_field(metadata, header + offset, 3) is not None
    except struct.error:
        return True


def _flatbuffer_field(content: bytes, table: int, number: int) -> int | None:
    """Return the place of a table's field, None if it is not there."""
    (back,) = struct.unpack_from("<i", content, table)
    (size,) = struct.unpack_from("<H", content, table - back)
    if size <= 4 + 2 * number:
        return None
    (offset,) = struct.unpack_from("<H", content, table - back + 4 + 2 * number)
    return table + offset if offset else None


def _field(pa: Any, name: str, column: Any) -> Any:
    """Convert a column to the value of a field."""
    _check_no_nulls(name, column)
    if name == "output" and _is_text(pa, column.type):
        if len(column) != 1:
            raise RequestError(400, f"'{printable(name)}' must have one row, got {len(column)}")
        return column[0].as_py()
    if pa.types.is_struct(column.type):
        return {
            part.name: _rows(pa, name, _only_row(pa, name, column.field(number)))
            for number, part in enumerate(column.type)
        }
    if not _is_list(pa, column.type):
        return _numbers(pa, name, column)
    value = _only_row(pa, name, column)
    if not _is_list(pa, value.type):
        return _numbers(pa, name, value)
    rows = _rows(pa, name, value)
    if len({len(row) for row in rows}) > 1:
        raise RequestError(
            400, f"'{printable(name)}' must be an array, got lists of several lengths"
        )
    return np.stack(rows) if rows else np.empty((0, 0), dtype=np.int64)


def _only_row(pa: Any, name: str, column: Any) -> Any:
    """Return what is inside a column of lists that has one row."""
    _check_no_nulls(name, column)
    if not _is_list(pa, column.type) or len(column) != 1:
        got = f"{len(column)} of {column.type}"
        raise RequestError(
            400, f"'{printable(name)}' must have one row, a list, got {printable(got)}"
        )
    return column.flatten()


def _rows(pa: Any, name: str, lists: Any) -> list[NDArray[Any]]:
    """Convert lists of numbers to arrays."""
    _check_no_nulls(name, lists)
    if not _is_list(pa, lists.type):
        raise RequestError(400, f"'{printable(name)}' must have lists of lists, got {lists.type}")
    if pa.types.is_fixed_size_list(lists.type):
        lengths = np.full(len(lists), lists.type.list_size)
    else:
        lengths = lists.value_lengths().to_numpy(zero_copy_only=False)
    flat = _numbers(pa, name, lists.flatten())
    return np.split(flat, np.cumsum(lengths)[:-1]) if len(lengths) else []


def _numbers(pa: Any, name: str, column: Any) -> NDArray[Any]:
    """Convert numbers, or the names of nodes, to an array."""
    _check_no_nulls(name, column)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not is_number and not _is_text(pa, column.type):
        line = f"'{printable(name)}' must be numbers or names, got {printable(column.type)}"
        raise RequestError(400, line)
    made: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return made


def _is_text(pa: Any, kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(pa: Any, kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _check_no_nulls(name: str, column: Any) -> None:
    if column.null_count:
        raise RequestError(400, f"'{printable(name)}' must be free of nulls")
