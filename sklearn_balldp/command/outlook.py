"""What a fit would release, in words for its owner's terminal."""

import math
import textwrap

import numpy as np
from numpy.typing import NDArray

from ..heads.plan import AT_RISK, LOST, risks
from ..publish.card import NOTHING_HIDDEN, in_short
from ..publish.columns import HiddenColumns
from ..showing import down, one_line, up
from .job import Job
from .public import foretold
from .records import Records

_MAX_AT_RISK = 10
#: Seconds that are not worth a word.
SHORT = 10.0
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
    if getattr(job.head, "class_embeddings", None) is not None:
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
    if job.seconds_of_steps >= SHORT:
        lines.append(f"Time      {math.ceil(job.seconds_of_steps / 60.0)} min or less to fit")
    if release.guarantee().advantage > NOTHING_HIDDEN:
        lines.append(f"Warning   epsilon {up(release.epsilon)} hides next to nothing: lower it")
    return "\n".join(lines)


def _of_columns(job: Job, table: HiddenColumns) -> list[str]:
    """Cells that are not as declared, and how far each column may change unseen."""
    lines = [f"Columns   {len(job.records.counts)} in {job.records.X.shape[1]:,} cells"]
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


def foretell(job: Job) -> NDArray[np.floating] | None:
    """Public rows, after the accuracy that they let expect was printed."""
    if job.public is None:
        return None
    if job.step is None:
        print("Accuracy  not foretold without rows, which balldp embed makes")
        return None
    rows = job.rows(job.public.X)
    print(
        f"Accuracy  {foretold(job.head, job.records, job.public, rows, job.examples)}", flush=True
    )
    return rows


def baseline(public: Records) -> float:
    """Share of the largest class: the accuracy of whoever always names it."""
    counts = np.unique(np.asarray(public.y), return_counts=True)[1]
    return float(counts.max() / counts.sum())


def warning(job: Job, score: float | None) -> str | None:
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
