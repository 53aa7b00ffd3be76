"""Records in declared columns as rows of norm one, whose distances are known from the declaration.

A number lies on a quarter circle between two knots, a category on an axis of its own. So every
column takes a block of norm one without a negative entry, and the distance of two records follows
from the columns that differ. The page "I have a table" of the documentation has the proofs.
"""

import contextlib
import hashlib
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from .._parameters import check_positive, check_whole
from ..pipelines import Stateless
from ..text import trimmed

#: What stands for no value, unless it is declared as a category.
MISSING = frozenset(("", "na", "n/a", "nan", "nat", "null", "none", "<na>", "?"))
#: Most cells of one column, and most columns.
MOST_CELLS, MOST_COLUMNS = 4096, 4096
# How much further apart single precision may put two rows of norm one, 2^-23 and a little.
_ROUNDING = 1.2e-7
# Rows that are filled together fit into a processor's cache.
_PART = 2**16
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?", re.ASCII | re.I)
_WORDS = {**dict.fromkeys(MISSING, math.nan), "true": 1.0, "false": 0.0}
_WHOLE = re.compile(r"-?(0|[1-9]\d*)\.0", re.ASCII)
# Cells that are equal, and of one of these types, have one spelling.
_PLAIN = {str, int, float, bool, type(None), np.float16, np.float32, np.float64}
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIME = re.compile(
    r"([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d+)?)?( ?Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII
)


class Counts(NamedTuple):
    """Numbers of private cells that are not as declared: for the owner alone."""

    #: Beyond the bounds, and clipped; or not among the categories, and spread.
    outside: int
    missing: int


def _text(cell: Any) -> str:
    """A cell as text, in Unicode's composed form, without what is not seen at its ends."""
    several = not isinstance(cell, (str, bytes)) and isinstance(cell, Collection)
    # Otherwise its text may tell an order or a place in memory.
    if several or type(cell).__repr__ is object.__repr__:
        raise TypeError
    text = cell.decode() if isinstance(cell, bytes) else str(cell)
    return text.strip() if text.isascii() else trimmed(text)


def spelled(cell: Any) -> str:
    """One text for one value: 1, 1.0 and "1.0" are the same; so are True, "True" and "TRUE"."""
    text = _text(cell)
    if text.lower() in ("true", "false"):
        return text.lower()
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    # Whole numbers in a column with gaps are written so.
    return str(int(text[:-2])) if _WHOLE.fullmatch(text) else text


def _day(text: str) -> float:
    if not _DAY.fullmatch(text):
        raise ValueError
    return float(np.datetime64(text, "D").astype(int))


class _Read(dict[Any, float]):
    """Places by cells, each of which is read when it is first asked for."""

    def __init__(self, read: Callable[[Any], float]) -> None:
        self._read = read

    def __missing__(self, cell: Any) -> float:
        place = self[cell] = self._read(cell)
        return place


class _Column(ABC):
    """One column: what it may hold, where a cell falls, and how far a change moves it."""

    #: What its cells are, for an error that must not quote one.
    what = "text"

    def __init__(self, name: str, n_values: int, has_cell: bool, low: float, high: float) -> None:
        self.name, self.n_values, self.has_cell = name, n_values, has_cell
        self.width, self.low, self.high = n_values + has_cell, low, high

    @abstractmethod
    def read(self, cell: Any) -> float:
        """The place of a cell: NaN if it is missing; any error if it is none."""

    @abstractmethod
    def write(self, block: NDArray[np.float32], places: NDArray[np.float64], scale: float) -> None:
        """Entries of cells that are there."""

    @abstractmethod
    def names(self) -> list[str]:
        """What its cells stand for, but for missing values."""

    def square(self, amount: float | None) -> float:
        """Largest squared distance of two blocks for a change by an amount; None is any value."""
        if amount is not None:
            raise ValueError(
                f"change[{self.name!r}]={amount!r}: a category changes to any other; pass None."
            )
        return 2.0

    def within(self, square: float) -> float:
        """The largest change of a value within a squared distance; 0 for none."""
        return 0.0

    def outside(self, places: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which places are beyond the bounds, or of unknown values."""
        return (places < self.low) | (places > self.high)

    def absent(self, places: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Which places are of values that are spread."""
        return np.isnan(places)

    def places(self, X: Any) -> NDArray[np.float64]:
        """Where the cells of a column fall."""
        cells = _cells(X, self.name)
        if isinstance(cells, np.ndarray):
            if type(self) is _Numbers:
                return cells.astype(np.float64)
            cells = cells.tolist()
        types, found = {*map(type, cells)}, list[float]()
        plain = (cell if type(cell) in _PLAIN else _text(cell) for cell in cells)
        # Each distinct cell is read once, unless cells of two types may be equal: True is 1.
        one_type = len((types & _PLAIN) - {str, type(None)}) < 2
        read = _Read(self.read).__getitem__ if one_type else self.read
        with contextlib.suppress(Exception):
            found.extend(map(read, cells if types <= _PLAIN else plain))
        if len(found) < len(cells):
            # Outside of the handler: an error's context may quote the cell, which is private.
            raise ValueError(
                f"X: the cell of column {self.name!r} in row {len(found) + 1} is no {self.what}; "
                "correct it, or leave it empty."
            )
        return np.array(found, dtype=np.float64)

    def fill(self, block: NDArray[np.float32], places: NDArray[np.float64], scale: float) -> None:
        """Write the block of some rows, each of norm ``scale``."""
        absent = self.absent(places)
        self.write(block, np.where(absent, 0.0, places), scale)
        block[absent, : self.n_values] = scale / math.sqrt(self.n_values)
        if self.has_cell:
            missing = np.isnan(places)
            block[missing, : self.n_values], block[missing, -1] = 0.0, scale


class _Numbers(_Column):
    """Quarter circles between knots: with t the place between two, cos(t pi/2) and sin(t pi/2)."""

    what = "number such as 1.5"

    def __init__(self, name: str, knots: NDArray[np.float64], has_cell: bool) -> None:
        super().__init__(name, len(knots), has_cell, knots[0], knots[-1])
        with np.errstate(all="ignore"):
            steps = np.diff(knots)
            self.knots, self.step = knots, float(steps.min())
            self.rises = self.step > 0.0 and bool(np.isfinite([*steps, 1.0 / self.step]).all())

    def read(self, cell: Any) -> float:
        if isinstance(cell, (int, float, np.floating)):
            return float(cell)
        text = _text(cell)
        return float(text) if _NUMBER.fullmatch(text) else _WORDS[text.lower()]

    def write(self, block: NDArray[np.float32], places: NDArray[np.float64], scale: float) -> None:
        u = np.interp(places, self.knots, np.arange(self.n_values))
        left, rows = np.minimum(u.astype(np.intp), self.n_values - 2), np.arange(len(block))
        angle = (u - left) * (np.pi / 2.0)
        block[rows, left], block[rows, left + 1] = scale * np.cos(angle), scale * np.sin(angle)

    def square(self, amount: float | None) -> float:
        if amount is None:
            return 2.0
        check_positive(f"change[{self.name!r}]", amount, " or None (any value)")
        return 4.0 * math.sin(0.25 * math.pi * min(float(amount) / self.step, 1.0)) ** 2

    def within(self, square: float) -> float:
        return self.step * 4.0 / math.pi * math.asin(0.5 * math.sqrt(square))

    def names(self) -> list[str]:
        return [spelled(knot) for knot in self.knots.tolist()]


class _Days(_Numbers):
    """Numbers that count days."""

    what = "date such as 2000-12-31"

    def read(self, cell: Any) -> float:
        text = _text(cell)
        if text.lower() in MISSING:
            return math.nan
        if not _TIME.fullmatch(text[10:]):
            raise ValueError
        return _day(text[:10])

    def names(self) -> list[str]:
        return [str(np.datetime64(round(knot), "D")) for knot in self.knots.tolist()]


class _Categories(_Column):
    """An axis for each category, or for each value that codes are hashed to."""

    def __init__(self, name: str, values: list[str] | int, has_cell: bool = False) -> None:
        own = [] if isinstance(values, int) else values
        self.places_of = {spelled(value): float(i) for i, value in enumerate(own)}
        n_values = values if isinstance(values, int) else len(values)
        super().__init__(name, n_values, has_cell, 0.0, n_values)

    def read(self, cell: Any) -> float:
        text = spelled(cell)
        if text in self.places_of:
            return self.places_of[text]
        if text.lower() in MISSING:
            return math.nan
        if self.places_of:
            return -1.0
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return float(int.from_bytes(digest, "big") % self.n_values)

    def absent(self, places: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.isnan(places) | self.outside(places)

    def write(self, block: NDArray[np.float32], places: NDArray[np.float64], scale: float) -> None:
        block[np.arange(len(block)), places.astype(np.intp)] = scale

    def names(self) -> list[str]:
        return [*self.places_of] or [str(i) for i in range(self.n_values)]


def plain_declaration(declared: Any) -> Any:
    """What a column was declared to hold, as JSON has it, where a value has one spelling."""
    declared = declared.tolist() if isinstance(declared, (np.ndarray, np.generic)) else declared
    if isinstance(declared, (list, tuple)):
        return [plain_declaration(value) for value in declared]
    if isinstance(declared, bool):
        return spelled(declared)
    if isinstance(declared, float) and declared.is_integer():
        return int(declared)
    if isinstance(declared, str):
        return _text(declared)
    return declared.isoformat()[:10] if isinstance(declared, date) else declared


def _column(name: str, declared: Any, knots: int) -> _Column:
    """The column of a declaration; what it holds decides, so that Python, TOML and JSON agree."""
    declared = plain_declaration(declared)
    if declared == []:
        raise ValueError(
            f"columns[{name!r}]=[] is not filled in: say what it may hold, from what is known of "
            "the world and not from the records."
        )
    if type(declared) is int and 2 <= declared <= MOST_CELLS:
        return _Categories(name, declared)
    if isinstance(declared, list) and len(declared) <= MOST_CELLS:
        # An empty text among them gives missing values a cell of their own.
        values, has_cell = [v for v in declared if v != ""], "" in declared
        numbers = all(type(v) in (int, float) and abs(v) <= 1e300 for v in values)
        texts = all(type(v) is str for v in values)
        days = texts and all(map(_DAY.fullmatch, values))
        if len(values) > 1 and (numbers or days):
            with contextlib.suppress(ValueError):  # no day of the calendar
                ends = values if numbers else [_day(v) for v in values]
                marks = np.array(ends if len(ends) > 2 else np.linspace(*ends, knots), np.float64)
                made = (_Numbers if numbers else _Days)(name, marks, has_cell)
                if made.rises:
                    return made
        elif texts and len(values) > 0 and len(values) + has_cell > 1:
            categories = _Categories(name, values, has_cell)
            if len(categories.places_of) == len(values):
                return categories
    raise ValueError(
        f"columns[{name!r}] must be two bounds or more knots that rise, two texts or more that "
        "differ, dates such as 2000-12-31 that rise, or a whole number of cells for codes from 2 "
        f"to {MOST_CELLS}."
    )


def _cells(X: Any, name: str) -> Any:
    """A column by its name, as a list; as an array where it holds numbers alone."""
    rows = isinstance(X, (list, tuple)) and all(isinstance(row, Mapping) for row in X)
    named = hasattr(X, "__getitem__") and not (isinstance(X, np.ndarray) and X.dtype.names is None)
    if not (rows or named):
        raise ValueError(
            "X must hold its columns by name: pass a table of pandas, polars or pyarrow, a mapping "
            "from names to columns, or a list of mappings."
        )
    column = None
    with contextlib.suppress(Exception):  # each library has its own
        known = rows and (not X or any(name in row for row in X))
        column = [row.get(name) for row in X] if known else X[name]
    if column is None:
        raise ValueError(f"X has no column {name!r}, which is declared.")
    if not isinstance(column, (list, tuple)):
        if isinstance(column, np.ma.MaskedArray):
            column = column.tolist()  # an array would forget which are masked
        elif hasattr(column, "to_pylist") and not hasattr(column, "iloc"):
            column = column.to_pylist()
        else:
            column = np.asarray(column)
    if isinstance(column, np.ndarray):
        if column.ndim != 1:
            raise ValueError(f"X has no single column {name!r}: pass one value for each record.")
        if column.dtype.kind == "M":
            # In days: a time of day is cut off.
            return [str(day) for day in column.astype("datetime64[D]")]
        return column if column.dtype.kind in "iuf" else column.tolist()
    return column


@dataclass(eq=False, repr=False)
class TableEncoder(Stateless):
    """Rows of norm one of records in declared columns.

    Nothing is learnt: what a column may hold is declared, and public. So one changed record changes
    one row, and how far any change of a record moves its row is known beforehand (:meth:`radius`).
    A linear head over the rows is an additive model of the columns. Give it ``domain="sphere"``.
    A table ``X`` is one of pandas, polars or pyarrow, a mapping from names to columns, or a list of
    mappings. Columns are found by name; others are not looked at.

    Parameters
    ----------
    columns : mapping of str to list or int
        What each column may hold, by its name: from what is known of the world, never read off the
        private records. The content of a declaration decides:

        * two numbers, or two dates such as ``"2000-12-31"``, are bounds: what lies beyond is
          clipped. More numbers that rise are the knots themselves;
        * texts are categories (``True`` and ``False`` are texts too);
        * a whole number is how many cells codes are hashed into, as those of diagnoses or places;
        * an empty text ``""`` in a list gives missing values a cell of their own. Without it they
          are spread evenly over the column's cells, as unknown values always are.
    knots : int, default=4
        How finely a number between two bounds is resolved, from 2 to 64: more knots follow finer
        curves, and need more records.

    Examples
    --------
    >>> from sklearn_balldp.encoders import TableEncoder
    >>> encoder = TableEncoder({
    ...     "age": [18, 90],
    ...     "income": [0, 20_000, 50_000, 200_000],
    ...     "sex": ["f", "m", ""],
    ...     "since": ["2000-01-01", "2025-12-31"],
    ...     "zip": 64,
    ... })
    >>> patients = {
    ...     "age": [30, 95, None], "income": ["1000", "", "60000"], "sex": ["f", "x", "m"],
    ...     "since": ["2020-02-29", "2021-01-01", ""], "zip": ["10115", "80331", "10115"],
    ... }
    >>> encoder.transform(patients).shape
    (3, 79)
    >>> encoder.counts(patients)["age"]
    Counts(outside=1, missing=1)
    >>> round(encoder.radius(1), 3), round(encoder.radius({"age": 5, "sex": None}), 3)
    (0.632, 0.649)
    >>> {name: round(amount, 1) for name, amount in encoder.hidden(0.4).items()}
    {'age': 14.2, 'income': 11806.7, 'sex': 0.0, 'since': 1868.6, 'zip': 0.0}
    """

    columns: Any
    knots: Any = 4

    def _parts(self) -> list[_Column]:
        check_whole("knots", self.knots, 2)
        if int(self.knots) > 64:
            raise ValueError(f"knots={self.knots!r} must be at most 64.")
        named = isinstance(self.columns, Mapping) and 0 < len(self.columns) <= MOST_COLUMNS
        if not (named and all(isinstance(name, str) and name for name in self.columns)):
            raise ValueError(
                "columns must be a mapping from the names of columns, which are texts that are not "
                f"empty, to what they may hold, of 1 to {MOST_COLUMNS} columns."
            )
        if len({" ".join(trimmed(name).split()) for name in self.columns}) < len(self.columns):
            raise ValueError(
                "columns: two names differ by blanks or forms of letters alone; rename one of them."
            )
        return [_column(n, declared, int(self.knots)) for n, declared in self.columns.items()]

    def fit(self, X: Any = None, y: Any = None) -> "TableEncoder":
        """Check the declaration; nothing is learnt, and ``X`` and ``y`` are not looked at."""
        self._parts()
        return self

    def transform(self, X: Any) -> NDArray[np.float32]:
        """Rows of norm 1 of records, of shape (n_samples, n_features_out).

        Pass ``encoder=encoder.identity`` to the head, so that its record names the declaration. A
        ValueError names column and row of a cell that is not of its column's kind, and never quotes
        it.
        """
        parts, places = self._places(X)
        ends = np.cumsum([0, *(part.width for part in parts)])
        rows = np.zeros((len(places[0]), ends[-1]), dtype=np.float32)
        for first in range(0, len(rows), _PART):
            for part, own, start in zip(parts, places, ends[:-1], strict=True):
                block = rows[first : first + _PART, start : start + part.width]
                part.fill(block, own[first : first + _PART], 1.0 / math.sqrt(len(parts)))
        return rows

    def _places(self, X: Any) -> tuple[list[_Column], list[NDArray[np.float64]]]:
        parts = self._parts()
        places = [part.places(X) for part in parts]
        if len({*map(len, places)}) != 1:
            raise ValueError("X: its columns differ in length.")
        return parts, places

    def counts(self, X: Any) -> dict[str, Counts]:
        """How many cells of each column are not as declared, and how many are missing.

        These numbers are private: they are for whoever owns the records, and nothing that is
        published holds them.
        """
        return {
            part.name: Counts(int(part.outside(own).sum()), int(np.isnan(own).sum()))
            for part, own in zip(*self._places(X), strict=True)
        }

    def radius(self, change: Any) -> float:
        """The smallest radius that hides a change of a record.

        Parameters
        ----------
        change : int or mapping
            A number m: any m cells, whatever they hold. A mapping: how far each column may change,
            all of them at once (in days, of dates); None is any value. A change by an amount is
            between two values: from a missing one it is a change to any value.

        Returns
        -------
        float
            Euclidean distance between rows, at most sqrt(2) and a little for rounding.
        """
        parts = self._parts()
        if isinstance(change, Mapping):
            if not change or {*change} - {*self.columns}:
                raise ValueError(
                    f"change={change!r} must name declared columns: {', '.join(self.columns)}."
                )
            square = sum(part.square(change[part.name]) for part in parts if part.name in change)
        else:
            check_whole("change", change)
            if int(change) > len(parts):
                raise ValueError(f"change={change!r}: there are {len(parts)} columns.")
            square = 2.0 * int(change)
        # The factor covers the rounding of this formula.
        return math.sqrt(square / len(parts)) * (1.0 + 1e-12) + _ROUNDING

    def hidden(self, radius: float) -> dict[str, float]:
        """How far each column alone may change within a radius (in days, of dates).

        Infinite is any value, and 0 none. From ``radius=2**0.5`` on that is any value of every
        column: no two rows are further apart but by their rounding, which heads allow for.
        """
        check_positive("radius", radius)
        parts = self._parts()
        # The inverse of radius(), a little below it.
        square = (max(float(radius) - _ROUNDING, 0.0) * (1.0 - 4e-12)) ** 2 * len(parts)
        anything = radius >= min(self.radius(1), math.sqrt(2.0))
        return {part.name: math.inf if anything else part.within(square) for part in parts}

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> NDArray[Any]:
        """Names ``column=value`` of knots, categories and codes, and ``column=`` of missing values.

        They follow from the declaration, and not from ``input_features``.
        """
        names = [
            f"{part.name}={value}"
            for part in self._parts()
            for value in [*part.names(), *[""] * part.has_cell]
        ]
        return np.array(names, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        """The declaration as JSON has it: names and what they may hold, in order, and knots."""
        self._parts()
        columns = [[name, plain_declaration(own)] for name, own in self.columns.items()]
        return {"columns": columns, "knots": int(self.knots)}

    @property
    def identity(self) -> str:
        """A name that tells declarations apart, for the record of a fit on the rows."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return f"table sha256:{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = True
        return tags
