"""Edits of texts: what is changed, what is left alone, and the radius that covers them."""

import json
import re
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import chisquare
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from verdicts import verified

from sklearn_balldp import BallDPLinearDiscriminant, BallDPRidgePrototype, RadiusPolicy, publish
from sklearn_balldp.distances import edit_quantile
from sklearn_balldp.edits import CITIES, KINDS, NAMES, edit_pairs
from sklearn_balldp.privacy import Release
from sklearn_balldp.privacy.origins import Edits

TEXTS = [
    "Anna lost her card in Paris on 3 May and paid 120.50 euros",
    "Peter moved to Berlin, the invoice of 2024-03-12 says 7 items",
    "On Tuesday the transfer of 4,000 failed; David asked again on March 3, 2021",
    "nothing to see here",
]


def finds(pattern, label="ORG"):
    """A pipeline like spaCy's, which finds the entities of a pattern."""

    def nlp(text):
        spans = [match.span() for match in re.finditer(pattern, text)]
        ents = [SimpleNamespace(label_=label, start_char=a, end_char=b) for a, b in spans]
        return SimpleNamespace(ents=ents)

    return nlp


@pytest.mark.parametrize("kind", KINDS)
def test_one_place_is_changed_into_another_of_its_kind(kind):
    pairs = edit_pairs(TEXTS, kinds=[kind], n_per_text=3, random_state=1)
    assert set(pairs.kind) == {kind}
    assert pairs == edit_pairs(iter(TEXTS), kind, n_per_text=3, random_state=1)
    # Equal texts are one record.
    again = edit_pairs([*TEXTS, *TEXTS], iter([kind]), random_state=7)
    assert [TEXTS[record] for record in again.record] == again.before
    for before, after in zip(pairs.before, pairs.after, strict=True):
        assert before in TEXTS
        assert before != after
        same = [a == b for a, b in zip(before, after, strict=False)]
        same_at_end = [a == b for a, b in zip(before[::-1], after[::-1], strict=False)]
        start, tail = same.index(False), same_at_end.index(False)
        changed = after[start : len(after) - tail]
        if kind == "number":
            assert len(before) == len(after)
            assert re.fullmatch(r"[\d.,]+", changed)
            # Numbers of dates are dates.
            assert "2024-03-12" in after or "2024-03-12" not in before
        if kind == "name":
            assert sum(name in after for name in NAMES) == sum(name in before for name in NAMES)
        if kind == "city":
            assert sum(city in after for city in CITIES) == 1


def test_dates_keep_their_form():
    forms = ["2024-03-12", "12/03/2024", "3 May", "12 March 2024", "March 3, 2021", "Tuesday"]
    for form in forms:
        for after in edit_pairs([f"on {form} it was"], ["date"], n_per_text=20).after:
            shape = re.sub(r"[A-Z][a-z]+", "M", re.sub(r"\d{4}", "Y", form))
            other = re.sub(r"[A-Z][a-z]+", "M", re.sub(r"\d{4}", "Y", after[3:-7]))
            assert re.sub(r"\d+", "n", shape) == re.sub(r"\d+", "n", other)


def test_lists_of_ones_own_and_entities():
    """Of an entity that a model finds once, every other place is edited too."""
    sick = ["patient has asthma", "a case of type 2 diabetes"]
    values = {"diagnosis": ["asthma", "diabetes", "type 2 diabetes"]}
    pairs = edit_pairs(sick, kinds=[], lists=values, n_per_text=8)
    assert set(pairs.kind) == {"diagnosis"}
    assert not any("type 2 asthma" in text for text in pairs.after)
    for texts, pattern, after in (
        *[
            (
                ["Acme Ltd called", "we owe Bolt Ltd money"],
                "[A-Z][a-z]+ Ltd",
                ["Bolt Ltd called", "we owe Acme Ltd money"],
            )
        ],
        *[
            (
                ["Acme sued Bolt; Acme lost.", "Bolt paid Acme"],
                "^[A-Z][a-z]+",
                ["Bolt sued Bolt; Bolt lost.", "Acme paid Acme"],
            )
        ],
    ):
        pairs = edit_pairs(texts, kinds=(), nlp=finds(pattern))
        assert (pairs.kind, pairs.after) == (["ORG", "ORG"], after)


def test_entities_take_no_place_of_a_kind():
    """spaCy has a label DATE, whose dates are not all that the kind date knows."""
    texts = ["paid 3 May here", "met 7 May then", "on 2024-03-12 nothing"]
    same, other = finds(r"\d May", "date"), finds(r"\d May", "DATE")
    with pytest.raises(ValueError, match="nlp: its label 'date' is the name of a kind"):
        edit_pairs(texts, ["date"], nlp=same)
    assert edit_pairs(texts, [], nlp=same).kind == ["date", "date"]
    pairs = edit_pairs(texts, ["date"], nlp=other)
    assert pairs.kind == ["date", "DATE", "date", "DATE", "date"]
    assert re.fullmatch(r"on \d{4}-\d\d-\d\d nothing", pairs.after[-1])
    assert edit_pairs(texts, ["date"]).before == texts


def test_other_words_are_drawn_evenly():
    """Each of the other words of the texts, in any case, is as likely as the next."""
    texts = ["One two three", "ONE four five six"]
    pairs = edit_pairs(texts, ["word"], n_per_text=6000, random_state=0)
    words, counts = ["one", "two", "three", "four", "five", "six"], np.zeros((6, 6))
    for before, after in zip(pairs.before, pairs.after, strict=True):
        versions = zip(before.lower().split(), after.lower().split(), strict=True)
        [(old, new)] = [pair for pair in versions if pair[0] != pair[1]]
        counts[words.index(old), words.index(new)] += 1
    assert counts.sum() == 12_000
    for old, row in enumerate(counts):
        assert row[old] == 0
        assert chisquare(np.delete(row, old)).pvalue > 1e-6
    # A word that has no other is left as it is; a capital stays.
    assert edit_pairs(["Bob bob", "bob"], ["number", "word"], lists={"x": ["bob", "Al"]}).kind == [
        *("x", "x")
    ]
    many = [" ".join(f"{a}{b}{c}" for c in "abcdef") for a, b in product("abcdefgh", repeat=2)]
    assert len(edit_pairs(many * 20, ["word"])) == 20 * len(many)


@pytest.mark.parametrize(
    ("texts", "options", "message"),
    [
        ("one text", {}, "sequence of strings"),
        ([1, 2], {}, "sequence of strings"),
        (TEXTS, {"lists": {"colour": "red"}}, r"lists\['colour'\] must hold at least two values"),
        (TEXTS, {"kinds": ["colour"]}, "kinds: 'colour' is none of number, date"),
        (TEXTS, {"lists": {"colour": ["red"]}}, "at least two values"),
        (TEXTS, {"n_per_text": 0}, "n_per_text"),
        (["aa bb"], {}, "nothing to edit"),
    ],
)
def test_errors(texts, options, message):
    with pytest.raises(ValueError, match=message):
        edit_pairs(texts, **options)


# The radius ---------------------------------------------------------------------------------------


def edited(n=400, seed=0):
    """Unit rows, and what edits made of them, within the unit ball."""
    rng = np.random.default_rng(seed)
    X = unit(rng.standard_normal((n, 6)))
    after = X + rng.exponential(0.1, n)[:, None] * rng.standard_normal((n, 6)) / np.sqrt(6)
    return X, after / np.maximum(np.linalg.norm(after, axis=1, keepdims=True), 1.0)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def private():
    return edited(300, 1)[0], np.arange(300) % 3


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "chebyshev"])
@pytest.mark.parametrize("quantile", [0.0, 0.5, 0.95, 0.953, 1.0])
def test_the_radius_covers_that_share_and_no_smaller_one_does(quantile, metric):
    before, after = edited()
    order = {"euclidean": 2, "manhattan": 1, "chebyshev": np.inf}[metric]
    distances = np.linalg.norm(before - after, ord=order, axis=1)
    radius, share, _ = edit_quantile(before, after, quantile, metric=metric)
    assert share == np.mean(distances <= radius) >= quantile
    assert np.isclose(distances, radius, rtol=0, atol=1e-12).any()
    assert np.mean(distances < radius - 1e-12) < max(quantile, 1e-12) + 1e-12


def test_the_release_says_what_it_hides(private):
    before, after = edited()
    X, y = private
    policy = RadiusPolicy(0.951, source="edits")
    head = BallDPLinearDiscriminant(4.0, radius=policy)
    release = head.fit(X, y, X_public=before, y_public=after).release_
    assert isinstance(release.radius_from, Edits)
    assert release.private is True
    assert release.radius_from.n == 400
    assert 0.951 <= release.radius_from.share < 0.96
    assert "95.2 % of the 400 given edits" in publish.summary(release)
    assert "which covers 95.2 % of the 400 given edits" in str(publish.card(release))
    assert "95.2 % of the 400 given edits" in str(verified(head))
    assert Release.from_dict(release.to_dict()) == release
    frozen = FrozenEstimator(policy.fit(before, after))
    own = BallDPRidgePrototype(4.0, radius=frozen, protect_labels=True, classes=range(3))
    again = own.fit(X, y).release_
    assert (again.radius, again.radius_from) == (release.radius, release.radius_from)


@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_edits_are_measured_in_the_heads_domain(domain):
    """Rows longer than the ball, so that both domains have the same."""
    rng = np.random.default_rng(0)
    before = 10.0 * rng.standard_normal((60, 5))
    after = before + 0.5 * rng.standard_normal((60, 5))
    policy = RadiusPolicy(0.95, source="edits")
    head = BallDPLinearDiscriminant(delta=1e-3, radius=policy, domain=domain, norm_bound=2.0)
    release = head.fit(before, np.arange(60) % 2, X_public=before, y_public=after).release_
    distances = 2.0 * np.linalg.norm(unit(before) - unit(after), axis=1)
    assert release.radius == pytest.approx(np.sort(distances)[56], rel=1e-6)
    assert release.radius_from.share == pytest.approx(57 / 60)


def test_what_is_no_pair_is_refused(private):
    before, after = edited(20)
    policy = RadiusPolicy(0.9, source="edits")
    head = BallDPRidgePrototype(4.0, 1e-3, radius=policy)
    for wrong in (np.arange(20), None, after[:10]):
        with pytest.raises(ValueError, match="edits"):
            policy.fit(before, wrong)
        with pytest.raises(ValueError, match=r"edits|go together"):
            head.fit(*private, X_public=before, y_public=wrong)
    for fit in (policy.fit, lambda: head.fit(*private)):
        with pytest.raises(ValueError, match="edits"):
            fit()
    with pytest.raises(ValueError, match="zero: too many edits"):
        policy.fit(before, before)
    assert not hasattr(head, "release_")
    assert not hasattr(policy, "radius_")


def test_a_value_is_replaced_wherever_the_text_has_it():
    """A second Paris would name the city that the first one hides."""
    text = (
        "Paris to London: from Paris at 10:30, train 12 of 3 May, PARIS on 12 May, 12 seats, paris."
    )
    for seed in range(30):
        pairs = edit_pairs([text], kinds=("city", "number"), random_state=seed)
        for after, kind in zip(pairs.after, pairs.kind, strict=True):
            if kind == "city":
                assert (after.count("Paris") == 0) != (after.count("London") == 0)
            else:
                assert "12 May" in after
                assert after.count(" 12 of") == after.count(" 12 seats")


@pytest.mark.kills(
    "distances.py",
    "number = np.unique(checked_records(record, len(before)), return_inverse=True)[1]",
    "number = np.unique(before, axis=0, return_inverse=True)[1].ravel()",
)
def test_records_are_covered_where_all_of_their_pairs_are():
    before = np.repeat(np.eye(4)[:3], 4, axis=0)
    gaps = np.array([0.1, 0.1, 0.1, 0.5, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.3])
    after = before * (1 - gaps[:, None])
    numbers = {"record": [4, 4, 4, 4, 9, 9, 9, 9, 0, 0, 0, 0]}
    shares = pytest.approx(10 / 12), pytest.approx(1 / 3)
    assert edit_quantile(before, after, 0.6, **numbers)[1:] == shares
    radius, pairs, records = edit_quantile(before, after, 0.6, coverage="records", **numbers)
    assert (radius, pairs, records) == pytest.approx((0.3, 11 / 12, 2 / 3))
    y = np.arange(12) % 2
    # An encoder that runs in batches rounds the same text in many ways.
    rounded = before + 1e-9 * np.random.default_rng(0).standard_normal(before.shape)
    for rows, coverage in product((before, rounded), ("pairs", "records")):
        policy = RadiusPolicy(0.6, source="edits", coverage=coverage).fit(rows, after, **numbers)
        head = BallDPRidgePrototype(radius=FrozenEstimator(policy), delta=1e-3)
        release = head.fit(before, y).release_
        share = "33.3 %" if coverage == "pairs" else "66.6 %"
        said = f"given edits, and all of them for {share} of the records"
        assert said in publish.summary(release)
        assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release
        assert not verified(head).failed
        within = np.linalg.norm(rows - after, axis=1) <= release.radius + 1e-8
        assert release.radius_from.share == pytest.approx(within.mean())
        whole = within.reshape(3, 4).all(axis=1)
        assert release.radius_from.share_of_records == pytest.approx(whole.mean())


def test_without_numbers_nothing_is_said_of_records():
    before, after = edited(40)
    y = np.arange(40) % 2
    policy = RadiusPolicy(0.6, source="edits")
    head = BallDPRidgePrototype(radius=policy, delta=1e-3)
    release = head.fit(before, y, X_public=before, y_public=after).release_
    assert release.radius_from.share_of_records is None
    assert policy.fit(before, after).choice_.origin.share_of_records is None
    for text in (publish.summary(release), str(publish.card(release)), str(verified(head))):
        assert "given edits" in text
        assert "all of them for" not in text
    policy.set_params(coverage="records")
    for fit in (
        lambda: policy.fit(before, after),
        lambda: clone(head).fit(before, y, X_public=before, y_public=after),
    ):
        with pytest.raises(ValueError, match=r"coverage='records' needs .*record=pairs\.record"):
            fit()
    for wrong in (np.arange(39), np.arange(40.0), [["a"]] * 40):
        with pytest.raises(ValueError, match="record must hold a whole number"):
            policy.fit(before, after, record=wrong)
    with pytest.raises(ValueError, match="record is for source='edits'"):
        RadiusPolicy(source="declared").fit(before, y, record=np.arange(40))
    assert not hasattr(policy, "radius_")


def test_labels_that_the_head_does_not_have_decide_no_radius():
    rng = np.random.default_rng(0)
    X, y = 0.1 * rng.standard_normal((80, 4)), np.arange(80) % 2
    far = np.vstack([X, [[0.9, 0, 0, 0], [-0.9, 0, 0, 0]]])
    labels = np.r_[y, 7, 7]
    head = BallDPRidgePrototype(radius=RadiusPolicy(0.5), delta=1e-3)
    own = head.fit(X, y, X_public=X, y_public=y).release_.radius
    assert head.fit(X, y, X_public=far, y_public=labels).release_.radius == own
    with pytest.raises(ValueError, match="y_public holds no label of the head"):
        head.fit(X, y, X_public=far[-2:], y_public=labels[-2:])
    with pytest.warns(UserWarning, match="the classes 7 have fewer than 5 rows"):
        assert RadiusPolicy(0.5).fit(X_public=far, y_public=labels).radius_ > 2 * own
