"""The card: one page about a release, for readers who decide about it without technical knowledge.

It is one Markdown text. What depends on the release is worded once, in :func:`_words`, and escaped
where it may be a stranger's.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .._parameters import LEAST, MOST
from ..heads.inspection import matches
from ..pipelines import parts_of
from ..privacy.noise import EXACT_SAMPLER, SEEDED_SAMPLER
from ..privacy.release import Release
from ..showing import DOWN, down, one_line, percent, rounded, up
from .columns import Change, HiddenColumns
from .steps import Step, step_of
from .words import (
    assumptions,
    hidden_edits,
    started_from,
    vouched_for,
    weights_in_words,
)

#: Numbers of candidates of the certificates.
CANDIDATES = (2, 10, 100)
#: False-positive rates of the true-positive rates.
FALSE_POSITIVE_RATES = (0.01, 0.001)
#: Where the noise came from, in words.
SAMPLERS = {
    EXACT_SAMPLER: "drawn exactly, from random numbers of the operating system",
    SEEDED_SAMPLER: "drawn from a seed, and so not private",
}
#: Advantage of an attacker above which a release hides next to nothing.
NOTHING_HIDDEN = 0.99
# Marks that Markdown, or what hubs add to it (links of bare addresses, formulas), acts on.
_MARKS = re.compile(r"[\\`*_<>\[\]|&~$@]|:(?=//)|(?<=www)\.", re.IGNORECASE)


class Card(str):
    """A release in plain words: a text in Markdown, which notebooks show as a page.

    Made by :func:`.card`.
    """

    __slots__ = ()

    def _repr_markdown_(self) -> str:
        return str(self)


def marked(text: object) -> str:
    """A stranger's text as one line of Markdown that shows it as it is."""
    return _MARKS.sub(r"\\\g<0>", one_line(text, 1000))


def card(model: Any, audit: Any = None, change: Any = None) -> Card:
    """What a release promises, in plain words.

    Parameters
    ----------
    model : estimator or Release
        A fitted Ball-DP head, or a Pipeline that ends in one: its steps are named, and its
        parameters compared with the record. Of a Release alone the card says nothing about either.
    audit : ReconstructionAuditor or None, default=None
        Adds the results of a fitted audit. They depend on private records, and the card says that
        this part is not for publication.
    change : int, mapping or None, default=None
        Of a Pipeline that begins with a :class:`.TableEncoder`: the change of a record that its
        radius was declared for, as :func:`.save` takes it.

    Returns
    -------
    Card
        A text (``str``) in Markdown, which notebooks show as a page.

    Raises
    ------
    ValueError
        If the model is no fitted Ball-DP head, or a step before it is of no kind that can be
        published.

    References
    ----------
    NIST SP 800-226 for what a guarantee has to state; Kulynych et al. (2025) for the one bound on
    re-identification, attribute inference and reconstruction.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_balldp import BallDPRidgePrototype
    >>> from sklearn_balldp.publish import card
    >>> head = BallDPRidgePrototype(radius=0.5).fit(*load_iris(return_X_y=True))
    >>> print(card(head).partition("\\n")[0])
    # Privacy card of a BallDPRidgePrototype
    """
    if isinstance(model, Release):
        return card_text(model, audit=audit)
    parts = parts_of(model)
    release = getattr(parts.head, "release_", None)
    if not isinstance(release, Release):
        raise ValueError(
            f"model: expected a fitted Ball-DP head, a Pipeline that ends in one, or a Release; "
            f"got {type(model).__name__}."
        )
    steps = {name: step for name, live in parts.steps if (step := step_of(live)) is not None}
    names = parts.head.released_.settings.class_embeddings is not None
    same = matches(release, model)
    return card_text(release, steps, same, audit, parts.beyond_rows, change, names)


def card_text(
    release: Release,
    steps: Mapping[str, Step] | None = None,
    same: bool | None = None,
    audit: Any = None,
    beyond_rows: str = "",
    change: Change = None,
    names: bool = False,
) -> Card:
    """The card of a release, of the steps before its head, and of parameters that are the same.

    What is None is not at hand. ``beyond_rows`` names steps that may map a row by others;
    ``names`` says whether public vectors of the classes were used.
    """
    table = HiddenColumns.of(release, steps, change)
    fault = None if table is None else table.fault
    if fault is not None:
        raise ValueError(f"change={change!r}: {fault}; leave it out, or name what it hides.")
    w = _words(release, steps, table, marked)
    moved = f"steps before the head: {beyond_rows}, so that one record may have moved all rows"
    beyond = [moved] if beyond_rows else []
    short = "\n- ".join(in_short(release, table, marked, beyond))
    return Card(f"""\
# Privacy card of a {marked(release.head)}
{_warning(release)}
## In short

- {short}

## What is promised{w["seedless"]}

This model was trained on {w["trained"]}. The promise limits what anyone can learn about \
{w["one"]}. Suppose {w["change"]}. {_before(release, steps, table)}\
{w["tells"]} which of the two was used, even with {w["others"]}, the method and its settings at \
hand. The advantage over guessing is at most {w["advantage"]} (0 % is guessing, \
100 % is certainty).{w["condition"]}
{_columns(table)}
## What is not covered

{w["further"]}{w["labels"]}- {w["several"]}
- what is true of the population: a model may reveal that smokers fall ill, whoever took part
- the number of records, the encoder and every setting, which are public
- preprocessing fitted on the private records, and anything else made from them
{points(beyond)}\
- a publisher who does otherwise than this page says: anyone can check that model and record \
agree (balldp verify), only the owner of the records can test the noise, and no check finds a \
clever lie
{points([vouched_for(release)] if release.accepted else [])}
## The guarantee in numbers

All numbers are upper bounds, and the first column of each table is the one promised. They hold \
for re-identification, attribute inference and reconstruction (Kulynych et al., 2025, \
arXiv:2507.06969).{w["guess"]}

{w["versions"]}:

{_told_apart(release, table)}

True positives: how often an attacker recognises one version. False positives: how often that \
version is named when it was the other.

{w["candidates"]}:

{_named(release, table)}

## Other releases from the same records

Each further model from the same records weakens the promise. mu measures the loss: this model \
has mu = {w["mu"]} at {w["distance"]}. To add up several models, take the mu of \
each at one and the same distance: the last column of their tables has it. Together they have \
mu = sqrt(mu1^2 + mu2^2 + ...) at that distance, and hide what each of them hides. This holds if \
the mu of each was fixed before the first model was seen. Choosing the best of several models by \
scores on private records is a release of its own.
{_measured(audit)}
## Where it comes from

{points(_origin(release, same, names))}""")


def in_short(
    release: Release,
    table: HiddenColumns | None,
    escaped: Callable[[str], str],
    beyond: Iterable[str] = (),
) -> list[str]:
    """What is hidden, what an attacker gains and what is not covered: a sentence or two each.

    The card and the terminal show the same; ``escaped`` makes a stranger's name fit for its place.
    """
    w = _words(release, None, table, escaped, beyond)
    return [
        w["hidden"],
        f"What an attacker gains{w['seedless']}: whoever knows {w['others']}, and holds ten "
        f"equally likely {candidates_of(release, table=table)}, names the true one with "
        f"probability {percent(release.certificate(0.1))} at most. A blind guess is right with "
        "probability 10 %.",
        f"Not covered: {w['uncovered']}what several models from the same records tell together.",
    ]


def _words(
    release: Release,
    steps: Mapping[str, Step] | None,
    table: HiddenColumns | None,
    escaped: Callable[[str], str],
    beyond: Iterable[str] = (),
) -> dict[str, str]:
    """What depends on whom a release hides, and which changes."""
    person, protected = release.unit == "person", release.labels == "protected"
    anywhere, seeded = _at_any_distance(release, table), release.private is False
    once, twice = (release.guarantee(records=n) for n in (1, 2))
    radius, two, mu = down(release.radius), up(twice.epsilon), up(once.mu)
    advantage = percent(once.advantage)
    hidden = "Hidden: whether a record was swapped for another: "
    if person:
        hidden = "Hidden: whether the records of one person were swapped for others, each for "
    hidden += _other(release, table, f"at most {radius} away ({_meaning(release)})")
    if table is not None:
        hidden = f"Hidden: {table.shown(escaped)}"
    # How many records a person has is no standard secret, and a seed or such a radius hides less.
    if protected and anywhere and not person and release.private is True and not [*beyond]:
        hidden += ", which is standard differential privacy"
    hidden += "."
    condition = ""
    if seeded:
        hidden = f"Not private, because of the seed. {hidden.replace(':', ' without it:', 1)}"
    if release.private == "conditional":
        hidden += " This holds if the radius, which was read off the records, may be public."
        condition = " This holds on one condition: the radius, read off the records, may be public."
    if once.advantage > NOTHING_HIDDEN:
        hidden = "Next to nothing is hidden: the noise is too small."
    trained = f"{release.n_samples} private records"
    uncovered = "" if protected else "labels and class counts; "
    uncovered += "" if anywhere else "larger changes; "
    uncovered += "several persons at once; " if person else "several records of one person; "
    several = f"several records of one person: for two records epsilon is {two}"
    if person:
        max_records = release.weights.most_records
        trained += f" of {release.n_units} persons (at most {max_records} of one person)"
        several = f"several persons at once: for two persons epsilon is {two}; and which records "
        several += "belong to one person, which the publisher stated"
    labels = "- labels, and how many records each class has: they are public\n"
    further = "- replacements further away than the distance promised, beyond what the tables say\n"
    candidates = candidates_of(release, "of this radius", table)
    if "ball" in candidates:
        candidates += ", so that two of them may be twice as far apart (but no further than any "
        candidates += "two rows can be)"
    return {
        "hidden": hidden,
        "advantage": advantage,
        "mu": mu,
        "others": "the records of everybody else" if person else "all other records",
        "uncovered": uncovered,
        "trained": trained,
        "one": "one person among them" if person else "one of them",
        "change": f"{'each record of one person' if person else 'a record'} is replaced by "
        f"{_other(release, table, f'within {radius} ({_distance(release, steps)})')}",
        "tells": f"{'Without the seed, whoever' if seeded else 'Whoever'} sees the model "
        f"{_tells(once.advantage)}",
        "seedless": " without the seed" if seeded else "",
        "condition": condition,
        "further": "" if anywhere else further,
        "labels": "" if protected else labels,
        "several": several,
        "versions": _versions(person, protected),
        "candidates": f"{candidates[0].upper()}{candidates[1:]}",
        "distance": "any distance" if anywhere else f"{radius}, the distance promised",
        "guess": "" if protected else " Guessing the label is not covered.",
    }


def reach_of(release: Release, table: HiddenColumns | None) -> float:
    """A radius that no two rows exceed."""
    return release.full_radius if table is None else table.reach


def _at_any_distance(release: Release, table: HiddenColumns | None) -> bool:
    """Whether no two rows are further apart than the radius."""
    return bool(release.radius >= reach_of(release, table))


def _other(release: Release, table: HiddenColumns | None, near: str) -> str:
    """What may take a record's place unseen."""
    if release.labels == "protected":
        if _at_any_distance(release, table):
            return "any other, whatever its label"
        return f"any record of a different label, or one of the same label {near}"
    anywhere = _at_any_distance(release, table)
    return "any of the same label" if anywhere else f"one of the same label {near}"


def _distance(release: Release, steps: Mapping[str, Step] | None) -> str:
    """Which distance the radius is one of."""
    # Without a model nobody knows whether steps come before the head.
    alone = steps is not None and not steps
    as_seen = "" if alone else " as the head sees them"
    scaled = f" scaled to norm {release.norm_bound:g}" if release.domain == "sphere" else ""
    hidden = hidden_edits(release)
    edits = f", which covers {hidden}" if hidden else ""
    return f"{release.metric} distance between rows{as_seen}{scaled}{edits}"


def candidates_of(
    release: Release, ball: str | None = None, table: HiddenColumns | None = None
) -> str:
    """Which candidates a certificate of a release is about; ``ball`` names its size in words.

    They lie inside one ball around a possible record, as the proof asks. On the sphere not every
    ball has a possible record in its centre.
    """
    protected, several = release.labels == "protected", release.weights.most_records > 1
    anywhere = _at_any_distance(release, table)
    if protected and (anywhere or not several):
        return f"candidates{' for the records of one person' if several else ''}, of any labels"
    around = f"inside one ball {ball or f'of radius {down(release.radius)}'} around a possible "
    if several:
        words = "candidates for the records of one person, with the same labels"
        return words if anywhere else f"{words}, each record {around}one"
    return f"candidates of one label{'' if anywhere else f', all {around}record'}"


def _versions(person: bool, protected: bool) -> str:
    """Which two data sets a guarantee is about, above a table of distances."""
    if person:
        labels = "or given another label" if protected else "with the same labels"
        return f"Two versions of one person's records, each record moved at most so far, {labels}"
    labels = ", or of different labels" if protected else ""
    return f"Two records of the same label, at most so far apart{labels}"


def points(texts: Iterable[object]) -> str:
    """Points of a list, of texts that may be a stranger's."""
    return "".join(f"- {marked(text)}\n" for text in texts)


def _warning(release: Release) -> str:
    """A warning in front of everything else, where noise was drawn from a seed."""
    if release.private is not False:
        return ""
    seeded = "The noise in this model was drawn from a seed. Whoever knows or guesses the seed can "
    seeded += "take the noise off, so nothing is hidden."
    further = "All numbers on this page hold for the same method without a seed."
    return f"\n## NOT PRIVATE\n\n{seeded} {further}\n"


def _meaning(release: Release) -> str:
    """What a radius means that is not the largest."""
    hidden = hidden_edits(release)
    if hidden:
        return f"this covers {hidden}"
    share = release.radius / release.full_radius
    if share < 0.01:
        return "less than a hundredth of the largest distance of two rows"
    return f"{percent(share, DOWN, places=0)} of the largest distance of two rows"


def _tells(advantage: float) -> str:
    """What an attacker of this advantage can do."""
    if advantage < 0.1:
        return "can hardly tell"
    return "tells a little better than by chance" if advantage <= 0.3 else "can often tell"


def _acting(steps: Mapping[str, Step]) -> dict[str, float | None]:
    """How far steps that do anything stretch distances, by their names."""
    return {marked(name): step.stretch for name, step in steps.items()}


def _columns(table: HiddenColumns | None) -> str:
    """By how much each column may change unseen, where not every change of one is hidden."""
    rows = {} if table is None else table.rows
    if not rows:
        return ""
    shown = {marked(name): [*map(marked, cells)] for name, cells in rows.items()}
    changes = _table("column", ("may hold", "may change unseen, alone"), shown)
    return f"""
Each column alone may change so much, between two values that are there:

{changes}
"""


def _before(release: Release, steps: Mapping[str, Step] | None, table: HiddenColumns | None) -> str:
    """What the distance is before the steps of a pipeline, if anything bounds it."""
    stretches = _acting(steps or {})
    if not stretches:
        return ""
    if table is not None:
        return "" if table.everything else f"So these may change unseen: {table.shown(marked)}. "
    if _at_any_distance(release, table):
        return f"The head sees rows after {', '.join(stretches)}. "
    names, unknown = ", ".join(stretches), [name for name, s in stretches.items() if s is None]
    factor = math.prod(stretch for stretch in stretches.values() if stretch is not None)
    if release.domain == "sphere":
        # Short rows are stretched by it, as far as one likes.
        unknown.append(f"the scaling to norm {release.norm_bound:g} after them")
    if unknown or release.metric != "euclidean" or not LEAST <= factor <= MOST:
        return (
            f"The head sees rows after {names}, and the distance is one of these rows. How far "
            f"apart they are before is not known: {', '.join(unknown) or names} may move even "
            "records that are all but equal further apart. "
        )
    radius = down(release.radius)
    before = rounded(float(radius) / factor * (1.0 - 1e-9), 4, DOWN)
    return (
        f"The head sees rows after {names}. Two rows within {before} of each other before these "
        f"steps lie within {radius} after them. "
    )


def _told_apart(release: Release, table: HiddenColumns | None) -> str:
    """What may be learned about two records, by their distance."""
    radii = _radii(release, table)
    columns = [release.guarantee(radius) for radius in radii.values()]
    rows = {
        "epsilon": [up(g.epsilon) for g in columns],
        "delta": [up(g.delta) for g in columns],
        "mu (Gaussian DP)": [up(g.mu) for g in columns],
        "rho (zero-concentrated DP)": [up(0.5 * g.mu**2) for g in columns],
        "advantage in telling the two apart": [percent(g.advantage) for g in columns],
    }
    for rate in FALSE_POSITIVE_RATES:
        name = f"true positives at {100.0 * rate:g} % false positives"
        rows[name] = [percent(g.tpr(rate)) for g in columns]
    return _table("distance", radii, rows)


def _named(release: Release, table: HiddenColumns | None) -> str:
    """How often the right one of several candidates is named, by the radius of their ball."""
    radii = _radii(release, table)
    if "ball" not in candidates_of(release, table=table):
        radii = {_anywhere(reach_of(release, table)): None}
    columns = [release.guarantee_of_candidates(radius) for radius in radii.values()]
    rows = {
        f"names the right one of {m} candidates": [percent(g.certificate(1.0 / m)) for g in columns]
        for m in CANDIDATES
    }
    return _table("radius", radii, rows)


def _radii(release: Release, table: HiddenColumns | None) -> dict[str, float | None]:
    """Radii of a table: the declared one (None), twice that, and the largest there is."""
    declared, full = release.radius, reach_of(release, table)
    shown: dict[str, float | None] = {f"r = {down(declared)}": None} if declared < full else {}
    if 2.0 * declared < full:
        shown[f"2 r = {down(2.0 * declared)}"] = 2.0 * declared
    return {**shown, _anywhere(full): full if shown else None}


def _anywhere(full: float) -> str:
    return f"any (up to {up(full)})"


def _table(title: str, columns: Iterable[str], rows: dict[str, list[str]]) -> str:
    heads = [title, *columns]
    lines = [heads, ["---"] * len(heads), *([name, *cells] for name, cells in rows.items())]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _measured(audit: Any) -> str:
    """Results of an audit, which are the owner's."""
    if audit is None:
        return ""
    low, high = audit.success_interval_["clopper_pearson"]
    results = [
        f"{len(audit.report_)} simulated attacks by someone who knows all other records: the right "
        f"candidate was named in {percent(audit.success_rate_)} ({percent(low, DOWN)} to "
        f"{percent(high)}); blind guess {percent(audit.baseline_)}, bound "
        f"{percent(float(audit.certificate_['direct']))}",
    ]
    checks = audit.noise_.itertuples(index=False)
    results += [f"check of the {row.name}: {row.verdict} ({row.found})" for row in checks]
    results += [f"FAILED: {failure}" for failure in audit.failures_]
    return f"""
## Measured by the owner: not for publication

These results depend on the private records, and no guarantee covers them. Take this section out \
before you publish the card. The tests find mistakes; they certify nothing.

{points(results)}"""


def _origin(release: Release, same: bool | None, names: bool) -> list[str]:
    """Where a release comes from, and what it takes for granted."""
    verb, weights = "has" if same else "does NOT have", weights_in_words(release)
    return [
        f"released on {release.date} by sklearn_balldp {release.version}, numpy "
        f"{release.numpy_version}",
        f"mechanism: {release.bound.what} ({release.mechanism})",
        f"proof, for experts: the sensitivity is bounded by {release.theorem}",
        f"radius: {repr(release.radius).removesuffix('.0')}; noise: {SAMPLERS[release.sampler]}",
        *([f"weights: {weights}"] if weights else []),
        *([examples] if (examples := started_from(release)) else []),
        *(["public vectors of the classes, such as their names, were used"] if names else []),
        f"encoder of the records: {release.encoder or 'not recorded'}",
        f"SHA-256 of the released parameters: {release.digest or 'not recorded'}",
        *([] if same is None else [f"the model at hand {verb} these parameters"]),
        *(f"assumes: {assumption}" for assumption in assumptions(release)),
    ]
