"""Rows of declared columns: norm one, distances that no change exceeds, one spelling of a value."""

import datetime
import json
import math
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, SplineTransformer

from sklearn_balldp.datasets import BREAST_CANCER
from sklearn_balldp.encoder_name import has_digest
from sklearn_balldp.encoders import TableEncoder

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


def test_days_are_numbers():
    encoder = TableEncoder({"day": ["2000-01-01", "2010-01-01"]}, knots=2)
    first, last = encoder.transform({"day": ["2000-01-01", "2010-01-01"]})
    np.testing.assert_allclose([first, last], np.eye(2), atol=1e-7)
    days = [datetime.date(2003, 5, 6) + datetime.timedelta(i) for i in (0, 30)]
    moved = far(*encoder.transform({"day": days})[:, None])[0]
    assert moved == pytest.approx(encoder.radius({"day": 30}), abs=NEAR)


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
        (["true", "1", "0"], [True, 1, 1.0, "1", "True", -0.0, "1.0"], [0, 1, 1, 1, 0, 2, 1]),
        (["true", "0", "1"], [False, 0, "TRUE", np.True_, np.int8(1), np.float32(1)], None),
        (["1", "1.00"], [Decimal("1.0"), Decimal("1.00"), "1.00", 1], [0, 1, 1, 0]),
        (["2001-01-01", "2001-01-02"], [instant.astimezone(z) for z in (east, west)], None),
        (64, [7, "7", b"7", "7.0", 1e16, 10**16, np.float64(1e16)], [2] * 4 + [12] * 3),
        (64, ["7", "007", "7.00"], [2, 61, 14]),
        ([e, "b"], [combined, e, f"\u200b{e} ", "b"], [0, 0, 0, 1]),
        ([combined, "cafe"], [combined, e, "cafe"], [0, 0, 1]),
    ):
        encoder = TableEncoder({"a": declared})
        together = encoder.transform({"a": cells})
        assert places is None or together.argmax(axis=1).tolist() == places
        for order in (cells, cells[::-1]):
            alone = [encoder.transform({"a": [cell]}) for cell in order]
            assert np.array_equal(encoder.transform({"a": order}), np.concatenate(alone))


@pytest.mark.needs("polars", "pyarrow")
def test_tables_of_other_libraries():
    import polars as pl
    import pyarrow as pa

    columns = {name: COLUMNS[name] for name in ("age", "sex", "since", "zip", "smoker")}
    encoder = TableEncoder({**columns, "code": ["1", "2"]})
    own = {
        "age": [30, None, 95],
        "sex": ["f", None, "x"],
        "since": [datetime.date(2001, 2, 3), None, datetime.date(2030, 1, 1)],
        "zip": [10115, 3, 10115],
        "smoker": [True, None, False],
        "code": [1, None, 2],
    }
    rows, frame = encoder.transform(own), pd.DataFrame(own)
    texts = {name: ["" if v is None else str(v) for v in cells] for name, cells in own.items()}
    for X in (
        frame,
        frame.convert_dtypes(),
        frame.iloc[:, ::-1].assign(further=1),
        frame.assign(since=pd.to_datetime(own["since"]), sex=pd.Categorical(own["sex"])),
        pd.DataFrame(texts),
        {**texts, "age": np.ma.array([30, 7, 95], mask=[0, 1, 0])},
        texts,
        pl.DataFrame(own),
        pl.DataFrame({**own, "sex": pl.Series(own["sex"], dtype=pl.Categorical)}),
        pa.table(own),
        [dict(zip(own, cells, strict=True)) for cells in zip(*own.values(), strict=True)],
    ):
        assert np.array_equal(encoder.transform(X), rows), type(X)
    assert encoder.counts(frame)["age"] == encoder.counts(texts)["sex"] == (1, 1)
    assert encoder.transform(frame[:0]).shape == (0, rows.shape[1])
    shown = encoder.set_output(transform="pandas").transform(frame)
    assert list(shown)[:2] == ["age=18", "age=42"]
    assert shown.index.equals(frame.index)


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


def test_a_declaration_has_one_name():
    one = TableEncoder({"a": [0, 1], "b": ["false", "true"], "c": ["2000-01-01", "2001-01-01"]})
    same = TableEncoder(
        {
            "a": (0.0, np.int64(1)),
            "b": [False, True],
            "c": [datetime.date(2000, 1, 1), datetime.datetime(2001, 1, 1, 5)],
        }
    )
    assert one.identity == same.identity == clone(one).identity
    assert has_digest(one.identity)
    others = ({**one.columns, "a": [0, 2]}, dict(reversed(one.columns.items())))
    for columns in others:
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
