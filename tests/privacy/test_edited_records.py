"""Every number and word of a record is edited, alone and with what follows from it made anew.

What promises more than the record that was edited is refused, or it is one of :data:`UNSEEN`.
"""

import contextlib
import functools
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from record_kinds import (
    EDITS,
    HINGE,
    KINDS,
    LINEAR,
    PROTECTED,
    edited,
    leaves,
    made,
    release_made_of,
)

from sklearn_balldp import GradientPerturbation
from sklearn_balldp.adjacency import DOMAINS, METRICS
from sklearn_balldp.heads import HEADS
from sklearn_balldp.mechanisms import StatisticsPerturbation
from sklearn_balldp.privacy import Promised, Release
from sklearn_balldp.privacy.contradictions import loss_of
from sklearn_balldp.privacy.digest import record_digest
from sklearn_balldp.privacy.gaussian import epsilon_from_mu
from sklearn_balldp.privacy.noise import EXACT_SAMPLER, SEEDED_SAMPLER
from sklearn_balldp.privacy.origins import Declared
from sklearn_balldp.privacy.serialisation import kind_of, read

#: What nothing in a record contradicts, and why; the page of forgeries has the same names.
UNSEEN = {
    "bound.sigma": "the noise itself: only the owner of the records can test it",
    "bound.moment": "as sigma",
    "bound.even_at": "how the noise of shorter rows follows from that of longer ones: as sigma",
    "bound.clip": "what was asked of the records: a transcript that is replayed tells",
    "bound.constant": "as clip",
    "bound.least_reach": "as clip",
    "bound.n_steps": "as clip",
    "bound.pooled": "as clip",
    "bound.tol": "how exactly the solver converged, of which the noise covers a thousandth",
    "bound.method": "the same release by the sharper proof, which is true of it",
    "bound.budget": "a mechanism of one's own states no noise",
    "bound.type": "of a mechanism of one's own alone: nobody knows what it asks",
    "problem.radius": "of a mechanism of one's own alone: it states no noise",
    "problem.class_counts": "how many records there are: the digest of the model has them too",
    "problem.n_samples": "how many records there are, where counts are private",
    "problem.n_features": "a size of the model, whose arrays have another",
    "problem.n_classes": "a size of the model, whose arrays have another",
    "problem.fit_intercept": "a size of the model, whose arrays have another",
    "problem.norm_bound": "where rows were brought, which predictions show",
    "problem.domain": "where rows were brought, which predictions show",
    "problem.alpha": "which minimiser was sought: its length is limited by it",
    "problem.metric": "what a radius means",
    "problem.sums_weights": "weights of the records: only their owner knows them",
    "head": "which loss the steps descend: predictions show it",
    "radius_from": "where the radius came from: ask for the public rows",
    "sampler": "whether the noise had a seed: only the publisher knows",
    "accepted": "whose proofs it rests on, of a mechanism of one's own",
}
FAULTS = ValueError, TypeError, ArithmeticError, LookupError, AttributeError
RADII = 0.05, 0.5, 1.0, 2.0


def own_promise():
    """A record of a mechanism of one's own, whose bound is a promise alone."""
    release = made("descent")
    return replace(release, mechanism="mine", bound=Promised(release.mu))


TWO = {**LINEAR, "loss": "logistic", "class_counts": (60, 30)}
#: Records beside those of all kinds: the defaults of heads, and other statements.
MORE = {
    "of two classes": lambda: release_made_of(GradientPerturbation(n_steps=4), TWO),
    "of margins": lambda: release_made_of(
        GradientPerturbation(n_steps=4), {**HINGE, "fit_intercept": True, "class_counts": (60, 30)}
    ),
    "hidden labels": lambda: release_made_of(
        GradientPerturbation(n_steps=4), {**LINEAR, **PROTECTED}
    ),
    "declared": lambda: replace(made("prototypes"), radius_from=Declared()),
    "moment in the ball": lambda: release_made_of(StatisticsPerturbation(0.4), {}, EDITS),
    "of one's own": own_promise,
}
SKIPPED = "least", "worst", "protected persons"
NAMES = [*(name for name in KINDS if name not in SKIPPED), *MORE]
WORDS = {
    "head": [*HEADS, "Mine"],
    "mechanism": ["prototypes", "statistics", "output", "gradient", "mine"],
    "metric": METRICS,
    "domain": DOMAINS,
    "sampler": (EXACT_SAMPLER, SEEDED_SAMPLER),
    "method": ("tight", "paper"),
    "unit": ("record", "person"),
    "type": ("Sums", "Minimiser", "DescentBound", "Number", "Reference", "Declared"),
    "labels": ("public", "protected"),
    "loss": ("", "logistic", "softmax", "squared_hinge"),
}
#: Fields that a record may leave out, and what is then written there.
ABSENT = {
    **{"mechanism": ["output"], "radius_from": [{"type": "Reference"}]},
    **{"problem.metric": METRICS, "problem.domain": DOMAINS, "problem.fit_intercept": [True]},
    **{"problem.norm_bound": [0.5, 2.0], "problem.alpha": [0.1]},
    **{"bound.method": ["paper"], "bound.moment": [1.0, 100.0], "bound.pooled": [True]},
    **{"bound.least_reach": [0.5], "bound.even_at": [0.5], "bound.clip": [0.01]},
}


def record_of(name):
    return MORE[name]() if name in MORE else made(name)


def others(name, value):
    """What a forger may write in the place of a value; ``...`` leaves it out."""
    if isinstance(value, bool):
        return [not value, ...]
    if isinstance(value, int):
        return [value - 1, value + 1, value // 2, 2 * value, 10 * value, ...]
    if isinstance(value, float):
        factors = 0.5, 0.9, 1.0 - 1e-6, 1.0 + 1e-6, 1.1, 2.0, 10.0
        return [*(value * factor for factor in factors), ...]
    if isinstance(value, (list, dict)) or value is None:
        return [..., None]
    return [..., *(word for word in WORDS.get(name, ["another"]) if word != value)]


def remade(record):
    """The same with all that follows made anew, and the smallest epsilon that does."""
    held = {k: v for k, v in record.items() if k not in ("format", "follows", "checksum")}
    bound = read(kind_of(held["bound"]), held["bound"], "bound")
    release = read(Release, held | {"bound": bound})
    loss = loss_of(release.head, release.problem.n_classes)
    if loss is not None:
        release = replace(release, problem=replace(release.problem, loss=loss))
    epsilon = epsilon_from_mu(release.mu, release.delta)
    return replace(release, epsilon=max(epsilon, 1e-9)).to_dict()


def accepted(record):
    """The record as it is read, with a checksum of what it says now; None if it is refused."""
    record = {name: value for name, value in record.items() if name != "checksum"}
    try:
        return Release.from_dict({**record, "checksum": record_digest(record)})
    except ValueError:
        return None


@functools.cache
def least_mu(original, radius, labels):
    """What no record of the same noise may undercut."""
    return original.guarantee(radius, labels).mu * (1.0 - 1e-9)


def promises_more(release, original):
    """Whether some guarantee, or what it rests on, is more than the original's."""
    facts = (
        (release.labels, original.labels) == ("protected", "public"),
        (release.unit, original.unit) == ("person", "record"),
        release.private is True and original.private is not True,
        release.weights.most_records > original.weights.most_records,
        len(release.accepted) < len(original.accepted),
        release.radius_from != original.radius_from,
    )
    if any(facts):
        return True
    labels = {"public", original.labels} & {"public", release.labels}
    return any(
        release.guarantee(t, of).mu < least_mu(original, t, of)
        for t in (*RADII, release.radius)
        for of in labels
    ) or release.epsilon < epsilon_from_mu(original.guarantee(release.radius).mu, release.delta) * (
        1.0 - 1e-9
    )


def found_in(original):
    """Names of the fields by which a forged record promises more, and is read."""
    record, found = json.loads(json.dumps(original.to_dict())), set()
    places = {path: others(path[-1], value) for path, value in leaves(record)}
    for name, values in ABSENT.items():
        path = tuple(name.split("."))
        if path not in places:
            places[path] = values
    for path, values in places.items():
        for value in values:
            forged = [edited(record, path, value)]
            with contextlib.suppress(*FAULTS):
                forged.append(remade(forged[0]))
            for one in forged:
                release = accepted(one)
                if release is not None and promises_more(release, original):
                    found.add(name_of(path))
    return found


def name_of(path):
    """A field's name on the page: sums before a descent have those of sums alone."""
    names = [name for name in path if not isinstance(name, int)]
    if names[0] == "bound":
        return f"bound.{names[-1]}"
    return ".".join(names[:2]) if names[0] == "problem" else names[0]


@pytest.fixture(scope="module")
def found():
    """Of each record what is not seen."""
    return {name: found_in(record_of(name)) for name in NAMES}


@pytest.mark.kills("privacy/contradictions.py", "<= mu <= budget * (1.0 + ROUNDING)", "<= mu")
def test_whatever_promises_more_is_refused_or_listed(found):
    unseen = {field: name for name, fields in found.items() for field in fields}
    assert not {field: name for field, name in unseen.items() if field not in UNSEEN}
    # And the list has nothing that is seen today.
    assert not UNSEEN.keys() - unseen.keys()


@pytest.mark.kills("privacy/contradictions.py", '(loss == "") == (tag == "Sums")', "True")
@pytest.mark.parametrize("field", ["problem.radius", "bound.budget", "bound.type"])
def test_a_radius_and_a_bound_are_seen_wherever_noise_is_stated(found, field):
    assert {name for name, fields in found.items() if field in fields} == {"of one's own"}


def test_the_page_of_forgeries_has_the_same_list():
    text = (Path(__file__).parents[2] / "docs" / "folder.md").read_text()
    listed = text.partition("## What a record alone cannot tell")[2].partition("\n## ")[0]
    assert {*re.findall(r"`([\w.]+)`", listed)} == UNSEEN.keys()
