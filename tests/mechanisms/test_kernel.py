"""The kernel and its privacy filter: what is refused before noise is drawn, and what is kept."""

import json
import math
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from head_cases import HEADS, head_of

import sklearn_balldp
from sklearn_balldp.mechanisms import (
    PROVED,
    Kernel,
    MeanGradient,
    Minimiser,
    PrivacyError,
    PrivacyFilter,
    Query,
    Records,
    Sums,
    drive,
    drive_many,
)
from sklearn_balldp.mechanisms.whitening import PublicMap
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.problem import Problem

N, D, K, MU = 60, 5, 3, 1.2
Y = np.arange(N) % K
RNG = np.random.default_rng(0)
X = RNG.standard_normal((N, D)) + 2.0 * np.eye(K, D)[Y]
X /= np.linalg.norm(X, axis=1, keepdims=True) * RNG.uniform(0.9, 1.2, (N, 1))
PUBLIC = {"n_samples": N, "n_features": D, "n_classes": K, "class_counts": (20, 20, 20)}
PUBLIC |= {"radius": 0.5, "alpha": 0.1, "loss": "softmax"}
PROBLEM = Problem(**PUBLIC)


def promising(mu):
    """What a filter asks of a bound that claims nothing else."""
    return SimpleNamespace(mu=lambda _: mu, covers=lambda *_: True)


THETA = np.zeros((K, D))


class Counted(Noise):
    """Counts its draws."""

    calls = 0

    def __call__(self, values, sigma):
        self.calls += 1
        return super().__call__(values, sigma)


def kernel(mu=MU, noise=None, accepts=PROVED, problem=PROBLEM, **given):
    return Kernel(problem, Records(X, Y), promising(mu), noise or Noise(0), accepts, **given)


def step(mu, theta=THETA, problem=PROBLEM, **given):
    return MeanGradient(theta, **{"clip": 0.2, **given}).calibrated(problem, mu)


@dataclass(frozen=True)
class Spends(Query):
    """A query that takes what it says, for the arithmetic of the filter."""

    sigma: float = 1.0
    mu_: float = 1.0

    def ratio(self, problem, radius, labels):
        return 1.0

    def mu_at(self, problem, radius, labels):
        return self.mu_

    def shape(self, problem):
        return (1,)

    def values(self, problem, records):
        return np.zeros(1)


# -- the filter ------------------------------------------------------------------------------------


@pytest.mark.kills("mechanisms/kernel.py", "spent > self._limit:", "spent > 1.69 * self._limit:")
def test_a_promise_is_used_up_to_the_last_bit():
    """Pythagorean shares are exact in binary: one unit in the last place more is refused."""
    filter_ = PrivacyFilter(PROBLEM, promising(1.25))
    filter_.charge(Spends(mu_=0.75))
    with pytest.raises(PrivacyError):
        filter_.charge(Spends(mu_=math.nextafter(1.0, 2.0)))
    filter_.charge(Spends(mu_=1.0))
    with pytest.raises(PrivacyError):
        filter_.charge(Spends(mu_=5e-324))
    filter_.charge(Spends(mu_=0.0))
    for mu in (1.2, 0.1, 3e-20, 1e30):
        PrivacyFilter(PROBLEM, promising(mu)).charge(Spends(mu_=mu))
        with pytest.raises(PrivacyError):
            PrivacyFilter(PROBLEM, promising(mu)).charge(Spends(mu_=math.nextafter(mu, math.inf)))


@pytest.mark.parametrize("n", [3, 1000])
@pytest.mark.kills(
    "mechanisms/kernel.py",
    "self._spent, self._asked = spent, self._asked + 1",
    "self._asked += 1",
    attack="what the filter lets pass",
)
def test_the_sum_of_squares_is_exact(n):
    """As many equal queries as rational arithmetic allows: no tolerance, and no lost unit."""
    mu, promised = 0.1, math.sqrt(0.01 * n)
    exact = math.floor(Fraction(promised) ** 2 / Fraction(mu) ** 2)
    filter_ = PrivacyFilter(PROBLEM, promising(promised))
    for _ in range(exact):
        filter_.charge(Spends(mu_=mu))
    with pytest.raises(PrivacyError, match="more than is left"):
        filter_.charge(Spends(mu_=mu))


@pytest.mark.kills("mechanisms/kernel.py", ", self._asked = spent, self._asked + 1", " = spent")
def test_no_more_queries_than_allowed():
    noise = Counted(0)
    ask = kernel(noise=noise, most_queries=3)
    for _ in range(3):
        ask(step(1e-3))
    with pytest.raises(PrivacyError, match="more queries"):
        ask(step(1e-3))
    assert noise.calls == 3


# -- the kernel ------------------------------------------------------------------------------------


@pytest.mark.kills("mechanisms/kernel.py", "if self._charge", "values()\n        if self._charge")
@pytest.mark.kills(
    "mechanisms/kernel.py",
    "            self._charge()\n            self._charge = None\n",
    "            charge, self._charge = self._charge, None\n            charge()\n",
)
def test_a_release_is_counted_once_between_the_first_acceptance_and_its_values(monkeypatch):
    """What refuses to count it stops the values too, and is asked again."""
    happened, full = [], [True]

    def charge():
        happened.append("charge")
        if full[0]:
            raise ValueError("the budget is spent")

    values = MeanGradient.values
    monkeypatch.setattr(
        MeanGradient, "values", lambda *given: happened.append("values") or values(*given)
    )
    ask = kernel(charge=charge)
    sums = Sums(1.0, 1.0).calibrated(PROBLEM, MU), Minimiser(1e-6).calibrated(PROBLEM, MU)
    for query in (step(MU), *sums):
        with pytest.raises(PrivacyError, match="nothing was drawn"):
            ask(query.scaled(1.0 / 1.05))
    assert happened == []
    with pytest.raises(ValueError, match="is spent"):
        ask(step(1e-3))
    full[0] = False
    for _ in range(2):
        ask(step(1e-3))
    assert happened == ["charge", "charge", "values", "values"]


@dataclass(frozen=True)
class Chosen:
    """Plain data, which compares as it likes."""

    shape = (K, D)

    def __lt__(self, other):
        return True

    __gt__ = __le__ = __ge__ = __lt__

    def __rtruediv__(self, other):
        return 0.5

    def __float__(self):
        return 1e-12

    def __array__(self, dtype=None, copy=None):
        return np.full((K, D), 1e-12)


MAP = {"centre": np.zeros(D), "directions": np.eye(D)[:, :1], "factors": np.full(1, 0.5)}
MAP |= {"reach": 1.0, "norm": 0.9}
WRONG = {
    "classes": MeanGradient(np.zeros((2, D))),
    "features": MeanGradient(np.zeros((K, D + 1))),
    "a constant, no column": MeanGradient(THETA, constant=0.5),
    "NaN": MeanGradient(np.full((K, D), np.nan)),
    "infinity": MeanGradient(np.full((K, D), np.inf)),
    "negative clip": MeanGradient(THETA, clip=-1.0),
    "no clip": MeanGradient(THETA, clip=0.0),
    "no noise": MeanGradient(THETA, sigma=0.0),
    "negative noise": MeanGradient(THETA, sigma=-1.0),
    "noise of NaN": MeanGradient(THETA, sigma=math.nan),
    "endless noise": MeanGradient(THETA, sigma=math.inf),
    "sums without noise": Sums(0.0),
    "sums with negative noise": Sums(-1.0),
    "a sum without noise": Sums((1.0, 1.0, 0.0)),
    "a minimiser without noise": Minimiser(1e-6, sigma=0.0),
    "a clip whose square vanishes": MeanGradient(THETA, clip=9e-101),
    "scores above 1e15": MeanGradient(np.full((K, D), 1e15 / math.sqrt(K * D) * 1.00001)),
    "NaN clip": MeanGradient(THETA, clip=math.nan),
    "negative constant": MeanGradient(THETA, constant=-1.0),
    "a map that lengthens": {"factors": np.full(1, 1.5)},
    "a map that shortens too much": {"factors": np.full(1, 0.01)},
    "a map that reverses": {"factors": np.full(1, -0.5)},
    "a map that is skew": {"directions": 2.0 * np.eye(D)[:, :1]},
    "a map that is short": {"reach": 0.1, "norm": 0.1},
    "a map that is long": {"reach": 1.5, "norm": 1.2},
    "a map of other rows": {"centre": np.zeros(D + 1)},
    "a map that moves far": {"centre": 1.001 * np.eye(D)[0]},
    "a map of a matrix": {"factors": np.full((1, 1), 0.5)},
    "a map of columns": {"centre": np.zeros((D, 1))},
    "a map of tuples": {"centre": (0.0,) * D},
    "a map of a norm of one's own": {"reach": Chosen()},
    "a map to nowhere": {"centre": np.full(D, np.nan)},
    "a map of NaN": {"factors": np.full(1, np.nan)},
    "a moment of no noise": Sums(1.0, 0.0),
    "a moment of all": Sums(1.0, 1.0, pooled=True),
    "counts of all": Sums(1.0, constant=0.5, pooled=True),
    "too few scales": Sums((1.0, 1.0)),
    "NaN scales": Sums((1.0, 1.0, math.nan)),
    "endless scales": Sums(math.inf),
    "counts that are public": Sums(1.0, constant=1.0),
    "a constant below zero": Sums(1.0, constant=-1.0),
    "an unknown proof": Minimiser(1e-6, method="none"),
    "a negative tolerance": Minimiser(-1e-6),
    "a NaN tolerance": Minimiser(math.nan),
    "a tolerance that some records do not reach": Minimiser(0.0),
    "a scale of one's own": MeanGradient(THETA, Chosen(), clip=0.2),
    "a constant of one's own": MeanGradient(np.zeros((K, D + 1)), clip=0.2, constant=Chosen()),
    "parameters of one's own": MeanGradient(Chosen(), clip=0.2),
    "scales of one's own": Sums((1.0, Chosen(), 1.0)),
    "a tolerance of one's own": Minimiser(Chosen()),
    "a flag of one's own": Sums(1.0, pooled=Chosen()),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.kills(
    "mechanisms/whitening.py",
    '<= norm_bound * (1.0 + 1e-9):\n            return "its centre',
    '< math.inf:\n            return "its centre',
)
@pytest.mark.kills("mechanisms/gradients.py", "return math.inf", "return 0.0")
@pytest.mark.kills("mechanisms/gradients.py", "not mapped or self.theta.shape", "self.theta.shape")
@pytest.mark.kills("mechanisms/gradients.py", "return largest <= longest and", "return True or")
def test_states_that_no_proof_speaks_of(name):
    query = WRONG[name]
    if isinstance(query, dict):
        assert MeanGradient(THETA, whitening=PublicMap(**MAP)).mu(PROBLEM) < math.inf
        query = MeanGradient(THETA, whitening=PublicMap(**(MAP | query)))
    noise = Counted(0)
    with pytest.raises(PrivacyError, match="nothing was drawn"):
        kernel(1e100, noise)(query)
    assert noise.calls == 0


@pytest.mark.kills("mechanisms/kernel.py", 'with np.errstate(all="ignore"):', "with np.errstate():")
def test_what_a_conversation_has_numpy_raise_is_no_error_of_some_records():
    """A flag that one record sets would end the fit of its data set alone."""

    def values():
        return np.minimum(np.ones((K, D)) / np.zeros((K, D)), 1.0)

    with np.errstate(all="raise"):
        with pytest.raises(FloatingPointError):
            values()
        assert np.isfinite(kernel().answer(step(MU), values)).all()


@pytest.mark.kills("mechanisms/minimiser.py", "bool(problem.loss) and", "True or")
def test_problems_that_no_proof_speaks_of():
    """Without a loss there is no gradient; without a regulariser there may be no minimiser."""
    for problem in (replace(PROBLEM, loss=""), replace(PROBLEM, alpha=0.0)):
        assert Minimiser(1e-6).mu(problem) == math.inf
    assert MeanGradient(THETA).mu(replace(PROBLEM, loss="")) == math.inf
    # Counts that overflow for some labels have no finite one either.
    hidden = replace(PROBLEM, class_counts=None)
    assert Sums(1.0, constant=1e290).mu(hidden) < math.inf == Sums(1.0, constant=1e307).mu(hidden)
    # Labels that are public are hidden at no price.
    for query in (MeanGradient(THETA), Sums(1.0), Minimiser(1e-6)):
        assert query.mu(PROBLEM, 0.5, "protected") == math.inf


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("loss", ["softmax", "squared_hinge"])
@pytest.mark.kills("mechanisms/gradients.py", "_MOST_SCORE = 1e15", "_MOST_SCORE = 1e290")
def test_huge_states_have_a_finite_price_or_none(loss, precision):
    """What is answered is a number on every data set: no error tells one from another."""
    problem = replace(PROBLEM, loss=loss)
    zeros = X.copy()
    zeros[::2, 0] = 0.0
    large = 1e130 if precision == "float64" else 1e37
    rows = [X, zeros, np.zeros_like(X), large * X, np.eye(D)[Y % D]]
    for size in (1e3, 1e14, 1e15, 1e30, 3.4e38, 1e39, 1e99, 1e150, 1e300):
        theta = np.outer(np.arange(K) - 1.0, np.eye(D)[0]) * size / 2.0
        for clip, constant in ((0.2, 0.0), (1e-100, 0.5), (1e3, 0.5)):
            own = np.hstack([theta, theta[:, :1]])[:, : D + (constant > 0)]
            query = MeanGradient(own, clip=clip, constant=constant)
            mu = query.mu(problem)
            assert (mu < math.inf) == (size < 1e15 or (size == 1e15 and constant == 0.0))
            for some in rows if mu < math.inf else []:
                records = Records(some.astype(precision), Y)
                answer = Kernel(problem, records, promising(mu), Noise(0), PROVED)(query)
                assert np.isfinite(answer).all()
    for constant in (1e13, 1e39, 1e100):
        query = MeanGradient(np.zeros((K, D + 1)), clip=0.2, constant=constant)
        mu = query.mu(problem)
        records = Records(X.astype(precision), Y)
        answer = Kernel(problem, records, promising(mu), Noise(0), PROVED)(query)
        assert mu < math.inf
        assert np.isfinite(answer).all()


PLAIN = {
    "float32": np.ones((K, D), dtype=np.float32),
    "big endian": np.ones((K, D), dtype=">f8"),
    "column order": np.ones((K, D), order="F"),
    "integers": np.ones((K, D), dtype=np.int64),
    "writeable": np.ones((K, D)),
    "read-only": np.ones((K, D)),
}
PLAIN["read-only"].setflags(write=False)


class Shown:
    """An object that shows itself as an array."""

    def __init__(self, *arrays):
        self.arrays = list(arrays)

    def __array__(self, dtype=None, copy=None):
        return np.array(self.arrays.pop(0) if len(self.arrays) > 1 else self.arrays[0])


class Small(np.ndarray):
    """Its bytes are those of zeros."""

    def tobytes(self, order="C"):
        return bytes(self.nbytes)


class Tiny(float):
    """It compares, divides and multiplies as it likes."""

    def __rtruediv__(self, other):
        return 1e-9

    def __float__(self):
        return 5.0


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.kills("privacy/bounds.py", "make_plain(self)  # arrays", "pass  # arrays")
@pytest.mark.kills(
    "privacy/plain.py",
    '            array = np.array(array, dtype=np.float64, order="C", subok=False)\n',
    "",
)
def test_arrays_become_plain_once(name):
    """What is charged is what is computed: a read-only copy of the base class in float64."""
    query = MeanGradient(PLAIN[name])
    for found in (query, pickle.loads(pickle.dumps(query))):
        assert type(found.theta) is np.ndarray
        assert found.theta.dtype == np.float64
        assert found.theta.base is None
        assert not found.theta.flags.writeable
    PLAIN[name].setflags(write=True)
    PLAIN[name][:] = 7.0
    np.testing.assert_array_equal(query.theta, np.ones((K, D)))


@pytest.mark.kills("privacy/plain.py", " and not isinstance(value, np.ma.MaskedArray)", "")
def test_what_is_no_plain_data():
    with pytest.raises(TypeError, match=r"MeanGradient\.theta must be plain data.*masked"):
        MeanGradient(np.ma.masked_array(np.ones((K, D)), mask=np.eye(K, D)))
    for odd in (np.ones((K, D), dtype=complex), np.ones((K, D), dtype=object), {1.0}, object()):
        with pytest.raises(TypeError, match=r"MeanGradient\.theta must be plain data"):
            MeanGradient(odd)
    with pytest.raises(TypeError, match=r"Sums\.sigma must be plain data"):
        Sums(object())
    with pytest.raises(TypeError, match=r"PublicMap\.centre must be plain data"):
        PublicMap(**(MAP | {"centre": np.ma.masked_array(np.zeros(D))}))


def test_values_that_change_while_they_are_looked_at():
    """Subclasses of arrays and numbers, and objects that show another array each time."""
    small = MeanGradient((1e6 * np.ones((K, D))).view(Small))
    assert small.theta.tobytes() == (1e6 * np.ones((K, D))).tobytes()
    shown = MeanGradient(Shown(np.zeros((K, D)), np.full((K, D), 1e6)))
    np.testing.assert_array_equal(shown.theta, np.zeros((K, D)))
    for query in (MeanGradient(THETA, sigma=Tiny(5.0)), Sums(sigma=Tiny(5.0))):
        assert type(query.sigma) is float
        assert query.sigma == 5.0
    several = Sums(sigma=(Tiny(5.0), np.float32(1.0), 2))
    assert several.sigma == (5.0, 1.0, 2)
    assert [type(sigma) for sigma in several.sigma] == [float, float, int]
    assert type(PublicMap(**(MAP | {"norm": Tiny(0.9)})).norm) is float


@pytest.mark.kills("mechanisms/kernel.py", "if not is_plain(query):", "if False:")
def test_a_query_that_is_not_plain_is_refused():
    """Whoever derives a query and forgets to make it plain, or changes it afterwards."""

    @dataclass(frozen=True)
    class Forgets(Spends):
        state: object = None

        def __post_init__(self):
            pass

    changed, noise = step(MU), Counted(0)
    object.__setattr__(changed, "theta", np.zeros((K, D)))
    for query in (Forgets(state=np.zeros(3)), Forgets(state=[1.0]), changed):
        with pytest.raises(PrivacyError, match="no frozen dataclass of plain data"):
            kernel(noise=noise, accepts=(Forgets, MeanGradient))(query)
    assert noise.calls == 0
    assert kernel(accepts=(Forgets,))(Forgets(state=(1.0, "text", None))).shape == (1,)


@pytest.mark.parametrize("ratio", [math.nan, math.inf, -1.0])
def test_a_ratio_that_is_no_number_is_no_proof(ratio, monkeypatch):
    monkeypatch.setattr(Spends, "mu_at", Query.mu_at)
    monkeypatch.setattr(Spends, "ratio", lambda *_: ratio)
    assert Spends().mu(PROBLEM) == math.inf
    with pytest.raises(PrivacyError, match="nothing was drawn"):
        kernel(accepts=(Spends,))(Spends())


@pytest.mark.kills("mechanisms/kernel.py", "if type(query) not in self._accepts:", "if False:")
def test_kinds_of_queries_that_are_not_accepted():
    class Claims(MeanGradient):
        def ratio(self, problem, radius, labels):
            return 0.0

    for query in (Claims(THETA), Spends(mu_=0.1)):
        with pytest.raises(PrivacyError, match="no proof of a sensitivity is known"):
            kernel()(query)
    with pytest.raises(PrivacyError, match="no proof"):
        kernel(accepts=(Sums,))(step(MU))
    # Whoever lists it vouches for it.
    assert kernel(accepts=(*PROVED, Spends))(Spends(mu_=0.1)).shape == (1,)


@pytest.mark.kills("mechanisms/kernel.py", "noiseless.shape != query.shape(self._problem)", "False")
def test_values_of_another_shape_get_no_noise():
    noise = Counted(0)
    with pytest.raises(PrivacyError, match="not of the query's shape"):
        kernel(noise=noise).answer(step(MU), lambda: np.zeros((K, D + 1)))
    assert noise.calls == 0


@pytest.mark.kills(
    "mechanisms/kernel.py",
    "answer = self._noise(noiseless, query.scales(self._problem))",
    "answer = self._noise(noiseless, np.asarray(query.scales(self._problem)) / 1.05)",
)
def test_answers_are_public_and_stay_as_they_are():
    answer = kernel()(step(MU))
    with pytest.raises(ValueError, match="read-only"):
        answer[0] = 1.0
    exact = step(MU).values(PROBLEM, Records(X, Y))
    np.testing.assert_array_equal(Noise(0)(exact, step(MU).sigma), answer)


def test_records_are_neither_copied_nor_shown():
    records = Records(X, Y, np.ones(N))
    with pytest.raises(TypeError, match="private"):
        pickle.dumps(records)
    assert not any(character.isdigit() for character in repr(records))
    assert not any(character.isdigit() for character in repr(kernel()).partition(" at ")[0])


def test_conversations_in_step():
    """Those that end early do not ask again; each gets its own answers."""

    def counting(n):
        total = 0.0
        for _ in range(n):
            total += yield Spends()
        return total

    asked = []

    def answer(runs, queries):
        asked.append(list(runs))
        return [10.0**run for run in runs]

    assert drive_many([counting(n) for n in (2, 0, 3)], answer) == [2.0, 0.0, 300.0]
    assert asked == [[0, 2], [0, 2], [2]]
    assert drive(counting(4), lambda query: 1.0) == 4.0


# -- a process that never had a row ----------------------------------------------------------------

REPLAY = """if True:
    import json, pickle, sys
    from sklearn_balldp.privacy import Release

    told = pickle.load(sys.stdin.buffer)
    # A process that only reads knows the bounds of this package, too.
    releases = [Release.from_dict(json.loads(record)) for record, _ in told]
    from sklearn_balldp.mechanisms import MECHANISMS, drive

    found = []
    for release, (_, answers) in zip(releases, told):
        conversation = MECHANISMS[release.mechanism]().conversation(release.problem, release.bound)
        left = iter(answers)
        found.append(drive(conversation, lambda query: next(left)))
        assert next(left, None) is None
    pickle.dump(found, sys.stdout.buffer)
"""


def test_conversations_need_no_rows():
    """Of records and noisy answers alone, and of no row, another process makes the same models."""
    given = {"epsilon": 4.0, "delta": 1e-6, "radius": 0.5}
    heads = [head_of(name, **given).fit(X, Y).released_ for name in HEADS]
    told = [(json.dumps(head.release.to_dict()), head.answers) for head in heads]
    own = {**os.environ, "PYTHONPATH": str(Path(sklearn_balldp.__file__).parents[1])}
    words, piped = [sys.executable, "-c", REPLAY], {"stdout": subprocess.PIPE, "env": own}
    done = subprocess.run(words, input=pickle.dumps(told), check=True, **piped)
    for head, values in zip(heads, pickle.loads(done.stdout), strict=True):
        np.testing.assert_array_equal(values, head.values)
