"""Public records are examples of the classes: what a fit, a plan, an audit and a folder make of
them, and that no private record has a part in it."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import GridSearchCV, cross_validate
from verdicts import failed, line, verified

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    PrivacyAccountant,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.mechanisms import Examples, MeanGradient, Mechanism
from sklearn_balldp.privacy import Promised, Release
from sklearn_balldp.publish import card, load, save, summary

D, K = 6, 3
VECTORS = np.eye(K, D)
STEPS = GradientPerturbation(n_steps=3, start="statistics", keep_transcript=True)
HEADS = {
    "logistic": BallDPLogisticRegression(mechanism=STEPS),
    "SVC": BallDPSquaredHingeSVC(mechanism=STEPS),
    "discriminant": BallDPLinearDiscriminant(share=0.5),
}
HIDDEN = {"protect_labels": True, "classes": range(K), "radius": None}
each_head = pytest.mark.parametrize("name", HEADS)


def head_of(name, **params):
    return clone(HEADS[name]).set_params(**{"delta": 1e-4, "radius": 0.5, **params})


def records(n, seed=0, size=0.6):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % K
    return size * (np.eye(K, D)[y] + 0.4 * rng.standard_normal((n, D))), y


def public(n, seed=1, **given):
    return dict(zip(("X_public", "y_public"), records(n, seed, **given), strict=True))


def arrays_of(head):
    return head.released_.settings.examples.arrays()


def assert_same(arrays, others):
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, others[name], strict=True)


# -- no private record has a part in them ---------------------------------------------------------

ROWS, LABELS = records(90)
#: Public sets, of the private records too: all of them, all but for one, and few.
SETS = {
    "the private records": (ROWS, LABELS),
    "the private records but for one": (np.r_[ROWS[:89], -ROWS[89:]], np.r_[LABELS[:89], 0]),
    "one record": (ROWS[:1], LABELS[:1]),
    "one class": (ROWS[LABELS == 1], LABELS[LABELS == 1]),
    "names": None,
}


@pytest.mark.kills(
    "heads/base.py",
    "self._public(X_public, y_public, self.classes_)",
    "self._public(X_public, y_public, np.unique(targets))",
)
@pytest.mark.kills(
    "heads/base.py",
    "self._public(X_public, y_public, self.classes_)",
    "self._public(X_public, y_public, self.classes_[: len(rows)])",
)
@pytest.mark.kills(
    "heads/base.py",
    "known = codes >= 0",
    "known = (codes >= 0) & (np.arange(len(codes)) != 89)",
)
@pytest.mark.kills(
    "heads/base.py",
    "self._pledge(rows.shape, labels,",
    "self._pledge(np.unique(rows, axis=0).shape, labels,",
)
@each_head
@pytest.mark.parametrize("known", SETS)
@pytest.mark.parametrize("hidden", [{}, HIDDEN])
def test_private_records_decide_nothing(name, known, hidden):
    """Rows, labels, counts and, where labels are hidden, which classes occur: all may be others.

    Nothing compares the two sets either, and the noise is that of as many records.
    """
    head, given, expected = head_of(name, delta=1e-9, **hidden), {}, Examples.of_vectors(VECTORS)
    if known == "names":
        head.set_params(class_embeddings=VECTORS)
    else:
        given = dict(zip(("X_public", "y_public"), SETS[known], strict=True))
        expected = Examples.of(*SETS[known], K)
    bound = head.fit(ROWS, LABELS, **given).release_.bound
    as_many = [(-ROWS, np.roll(LABELS, 1)), (np.zeros_like(ROWS), LABELS)]
    others = [(ROWS[:45], LABELS[:45]), (np.r_[ROWS, ROWS[LABELS == 0]], [*LABELS] + [0] * 30)]
    if hidden:
        as_many += [(ROWS, np.zeros(90, dtype=int))]
        others = [(ROWS[:1], LABELS[:1])]
    for private in as_many + others:
        head.fit(*private, **given)
        held = head.released_.settings.known(head.released_.problem)
        assert_same(held.arrays(), expected.arrays())
        assert head.release_.examples == (0 if known == "names" else expected.total)
        assert len(private[0]) != 90 or head.release_.bound == bound


@pytest.mark.kills(
    "mechanisms/examples.py",
    "rows_in_domain(np.array(X, dtype=np.float64), norm_bound, domain)",
    "np.array(X, dtype=np.float64)",
)
@each_head
@pytest.mark.parametrize("domain", ["ball", "sphere"])
def test_rows_beyond_the_domain_are_brought_into_it(name, domain):
    X, y = records(90)
    head = head_of(name, domain=domain, norm_bound=0.5)
    far = arrays_of(head.fit(X, y, **public(30, size=50.0)))
    assert (np.linalg.norm(far["means"], axis=1) <= 1.0 + 1e-12).all()
    for array, other in zip(
        far.values(), arrays_of(head.fit(X, y, **public(30, size=90.0))).values(), strict=True
    ):
        np.testing.assert_allclose(array, other, rtol=1e-6, atol=1e-9)


# -- what a fit takes -----------------------------------------------------------------------------

SIZES = {
    "two classes": (np.arange(30) % 2, [0, 1], 0),
    "one record": (np.array([1]), [0, 1, 2], 0),
    "one of each of two classes": (np.array([0, 1]), [0, 1], 0),
    "none of a class": (np.arange(20) % 2, [0, 1, 2], 0),
    "of other classes too": (np.arange(20) % 5, [0, 1, 2], 8),
    "as many as private records": (np.arange(90) % 3, [0, 1, 2], 0),
    "many": (np.arange(10_000) % 3, [0, 1, 2], 0),
}


@pytest.mark.parametrize("name", ["logistic", "discriminant"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("hidden", [{}, HIDDEN])
def test_sets_of_every_size(name, size, hidden):
    (labels, classes, n_left_out), (X, y) = SIZES[size], records(90)
    X, y = X[y < len(classes)], y[y < len(classes)]
    head = head_of(name, **(hidden and {**hidden, "classes": classes}))
    rows = records(len(labels), seed=2)[0]
    head.fit(X, y, X_public=rows, y_public=labels)
    kept = arrays_of(head)
    expected = np.bincount(labels, minlength=len(classes))[: len(classes)]
    np.testing.assert_array_equal(kept["counts"], expected)
    assert head.release_.examples == len(labels) - n_left_out
    assert {n: a.shape for n, a in kept.items()} == Examples.shapes(len(classes), D)
    verdict = verified(head, private=(X, y))
    assert not failed(verdict)
    assert f"{head.release_.examples} examples" in line(verdict, "public examples").found


X, Y = records(60)


def test_a_search_cuts_as_many_as_there_are_private_records():
    with sklearn.config_context(enable_metadata_routing=True):
        head = head_of("discriminant").set_fit_request(X_public=True, y_public=True)
        given = {"params": {"X_public": X, "y_public": Y}, "cv": 3, "return_estimator": True}
        fitted = cross_validate(head, X, Y, **given)["estimator"]
    assert [one.release_.examples for one in fitted] == [40, 40, 40]


BAD = {
    "sparse": ({"X_public": scipy.sparse.csr_array(X), "y_public": Y}, "X_public: X is sparse"),
    "NaN": ({"X_public": np.full((3, D), np.nan), "y_public": [0, 1, 2]}, "X_public: Input X"),
    "width": ({"X_public": X[:, :4], "y_public": Y}, "X_public: X has 4 features"),
    "lengths": ({"X_public": X, "y_public": Y[:9]}, "X_public: Found input variables"),
    "missing labels": ({"X_public": X[:2], "y_public": [0, None]}, "X_public: y holds missing"),
    "other classes": ({"X_public": X, "y_public": Y + 7}, "y_public holds no label of the head"),
    "other types": ({"X_public": X, "y_public": Y.astype(str)}, "y_public holds no label"),
    "no labels": ({"X_public": X}, "X_public and y_public go together"),
    "no rows": ({"y_public": Y}, "X_public and y_public go together"),
    "empty": ({"X_public": X[:0], "y_public": Y[:0]}, "X_public: Found array with 0 sample"),
}
UNUSED = {
    "prototypes": BallDPRidgePrototype(delta=1e-4),
    "output": BallDPLogisticRegression(delta=1e-4, mechanism="output"),
    "SVC output": BallDPSquaredHingeSVC(delta=1e-4, mechanism="output"),
}


@pytest.mark.kills("heads/base.py", "if not (chooses or helps):", "if False:")
@pytest.mark.parametrize("radius", [0.5, RadiusPolicy(source="declared")])
@pytest.mark.parametrize("case", [*BAD, *UNUSED])
def test_what_is_refused_is_not_charged(case, radius):
    """Not even the radius, which reads private rows."""
    given, match = BAD.get(
        case, ({"X_public": X, "y_public": Y}, "for examples, which mechanism (proto|output)")
    )
    accountant = PrivacyAccountant()
    head = clone(UNUSED[case]) if case in UNUSED else head_of("logistic")
    head.set_params(radius=radius, accountant=accountant)
    with pytest.raises(ValueError, match=match):
        head.fit(X, Y, **given)
    assert not [attribute for attribute in vars(head) if attribute.endswith("_")]
    assert accountant.total().n_releases == 0
    if radius == 0.5:
        features = "X_public has 4 features" if case == "width" else match
        with pytest.raises(ValueError, match=features):
            head.plan(60, D, [20, 20, 20], **given)
        assert not [attribute for attribute in vars(head) if attribute.endswith("_")]


def test_rows_for_a_policy():
    """Reference rows are examples too, rows before and after an edit are none."""
    given = public(60)
    head = head_of("logistic", radius=RadiusPolicy(0.5)).fit(X, Y, **given)
    frozen = FrozenEstimator(RadiusPolicy(0.5).fit(**given))
    assert head.release_.examples == 60
    assert head.release_.radius == frozen.radius_
    assert head.plan(60, D, [20, 20, 20], **given).release.radius == frozen.radius_
    edits = head.set_params(radius=RadiusPolicy(0.5, source="edits"))
    assert edits.fit(X, Y, X_public=X, y_public=0.9 * X).release_.examples == 0
    # A start without examples, or with vectors of the classes, leaves them to the policy.
    for own in ({"mechanism__start": "zero"}, {"class_embeddings": VECTORS}):
        other = head_of("logistic", radius=RadiusPolicy(0.5), **own).fit(X, Y, **given)
        assert (other.release_.examples, other.release_.radius) == (0, frozen.radius_)
    prototypes = BallDPRidgePrototype(radius=RadiusPolicy(0.5), delta=1e-4)
    assert prototypes.fit(X, Y, **given).release_.examples == 0


@each_head
def test_a_plan_is_the_record_of_the_fit(name):
    head, given = head_of(name), public(9)
    planned = head.plan(60, D, [20, 20, 20], **given)
    assert "9 public examples" in str(planned)
    assert planned.release == replace(head.fit(X, Y, **given).release_, digest="")


class FromExamples(Mechanism):
    """One noisy step from the model of public examples, by a mechanism of one's own."""

    uses_examples = True

    def bound(self, problem, mu, examples=None):
        return Promised(mu)

    def conversation(self, problem, bound, examples=None):
        query = MeanGradient(examples.coef, clip=0.2)
        return examples.coef - (yield query.calibrated(problem, bound.budget * (1.0 - 1e-12)))


def test_a_mechanism_of_ones_own_takes_them():
    head = head_of("logistic", mechanism=FromExamples(), fit_intercept=False).fit(X, Y, **public(9))
    query = next(head.released_.conversation())
    np.testing.assert_array_equal(query.theta, arrays_of(head)["coef"])
    own = type("Plain", (FromExamples,), {"uses_examples": False})
    with pytest.raises(ValueError, match="examples, which mechanism Plain does not use"):
        head.set_params(mechanism=own()).fit(X, Y, **public(9))


# -- names and examples ---------------------------------------------------------------------------


@pytest.mark.kills(
    "heads/labels.py", "for own, vector in held if own.any()}", "for own, vector in held}"
)
@each_head
def test_vectors_by_label(name):
    """In any order, and with further labels: a fold that lacks a class has its own."""
    vectors = {label: np.eye(K + 2, D)[label] for label in (4, 2, 0, 3, 1)}
    heads = [head_of(name, class_embeddings=v, random_state=0) for v in (vectors, VECTORS)]
    scores = [head.fit(X, Y).decision_function(X) for head in heads]
    np.testing.assert_array_equal(*scores)
    with pytest.raises(ValueError, match="class_embeddings lacks a vector for 1 of the classes"):
        head_of(name, class_embeddings={0: vectors[0], 1: vectors[1]}).fit(X, Y)
    two = Y < 2
    folds = [(np.flatnonzero(two), np.arange(60)), (np.arange(60), np.flatnonzero(two))]
    search = GridSearchCV(heads[0], {"epsilon": [1.0]}, cv=folds, error_score="raise")
    assert search.fit(X, Y).best_estimator_.classes_.tolist() == [0, 1, 2]


@each_head
def test_examples_and_vectors_of_the_classes_are_not_taken_together(name):
    head = head_of(name, class_embeddings=VECTORS)
    with pytest.raises(ValueError, match="pass one of both"):
        head.fit(X, Y, **public(9))
    assert not hasattr(head, "released_")


# -- what is kept of them -------------------------------------------------------------------------


@each_head
def test_a_folder_holds_them_and_says_so(name, tmp_path):
    head = head_of(name, epsilon=4.0).fit(X, Y, **public(9))
    folder = save(head, tmp_path / "model", transcript=name != "discriminant")
    verdict = verified(folder, private=(X, Y))
    assert not failed(verdict), str(verdict)
    copies = [load(folder), pickle.loads(pickle.dumps(head)), head.with_rule()]
    for other in copies:
        assert_same(arrays_of(other), arrays_of(head))
        np.testing.assert_array_equal(other.decision_function(X), head.decision_function(X))
    for text in (str(card(head)), (folder / "CARD.md").read_text(), summary(head.release_)):
        assert "started from 9 public examples" in text
        assert "chosen without a look at the private records" in text
    assert Release.from_dict(head.release_.to_dict()) == head.release_
    # What others do later changes nothing of it.
    with pytest.raises(ValueError, match="read-only"):
        arrays_of(head)["means"][:] = 0.0


@pytest.mark.kills("publish/examples.py", "e.counts.sum() != stated", "False")
@pytest.mark.parametrize("name", ["logistic", "discriminant"])
def test_other_examples_than_those_of_the_fit_are_found(name):
    head = head_of(name, epsilon=4.0).fit(X, Y, **public(9))
    held, record = arrays_of(head), head.release_.to_dict()
    for field, array in held.items():
        for other in (array + 1.0, array * np.nan, array[:-1], array.astype(np.float32)):
            assert failed(verified(head, arrays={f"examples.{field}": other})), field
    # Though a forger made every digest anew.
    moved = held["counts"] + [1.0, 0.0, 0.0]
    for odd in (moved, held["counts"] + [0.5, -0.5, 0.0], held["counts"] * [-1.0, 1.0, 3.0]):
        found = line(verified(head, arrays={"examples.counts": odd}), "model").found
        assert "sums of other public examples" in found
    assert failed(verified(head, {**record, "examples": 8}))
    settings = replace(head.released_.settings, examples=Examples.of(-X, Y, K))
    head.released_ = replace(head.released_, settings=settings).with_digest()
    assert failed(verified(head))


@pytest.mark.kills("heads/released.py", "**public)", ")")
@pytest.mark.kills("audit/preparation.py", "examples=not apart", "examples=True")
def test_an_audit_has_examples_apart_from_candidates():
    private, candidates, examples = records(150), records(90, seed=3), records(12, seed=4)
    given = dict(zip(("X_examples", "y_examples"), examples, strict=True))
    head = head_of("logistic", epsilon=2.0, radius=RadiusPolicy(0.9))
    auditor = ReconstructionAuditor(head, n_candidates=4, n_draws=2, random_state=0)
    plain = clone(auditor).fit(*private, *candidates)
    assert plain.guarantee_holds_
    release = plain.estimator_.release_
    assert release.examples == 0
    assert release.radius == RadiusPolicy(0.9).fit(None, None, *candidates).radius_
    auditor.set_params(estimator__radius=0.9).fit(*private, *candidates, **given)
    assert auditor.guarantee_holds_, auditor.summary()
    assert_same(arrays_of(auditor.estimator_), Examples.of(*examples, K).arrays())
    frozen = clone(auditor).set_params(estimator=FrozenEstimator(auditor.estimator_))
    assert frozen.fit(*private, *candidates).guarantee_holds_
    with pytest.raises(ValueError, match="X_examples, y_examples: a frozen estimator"):
        frozen.fit(*private, *candidates, **given)
