"""Rows of declared columns: norm one, distances that no change exceeds, one spelling of a value."""

import datetime
import json
import math
import re
import zoneinfo
from decimal import Decimal
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import PROPERTY
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, SplineTransformer

from sklearn_balldp.datasets import BREAST_CANCER
from sklearn_balldp.encoder_name import has_digest
from sklearn_balldp.encoders import TableEncoder, UnknownCellsWarning

# Many tables here have cells that are not as declared.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn_balldp.encoders.UnknownCellsWarning")

#: For each column what it may hold, and two values whose blocks share no cell.
DECLARED = {
    "age": ([18, 90], 18, 90),
    "income": ([0, 20_000, 50_000, 200_000], 0, 200_000),
    "sex": (["f", "m", ""], "f", "m"),
    "since": (["2000-01-01", "2025-12-31"], "2000-01-01", "2025-12-31"),
    "zip": (64, "1", "2"),
    "smoker": ([False, True], True, False),
    "n": ([-5, 5, ""], -5, 5),
}
COLUMNS = {name: declared for name, (declared, *_) in DECLARED.items()}
FAR = {name: pair for name, (_, *pair) in DECLARED.items()}
#: Rows in single precision come this close to what is stated.
NEAR = 4e-7


def records(n, seed):
    rng = np.random.default_rng(seed)

    def some(values, missing):
        return [missing if gap else v for v, gap in zip(values, rng.random(n) < 0.1, strict=True)]

    days = np.datetime64("1995-01-01") + rng.integers(0, 13_000, n)
    return {
        "age": some(rng.uniform(0, 110, n).tolist(), None),
        "income": some([str(v) for v in rng.integers(-5, 300_000, n)], ""),
        "sex": some(rng.choice(["f", "m", "d", "x"], n).tolist(), "NA"),
        "since": some([str(day) for day in days], None),
        "zip": some([f"{v:05d}" for v in rng.integers(0, 99_999, n)], None),
        "smoker": some((rng.random(n) < 0.5).tolist(), None),
        "n": some(rng.integers(-9, 9, n).tolist(), math.nan),
    }


def far(first, second):
    return np.linalg.norm(first.astype(np.float64) - second.astype(np.float64), axis=-1)


@pytest.mark.parametrize("knots", [2, 4, 7])
@pytest.mark.kills("encoders/tables.py", "= scale / math.sqrt(self.n_values)", "= scale")
def test_rows_have_norm_one_and_no_negative_entry(knots):
    rows = TableEncoder(COLUMNS, knots=knots).transform(records(1500, knots))
    assert rows.dtype == np.float32
    assert np.abs(np.linalg.norm(rows.astype(np.float64), axis=1) - 1.0).max() < 1e-7
    assert rows.min() >= 0.0


@pytest.mark.parametrize("knots", [2, 3, 4, 8])
@pytest.mark.parametrize("declared", [[18, 90], [0, 20_000, 50_000, 200_000], [-1e-9, 1e-9]])
@pytest.mark.kills(
    "encoders/tables.py",
    "math.sin(0.25 * math.pi * min",
    "math.sin(0.2 * math.pi * min",
    attack="distances of declared columns",
)
@pytest.mark.kills("encoders/tables.py", "float(steps.min())", "float(steps.max())")
def test_no_change_of_a_number_goes_further_and_some_go_as_far(declared, knots):
    """Starts lie everywhere, near every knot from both sides, and beyond the bounds."""
    encoder = TableEncoder({"v": declared, "w": ["a", "b"]}, knots=knots)
    rng = np.random.default_rng(knots)
    marks = np.linspace(*declared, knots) if len(declared) == 2 else np.array(declared, float)
    low, high, step = marks[0], marks[-1], np.diff(marks).min()

    def rows(values):
        return encoder.transform({"v": values, "w": ["a"] * len(values)})

    for share in (1e-3, 0.1, 0.25, 0.75, 0.99, 1.0, 1.3, 2.0, 5.0):
        amount = share * step
        starts = np.concatenate(
            [
                rng.uniform(low - amount, high + amount, 1000),
                *(mark + amount * np.linspace(-1.2, 1.2, 121) for mark in marks),
                marks[:-1],
                marks[1:] - amount,
            ]
        )
        moves = amount * rng.choice([0.3, 0.9, 1.0], len(starts), p=[0.1, 0.1, 0.8])
        moves[-2 * (knots if len(declared) == 2 else 4) :] = amount
        furthest = far(rows(starts), rows(starts + moves)).max()
        stated = encoder.radius({"v": amount})
        assert furthest <= stated <= furthest + NEAR
        hidden = encoder.hidden(stated)["v"]
        assert hidden == pytest.approx(amount, rel=1e-3 if share < 0.01 else 1e-5) or share >= 1.0
        assert stated >= 1.0 or encoder.radius({"v": hidden}) <= stated
    assert encoder.radius({"v": high - low}) == pytest.approx(1.0)
    assert encoder.hidden(encoder.radius(1)) == {"v": math.inf, "w": math.inf}
    assert encoder.hidden(0.5)["w"] == 0.0


@pytest.mark.parametrize("m", range(1, len(COLUMNS) + 1))
@pytest.mark.kills("encoders/tables.py", "square = 2.0 * int(change)", "square = 1.0 * int(change)")
def test_no_change_of_some_cells_goes_further(m):
    encoder, rng = TableEncoder(COLUMNS), np.random.default_rng(m)
    own, others = records(500, 1), records(500, 2)
    furthest = 0.0
    for _ in range(4):
        names = set(rng.choice(list(COLUMNS), m, replace=False))
        changed = {name: (others if name in names else own)[name] for name in COLUMNS}
        furthest = max(furthest, far(encoder.transform(own), encoder.transform(changed)).max())
    names = list(COLUMNS)[:m]
    pair = [{name: FAR[name][side and name in names] for name in COLUMNS} for side in (0, 1)]
    attained = far(*encoder.transform(pair)[:, None])[0]
    assert max(furthest, attained) <= encoder.radius(m) <= attained + NEAR
    if m == len(COLUMNS):
        assert set(encoder.hidden(math.sqrt(2.0)).values()) == {math.inf}
        assert encoder.radius(m) < math.sqrt(2.0) + 2e-7


def test_several_changes_at_once():
    encoder, n, rng = TableEncoder(COLUMNS), 4000, np.random.default_rng(0)
    change = {"age": 5, "income": 10_000, "sex": None}
    own = {**records(n, 0), "age": rng.uniform(18, 90, n), "income": rng.uniform(0, 2e5, n)}
    other = {**own, "age": own["age"] + rng.uniform(-5, 5, n), "sex": rng.choice(["f", "m"], n)}
    other["income"] = own["income"] + rng.uniform(-1e4, 1e4, n)
    stated = encoder.radius(change)
    assert far(encoder.transform(own), encoder.transform(other)).max() <= stated
    base = {name: [FAR[name][0]] for name in COLUMNS}
    moved = {**base, "age": [23], "income": [10_000], "sex": ["m"]}
    attained = far(encoder.transform(base), encoder.transform(moved))[0]
    assert attained <= stated <= attained + NEAR


def test_a_row_depends_on_its_record_alone():
    """In every container and order, to the last bit; equal values of other types are no others."""
    encoder, own = TableEncoder(COLUMNS), records(300, 3)
    rows = encoder.transform(own)
    for i in (0, 7, 299):
        alone = encoder.transform({name: [cells[i]] for name, cells in own.items()})
        assert np.array_equal(alone[0], rows[i])
    east, west = (datetime.timezone(datetime.timedelta(hours=h)) for h in (5, -5))
    instant = datetime.datetime(2001, 1, 1, 22, tzinfo=datetime.UTC)
    e, combined = "caf\u00e9", "cafe\u0301"
    for declared, cells, places in (
        (["true", "1", "0"], [True, 1, "1", "True", -0.0, np.True_], [0, 1, 1, 0, 2, 0]),
        (["2001-01-01", "2001-01-02"], [instant.astimezone(z) for z in (east, west)], None),
        (64, [7, b"7", np.float16(7), 10**16, "1e16"], [2] * 3 + [12] * 2),
        (["0", "0.1"], [0.1, np.float32(0.1), np.float16(0.1), ".1", False], [1] * 4 + [0]),
        (["NA", "", "?"], ["NA", "na", "?", "", None, math.nan, pd.NA, pd.NaT], None),
        ([e, "b"], [combined, e, f"\u200b{e} ", "b"], [0, 0, 0, 1]),
        ([combined, "cafe"], [combined, e, "cafe"], [0, 0, 1]),
    ):
        encoder = TableEncoder({"a": declared})
        together = encoder.transform({"a": cells})
        assert places is None or together.argmax(axis=1).tolist() == places
        for order in (cells, cells[::-1]):
            alone = [encoder.transform({"a": [cell]}) for cell in order]
            assert np.array_equal(encoder.transform({"a": order}), np.concatenate(alone))


WIDE = [10757401000119105, 2**60 + 1, 2**53 + 1, 9007199254740995]
DAYS = [datetime.date(2020, 1, i) for i in (1, 5, 9, 28)]
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
NIGHTS = [datetime.datetime(2020, i, 1, 0, 30, tzinfo=BERLIN) for i in (3, 4, 7)]
SPAN = ["1890-01-01", "2025-12-31"]
#: By kind: four cells, one of another row, and what is declared.
CELLS = {
    "whole": ([3, 10, 77, 100], 5, 4096),
    "whole, of categories": ([3, 10, 77, 100], 5, ["3", "10", "077", "5"]),
    "whole, of knots": ([3, 10, 77, 100], 5, [0, 50, 100]),
    "wide": (WIDE, 5, 4096),
    "wide, of categories": (WIDE, 5, [str(v) for v in WIDE]),
    "float": ([0.1, 2.5, 1e-5, 7.0], 5.5, 4096),
    "single": (np.float32([0.1, 2.5, 1e-5, 7.0]).tolist(), 5.5, ["0.1", "2.5", "1e-05", "7"]),
    "single, of knots": (np.float32([0.1, 2.5, 1e-5, 7.0]).tolist(), 5.5, [0, 10]),
    "truth": ([True, False, True, False], True, [True, False]),
    "truth in codes": ([True, False, True, False], True, 64),
    "text": (["NA", "7.0", "007", "TRUE"], "b", 4096),
    "date": (DAYS, datetime.date(2021, 1, 1), SPAN),
    "date in codes": (DAYS, datetime.date(2021, 1, 1), 4096),
    "time": ([datetime.datetime(2020, 1, i, 5) for i in (1, 5, 9, 28)], None, SPAN),
    "time in codes": ([datetime.datetime(2020, 1, i, 5) for i in (1, 5, 9, 28)], None, 4096),
    "time of a zone": ([*NIGHTS, datetime.datetime(1890, 5, 1, tzinfo=BERLIN)], NIGHTS[0], SPAN),
    "decimal": ([Decimal(v) for v in ("1.50", "2.00", "7", "0.1")], Decimal("3.3"), 4096),
}


def column(cells, single):
    """A column of NumPy, in single precision if it shall be."""
    return np.array(cells, dtype=np.float32 if single else None)


def frame(cells, single):
    return pd.DataFrame({"c": column(cells, single) if single else cells})


def nullable(cells, single, backend="numpy_nullable"):
    # pandas converts whole numbers beside a gap by way of floats, unless it is told their type.
    dtype = "Int64" if type(cells[0]) is int else "Float32" if single else object
    made = pd.Series(pd.array(cells, dtype=dtype))
    return made.convert_dtypes(dtype_backend=backend).to_frame("c")


def arrow(cells, single):
    import pyarrow as pa

    return pa.table({"c": pa.array(cells, pa.float32() if single else None)})


def polars(cells, single):
    import polars as pl

    return pl.DataFrame({"c": pl.Series(cells, dtype=pl.Float32 if single else None)})


def listed(cells, single):
    return [np.float32(c) if single and c is not None else c for c in cells]


CONTAINERS = {
    "mapping": lambda cells, single: {"c": listed(cells, single)},
    "records": lambda cells, single: [{"c": cell} for cell in listed(cells, single)],
    "numpy": lambda cells, single: {"c": column(cells, single)},
    "masked": lambda cells, single: {
        "c": np.ma.array(
            column([cells[0] if c is None else c for c in cells], single),
            mask=[c is None for c in cells],
        )
    },
    "pandas": frame,
    "pandas, nullable": nullable,
    "pandas, of pyarrow": lambda *given: nullable(*given, backend="pyarrow"),
    "pandas, categories": lambda *given: nullable(*given).astype("category"),
    "polars": polars,
    "pyarrow": arrow,
}


def rows_unless_rounded(encoder, X):
    """Rows; None where the table is refused, as floats in it may have been other whole numbers."""
    try:
        return encoder.transform(X)
    except ValueError as error:
        if "may have been another number" not in str(error):
            raise
    return None


#: Here whole numbers beyond 2^53 are floats before anybody looks at them.
ROUNDED = {("pandas", "wide"), ("numpy", "wide")}


@pytest.mark.kills("encoders/cells.py", "else getattr(column, method)()", "else np.asarray(column)")
@pytest.mark.kills("encoders/cells.py", "else np.float32 if _SINGLE", "else None if _SINGLE")
@pytest.mark.kills("encoders/cells.py", "or _is_inexact(dtype) else", "or False else")
@pytest.mark.kills("encoders/tables.py", "and not value % 1.0 > 0.0", "and False")
@pytest.mark.needs("polars", "pyarrow")
@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize("kind", CELLS)
def test_no_cell_depends_on_the_library_or_on_other_cells(kind, container):
    """Each row is that of the record alone, to the last bit, or the table is refused."""
    cells, other, declared = CELLS[kind]
    encoder, single = TableEncoder({"c": declared}), kind.startswith("single")
    alone = [encoder.transform([{"c": cell}])[0] for cell in listed([*cells, other, None], single)]
    for further, gap in (
        ([], False),
        ([other], False),
        ([None], True),
        ([other, None, None], True),
    ):
        X = CONTAINERS[container]([*cells, *further], single)
        want = alone[:4] + [alone[5 if cell is None else 4] for cell in further]
        rows = rows_unless_rounded(encoder, X)
        if rows is None:
            assert gap
            assert any(container.startswith(c) and kind.startswith(k) for c, k in ROUNDED)
            continue
        assert np.array_equal(rows, want)


def test_whole_floats_that_may_have_been_others_are_refused_in_codes_alone():
    for kind, limit in ((np.float16, 2**11), (np.float32, 2**24), (np.float64, 2**53)):
        cells = np.array([limit - 1, limit], dtype=kind)
        for declared in (64, ["1", "2"]):
            encoder = TableEncoder({"c": declared})
            encoder.transform({"c": cells[:1]})
            for X in ({"c": cells}, {"c": list(cells)}, pd.DataFrame({"c": cells})):
                with pytest.raises(ValueError, match="row 2 is a float too large"):
                    encoder.transform(X)
        numbers = TableEncoder({"c": [0, 2**54]})
        assert np.array_equal(
            numbers.transform({"c": cells}), numbers.transform({"c": [limit - 1, limit]})
        )


def test_columns_are_found_by_name():
    encoder, own = TableEncoder(COLUMNS), records(30, 4)
    rows, table = encoder.transform(own), pd.DataFrame(own)
    assert np.array_equal(encoder.transform(table.iloc[:, ::-1].assign(further=1)), rows)
    assert encoder.counts(table) == encoder.counts(own)
    assert encoder.transform(table[:0]).shape == (0, rows.shape[1])
    shown = encoder.set_output(transform="pandas").transform(table)
    assert list(shown)[:2] == ["age=18", "age=42"]
    assert shown.index.equals(table.index)


@pytest.mark.kills("encoders/tables.py", "{_quoted(part.name)}=", "{part.name}=")
@pytest.mark.kills(
    "encoders/tables.py", "return days if len({*days})", "return days if True or ({*days})"
)
def test_feature_names_do_not_collide():
    columns = {
        "a": ["b=c", "c"],
        "a=b": ["c", "d"],
        '"a=b"': ["c", "d"],
        "d": ["2000-01-01", "2000-01-02"],
        "n": [0.1, 0.1 + 1e-7, ""],
    }
    names = TableEncoder(columns).get_feature_names_out().tolist()
    assert len({*names}) == len(names)
    assert names[:4] == ["a=b=c", "a=c", '"a=b"=c', '"a=b"=d']


@pytest.mark.kills("encoders/tables.py", "= float(amount) + self.rounding", "= float(amount)")
@pytest.mark.kills("encoders/tables.py", "_CLOSE, _LEAST = 2.0**-30", "_CLOSE, _LEAST = 2.0**-40")
def test_numbers_that_doubles_do_not_tell_apart():
    """Texts of more digits than a double holds are rounded apart by what the radius allows for."""
    high = 2**30 - 2
    encoder = TableEncoder({"v": [high, high + 1]}, knots=2)
    gap, little = Decimal(2) ** -23, Decimal(2) ** -40
    for i in range(1, 2**23, 2**20 + 7):
        middle = high + i * gap + gap / 2
        pair = encoder.transform({"v": [str(middle - little), str(middle + little)]})
        moved, stated = far(*pair[:, None])[0], encoder.radius({"v": float(2 * little)})
        assert moved <= stated
        assert encoder.hidden(stated)["v"] <= float(2 * little) * (1 + 1e-6)
    assert stated > 2.5e-7
    for low, step in ((2**53, 4), (2**53, 2**22), (1_700_000_000_000_000_000, 10**8), (-1e12, 1)):
        for marks in ([low, low + step], [low, low + step, low + 3 * step]):
            with pytest.raises(ValueError, match=r"columns\['v'\].*2\^-30"):
                TableEncoder({"v": marks}, knots=2).fit()


#: Cells of which most are not as declared, and what is declared.
UNLIKE = [
    (["ja", "nein"], ["Ja", "Nein"]),
    ([1, 0], [True, False]),
    ([216, 1080], [0, 120]),
    (["1950-01-01", "1930-05-06"], ["2000-01-01", "2025-12-31"]),
    ([None, ""], [0, 1]),
]


@pytest.mark.kills("encoders/tables.py", "n >= _FEW and part.is_odd", "False and part.is_odd")
@pytest.mark.parametrize(("cells", "declared"), UNLIKE)
@pytest.mark.filterwarnings("error::sklearn_balldp.encoders.UnknownCellsWarning")
def test_most_cells_that_are_not_as_declared_are_told(cells, declared):
    """With column and declaration; no cell, row or number of them, as logs keep it."""
    encoder = TableEncoder({"odd": declared, "even": [0, 1]})
    X = {"odd": [*cells * 6, None], "even": [1.0] * 13}
    with pytest.warns(UnknownCellsWarning, match="odd") as told:
        rows = encoder.transform(X)
    assert len(told) == 1
    said = str(told[0].message)
    assert encoder.examples["odd"] in said
    assert "even" not in said
    assert not re.search(r"\b(12|13|6)\b", said.replace(encoder.examples["odd"], ""))
    assert rows.shape[0] == 13
    assert told[0].filename == __file__
    counts = encoder.counts(X)
    assert encoder.mostly_unknown(counts, 13) == ["odd"]
    assert sum(counts["odd"]) >= 12
    # Of one record, or where missing cells are declared, there is nothing to say.
    encoder.transform({name: own[:1] for name, own in X.items()})
    TableEncoder({"odd": ["a", "b", ""]}).transform({"odd": [None] * 50})


def test_records_of_which_nothing_is_known():
    encoder = TableEncoder({"n": [0, 1], "c": ["a", "b"], "h": 8})
    X = {"n": [None, 0, 5, "NA"], "c": ["a", "z", "z", "z"], "h": ["", None, None, ""]}
    assert encoder.unknown_rows(X).tolist() == [3]


def test_missing_and_unknown_values():
    encoder = TableEncoder(
        {"n": [0, 30], "m": [0, 30, ""], "c": ["a", "b"], "d": ["a", ""], "h": 3}
    )
    odd = {"n": [None, 0], "m": ["NA", 0], "c": ["z", ""], "d": ["z", ""], "h": ["", "x"]}
    first, second = encoder.transform(odd).astype(float) * math.sqrt(5.0)
    half, third = math.sqrt(0.5), math.sqrt(1.0 / 3.0)
    np.testing.assert_allclose(
        first[:13], [0.5] * 4 + [0, 0, 0, 0, 1] + [half, half, 1, 0], atol=1e-6
    )
    np.testing.assert_allclose(first[13:], [third] * 3, atol=1e-6)
    np.testing.assert_allclose(second[4:13], [1, 0, 0, 0, 0, half, half, 0, 1], atol=1e-6)
    assert encoder.get_feature_names_out()[8:].tolist()[:5] == ["m=", "c=a", "c=b", "d=a", "d="]
    assert encoder.counts(odd)["c"] == (1, 1)


NO_DECLARATIONS = [
    *([3, 3], [5, 1], [0, 5, 5], [0, math.inf], [0, 5e-324], [-1.7e308, 1.7e308], [1], [1, ""]),
    *(["x"], [""], ["x", "x"], ["1", "1.0"], ["caf\u00e9", "cafe\u0301"], [1, "x"], [None, None]),
    *(["2020-01-01", "2019-01-01"], ["2020-02-30", "2021-01-01"], [], 1, 5000, 0.5, True, None),
    *({"holds": [0, 1], "decimal": ";"}, {"holds": [0, 1], "format": "%d.%m.%Y"}),
    *({"holds": ["a", "b"], "decimal": ","}, {"holds": 64, "decimal": ","}, {"decimal": ","}),
    {"holds": [0, 1], "further": 1},
    *(
        {"holds": ["2000-01-01", "2001-01-01"], "format": form}
        for form in ("%d.%m.%y", "%d%m%Y", "%d.%m", "%Y-%m-%d %H", "%d.%m.%Y %d", "", 7)
    ),
]


@pytest.mark.parametrize("declared", NO_DECLARATIONS)
def test_what_is_no_declaration(declared):
    with pytest.raises(ValueError, match=r"columns\['a'\]"):
        TableEncoder({"a": declared}).fit()


def test_other_mistakes_are_named():
    encoder = TableEncoder({"age": [18, 90], "sex": ["f", "m"]})
    for columns in ({}, [], None, ["age"]):
        with pytest.raises(ValueError, match="columns must be a mapping"):
            TableEncoder(columns).fit()
    for knots in (1, 65, 2.5):
        with pytest.raises(ValueError, match="knots"):
            TableEncoder({"age": [18, 90]}, knots=knots).fit()
    with pytest.raises(ValueError, match="forms of letters alone"):
        TableEncoder({"caf\u00e9": 8, "cafe\u0301 ": 8}).fit()
    with pytest.raises(ValueError, match="'age' in row 2 is no number such as") as told:
        encoder.transform({"age": ["30", "Miller"], "sex": ["f", "m"]})
    assert "Miller" not in repr(told.value)
    assert told.value.__context__ is None
    day = {"day": ["2000-01-01", "2001-01-01"]}
    for declared, cells, what in (
        ({"age": [18, 90]}, ("1_000", "\u0663", "0x10", [], b"\xff"), "number"),
        (day, ("1.2.2000", "2000-13-01", 3, np.int8(3), "2000-01-01x"), "date"),
        ({"sex": ["f", "m"]}, ([], {"a": 1}, ("f",), b"\xff"), "text"),
        ({"code": 64}, ([7], {7}, frozenset("7"), np.zeros(2), object()), "text"),
    ):
        for cell in cells:
            with pytest.raises(ValueError, match=f"row 1 is no {what}"):
                TableEncoder(declared).transform({next(iter(declared)): [cell]})
    # As an array too: a number of days would be a day of 1970.
    with pytest.raises(ValueError, match="row 1 is no date"):
        TableEncoder(day).transform({"day": np.array([3])})
    for X in ({"Age": [1], "sex": ["f"]}, pd.DataFrame({"Age": [1]}), [{"Age": 1}]):
        with pytest.raises(ValueError, match="no column 'age'"):
            encoder.transform(X)
    for X, match in (
        ({"age": [1, 2], "sex": ["f"]}, "differ in length"),
        (np.zeros((2, 2)), "by name"),
        ("age", "no column 'age'"),
        ({"age": "30", "sex": "f"}, "no single column"),
        (pd.DataFrame([[1, 2, "f"]], columns=["age", "age", "sex"]), "no single column"),
    ):
        with pytest.raises(ValueError, match=match):
            encoder.transform(X)
    for change, match in (
        ({}, "must name declared"),
        ({"x": 1}, "must name declared"),
        ({"sex": 1}, "pass None"),
        ({"age": 0}, "change"),
        (0, "change"),
        (3, "there are 2 columns"),
    ):
        with pytest.raises(ValueError, match=match):
            encoder.radius(change)


NUMBERS = st.decimals(-(10**6), 10**6, places=2) | st.integers(-(10**9), 10**9).map(Decimal)


def written(number):
    """A number as libraries hold it, and as people write it."""
    plain = f"{number:f}"
    more = f"{plain}0" if "." in plain else f"{plain}.0"
    held = [float(number), *([int(number)] if number == int(number) else [])]
    return held, [plain, more, f"{number:+f}", f"{number:E}", f" {plain}\u200b"]


@pytest.mark.kills("names.py", "if value == value.to_integral_value():", "if False:")
@PROPERTY
@given(st.lists(NUMBERS, min_size=2, max_size=2, unique=True).map(sorted))
def test_equal_numbers_are_one_cell_and_one_declaration(pair):
    (held, texts), (others, other_texts) = map(written, pair)
    for declared in (4096, [other_texts[0], texts[0]]):
        cells = [*held, *texts, pair[0], np.float64(pair[0])]
        rows = TableEncoder({"a": declared}).transform({"a": cells})
        assert (rows == rows[0]).all()
        assert declared == 4096 or rows[0].tolist() == [0.0, 1.0]
    for pairs in (product(held, others), product(texts, other_texts)):
        assert len({TableEncoder({"a": pair}).identity for pair in pairs}) == 1


def test_a_declaration_has_one_name():
    one = TableEncoder({"a": [0, 1], "b": ["false", "true"], "c": ["2000-01-01", "2001-01-01"]})
    days = [datetime.date(2000, 1, 1), datetime.datetime(2001, 1, 1, 5)]
    same = TableEncoder({"a": (0.0, 1), "b": [False, True], "c": days})
    assert one.identity == same.identity == clone(one).identity
    assert has_digest(one.identity)
    for columns in ({**one.columns, "a": [0, 2]}, dict(reversed(one.columns.items()))):
        assert TableEncoder(columns).identity != one.identity
    assert TableEncoder(one.columns, knots=5).identity != one.identity
    again = one.to_dict()
    assert TableEncoder(dict(again["columns"]), knots=again["knots"]).identity == one.identity


def test_scikit_learn_makes_the_same_cells():
    """The sine of a linear spline is the quarter circle; categories are a OneHotEncoder."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"age": rng.uniform(10, 100, 500), "sex": rng.choice(["f", "m"], 500)})
    knots = np.linspace(18, 90, 4)[:, None]
    spline = SplineTransformer(degree=1, knots=knots, extrapolation="constant")
    arcs = make_pipeline(spline, FunctionTransformer(lambda hats: np.sin(hats * np.pi / 2.0)))
    axes = OneHotEncoder(categories=[["f", "m"]], sparse_output=False)
    theirs = ColumnTransformer([("n", arcs, ["age"]), ("c", axes, ["sex"])]).fit_transform(X)
    ours = TableEncoder({"age": [18, 90], "sex": ["f", "m"]}).transform(X)
    assert np.abs(ours - theirs / math.sqrt(2.0)).max() < 1e-7


def test_bounds_of_the_public_table_are_declared_once():
    """The page of tables shows some of them."""
    assert [*BREAST_CANCER] == load_breast_cancer().feature_names.tolist()
    assert TableEncoder(BREAST_CANCER).fit().knots == 4
    page = (Path(__file__).parents[1] / "docs" / "tables.md").read_text(encoding="utf-8")
    shown = re.findall(r'"(mean [\w ]+)": (\[[^\]]+\])', page)
    assert len(shown) == 4
    assert {name: json.loads(ends) for name, ends in shown}.items() <= BREAST_CANCER.items()
