"""No error quotes a cell: neither its message, nor any error that it was raised from or beside."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    RadiusPolicy,
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
POLICIES = [RadiusPolicy(source="declared")]


def spoiled(cell, dtype=object):
    rows = ROWS.astype(dtype)
    rows[3, 1] = cell
    return rows


#: Rows that cannot be fitted, or predicted for.
BAD_ROWS = {
    "text": spoiled(WORD),
    "bytes": spoiled(WORD.encode()),
    "list of text": [[WORD, WORD, WORD]] * 12,
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
    "infinite longdouble": spoiled(np.inf, np.longdouble),
    "half NaN": spoiled(np.nan, np.float16),
    "words of scikit-learn": [[f"{WORD} requires y to be passed", "1", "1"]] * 12,
    "none": ROWS[:0],
    "no features": ROWS[:, :0],
}
BAD_LABELS = {
    "None": np.array([None, WORD] * 6, dtype=object),
    "list with None": [None, WORD] * 6,
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


@pytest.mark.parametrize("estimator", HEADS + POLICIES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", BAD_ROWS)
def test_rows(estimator, kind):
    refused(estimator.fit, BAD_ROWS[kind], LABELS)
    assert not [name for name in vars(estimator) if name.endswith("_")]
    fitted = type(estimator)(**estimator.get_params()).fit(
        ROWS * np.linspace(1, 2, 12)[:, None], LABELS
    )
    for name in ("predict", "decision_function", "predict_proba", "transform", "score"):
        if hasattr(fitted, name):
            more = [LABELS] if name == "score" else []
            refused(getattr(fitted, name), BAD_ROWS[kind], *more)


@pytest.mark.parametrize("estimator", HEADS + POLICIES, ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("kind", BAD_LABELS)
def test_labels(estimator, kind):
    """A policy takes any labels that compare."""
    if estimator in HEADS:
        declared = type(estimator)(classes=[WORD[:3], WORD[3:]])
        refused(declared.fit, ROWS, BAD_LABELS[kind])
    if estimator in HEADS or kind != "continuous":
        refused(estimator.fit, ROWS, BAD_LABELS[kind])


@pytest.mark.needs("torch")
def test_what_is_said_of_tensors():
    import torch

    rows = torch.tensor(np.random.default_rng(0).standard_normal((12, 3)))
    head = BallDPRidgePrototype()
    assert "X.detach()" in refused(head.fit, rows.clone().requires_grad_(), LABELS)
    assert "X.float()" in refused(head.fit, rows.bfloat16(), LABELS)


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
    """scikit-learn's own message quotes one, and so does the context of an error that hides it."""
    from sklearn.utils import check_array

    with pytest.raises(ValueError, match=WORD) as caught:
        check_array(BAD_ROWS["text"])
    with pytest.raises(AssertionError):
        assert_quotes_nothing(caught.value)
    try:
        try:
            check_array(BAD_ROWS["text"])
        except ValueError:
            raise ValueError("X holds text") from None
    except ValueError as error:
        with pytest.raises(AssertionError):
            assert_quotes_nothing(error)


def test_sparse_rows_are_refused_with_a_way_that_keeps_the_promise():
    rows = scipy.sparse.csr_array(np.eye(12, 3))
    for estimator in (*HEADS, *POLICIES):
        with pytest.raises(ValueError, match="DenseRows") as caught:
            estimator.fit(rows, LABELS)
        assert ".toarray()" not in str(caught.value)


@pytest.mark.parametrize(
    ("radius", "given"),
    [
        (0.5, {"X_public": ROWS, "y_public": LABELS}),
        (0.5, {"X_public": "nonsense"}),
        (None, {"y_public": LABELS}),
        (RadiusPolicy(source="declared"), {"X_public": ROWS, "y_public": LABELS}),
        (RadiusPolicy(), {"X_public": ROWS}),
        (RadiusPolicy(), {"y_public": LABELS}),
    ],
)
def test_public_rows_that_nothing_uses_are_refused(radius, given):
    """Whoever mistypes a policy is told; a third argument would be taken for owners or weights."""
    head = BallDPRidgePrototype(radius=radius)
    with pytest.raises(TypeError, match="positional"):
        head.fit(ROWS, LABELS, LABELS)
    with pytest.raises(ValueError, match=r"X_public and y_public (are for|go together)"):
        head.fit(ROWS, LABELS, **given)
    assert not hasattr(head, "release_")
