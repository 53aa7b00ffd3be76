"""No error quotes a cell: neither its message, nor any error that it was raised from or beside."""

from functools import cache, partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    RadiusPolicy,
    compose_releases,
)

SECRET = 0.1234567
WORD = "confidential"
ROWS = np.full((12, 3), SECRET)
LABELS = np.arange(12) % 2
HEADS = [
    BallDPRidgePrototype(),
    BallDPLogisticRegression(mechanism="output"),
    BallDPSquaredHingeSVC(radius=0.5, mechanism="output", fit_intercept=False),
]
POLICIES = [RadiusPolicy(source="declared"), RadiusPolicy(source="private", epsilon=1.0)]


def spoiled(cell, dtype=object):
    rows = ROWS.astype(dtype)
    rows[3, 1] = cell
    return rows


#: Rows that cannot be fitted, or predicted for.
BAD_ROWS = {
    "text": spoiled(WORD),
    "bytes": spoiled(WORD.encode()),
    "category": pd.DataFrame(spoiled(WORD)).astype("category"),
    "complex": ROWS + 1j,
    "one row": ROWS[:, 0],
    "number": np.array(SECRET),
    "nested": spoiled((SECRET, SECRET)),
    "record": spoiled({"name": WORD}),
    "NA": pd.DataFrame(spoiled(pd.NA)),
    "huge whole number": spoiled(10**400),
    "three axes": ROWS[None],
    "NaN": spoiled(np.nan, float),
    "infinity": spoiled(-np.inf, np.float32),
    "words of scikit-learn": [[f"{WORD} requires y to be passed", "1", "1"]] * 12,
    "none": ROWS[:0],
    "no features": ROWS[:, :0],
}
BAD_LABELS = {
    "None": np.array([None, WORD] * 6, dtype=object),
    "mixed": np.array([(WORD,), 1] * 6, dtype=object),
    "two columns": np.array([[WORD, WORD]] * 12),
    "continuous": ROWS[:, 0] * np.arange(12),
    "NaN": np.where(np.arange(12) == 3, np.nan, SECRET),
    "NA": pd.Series([WORD, pd.NA] * 6),
    "one number": np.array(SECRET),
    "short": [WORD] * 11,
}


def chain(error):
    """An error, and all that it was raised from or beside."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def assert_quotes_nothing(error):
    for link in chain(error):
        for text in (str(link), repr(link.args), *getattr(link, "__notes__", ())):
            assert WORD not in text
            assert "0.12" not in text
            assert "1000000" not in text


def refused(call, *arguments):
    with pytest.raises((ValueError, TypeError)) as caught:
        call(*arguments)
    assert_quotes_nothing(caught.value)
    return str(caught.value)


@cache
def fitted_once(estimator):
    return clone(estimator).fit(ROWS * np.linspace(1, 2, 12)[:, None], LABELS)


@pytest.mark.parametrize("estimator", HEADS + POLICIES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", BAD_ROWS)
def test_rows(estimator, kind):
    refused(estimator.fit, BAD_ROWS[kind], LABELS)
    assert not [name for name in vars(estimator) if name.endswith("_")]
    fitted = fitted_once(estimator)
    for name in ("predict", "decision_function", "predict_proba", "transform", "score"):
        if hasattr(fitted, name):
            more = [LABELS] if name == "score" else []
            refused(getattr(fitted, name), BAD_ROWS[kind], *more)


@pytest.mark.parametrize("estimator", HEADS + POLICIES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", BAD_LABELS)
def test_labels(estimator, kind):
    if estimator in HEADS:
        refused(type(estimator)(classes=[WORD[:3], WORD[3:]]).fit, ROWS, BAD_LABELS[kind])
    elif kind == "continuous":
        return  # a policy takes any labels that compare
    refused(estimator.fit, ROWS, BAD_LABELS[kind])


def test_public_rows_are_given_by_name():
    """A third argument would be taken for owners or weights: two rows of them, say."""
    for estimator in HEADS:
        with pytest.raises(TypeError, match="positional"):
            estimator.fit(ROWS, LABELS, LABELS)
    with pytest.raises(ValueError, match=r"fit\(X_public=rows, y_public=labels\)"):
        RadiusPolicy().fit(ROWS, LABELS)


def test_parameters_of_odd_types():
    rows = np.random.default_rng(0).standard_normal((12, 3))
    head = BallDPRidgePrototype(delta=1e-6, classes={0, 1}, verbose=0).fit(rows, LABELS)
    assert head.classes_.tolist() == [0, 1]
    planned = head.set_params(classes={0, 1}, protect_labels=True).plan(12, 3)
    assert planned.release.n_classes == 2
    head.set_params(protect_labels=False)
    assert head.set_params(classes={0: "a", 1: "b"}.keys(), verbose=0).fit(rows, LABELS)
    with pytest.raises(ValueError, match="1/10 for ten candidates"):
        head.release_.certificate(10)
    with pytest.raises(ValueError, match="of a fitted head pass release_"):
        compose_releases([head])


@pytest.mark.parametrize("depth", [0, 3])
def test_warnings_point_to_the_code_that_called(depth):
    rows = np.random.default_rng(0).standard_normal((12, 3))

    def call(job, deeper):
        return call(job, deeper - 1) if deeper else job()

    heads = [*HEADS, BallDPLinearDiscriminant(), BallDPLogisticRegression()]
    for head in (clone(plain).set_params(delta=0.5) for plain in heads):
        for job in (partial(head.fit, rows, LABELS), partial(head.plan, 12, 3, [6, 6])):
            with pytest.warns(UserWarning, match="is not below 1/n_samples") as caught:
                call(job, depth)
            assert {warning.filename for warning in caught} == {__file__}


def test_the_search_would_find_a_cell():
    """scikit-learn's own message quotes one: it stays the context of an error that hides it."""
    from sklearn.utils import check_array

    try:
        try:
            check_array(BAD_ROWS["text"])
        except ValueError:
            raise ValueError("X holds text") from None
    except ValueError as error:
        with pytest.raises(AssertionError):
            assert_quotes_nothing(error)
