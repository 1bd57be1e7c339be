"""Makes numbers of a table's feature columns, by the user's rules for text and missing cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bignn.errors import FileError, counted, printable
from bignn.graph.readers.tables import InputTable, is_number

#: What becomes of columns that hold text.
Categorical = Literal["refuse", "one-hot", "codes", "ignore"]
#: What stands for missing cells.
Missing = Literal["refuse", "zero", "mean", "median", "flag"]

#: Cells of a column of numbers that stand for missing ones, in lower case.
MISSING_WORDS = frozenset({"", "na", "n/a", "nan", "null", "none"})
_TRUTH = {"true": 1.0, "false": 0.0}
#: More different texts than these are no categories.
_MOST_CATEGORIES = 1024
#: Names of columns that are labels more often than features, in lower case.
LABEL_NAMES = frozenset({"label", "labels", "class", "classes", "y", "target", "ml_target"})

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class FeatureRules:
    """The rules for cells that are no numbers, and what is known of the command, for its advice.

    Attributes:
        categorical: what becomes of columns of text.
        missing: what stands for missing cells.
        has_ids: whether a column that names the nodes was given.
        has_labels: whether labels were given.

    """

    categorical: Categorical = "refuse"
    missing: Missing = "refuse"
    has_ids: bool = False
    has_labels: bool = False


def feature_matrix(
    table: InputTable, names: Sequence[str], rules: FeatureRules
) -> NDArray[np.float32] | None:
    """Return the features of all rows, columns side by side; None where no column is left."""
    parts = [_columns(table, name, rules) for name in names]
    kept = [part for part in parts if part.shape[1]]
    return np.concatenate(kept, axis=1) if kept else None


def _columns(table: InputTable, name: str, rules: FeatureRules) -> NDArray[np.float32]:
    """Return the columns of features that one column of a table becomes."""
    values = table_numbers(table, name)
    is_text = values is None
    if values is None:
        values = _categories(table, name, rules)
    is_missing = np.isnan(values)
    if is_missing.any():
        rule = rules.missing
        # There is no mean of texts.
        rule = "zero" if is_text and rule in ("mean", "median") else rule
        values = _filled(table, name, values, is_missing, rule)
    with np.errstate(over="ignore"):  # numbers beyond float32 become infinite: refused
        made = values.astype(np.float32)
    if not np.isfinite(made).all():
        row = int(np.flatnonzero(~np.isfinite(made).all(axis=1))[0])
        raise FileError(
            f"'{table.path}': column '{name}' must hold finite numbers of float32's range, "
            f"got '{printable(table.columns[name][row])}' in row {row + 1}"
        )
    return made


def table_numbers(table: InputTable, name: str) -> Floats | None:
    """Return a column as numbers [rows, columns], NaN where missing; None if it holds text."""
    column = table.cells(name)
    if column.dtype.kind in "fiub":
        return np.asarray(column, dtype=np.float64).reshape(table.num_rows, -1)
    try:
        return column.astype(np.float64)[:, None]
    except (ValueError, TypeError):
        cells = [cell.lower() for cell in table.texts(name)]
    if all(cell in _TRUTH or not cell for cell in cells) and any(cells):
        return np.array([_TRUTH.get(cell, np.nan) for cell in cells])[:, None]
    if not all(cell in MISSING_WORDS or is_number(cell) for cell in cells):
        return None
    return np.array([np.nan if cell in MISSING_WORDS else float(cell) for cell in cells])[:, None]


def _categories(table: InputTable, name: str, rules: FeatureRules) -> Floats:
    """Make numbers of a column of text; a missing cell has a NaN in every column."""
    cells = table.texts(name)
    known = sorted({cell for cell in cells if cell})
    if rules.categorical == "refuse":
        raise FileError(f"'{table.path}': {_advice(name, cells, known, rules)}")
    if rules.categorical == "ignore":
        return np.empty((len(cells), 0))
    number = {cell: place for place, cell in enumerate(known)}
    places = np.array([number.get(cell, -1) for cell in cells])
    if rules.categorical == "codes":  # from 1, since 0 stands for missing
        codes: Floats = np.where(places < 0, np.nan, places + 1.0).reshape(-1, 1)
        return codes
    if len(known) > _MOST_CATEGORIES:
        raise FileError(
            f"'{table.path}': column '{name}' has {len(known)} different values, too many for "
            f"one-hot (at most {_MOST_CATEGORIES}); leave it out: --ignore-columns {quote(name)}"
        )
    made: Floats = (places[:, None] == np.arange(len(known))).astype(np.float64)
    made[places < 0] = np.nan
    return made


def _advice(name: str, cells: list[str], known: list[str], rules: FeatureRules) -> str:
    """Describe a column that is not numeric, and what can be done about it."""
    row, bad = next(
        (row, cell) for row, cell in enumerate(cells, 1) if cell and not is_number(cell)
    )
    line = f"column '{name}' is not numeric ('{printable(bad)}' in row {row}); "
    if any(is_number(cell) for cell in cells):
        others = sum(bool(cell) and not is_number(cell) for cell in cells)
        if others <= len(cells) // 2:
            mend = "mend that cell" if others == 1 else f"mend these {others} cells"
            return f"{line}{mend}, or empty it and choose what stands for it: --missing zero, ..."
    if name.lower() in LABEL_NAMES and not rules.has_labels:
        return f"{line}if it holds the labels, pass --label-column {quote(name)}"
    if len(known) == len(cells) and not rules.has_ids:
        line += f"if it names the nodes, pass --id {quote(name)}, otherwise "
        return f"{line}leave it out: --ignore-columns {quote(name)}"
    leave = f"leave it out: --ignore-columns {quote(name)}"
    if len(known) > _MOST_CATEGORIES or len(known) == len(cells):
        return f"{line}{leave}"
    values = counted(len(known), "value")
    return f"{line}make features of its {values}: --categorical one-hot, or {leave}"


def _filled(
    table: InputTable, name: str, values: Floats, is_missing: NDArray[Any], rule: Missing
) -> Floats:
    """Put numbers in the place of missing cells."""
    where = np.asarray(is_missing.any(axis=1))
    if rule == "refuse":
        row = int(np.flatnonzero(where)[0])
        cell = table.columns[name][row]
        got = f"'{cell}'" if isinstance(cell, str) and cell else "empty"
        raise FileError(
            f"'{table.path}': column '{name}' is {got} in row {row + 1} "
            f"({counted(int(where.sum()), 'missing cell')}); choose what stands for it: "
            "--missing zero, mean, median or flag"
        )
    stand_in = np.zeros(values.shape[1])
    if rule in ("mean", "median"):
        average = np.nanmean if rule == "mean" else np.nanmedian
        is_known = np.flatnonzero(~is_missing.all(axis=0))
        stand_in[is_known] = average(values[:, is_known], axis=0)
    filled = np.where(is_missing, stand_in, values)
    if rule == "flag":
        filled = np.concatenate([filled, where[:, None].astype(np.float64)], axis=1)
    return filled
