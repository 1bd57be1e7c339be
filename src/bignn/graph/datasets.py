"""Loads graphs by name or path: embedded, from the data folder, or downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bignn.errors import FileError, InputError, did_you_mean, input_error
from bignn.files import check_regular_file, checked_path
from bignn.graph.graph import ARRAYS, SPLITS, TEXT_ARRAYS, Graph, from_arrays, to_arrays
from bignn.graph.published_sizes import PUBLISHED_SIZES
from bignn.graph.pyg import GraphLike, as_graph
from bignn.graph.readers.npz import read_npz, write_npz
from bignn.graph.sources import SOURCES, Source
from bignn.graph.split import FIXED, random_split

EMBEDDED = ("cora", "citeseer", "pubmed")
_DATA = Path(__file__).parent / "data"
_DEFAULT_FOLDER = "~/.cache/bignn"
#: The number in this name rises when a reader changes what it makes of the same raw files.
_CACHE = "bignn-cache-1.npz"


def load(name_or_path: str | os.PathLike[str]) -> Graph:
    """Load a graph.

    Args:
        name_or_path: one of

            - ``"cora"``, ``"citeseer"`` or ``"pubmed"``, which are embedded;
            - another name that ``bignn datasets`` lists: its published files are read from the
              data folder, and downloaded to it if they are not there;
            - the name of a .npz file in the data folder;
            - the path of a .npz file (``docs/format.md``).

            The data folder is ``$BIGNN_DATA``, or ``~/.cache/bignn`` if that is not set.

    """
    name = _checked_name(name_or_path)
    path, source = _look_for(name) or _fetch(name)
    if source is not None:
        return _read_raw(name, source, path)
    is_path = name.endswith(".npz") or os.sep in name
    try:
        return _named(str(path) if is_path else name, read_npz(path, ARRAYS, TEXT_ARRAYS), path)
    except FileError:
        raise
    except InputError as error:  # what the file holds is wrong
        raise FileError(str(error)) from None


def find(name_or_path: str | os.PathLike[str]) -> Path:
    """Return the file or folder that :func:`load` would read; downloads nothing."""
    name = _checked_name(name_or_path)
    if (found := _look_for(name)) is None:
        raise FileError(f"'{name}' is not in '{data_folder()}'; {how_to_get(name)}")
    return found[0]


def save(graph: GraphLike, path: str | os.PathLike[str]) -> None:
    """Write a graph or a PyG ``Data`` in the .npz format that :func:`load` reads."""
    graph = as_graph(graph)
    if checked_path(path).suffix != ".npz":
        raise input_error("path", "a file name ending in .npz", repr(os.fspath(path)))
    write_npz(path, to_arrays(graph))


def data_folder() -> Path:
    """Return the folder that holds datasets, and that downloads go to."""
    return Path(os.environ.get("BIGNN_DATA") or _DEFAULT_FOLDER).expanduser()


def how_to_get(name: str) -> str:
    """Describe in one line how to get the raw files of a dataset by hand."""
    source = SOURCES[name][0]
    files = source.files
    if len(files) > 4:  # whole folders
        files = tuple(dict.fromkeys(f"{file.rpartition('/')[0]}/" for file in files))
    folder = data_folder() / source.folders[0]
    return f"get {source.url} (see {source.page}) and put {', '.join(files)} in '{folder}'"


def survey() -> dict[str, Any]:
    """List the known datasets: published sizes, and where each was found or how to get it."""
    rows = []
    for name, sizes in PUBLISHED_SIZES.items():
        source = SOURCES[name][0] if name in SOURCES else None
        try:
            found = _look_for(name)
            get = None if found else how_to_get(name)
        except InputError as error:
            found, get = None, str(error)
        rows.append(
            {
                "name": name,
                **asdict(sizes),
                "found": None if found is None else str(found[0]),
                "embedded": name in EMBEDDED,
                "url": None if source is None else source.url,
                "sha256": None if source is None else source.sha256,
                "get": get,
            }
        )
    return {"folder": str(data_folder()), "datasets": rows}


def describe(report: dict[str, Any]) -> str:
    """Format the report of :func:`survey` as a table."""
    head = f"{'':17}{'nodes':>10}{'edges':>12}{'features':>10}{'classes':>9}"
    lines = [f"{head}  {'train/val/test':26}where"]
    for row in report["datasets"]:
        split = f"{row['train']:,}/{row['val']:,}/{row['test']:,}"
        where = "embedded" if row["embedded"] else row["found"] or "not here (see below)"
        lines.append(
            f"{row['name']:17}{row['nodes']:>10,}{row['edges']:>12,}{row['features']:>10,}"
            f"{row['classes']:>9}  {split:26}{where}"
        )
    missing = [row for row in report["datasets"] if row["get"]]
    if missing:
        lines.append(
            f"\nMissing graphs are downloaded to '{report['folder']}' when first used. By hand:"
        )
        lines += [f"  {row['name']}: {row['get']}" for row in missing]
    return "\n".join(lines)


def _checked_name(name_or_path: object) -> str:
    checked_path(name_or_path, "name_or_path", "a name such as 'cora' or a path")
    return os.fspath(name_or_path)  # type: ignore[call-overload,no-any-return]


_Found = tuple[Path, Source | None]


def _look_for(name: str) -> _Found | None:
    """Find a dataset: its place, and its source if the files are raw; None if it is not here."""
    if (Path(name) / "features.json").is_file():
        raise FileError(
            f"'{name}' is a store, which is not read into memory; 'bignn train' and 'bignn predict'"
            " take it"
        )
    if name.endswith(".npz") or os.sep in name:
        advice = f"give a .npz file, a store's folder or one of {list(PUBLISHED_SIZES)}"
        return check_regular_file(name, "a .npz file", advice), None
    if name in EMBEDDED:
        return _DATA / f"{name}.npz", None
    if (found := data_folder() / f"{name}.npz").exists():
        return found, None
    if name in SOURCES:
        return _look_for_raw(name)
    if Path(name).exists():
        raise FileError(
            f"'{name}' is not a graph; give a .npz file: 'bignn convert' makes one from tables, "
            "bignn.save(data, 'mine.npz') from PyG's Data"
        )
    is_set = os.environ.get("BIGNN_DATA")
    folder = (
        f"'{is_set}' ($BIGNN_DATA)" if is_set else f"$BIGNN_DATA (not set) or {_DEFAULT_FOLDER}"
    )
    meant = did_you_mean(name, PUBLISHED_SIZES)
    raise InputError(
        f"unknown dataset '{name}'{meant and f'; {meant}'}; known are {list(PUBLISHED_SIZES)}, the "
        f"path of a .npz file, a store's folder ('bignn pack-features' makes one), or the name of "
        f"a .npz file in {folder}"
    )


def _look_for_raw(name: str) -> _Found | None:
    """Find a dataset's raw files; refuse a folder that holds only some of them."""
    incomplete = None
    for source in SOURCES[name]:
        for subfolder in source.folders:
            folder = data_folder() / subfolder
            missing = [file for file in source.files if not (folder / file).is_file()]
            if not missing:
                single = len(source.files) == 1
                return folder / source.files[0] if single else folder, source
            if incomplete is None and len(missing) < len(source.files):
                incomplete = FileError(
                    f"'{folder}' lacks {', '.join(missing)}; get what is missing from {source.page}"
                )
    if incomplete is not None:
        raise incomplete
    return None


def _fetch(name: str) -> _Found:
    from bignn.graph.download import download  # ssl and http, a fifth of the import's time

    source = SOURCES[name][0]
    try:
        folder = data_folder() / source.folders[0]
        download(source.url, source.files, folder, source.limit, source.sha256)
    except FileError as error:
        raise FileError(f"{error}; by hand: {how_to_get(name)}") from None
    found = _look_for_raw(name)
    assert found is not None
    return found


def _named(name: str, arrays: Mapping[str, NDArray[Any]], place: Path) -> Graph:
    """Make a graph called ``name``; messages about wrong arrays name their file instead."""
    graph = from_arrays(arrays, name=str(place))
    object.__setattr__(graph, "name", name)  # replace() would check all of it again
    return graph


def _read_raw(name: str, source: Source, place: Path) -> Graph:
    """Read raw files, or the cache beside them if it is younger than all of them."""
    cache = place / _CACHE
    if source.cached and _is_fresh(cache, [place / file for file in source.files]):
        with suppress(InputError):  # a damaged cache is written again
            return _named(name, read_npz(cache, ARRAYS), cache)
    arrays: dict[str, NDArray[Any]] = source.read(place)
    if name in FIXED and not set(SPLITS) & set(arrays):
        arrays |= random_split(arrays["y"], FIXED[name])
    graph = _named(name, arrays, place)
    if source.cached:
        # In a folder that cannot be written, or on a full disk, raw files are read again next time.
        with suppress(FileError, OSError):
            write_npz(cache, to_arrays(graph), compressed=False)
    return graph


def _is_fresh(cache: Path, files: list[Path]) -> bool:
    return cache.is_file() and all(
        file.stat().st_mtime_ns < cache.stat().st_mtime_ns for file in files
    )
