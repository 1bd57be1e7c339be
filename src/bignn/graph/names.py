"""Names of nodes and classes: different texts, kept in memory and in files as UTF-8. NumPy only.

May import ``errors``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from bignn.errors import InputError, input_error, printable

Ints = NDArray[np.int64]

#: Bytes that begin no letter of UTF-8.
_CONTINUATION_MASK, _CONTINUATION = 0xC0, 0x80
_FIRST_PRINTABLE, _DELETE = 0x20, 0x7F


class Names:
    """Different names by number: name i is the UTF-8 text ``data[offsets[i]:offsets[i + 1]]``.

    That takes no more memory than the texts, and a file's arrays serve as they are. It has the
    items of a list, but is no ``Sequence``: of these PyG's ``Data`` makes lists, which its loaders
    take for tensors to cut.

    Args:
        data: the texts one after the other, uint8.
        offsets: where each begins, int64 [n + 1].
        argument: what the names are called in messages.

    """

    def __init__(
        self, data: NDArray[np.uint8], offsets: Ints, argument: str = "node_names"
    ) -> None:
        _check_texts(argument, data, offsets)
        self.data, self.offsets, self._argument = data, offsets, argument

    @classmethod
    def of(cls, given: Any, argument: str = "node_names") -> Names:
        """Take names from a list, an array or a tensor of texts or whole numbers."""
        if isinstance(given, Names):
            return given
        try:
            encoded = [text.encode() for text in _texts(argument, given)]
        except UnicodeEncodeError as error:
            raise input_error(argument, "text that UTF-8 can hold", ascii(error.object)) from None
        offsets = np.concatenate([[0], np.cumsum([len(text) for text in encoded])])
        data = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        return cls(data, offsets.astype(np.int64), argument).checked()

    def checked(self) -> Names:
        """Return these names; refuse one that is there twice."""
        every = list(self)
        if len(set(every)) < len(every):
            seen: set[str] = set()
            twice = next(name for name in every if name in seen or seen.add(name))  # type: ignore[func-returns-value]
            got = f"'{printable(twice)}' more than once"
            raise input_error(self._argument, "different names", got)
        return self

    def numbers(self, names: Iterable[str], argument: str = "nodes") -> Ints:
        """Return the numbers of some names; refuse a name that is not there."""
        found = []
        for name in names:
            if name not in self._places:
                known = ", ".join(f"'{printable(some)}'" for some in self[:3])
                fix = f"names are such as {known}"
                raise input_error(argument, "names of nodes", f"'{printable(name)}'", fix)
            found.append(self._places[name])
        return np.array(found, dtype=np.int64)

    @cached_property
    def _places(self) -> dict[str, int]:
        places = dict(zip(self, range(len(self)), strict=True))
        if len(places) != len(self):  # of a file, where nobody has looked
            self.checked()
        return places

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __contains__(self, name: object) -> bool:
        return name in self._places

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> list[str]: ...

    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[number] for number in range(*at.indices(len(self)))]
        number = range(len(self))[at]  # negative ones, and the error of a list
        return self.data[self.offsets[number] : self.offsets[number + 1]].tobytes().decode()

    def __iter__(self) -> Iterator[str]:
        ends, whole = self.offsets.tolist(), self.data.tobytes()
        if whole.isascii():  # a letter per byte
            text = whole.decode()
            return iter([text[begin:end] for begin, end in pairwise(ends)])
        return iter([whole[begin:end].decode() for begin, end in pairwise(ends)])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Names):
            return NotImplemented
        return np.array_equal(self.offsets, other.offsets) and np.array_equal(self.data, other.data)

    def __hash__(self) -> int:
        return hash((len(self), self.data[:64].tobytes()))

    def __repr__(self) -> str:
        shown = ", ".join(repr(name) for name in self[:3])
        return f"Names({shown}{', ...' if len(self) > 3 else ''}; {len(self)} in all)"


#: Names, one after the other.
NameList = Names | Sequence[str]
AnyNames = TypeVar("AnyNames", Names, Sequence[str])


def class_names_of(given: Any, argument: str = "class_names") -> tuple[str, ...]:
    """Take the names of classes, in the order of their numbers, checked as those of nodes are."""
    return tuple(Names.of(given, argument))


def unless_numbers(names: AnyNames) -> AnyNames | None:
    """Return names, or None where they are the numbers 0, 1, ... in order, which need no names."""
    if all(name == str(number) for number, name in enumerate(names)):
        return None
    return names


def names_to_arrays(key: str, names: NameList) -> dict[str, NDArray[Any]]:
    """Return the arrays that files hold names as."""
    kept = Names.of(names, key)
    return {key: kept.data, f"{key}_offsets": kept.offsets}


def names_from_arrays(key: str, arrays: Mapping[str, NDArray[Any]]) -> Names | None:
    """Find names in the arrays of a file: UTF-8 with offsets, or text of NumPy's."""
    if key not in arrays:
        if f"{key}_offsets" in arrays:
            raise InputError(f"'{key}_offsets' is there without '{key}'")
        return None
    data = arrays[key]
    if data.dtype.kind == "U":
        return Names.of(data, key)
    if f"{key}_offsets" not in arrays:
        fix = "write text: np.array(names)"
        expected = f"text, or UTF-8 with '{key}_offsets'"
        raise input_error(key, expected, f"dtype {data.dtype}", fix)
    offsets = arrays[f"{key}_offsets"]
    if data.dtype != np.uint8 or offsets.dtype.kind not in "iu":
        got = f"{data.dtype} and {offsets.dtype}"
        raise input_error(key, "UTF-8 as uint8, with integer offsets", got)
    return Names(data, offsets.astype(np.int64, copy=False), key)


def _texts(argument: str, given: Any) -> list[str]:
    """Return names as a list of texts; whole numbers are written out."""
    expected = "a list of texts or whole numbers"
    listed = given.tolist() if hasattr(given, "tolist") else given
    if isinstance(listed, str | bytes | Mapping) or not isinstance(listed, Iterable):
        raise input_error(argument, expected, type(given).__name__)
    listed = list(listed)
    if all(type(name) is str for name in listed):
        return listed
    texts = []
    for name in listed:
        if hasattr(name, "item"):  # of NumPy and torch
            name = name.item()
        if isinstance(name, bool) or not isinstance(name, str | int):
            raise input_error(argument, expected, f"one of {type(name).__name__}")
        texts.append(str(name))
    return texts


def _check_texts(argument: str, data: NDArray[Any], offsets: Ints) -> None:
    if data.ndim != 1 or offsets.ndim != 1 or offsets.size == 0:
        got = f"shapes {list(data.shape)} and {list(offsets.shape)}"
        raise input_error(argument, "bytes [B] with offsets [n + 1]", got)
    if offsets[0] != 0 or offsets[-1] != data.size or (np.diff(offsets) < 0).any():
        raise InputError(f"'{argument}' has offsets that do not rise from 0 to {data.size}")
    if (np.diff(offsets) == 0).any():
        number = int(np.flatnonzero(np.diff(offsets) == 0)[0])
        raise input_error(argument, "names that are not empty", f"an empty one at {number}")
    is_control = (data < _FIRST_PRINTABLE) | (data == _DELETE)
    if is_control.any():
        number = int(np.searchsorted(offsets, np.argmax(is_control), side="right")) - 1
        expected = "names without line breaks and control characters"
        raise input_error(argument, expected, f"one at {number}")
    starts = data[offsets[:-1]]
    try:
        data.tobytes().decode()
        is_whole = not ((starts & _CONTINUATION_MASK) == _CONTINUATION).any()
    except UnicodeDecodeError:
        is_whole = False
    if not is_whole:
        raise InputError(f"'{argument}' is not UTF-8")
