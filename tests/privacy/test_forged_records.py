"""Records that a stranger made: what is out of range, contradicts itself, or takes long to read."""

import contextlib
import dataclasses
import json
import math
import time

import jsonschema
import numpy as np
import pytest
from record_kinds import edited, leaves
from verdicts import resealed

from sklearn_balldp.mechanisms import DescentBound, MeanGradient, Sums
from sklearn_balldp.privacy import Problem, Release
from sklearn_balldp.privacy.gaussian import epsilon_from_mu
from sklearn_balldp.privacy.release import json_schema
from sklearn_balldp.privacy.serialisation import MAX_BYTES

# Path, a value that no record holds, and what the error says.
RANGES = [
    ("format", 2, r"format=2 is not known: sklearn_balldp .* reads format 3"),
    ("epsilon", 0.0, "expected `float` > 0"),
    ("epsilon", "4", r"epsilon='4': expected `float`, got `str`"),
    ("delta", 0.0, "delta"),
    ("radius_from", "rumour", "radius_from='rumour'"),
    ("radius_from", {"type": "Rumour"}, r"radius_from.type='Rumour'"),
    ("radius_from", {"type": "Edits", "n": 0, "share": 1.0}, r"radius_from\.n=0"),
    ("radius_from", {"type": "Edits", "n": 8, "share": 1.5}, r"radius_from\.share=1\.5"),
    ("radius_from", {"type": "Edits", "n": 8, "share": 0.0}, r"radius_from\.share=0\.0"),
    ("radius_from", {"type": "Edits", "n": 8, "share": 0.7}, "no share of 8 edits"),
    ("radius_from", {"type": "Reference", "n": 8}, "unknown field `n`"),
    ("sampler", "a die", "must be one of exact normal"),
    ("date", "2026-13-01", "must be a day"),
    ("encoder", "\ud800", "one short line"),
    ("encoder", "x" * 501, "encoder"),
    ("digest", "0" * 63, "digest"),
    ("surplus", 1, "unknown field `surplus`"),
    # What class counts tell is not stated, right or wrong.
    ("problem.n_samples", 0, r"problem\.n_samples=0: expected `int` >= 1"),
    ("problem.n_samples", 10**12 + 1, "<= 1000000000000"),
    ("problem.n_samples", 90, "unknown field `n_samples`"),
    ("problem.n_samples", 900, "n_samples=900 does not go with class_counts"),
    ("problem.n_classes", 4, "n_classes=4 does not go with class_counts"),
    ("problem.class_counts", [0, 0, 0], "0 records|record"),
    ("problem.class_counts", [10**12, 1, 1], "add up to 1000000000002 records"),
    ("problem.class_counts", [60, 30], "no noise scales"),
    ("problem.class_counts", [90], "length >= 2"),
    ("problem.class_counts", None, "n_samples and n_classes are stated"),
    ("problem.class_counts", [1] * 20_001, "length <= 20000"),
    ("problem.radius", 1e-310, "radius"),
    ("problem.radius", 1e31, "radius"),
    ("problem.metric", "cosine", "must be one of euclidean, manhattan, chebyshev"),
    ("problem.norm_bound", 0.0, "norm_bound"),
    ("problem.labels", "protected", "unknown field `labels`"),
    ("mechanism", "prototypes", "unknown field `mechanism`"),
    ("problem.alpha", 1e308, "alpha"),
    ("problem.domain", "torus", "must be one of ball, sphere"),
    ("problem.loss", "logistic", "unknown field `loss`"),
    ("bound", {"type": "Guess"}, "bound.type='Guess' is not known"),
    ("bound", {"type": "MeanGradient"}, "no record can hold this kind"),
    ("bound", {"type": "Promised", "budget": 0.5}, "mechanism='' is not"),
    ("bound.sigma", [0.1, 0.1], "no noise scales"),
    ("bound.sigma", [0.1, 0.1, 0.0], "no noise scales"),
    ("bound.moment", 1.0, "epsilon|asks for"),
    ("bound.constant", 0.5, "no noise scales"),
    ("bound.pooled", True, "asks for"),
    ("follows.sigma", ..., "missing required field `sigma`"),
    ("follows.private", "yes", "private"),
    ("follows.unit", "person", "unit"),
]


@pytest.mark.kills("privacy/problem.py", "not in (None, number):", "is ...:")
@pytest.mark.parametrize(("path", "value", "match"), RANGES)
def test_ranges(release_of, forged, path, value, match):
    with pytest.raises(ValueError, match=match) as caught:
        Release.from_dict(forged(release_of("prototypes"), path, value))
    text = str(caught.value)
    assert text.startswith("record: ")
    assert len(text) < 500
    assert text.isprintable()


def test_records_of_before_name_the_version_that_reads_them():
    for record in ({"format": 2, "version": "0.2.0"}, {"version": "0.2.0"}):
        with pytest.raises(ValueError, match=r"is of version '0.2.0'; install that one"):
            Release.from_dict(record)
    for record in (None, [], "{}", 3, {}, {"format": 3}):
        with pytest.raises(ValueError, match="record"):
            Release.from_dict(record)


@pytest.mark.parametrize("name", ["mu", "epsilon", "epsilon_full_radius", "sensitivity", "sigma"])
def test_what_follows_may_be_overstated_and_no_more(release, forged, name):
    """By a millionth: of noise less may be stated, of everything else more."""
    stated = release.to_dict()["follows"][name]
    if stated == []:
        return
    for factor in (1.0 - 1e-6, 1.0 + 1e-6, 1.0 - 1e-11, 1.0 + 1e-11):
        value = np.multiply(stated, factor).tolist()
        record = forged(release, f"follows.{name}", value)
        if abs(factor - 1.0) < 1e-9 or (factor > 1.0) == (name != "sigma"):
            assert Release.from_dict(record) == release
        else:
            with pytest.raises(ValueError, match=rf"record: follows\.{name}=.* at (least|most)"):
                Release.from_dict(record)


@pytest.mark.kills("privacy/contradictions.py", "if not 0.0 <= mu", "if False and 0.0 <= mu")
def test_epsilon_follows_from_the_bound(release, forged):
    least = epsilon_from_mu(release.mu, release.delta)
    for epsilon in (0.1, least * (1.0 - 1e-6)):
        with pytest.raises(ValueError, match=r"record: epsilon=.* should be .* gives mu="):
            Release.from_dict(forged(release, "epsilon", epsilon))
    more = Release.from_dict(forged(release, "epsilon", 1.1 * release.epsilon))
    assert more.mu == release.mu


#: Of 90 records, where each of them counts once.
ALONE = {
    "unit": "record",
    "n_units": 90,
    "most_records": 1,
    "total": 90.0,
    "largest": 1.0,
    "record": 1.0,
    "class_totals": [50.0, 30.0, 10.0],
    "class_largest": [1.0, 1.0, 1.0],
}
# A kind of record, and a second spelling of what it says.
SPELLINGS = [
    ("prototypes", {"problem.metric": "euclidean"}),
    ("prototypes", {"radius_from": {"type": "Number"}}),
    ("statistics", {"radius_from.share_of_records": None}),
    ("prototypes", {"accepted": []}),
    ("statistics", {"bound.pooled": False}),
    ("minimiser", {"encoder": "an encoder", "digest": ""}),
    ("descent", {"bound.start": None}),
    ("started descent", {"bound.start.type": ...}),
    ("started descent", {"bound.start.constant": 0.0}),
    ("prototypes", {"problem.sums_weights": ALONE}),
    ("prototypes", {"follows.epsilon_full_radius": 10**30}),
]


@pytest.mark.kills("privacy/release.py", '"follows": follows}, record)', '"follows": follows}, {})')
@pytest.mark.parametrize(("name", "changes"), SPELLINGS)
def test_a_record_has_one_spelling(release_of, forged, name, changes):
    with pytest.raises(ValueError, match=f"record: .*{list(changes)[-1].rpartition('.')[2]}"):
        Release.from_dict(forged(release_of(name), **changes))


def test_whoever_edits_by_accident_breaks_the_checksum(release):
    record = {**json.loads(json.dumps(release.to_dict())), "rule": "another"}
    with pytest.raises(ValueError, match="checksum"):
        Release.from_dict(record)


# What goes together: a kind of record, changes, and what the error says.
CONTRADICTIONS = [
    ("minimiser", {"problem.alpha": ...}, "no noise on a minimiser"),
    ("minimiser", {"bound.tol": -1e-12}, "no noise on a minimiser"),
    ("minimiser", {"bound.method": "guess"}, "no noise on a minimiser"),
    ("minimiser", {"bound.sigma": 1e-3}, "epsilon"),
    ("minimiser", {"mechanism": "gradient"}, "mechanism='gradient' is not that of a"),
    ("prototypes", {"mechanism": "statistics"}, "mechanism='statistics' is not that of a"),
    ("protected", {"radius_from": {"type": "Declared"}}, "reads labels"),
    ("protected", {"problem.class_counts": [50, 30, 10]}, "unknown field `n_|no noise scales"),
    ("persons", {"problem.sums_weights": None}, "expected `object`, got `null`"),
    ("persons", {"problem.sums_weights": ...}, "epsilon"),
    ("persons", {"problem.sums_weights.n_units": 91}, "not those of 90 records"),
    ("persons", {"problem.sums_weights.n_units": 61}, "each person counts once"),
    (
        "persons",
        {
            "problem.sums_weights.class_totals": [25.0, 20.0, 0.0],
            "problem.sums_weights.class_largest": [1.0, 0.5, 0.0],
        },
        "the classes with records have a weight",
    ),
    ("persons", {"problem.sums_weights.most_records": 3}, "not those of 90 records"),
    ("persons", {"problem.sums_weights.class_largest": [1.5] * 3}, "no weights of these records"),
    ("persons", {"problem.sums_weights.record": 0.4}, "not those of 90 records"),
    ("persons", {"problem.sums_weights.record": 1.0}, "not those of 90 records"),
    ("persons", {"problem.sums_weights.unit": "record"}, "not those of 90 records"),
    *(
        (name, {"problem.sums_weights": ALONE | change}, "not those of 90 records")
        for name in ("prototypes", "descent")
        for change in ({"n_units": 91}, {"block_factor": 1.5}, {"most_records": 2}, {"record": 0.5})
    ),
    # Weights in the loss follow from these, and are no part of a record.
    ("persons", {"problem.class_weights": [1.0] * 3}, "unknown field `class_weights`"),
    ("persons", {"problem.sums_weights.unit": "flat"}, "must be one of record, person"),
    ("persons", {"problem.sums_weights.class_largest": [1.0, 0.5]}, "do not go together"),
    ("persons", {"problem.sums_weights.class_largest": [1.0, 0.5, 0.0]}, "do not go together"),
    ("started descent", {"bound.start.sigma": 1e-3}, "leaves nothing|epsilon"),
    ("started descent", {"bound.start.sigma": [1.0] * 2}, "no noise scales"),
    ("started descent", {"bound.start.type": "Minimiser"}, "start.type"),
    ("started descent", {"bound.start.pooled": True}, "theorem"),
    ("from the mean", {"bound.least_reach": ...}, "pooled start needs least_reach"),
    ("started descent", {"bound.least_reach": 0.2}, "must lie between"),
    ("descent", {"bound.least_reach": 0.5}, "needs a start"),
    ("descent", {"bound.sigma": -1.0}, "steps have a positive noise scale"),
    ("descent", {"bound.even_at": 0.5}, "behind a map"),
    ("started descent", {"bound.even_at": ...}, "behind a map"),
    ("started descent", {"bound.even_at": -1.0}, "behind a map"),
    ("descent", {"bound.clip": -0.2}, "settings of a descent"),
    ("descent", {"bound.momentum": 1.0}, "settings of a descent"),
    ("descent", {"bound.learning_rate": ...}, "learning_rate"),
    ("descent", {"bound.n_steps": 0}, "needs class sums"),
    ("descent", {"bound.n_steps": -1}, "between 0 and 5000"),
    ("descent", {"bound.n_steps": 5001}, "between 0 and 5000"),
    ("descent", {"bound.n_steps": 2.0}, "n_steps"),
    ("descent", {"bound.clip": 1e-101}, "settings of a descent"),
    ("descent", {"bound.constant": -1.0}, "settings of a descent"),
    ("hinge descent", {"bound.clip": ...}, "gradients of a squared hinge have no bound"),
]


@pytest.mark.kills("privacy/contradictions.py", "isinstance(origin, Declared)),", "False),")
@pytest.mark.parametrize(("name", "changes", "match"), CONTRADICTIONS)
@pytest.mark.kills("privacy/contradictions.py", "max(largest_of) <= largest * up", "True")
@pytest.mark.kills("privacy/contradictions.py", "n > 0 for n in counts", "t > 0.0 for t in totals")
def test_contradictions(release_of, forged, name, changes, match):
    with pytest.raises(ValueError, match=match) as caught:
        Release.from_dict(forged(release_of(name), **changes))
    assert str(caught.value).startswith("record: ")


@pytest.mark.kills(
    "privacy/release.py",
    'own fields.")\n            _check_follows(written.follows, release)',
    'own fields.")',
)
def test_a_promise_is_checked_before_the_run(release_of):
    release = release_of("minimiser")
    for change in ({"epsilon": 0.5}, {"delta": 1e-12}, {"date": "today"}, {"version": ""}):
        with pytest.raises(ValueError, match="record: "):
            dataclasses.replace(release, **change).checked()
    # Arrays are no record.
    query = MeanGradient(np.zeros((3, 5)))
    with pytest.raises(ValueError, match="No record can hold this kind"):
        dataclasses.replace(release, bound=query, mechanism="x").checked()
    for change in ({"radius": 0.6}, {"radius": "0.5"}, {"loss": "squared_hinge"}):
        problem = dataclasses.replace(release.problem, **change)
        with pytest.raises(ValueError, match="record: "):
            dataclasses.replace(release, problem=problem).checked()


def test_more_noise_than_is_needed_is_no_contradiction(release_of):
    for name in ("prototypes", "minimiser", "statistics"):
        release = release_of(name)
        more = dataclasses.replace(release, bound=release.bound.scaled(2.0))
        assert Release.from_dict(more.to_dict()).mu < 0.6 * release.mu


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"encoder": "two\nlines"}, "encoder='two.* is a str"),
        ({"epsilon": math.nan}, "epsilon=nan is a float"),
        ({"bound": Sums(sigma=(math.inf, 1.0, 1.0))}, r"bound\.sigma\[0\]=inf is a float"),
        ({"accepted": ["a list"]}, r"accepted=\['a list'\] is a list"),
        ({"accepted": ("a",) * 20_001}, "accepted=.* is a tuple"),
        ({"bound": MeanGradient(np.zeros((3, 5)))}, r"bound\.theta=.* is a ndarray"),
    ],
)
def test_what_no_record_holds_is_not_written(release_of, changes, match):
    with pytest.raises(
        ValueError, match=f"^record: {match}.*No record can hold this kind; it holds"
    ):
        dataclasses.replace(release_of("prototypes"), **changes).to_dict()


# Sizes and time ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["prototypes", "statistics", "started descent", "persons"])
def test_junk_is_a_value_error(release_of, name):
    """At every place of a record: numbers beyond any float, deep lists, long texts, and others."""
    deep: list = []
    for _ in range(3000):
        deep = [deep]
    record = release_of(name).to_dict()
    numbers, texts = (
        (10**400, 10**5000, -1, math.nan, math.inf),
        ("\x00", "two\nlines", "x" * 10**6),
    )
    for path, _ in leaves(json.loads(json.dumps(record))):
        for junk in (*numbers, *texts, deep, {"a": {"b": []}}, [None], {1: 2}):
            with pytest.raises(ValueError, match="record"):
                Release.from_dict(resealed(edited(record, path, junk)))


def test_long_records_are_neither_written_nor_read(release_of):
    release = release_of("prototypes")
    long = dataclasses.replace(release, accepted=("x" * 400,) * 50_000)
    with pytest.raises(ValueError, match=r"accepted=.* tuples of length <= 20000"):
        long.to_dict()
    with pytest.raises(ValueError, match="bytes of JSON, and may take"):
        Release.from_dict({**release.to_dict(), "rule": "x" * MAX_BYTES})


LARGE = {
    "descent": {"loss": "softmax"},
    "hinge": {"loss": "squared_hinge"},
    "sums": {"loss": "", "class_counts": (5,) * 20_000},
}


@pytest.mark.parametrize("name", LARGE)
def test_many_classes_are_read_in_no_time(release_of, forged, name):
    """Nothing grows faster than the record: 20,000 classes, stated in a few bytes or many."""
    numbers = {"class_counts": None, **LARGE[name]}
    problem = Problem(n_samples=100_000, n_features=10**9, n_classes=20_000, radius=0.5, **numbers)
    if name == "sums":
        bound = Sums(sigma=(9.0,) * 20_000)
    else:
        start = Sums(sigma=1e6, constant=1.0) if name == "descent" else None
        bound = DescentBound(sigma=1.0, learning_rate=1.0, clip=0.2, n_steps=100, start=start)
    heads = {"squared_hinge": "BallDPSquaredHingeSVC", "": "BallDPLinearDiscriminant"}
    release = dataclasses.replace(
        release_of("descent"),
        head=heads.get(problem.loss, "BallDPLogisticRegression"),
        mechanism="",
        problem=problem,
        bound=bound,
        epsilon=1e9,
    )
    record = forged(release)
    started = time.process_time()
    assert Release.from_dict(record) == release
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize("alpha", [1e-30, 1e-6, 1.0])
@pytest.mark.parametrize("name", ["minimiser", "paper"])
def test_searches_for_the_gap_are_limited(release_of, forged, name, alpha):
    for counts in ([50, 30, 10], [1] * 90):
        changes = {"problem.class_counts": counts}
        record = forged(release_of(name), **changes, **{"problem.alpha": alpha, "epsilon": 1e9})
        started = time.process_time()
        with contextlib.suppress(ValueError):
            Release.from_dict(record)
        assert time.process_time() - started < 20.0


# The schema -------------------------------------------------------------------------------------


def test_the_schema_is_that_of_honest_records(release, forged):
    schema = json.loads(json.dumps(json_schema(), allow_nan=False))
    validator = jsonschema.Draft202012Validator(schema)
    validator.validate(forged(release))
    for change in (
        {"surplus": 1},
        {"bound.surplus": 1},
        {"bound.type": "Guess"},
        {"epsilon": 0.0},
        {"problem.metric": "cosine"},
        {"problem.class_counts": [1.5, 2.0]},
    ):
        assert not validator.is_valid(forged(release, **change)), change
    definitions = set(schema["$defs"])
    assert definitions >= {"Record", "Problem", "Weights", "Sums", "Minimiser", "DescentBound"}
    assert "MeanGradient" not in definitions


# Fits -------------------------------------------------------------------------------------------
