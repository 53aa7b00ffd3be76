"""What audits, checks and publishers ask of a head, and that they ask by public names."""

import numpy as np
import pytest
from head_cases import head_of, owners, rows

from sklearn_balldp.heads.inspection import fit_with_answers, records_of


@pytest.mark.parametrize(
    ("name", "params", "weighted"),
    [
        ("prototypes", {}, True),
        ("descent", {}, False),
        ("discriminant", {"protect_labels": True, "classes": [0, 1, 2]}, False),
    ],
)
def test_records_are_those_of_the_fit(name, params, weighted):
    X, y = rows()
    given = {"groups": owners(y)} if weighted else {}
    head = head_of(name, delta=1e-4, **params).fit(X, y, **given)
    records = records_of(head, X, y, **given)
    np.testing.assert_array_equal(records.X, X)
    np.testing.assert_array_equal(head.classes_[records.codes], y)
    assert (records.weights is not None) == weighted
    for n in (299, 301):
        some = np.arange(n) % 300
        with pytest.raises(ValueError, match=rf"X has {n} records, .* fitted on 300: pass all"):
            records_of(head, X[some], y[some], **given)
    with pytest.raises(ValueError, match="labels that the released model does not know"):
        records_of(head, X, y + 1, **given)
    if not head.protect_labels:
        with pytest.raises(ValueError, match="y contradicts the public class counts"):
            records_of(head, X, np.r_[y[:-1], 0], **given)
    others = {} if weighted else {"groups": owners(y)}
    with pytest.raises(ValueError, match="groups: they are not those of the fit"):
        records_of(head, X, y, **others)


@pytest.mark.parametrize("name", ["descent", "prototypes"])
def test_a_fit_with_answers_is_a_fit(name):
    """The head keeps what a fit of its own keeps, and nothing after an error."""
    (X, y), descends = rows(), name == "descent"
    head = head_of(name, **({"mechanism__keep_transcript": False} if descends else {}))
    released = fit_with_answers(head, X, y)
    assert len(released.answers) > descends
    assert head.released_.answers == (() if descends else released.answers)
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit_with_answers(head, np.where(X[3, 4] == X, np.nan, X), y)
    assert not set(vars(head)) - set(head.get_params(deep=False))
