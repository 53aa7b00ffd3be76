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
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import Tags

from .._parameters import check_positive, check_whole
from .._validation import caller_level
from ..names import trimmed
from ..pipelines import Stateless
from ..showing import listed, one_line
from .cells import cells_of, column_of, doubles_of, spelled, value_of

#: Texts that are no value among numbers and days; among categories and codes they are texts.
MISSING = frozenset(("", "na", "n/a", "nan", "nat", "null", "none", "<na>", "?"))
#: Most cells of one column, and most columns.
MOST_CELLS, MOST_COLUMNS = 4096, 4096
# How much further apart single precision may put two rows of norm one, 2^-23 and a little.
_ROUNDING = 1.2e-7
# Rows that are filled together fit into a processor's cache.
_PART = 2**16
# Knots are further apart than this share of their size, and than this.
_CLOSE, _LEAST = 2.0**-30, 1e-300
_LARGEST = 10**308
# Of fewer records a warning would tell of one of them.
_FEW = 10
# Categories of a column that are shown.
_SHOWN = 10
_WORDS = {**dict.fromkeys(MISSING, math.nan), "inf": math.inf, "infinity": math.inf}
_WORDS |= {sign + word: float(f"{sign}inf") for word in ("inf", "infinity") for sign in "+-"}
# Cells of these types that are equal, and of one of them, have one value.
_PLAIN = {str, int, float, bool, type(None), np.float16, np.float32, np.float64}
#: How dates are written where nothing else is declared.
ISO = "%Y-%m-%d"
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
# Offsets had seconds before there were time zones.
_OFFSET = r"( ?Z|[+-]\d\d(:?\d\d(:?\d\d(\.\d+)?)?)?)?"
_TIME = rf"([ T]([01]\d|2[0-3]):[0-5]\d(:[0-5]\d([.,]\d+)?)?{_OFFSET})?"


class UnknownCellsWarning(UserWarning):
    """Most cells of a column are not as declared, so that a model learns or says little by it."""


class _UnreadCell(ValueError):
    """Why a cell is refused, in words that fit any cell."""


class Counts(NamedTuple):
    """Numbers of private cells that are not as declared: for the owner alone."""

    #: Beyond the bounds, and clipped; or not among the categories, and spread.
    outside: int
    missing: int


@lru_cache
def dates_of(form: str) -> Callable[[str], date]:
    """What reads texts of days in a form such as %d.%m.%Y; a time behind it is cut off."""
    between = re.split("%([dmY])", form)
    marks, codes = between[::2], between[1::2]
    apart = form == "%Y%m%d" or all(marks[1:-1])
    if sorted(codes) != ["Y", "d", "m"] or re.search(r"[\d%]", "".join(marks)) or not apart:
        raise ValueError(
            f"format={form!r} must hold %d, %m and %Y, with a mark between them, as %d.%m.%Y does."
        )
    day = "".join(
        re.escape(mark) + (rf"(?P<{code}>\d{{{4 if code == 'Y' else '1,2'}}})" if code else "")
        for mark, code in zip(marks, [*codes, ""], strict=True)
    )
    if form in (ISO, "%Y%m%d"):
        day = day.replace("1,2", "2")
    pattern = re.compile(day + _TIME, re.ASCII)

    def read(text: str) -> date:
        parts = pattern.fullmatch(text)
        if parts is None:
            raise ValueError
        return date(int(parts["Y"]), int(parts["m"]), int(parts["d"]))

    return read


_iso = dates_of(ISO)


def _quoted(name: str) -> str:
    """The name of a column before an equals sign: in quotes where it has one itself."""
    return json.dumps(name, ensure_ascii=False) if "=" in name or name[0] == '"' else name


def _number_of_day(day: date) -> float:
    return float(day.toordinal() - date(1970, 1, 1).toordinal())


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

    @property
    @abstractmethod
    def example(self) -> str:
        """What it may hold, in a few words."""

    def counts(self, places: NDArray[np.float64]) -> Counts:
        """How many cells are not as declared, and how many are missing."""
        return Counts(int(self.outside(places).sum()), int(np.isnan(places).sum()))

    def is_odd(self, counts: Counts, n: int) -> bool:
        """Whether most of n cells, or of those that are there, are not as declared."""
        missing = 0 if self.has_cell else counts.missing
        return 2 * counts.outside > n - counts.missing or 2 * (counts.outside + missing) > n

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
        column = column_of(X, self.name)
        numbers = doubles_of(column) if type(self) is _Numbers else None
        if numbers is not None:
            return numbers
        # Equal cells are read once, but for those of another type: True is 1, and no number.
        known = {kind: cache(self.read) for kind in _PLAIN}
        found, reason = list[float](), ""
        try:
            found.extend(known.get(type(cell), self.read)(cell) for cell in cells_of(column))
        except _UnreadCell as error:
            reason = str(error)
        except Exception:
            reason = f"is no {self.what}; correct it, or leave it empty."
        if reason:
            # Outside of the handler: an error's context may quote the cell, which is private.
            raise ValueError(
                f"X: the cell of column {self.name!r} in row {len(found) + 1} {reason}"
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

    def __init__(
        self, name: str, knots: NDArray[np.float64], has_cell: bool, decimal: str = ""
    ) -> None:
        super().__init__(name, len(knots), has_cell, knots[0], knots[-1])
        if decimal not in ("", ".", ","):
            raise ValueError(f"columns[{name!r}]: decimal={decimal!r} must be ',' or '.'.")
        self.knots, self.decimal = knots, decimal
        self.what = f"number such as 1{decimal or '.'}5"
        size, steps = np.abs(knots).max(), np.diff(knots)
        self.step = float(steps.min())
        # Doubles tell numbers apart by a share of their size: so much further apart two cells come.
        self.rounding = float(np.spacing(size))
        if self.step < max(_CLOSE * size, _LEAST):
            raise ValueError(
                f"columns[{name!r}]: knots must be at least 2^-30 of the largest one apart, and "
                f"{_LEAST}, as closer numbers are not told apart; subtract what they have in "
                "common."
            )

    def read(self, cell: Any) -> float:
        if type(cell) is float:
            return cell  # most are, and a double is its own value
        value = value_of(cell, self.decimal)
        if isinstance(value, str):
            return _WORDS[value.lower()]
        if value is None or value != value:
            return math.nan
        # The largest doubles stand for numbers beyond.
        return float(min(max(value, -_LARGEST), _LARGEST))  # type: ignore[call-overload,type-var]

    def write(self, block: NDArray[np.float32], places: NDArray[np.float64], scale: float) -> None:
        u = np.interp(places, self.knots, np.arange(self.n_values))
        left, rows = np.minimum(u.astype(np.intp), self.n_values - 2), np.arange(len(block))
        angle = (u - left) * (np.pi / 2.0)
        block[rows, left], block[rows, left + 1] = scale * np.cos(angle), scale * np.sin(angle)

    def square(self, amount: float | None) -> float:
        if amount is None:
            return 2.0
        check_positive(f"change[{self.name!r}]", amount, " or None (any value)")
        amount = float(amount) + self.rounding
        return 4.0 * math.sin(0.25 * math.pi * min(amount / self.step, 1.0)) ** 2

    def within(self, square: float) -> float:
        amount = self.step * 4.0 / math.pi * math.asin(0.5 * math.sqrt(square))
        return max(amount - self.rounding, 0.0)

    def names(self) -> list[str]:
        return [str(plain_declaration(knot)) for knot in self.knots.tolist()]

    @property
    def example(self) -> str:
        names = self.names()
        return f"{names[0]} to {names[-1]}"


class _Days(_Numbers):
    """Numbers that count days."""

    def __init__(
        self, name: str, knots: NDArray[np.float64], has_cell: bool, format: str = ISO
    ) -> None:
        super().__init__(name, knots, has_cell)
        try:
            self.day_of = dates_of(str(format))
        except ValueError as error:
            raise ValueError(f"columns[{name!r}]: {error}") from None
        self.what = f"date such as {date(2000, 12, 31).strftime(format)}"

    def read(self, cell: Any) -> float:
        value = value_of(cell)
        if isinstance(value, float):
            raise ValueError
        if value is None or (isinstance(value, str) and value.lower() in MISSING):
            return math.nan
        # A day of digits alone is a number to readers of tables.
        return _number_of_day(value if isinstance(value, date) else self.day_of(str(value)))

    def names(self) -> list[str]:
        days = [str(np.datetime64(round(knot), "D")) for knot in self.knots.tolist()]
        seconds = (np.datetime64(round(knot * 86400), "s") for knot in self.knots.tolist())
        return days if len({*days}) == len(days) else [*map(str, seconds)]


class _Categories(_Column):
    """An axis for each category, or for each value that codes are hashed to."""

    def __init__(self, name: str, values: list[str] | int, has_cell: bool = False) -> None:
        own = [] if isinstance(values, int) else values
        self.places_of = {spelled(value): float(i) for i, value in enumerate(own)}
        n_values = values if isinstance(values, int) else len(values)
        super().__init__(name, n_values, has_cell, 0.0, n_values)

    def read(self, cell: Any) -> float:
        value = value_of(cell)
        if value is None:
            return math.nan
        if isinstance(value, float) and not value % 1.0 > 0.0:
            raise _UnreadCell(
                "is a float too large to be told from its neighbours, and may have been another "
                "number: read the column as text (in pandas: dtype=str)."
            )
        text = spelled(value)
        if self.places_of:
            return self.places_of.get(text, -1.0)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return float(int.from_bytes(digest, "big") % self.n_values)

    def absent(self, places: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.isnan(places) | self.outside(places)

    def write(self, block: NDArray[np.float32], places: NDArray[np.float64], scale: float) -> None:
        block[np.arange(len(block)), places.astype(np.intp)] = scale

    @property
    def example(self) -> str:
        return listed([*self.places_of], _SHOWN) or f"codes, in {self.n_values:,} cells"

    def names(self) -> list[str]:
        return [*self.places_of] or [str(i) for i in range(self.n_values)]


def plain_declaration(declared: Any) -> Any:
    """What a column was declared to hold, as JSON has it, where a value has one spelling."""
    if isinstance(declared, Mapping):
        return {str(key): plain_declaration(own) for key, own in declared.items()}
    if isinstance(declared, np.ndarray) and declared.ndim == 1:
        declared = [*cells_of(declared)]
    if isinstance(declared, (list, tuple)):
        return [plain_declaration(value) for value in declared]
    if isinstance(declared, float) and declared.is_integer():
        return int(declared)
    if isinstance(declared, (str, bool, np.bool_, date, np.datetime64)):
        return spelled(declared)
    if isinstance(declared, (int, float, np.number)):
        return value_of(declared)
    return declared


def held(declared: Any) -> Any:
    """Of a plain declaration what the column may hold, without how its cells are written."""
    return declared["holds"] if isinstance(declared, dict) else declared


def _column(name: str, declared: Any, knots: int) -> _Column:
    """The column of a declaration; what it holds decides, so that Python, TOML and JSON agree."""
    declared = plain_declaration(declared)
    written = dict(declared) if isinstance(declared, dict) else {"holds": declared}
    declared = written.pop("holds", None)
    if declared == []:
        raise ValueError(
            f"columns[{name!r}]=[] is not filled in: say what it may hold, from what is known of "
            "the world and not from the records."
        )
    if type(declared) is int and 2 <= declared <= MOST_CELLS and not written:
        return _Categories(name, declared)
    if isinstance(declared, list) and len(declared) <= MOST_CELLS:
        # An empty text among them gives missing values a cell of their own.
        values, has_cell = [v for v in declared if v != ""], "" in declared
        numbers = all(type(v) in (int, float) and abs(v) <= 1e300 for v in values)
        texts = all(type(v) is str for v in values)
        days = texts and len(values) > 1 and all(map(_DAY.fullmatch, values))
        ends, option = [*values] if numbers else [], "decimal" if numbers else "format"
        with contextlib.suppress(ValueError):  # no day of the calendar
            ends = [_number_of_day(_iso(v)) for v in values] if days else ends
        if len(ends) > 1 and {*written} <= {option}:
            marks = np.array(ends if len(ends) > 2 else np.linspace(*ends, knots), np.float64)
            if (np.diff(marks) > 0.0).all():
                return (_Numbers if numbers else _Days)(name, marks, has_cell, **written)
        elif texts and not days and len(values) > 0 and len(values) + has_cell > 1 and not written:
            categories = _Categories(name, values, has_cell)
            if len(categories.places_of) == len(values):
                return categories
    raise ValueError(
        f"columns[{name!r}] must be two bounds or more knots that rise, two texts or more that "
        "differ (7, 7.0 and 07 do not), dates such as 2000-12-31 that rise, or a whole number of "
        f"cells for codes from 2 to {MOST_CELLS}; or a mapping with one of these as holds, and "
        "decimal or format."
    )


@dataclass(eq=False, repr=False)
class TableEncoder(Stateless):
    """Rows of norm one of records in declared columns.

    Nothing is learnt: what a column may hold is declared, and public. So one changed record changes
    one row, and how far any change of a record moves its row is known beforehand (:meth:`radius`).
    A linear head over the rows is an additive model of the columns. Give it ``domain="sphere"``.
    A table ``X`` is one of pandas, polars or pyarrow, a mapping from names to columns, or a list of
    mappings. Columns are found by name; others are not looked at. A cell says the same in each of
    them, and whatever the other cells are: numbers are compared by value, also as texts.

    Parameters
    ----------
    columns : mapping of str to list or int
        What each column may hold, by its name: from what is known of the world, never read off the
        private records. The content of a declaration decides:

        * two numbers, or two dates such as ``"2000-12-31"``, are bounds: what lies beyond is
          clipped. More numbers that rise are the knots themselves;
        * texts are categories (``True`` and ``False`` are texts too);
        * a whole number is how many cells codes are hashed into, as those of diagnoses or places;
        * a mapping holds one of these as ``holds``, and how texts write it: ``decimal=","`` for
          numbers such as 1.234,5, or ``format="%d.%m.%Y"`` for dates such as 31.12.2024;
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
        it. An :class:`UnknownCellsWarning` names columns of which most cells are not as declared.
        """
        parts, places = self._places(X)
        self._warn_of_unknown(parts, places)
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
        return {part.name: part.counts(own) for part, own in zip(*self._places(X), strict=True)}

    def mostly_unknown(self, counts: Mapping[str, Counts], n_samples: int) -> list[str]:
        """Columns of which most cells are not as declared, or missing.

        Missing cells of a column that declares them are as declared.

        Parameters
        ----------
        counts : dict
            What :meth:`counts` found.
        n_samples : int
            Number of records.

        Returns
        -------
        list of str
            Names of the columns, in their order.
        """
        return [p.name for p in self._parts() if p.is_odd(counts[p.name], n_samples)]

    def unknown_rows(self, X: Any) -> NDArray[np.intp]:
        """Places of records of which no cell is known, from 0: each is missing, or no category.

        They are private.
        """
        absent = [part.absent(own) for part, own in zip(*self._places(X), strict=True)]
        return np.flatnonzero(np.logical_and.reduce(absent))

    @property
    def examples(self) -> dict[str, str]:
        """What each column was declared to hold, in a few words, for a message."""
        return {part.name: part.example for part in self._parts()}

    def _warn_of_unknown(self, parts: list[_Column], places: list[NDArray[np.float64]]) -> None:
        n = len(places[0])
        pairs = zip(parts, places, strict=True)
        odd = [part for part, own in pairs if n >= _FEW and part.is_odd(part.counts(own), n)]
        if odd:
            shown = "; ".join(f"{one_line(p.name, 60)} (declared: {p.example})" for p in odd[:5])
            more = f"; and {len(odd) - 5} more" if len(odd) > 5 else ""
            warnings.warn(
                f"X: most cells of these columns are not as declared, or missing: {shown}{more}. "
                "Are they spelt otherwise, or in other units?",
                UnknownCellsWarning,
                stacklevel=caller_level(),
            )

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
                    f"change={change!r} must name declared columns: "
                    f"{', '.join(map(repr, self.columns))}."
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

        They follow from the declaration, and not from ``input_features``. A column whose name has
        an equals sign is in quotes, as in JSON.
        """
        names = [
            f"{_quoted(part.name)}={value}"
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
