"""What a fit would release, in words for its owner's terminal."""

import math
import textwrap

import numpy as np
from sklearn.base import clone

from ..heads.plan import AT_RISK, LOST, risks
from ..progress import shown
from ..publish.card import NOTHING_HIDDEN, in_short
from ..publish.columns import HiddenColumns
from ..showing import down, one_line, up
from .job import Job
from .records import Records

_MAX_AT_RISK = 10
# Records for each cell of a table, below which noise costs much: at epsilon 1 and standard DP on
# independent columns, 10 to 19 points of accuracy at 10, 6 to 11 at 20, 3 to 4 at 50.
_RECORDS_PER_CELL = 10
# An epsilon at which nobody sees the noise, and points of accuracy within which a forecast helps.
_NOISELESS, _TOO_FAR = 1e3, 10.0
_BELOW = " " * 10


def describe(job: Job) -> str:
    """The plan in words: for the owner's terminal, as it counts private records."""
    release, records = job.plan.release, job.records
    lines = [f"Records   {len(records.X):,} in {release.n_classes} classes"]
    if records.n_dropped:
        lines.append(
            f"{_BELOW}{records.n_dropped:,} lacked something and are left out; whether a record "
            "did is not hidden"
        )
    if records.n_repeated:
        lines.append(f"{_BELOW}{records.n_repeated:,} repeat an earlier one; all are kept")
    if records.owners is not None:
        lines.append(f"Owners    {release.n_units:,}; all records of one are hidden together")
    if release.examples:
        lines.append(f"Examples  {release.examples:,} public ones, which the fit starts from")
    if job.named:
        lines.append("Names     of the classes are public, and the fit starts from them too")
    if job.hidden is not None:
        lines += _of_columns(job, job.hidden)
    lines.append(
        f"Promise   epsilon {up(release.epsilon)}, delta {release.delta:g}, labels "
        f"{release.labels}, radius {down(release.radius)} between unit rows"
    )
    # As the card will say it.
    for sentence in in_short(release, job.hidden, lambda name: one_line(name, 60)):
        # A number and its unit stay in one line.
        kept = textwrap.wrap(sentence.replace(" %", "\xa0%"), 90)
        lines += [_BELOW + line.replace("\xa0%", " %") for line in kept]
    lines += _at_risk(job)
    return "\n".join(lines)


def _of_columns(job: Job, table: HiddenColumns) -> list[str]:
    """Cells that are not as declared, and how far each column may change unseen."""
    n, width = job.records.X.shape
    lines = [f"Columns   {len(job.records.counts)} in {width:,} cells"]
    if width * _RECORDS_PER_CELL > n:
        lines[0] += ", many for so few records: delete what is not needed, as each takes noise"
    for name, (outside, missing) in job.records.counts.items():
        odd = {"not as declared (beyond the bounds, or unknown)": outside, "missing": missing}
        shown = ", ".join(f"{number:,} {what}" for what, number in odd.items() if number)
        lines += [f"{_BELOW}{one_line(name, 60)}: {shown}"] if shown else []
    if table.rows:
        changes = (f"{one_line(name, 60)} {change}" for name, (_, change) in table.rows.items())
        lines.append(f"{_BELOW}may change unseen, alone: {'; '.join(changes)}")
    return lines


def _at_risk(job: Job) -> list[str]:
    """The classes that the noise drowns first, where labels are public."""
    ratios, counts = job.plan.class_signal_to_noise, job.plan.class_counts
    if not ratios or counts is None:
        return []
    names = np.unique(np.asarray(job.records.y))
    order = [i for i in np.argsort(ratios).tolist() if ratios[i] < AT_RISK]
    lines = [f"At risk   {risks(ratios)}"]
    for i in order[:_MAX_AT_RISK]:
        word = "likely lost" if ratios[i] < LOST else "at risk"
        lines.append(
            f"{_BELOW}{one_line(names[i], 40)}: {counts[i]:,} records, {word} (signal to noise at "
            f"most {ratios[i]:.2g})"
        )
    return lines


def foretell(job: Job) -> None:
    """Print the accuracy to expect, where there are public records."""
    if job.public is not None:
        with shown(True):
            print(f"Accuracy  {_foretold(job, job.public)}", flush=True)


def _foretold(job: Job, public: Records) -> str:
    """Accuracy to expect, by the same fit on public records in place of the private ones.

    Each private record gives way to one of its label, or of any where labels are hidden. Beside it
    stands the same fit without noise, on the same rows; public examples are those of the fit.
    """
    head, rows, rng = job.head, public.X, np.random.default_rng(0)
    labels, wanted = np.asarray(public.y), np.asarray(job.records.y)
    classes = np.unique(wanted if head.classes is None else head.classes)
    order = rng.permutation(np.flatnonzero(np.isin(labels, classes)))
    fitted, tested = np.array_split(order, 2)
    if not len(tested) or len(np.unique(labels[fitted])) < 2:
        return "not foretold: public records are too few, or of one class"
    if head.protect_labels:
        wanted = rng.choice(labels[fitted], len(wanted))
    names, own = np.unique(wanted, return_inverse=True)
    chosen = np.empty(len(wanted), dtype=np.intp)
    for code, name in enumerate(names):
        places, mine = fitted[labels[fitted] == name], own == code
        if not len(places):
            return "not foretold: some classes have too few public records"
        chosen[mine] = rng.choice(places, np.sum(mine))
    given, more = (rows[chosen], labels[chosen]), job.records.groups | job.examples
    try:
        models = [
            clone(head).set_params(epsilon=e).fit(*given, **more)
            for e in (_NOISELESS, head.epsilon)
        ]
    except ValueError:
        # A forecast ends no run: what is wrong with the private records is said by their fit.
        return "not foretold: public records cannot be fitted"
    before, after = (model.predict(rows[tested]) == labels[tested] for model in models)
    cost = 100.0 * max(float(np.mean(before) - np.mean(after)), 0.0)
    # Two standard deviations of how many records only one of the two models is right about; one
    # more that differs, as none in few tells little.
    error = 200.0 * math.sqrt(np.sum(before != after) + 1) / len(tested)
    few = f" ({len(tested):,} records tell no more: name more public ones)"
    return (
        f"the noise costs {cost:.0f} points, give or take {error:.0f}"
        f"{few if error > _TOO_FAR else ''}: {np.mean(after):.2f}, and {np.mean(before):.2f} "
        f"without it (the same fit on {len(fitted):,} public records, repeated, and tested on "
        f"{len(tested):,} others)"
    )


def baseline(public: Records) -> float:
    """Share of the largest class: the accuracy of whoever always names it."""
    counts = np.unique(np.asarray(public.y), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def warning(job: Job, score: float | None = None) -> str | None:
    """What speaks against publishing a model: public numbers, and its score on public records."""
    if job.plan.release.guarantee().advantage > NOTHING_HIDDEN:
        return "the model hides next to nothing: lower epsilon before you publish one."
    ratios = job.plan.class_signal_to_noise or (max(job.plan.signal_to_noise, default=math.inf),)
    lost = sum(ratio < LOST for ratio in ratios) > len(ratios) / 2 and not job.examples
    if score is not None and job.public is not None:
        lost = lost or score <= baseline(job.public)
    if not lost:
        return None
    return (
        "the noise may drown most of the model: more records, a larger epsilon or a smaller radius "
        "help; see docs/troubleshooting."
    )
