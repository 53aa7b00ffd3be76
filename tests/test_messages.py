"""No error quotes a cell: neither its message, nor any error that it was raised from or beside."""

import numpy as np
import pandas as pd
import pytest

from sklearn_balldp import (
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
    BallDPSquaredHingeSVC(mechanism="output", fit_intercept=False),
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
    if isinstance(estimator, RadiusPolicy) and kind == "continuous":
        pytest.skip("a policy takes any labels that compare")
    refused(estimator.fit, ROWS, BAD_LABELS[kind])
    declared = {"classes": [WORD[:3], WORD[3:]]}
    if not isinstance(estimator, RadiusPolicy):
        refused(type(estimator)(**declared).fit, ROWS, BAD_LABELS[kind])


def test_none_among_labels_has_a_message_of_its_own():
    for labels in (BAD_LABELS["None"], BAD_LABELS["list with None"]):
        assert refused(BallDPRidgePrototype().fit, ROWS, labels).startswith("y holds None")


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


@pytest.mark.parametrize("head", HEADS, ids=lambda e: type(e).__name__)
def test_finite_rows_beyond_double_precision_are_projected(head):
    """A longdouble that float64 cannot hold is a long row, not an infinite one."""
    rows = ROWS.astype(np.longdouble) * np.linspace(1, 2, 12)[:, None]
    rows[3, 1] = np.longdouble("1e400")
    fitted = head.fit(rows, LABELS)
    unit = np.zeros((1, 3))
    unit[0, 1] = 1.0
    np.testing.assert_allclose(
        fitted.decision_function(rows[3:4]), fitted.decision_function(unit), rtol=1e-6
    )
    policy = RadiusPolicy(source="declared").fit(rows, LABELS)
    np.testing.assert_allclose(policy.transform(rows)[3], unit[0], atol=1e-12)
