"""Persons and their weights: what one substitution moves, and is released."""

import numpy as np
import pytest
from head_cases import HEADS, head_of, owners, refused, rows
from hypothesis import given
from hypothesis import strategies as st
from properties import PROPERTY
from sklearn.base import clone

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.heads.weighing import owners_of

#: Ways to write the owner of a number, by kind.
SPELLINGS = {
    "numbers as texts": ("{}", "{}.0", "00{}", "{}e+00", " {}"),
    "names": ("p{}", "p{} ", "\u200bp{}", "p{}\xa0"),
    "accents": ("Zo\xeb{}", "Zoe\u0308{}"),
    "bytes": (b"p%d", b"p%d "),
    "numbers": (int, float, np.float32),
    "numbers and texts": (int, str, float),
}


@PROPERTY
@given(
    kind=st.sampled_from(list(SPELLINGS)),
    owners=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9)), min_size=1),
)
def test_a_person_in_two_spellings_is_one(kind, owners):
    """Counted as two, each half would be hidden alone."""

    def written(number, way):
        way = SPELLINGS[kind][way % len(SPELLINGS[kind])]
        if callable(way):
            return way(number)
        return way % number if isinstance(way, bytes) else way.format(number)

    numbers = np.array([number for number, _ in owners])
    found = owners_of([written(*owner) for owner in owners], len(owners))
    assert set(found) == set(range(len(set(numbers))))
    np.testing.assert_array_equal(np.equal.outer(found, found), np.equal.outer(numbers, numbers))


@pytest.mark.parametrize("name", HEADS)
def test_equal_records_of_one_person_count_once(name):
    """n owners of m equal records give the model of n records, noise and all."""
    X, y = rows(120)
    head, sizes = head_of(name, epsilon=2.0, random_state=3), (1, 3)[: 1 + ("worst" not in name)]
    once = clone(head).fit(X, y)
    for m in sizes:
        groups = np.repeat(np.random.default_rng(0).permutation(120), m)
        often = clone(head).fit(np.repeat(X, m, axis=0), np.repeat(y, m), groups=groups)
        # Sums of several records of a person are in double precision, and need less noise for it.
        close = 1e-12 if m == 1 else 1e-9 if name.startswith("prototypes") else 2e-3
        for key, values in once.released_parameters().items():
            if key not in ("class_counts_", "counts", "classes_"):
                atol, other = close * np.abs(values).max(), often.released_parameters()[key]
                np.testing.assert_allclose(other, values, rtol=0.0, atol=atol)
        assert often.release_.sigma == pytest.approx(once.release_.sigma, rel=max(close, 1e-9))
        assert (often.release_.unit, once.release_.unit) == ("person", "record")
        assert often.release_.n_units == once.release_.n_units == 120
        assert often.release_.n_samples == 120 * m


# -- what is refused, and what is public ----------------------------------------------------------


def test_bad_groups_are_refused_before_anything_is_released():
    secret = "owner-of-everything"
    # Sets are ordered in part: sorted, equal ones need not be neighbours.
    sets = [frozenset({i % 7, 7 + i % 3}) for i in range(60)]
    for groups in (
        np.zeros(59),
        np.r_[np.nan, np.zeros(59)],
        np.array([None, *"a" * 59], dtype=object),
        np.zeros((60, 2)),
        np.array([*sets, None], dtype=object)[:60],
        np.array([secret, *np.arange(59)], dtype=object),
    ):
        for name in ("prototypes", "descent"):
            match = "groups (must name one owner|holds missing values)"
            refused(head_of(name), *rows(60), match, groups=groups)
    # No error quotes an owner.
    with pytest.raises(ValueError, match="groups") as caught:
        head_of("prototypes").fit(*rows(60), groups=groups)
    assert secret not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    with pytest.raises(TypeError, match="owners"):
        head_of("prototypes").fit(*rows(60), owners=np.zeros(60))


def test_counts_unused_go_with_one_record_a_person():
    X, y = rows(60)
    refused(head_of("prototypes", counts="worst"), X, y, "counts='worst'", groups=owners(y))
    head = head_of("prototypes", counts="worst").fit(X, y, groups=np.arange(60))
    assert head.release_.unit == "person"
    with pytest.warns(UserWarning, match="1/n_persons=0.0833"):
        head_of("prototypes", delta=0.1).fit(X, y, groups=np.repeat(np.arange(12), 5))


def test_priors_with_owners_start_from_the_weights_of_the_classes():
    """Class probabilities are shares of persons' weights, not of records."""
    X, y = rows(300)
    head = head_of("prototypes", epsilon=50.0)
    head.fit(X, y, groups=np.where(y == 0, 0, np.arange(300)))
    np.testing.assert_allclose(head.release_.problem.class_sizes, [1.0, 100.0, 100.0])
    assert (head.predict(X) == 0).mean() < 0.2


@pytest.mark.filterwarnings("ignore")
def test_all_records_may_be_of_one_person():
    """The largest weight is rounded up, and then exceeds their total by a rounding."""
    X = np.random.default_rng(0).standard_normal((12, 3))
    for n in (1, 3, 7, 12):
        y = np.arange(n) % 2 if n > 1 else np.array([0])
        head = BallDPRidgePrototype(radius=0.5, protect_labels=True, classes=[0, 1])
        head.fit(X[:n], y, groups=np.zeros(n))
        assert head.release_.n_units == 1
