"""A fit before any noise is drawn: from files and options to a head, and what it would release."""

import argparse
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import Normalizer

from ..audit.certificates import epsilon_from_certificate
from ..edits import edit_pairs
from ..encoders import ImageEncoder, SentenceEncoder, TableEncoder
from ..encoders.base import BaseEncoder
from ..encoders.named import encoder_of
from ..encoders.weights import DEFAULT, DEFAULT_WIDTH, hub_name, located
from ..heads import HEADS as CLASSES
from ..heads.plan import Plan
from ..mechanisms import DescentBound, GradientPerturbation, MeanGradient
from ..mechanisms import Records as ArrayRecords
from ..privacy.release import Release
from ..publish.columns import HiddenColumns
from ..radius import RadiusPolicy
from ..text import appearance, one_line, trimmed
from .columns import change_of, check_apart, declared_in
from .files import SHOWN, Columns
from .options import CANDIDATES, EDITS, HEADS, HIDDEN_EDITS, InputError
from .public import of_classes, read_public
from .records import Records, aligned, read, tell_cut, unlike_declared

#: Width of the rows of the command's encoder of images.
IMAGE_WIDTH = 512
# Records that are embedded to tell how long all of them will take: an eighth of all, and no more
# than these. Fewer than a batch would take longer each.
_SAMPLE, _BATCH = 256, 32
# Multiplications in a step from which its time is worth a look, and enough of them to tell it.
_FAST, _ENOUGH = 10**7, 2**24
# Records for each cell of a table, below which noise costs much: at epsilon 1 and standard DP on
# independent columns, 10 to 19 points of accuracy at 10, 6 to 11 at 20, 3 to 4 at 50.
_RECORDS_PER_CELL = 10
# Among so few records many labels say nothing.
_FEW = 20


@dataclass(frozen=True)
class Job:
    """A fit before any noise is drawn."""

    head: Any  # the head, which is not fitted
    column: str | None  # where the records lie; None of a table
    #: What makes rows of unit norm of the records: an encoder, or for embeddings their norm.
    step: Any
    records: Records  # the private records
    public: Records | None  # public ones, if there are any
    plan: Plan  # what the fit would release
    #: About how long the records will take to be embedded; None where it was not measured.
    seconds: float | None
    seconds_of_steps: float  # about how long the steps of the fit will take, after that
    change: Any = None  # of a table: the change of a record that is declared to be hidden

    def rows(self, X: Any) -> NDArray[Any]:
        """Rows as the head sees them."""
        # A table was made rows when it was read.
        return np.asarray(X if isinstance(self.step, TableEncoder) else self.step.transform(X))


def prepare(options: argparse.Namespace, tried: Callable[..., None] | None = None) -> Job:
    """Read the files, and plan the fit; an InputError if a file or an option is invalid.

    ``tried`` may refuse what the fit would release, if possible before any record is embedded. It
    is told how far apart rows of a table are at most.
    """
    # What options alone decide is refused before a file is read.
    params, table, change = _params(options), None, None
    if options.columns is not None:
        table = declared_in(options.columns)
        check_apart(options.columns, table, options.label, options.owner)
    if table is None or options.hide is None:
        radius = _radius(options)
    else:
        change = change_of(table, options.hide)
        radius = table.radius(change)
    columns = Columns(
        options.text, options.image, options.embedding, options.label, options.owner, table
    )
    records = read(options.file, columns, missing=options.missing)
    n_units = len(records.X if records.owners is None else np.unique(records.owners))
    if not 0.0 < options.delta * n_units < 1.0:
        raise InputError(
            f"--delta {options.delta:g} must be above 0 and below 1/n, {1 / n_units:.2g}."
        )
    public = read_public(options.public, replace(columns, owner=None), records)
    protected = options.labels == "protected"
    if not protected:
        _check_labels(f"--label {options.label}", records)
    step, seconds = table or _step(columns.kind, options), None
    embeds = columns.kind in ("text", "image")
    if table is not None:
        _check_table(options.columns, table, records)
        width, params["encoder"] = records.X.shape[1], table.identity
        params["domain"] = "sphere"
    elif not embeds:
        # Public rows of another width are refused before any noise is drawn.
        step.fit(records.X[:1])
        width, params["encoder"] = records.X.shape[1], _identity(options.encoder)
    else:
        # A plan counts: nothing is embedded, unless the radius comes from edits.
        width = _width(step, assume=options.command == "plan")
        if options.command == "plan" and _at_hand(step) is not None:
            # A plan can do without the library.
            with suppress(ImportError):
                _tell_cut(step, options, records, public)
    if radius == EDITS:
        assert public is not None
        radius = radius_of_edits(public, step)
    if protected:
        classes = _classes(options.classes)
        records = _declared(records, classes, options.classes)
        params |= {"protect_labels": True, "classes": classes}
    head = CLASSES[HEADS[options.head]](radius=radius, verbose=True, **params)
    if public is not None:
        public = of_classes(options.public, public, head.classes if protected else records.y)
    labels = {} if protected else {"y": records.y}

    def planned(width: int) -> Plan:
        plan = head.plan(len(records.X), width, **labels, **records.groups)
        if tried is not None:
            reach = None if table is None else HiddenColumns(plan.release, table, change).reach
            tried(plan.release, reach)
        return plan

    if embeds and options.command == "train":
        if tried is not None and width is not None:
            head.set_params(encoder=_at_hand(step))
            planned(width)
        _tell_cut(step, options, records, public)
        width, seconds = _measured(step, records.X)
        head.set_params(encoder=step.identity)
    assert width is not None
    plan = planned(width)
    # The forecast by public records takes the same steps twice, with noise and without.
    n_fits = 1 if public is None else 3
    of_steps = n_fits * seconds_of_steps(plan.release)
    column = None if table is not None else columns.content
    return Job(head, column, step, records, public, plan, seconds, of_steps, change)


# -- options --------------------------------------------------------------------------------------


def _radius(options: argparse.Namespace) -> Any:
    """A number, :data:`EDITS`, or None for any distance."""
    text = options.radius
    if text == "none":
        return None
    if text == EDITS:
        if options.public is None or options.text is None:
            raise InputError(
                "--radius edits needs --text and --public FILE with texts of the same kind."
            )
        return EDITS
    try:
        radius = float(text)
    except ValueError:
        radius = math.nan
    if not 0.0 < radius <= 2.0:
        why = "; rows of unit norm are never further apart than 2" if radius > 2.0 else ""
        raise InputError(
            f"--radius {text}: give a number above 0 and at most 2, 'edits', or 'none' for any "
            f"distance{why}."
        )
    return radius


def radius_of_edits(public: Records, encoder: Any) -> Any:
    """A policy that was fitted on edits of public texts."""
    pairs = edit_pairs(public.X)
    before, after = (encoder.transform(texts) for texts in (pairs.before, pairs.after))
    policy = RadiusPolicy(HIDDEN_EDITS, source="edits")
    return FrozenEstimator(policy.fit(before, after, record=pairs.record))


def _params(options: argparse.Namespace) -> dict[str, Any]:
    """Parameters that follow from options alone."""
    name, keeps = options.head, getattr(options, "keep_transcript", None) is not None
    protected, descends = options.labels == "protected", name in ("logistic", "svc")
    rare, risk = options.rare, options.risk
    sizes, guess = "--labels public: sizes of classes are hidden otherwise.", 1.0 / CANDIDATES
    beyond = risk is not None and not guess < risk < 1.0
    refused = {
        f"--risk {risk} must lie between a blind guess, {guess:g}, and 1.": beyond,
        f"--rare needs {sizes}": rare and protected,
        "--rare: scores of the SVC are no log-odds; use --head logistic.": rare and name == "svc",
        f"--keep-transcript: --head {name} has no steps to keep.": keeps and not descends,
        "--labels protected needs --classes FILE, a public list of labels.": protected
        and not options.classes,
        "--classes is for --labels protected; public labels are read from FILE.": options.classes
        and not protected,
        "--max-length is for --text.": options.max_length is not None and not options.text,
        "--cache: embeddings are not computed; leave it out.": options.cache
        and (options.embedding or options.columns),
        "--encoder: the rows of a table follow from --columns; leave it out.": options.encoder
        and options.columns,
    }
    for reason, wrong in refused.items():
        if wrong:
            raise InputError(reason)
    params: dict[str, Any] = {"epsilon": options.epsilon, "delta": options.delta}
    if risk is not None:
        params["epsilon"] = epsilon_from_certificate(risk, guess, options.delta)
    if rare:
        params |= {"class_weight": "balanced"} if name == "logistic" else {"priors": "uniform"}
    if keeps:
        params["mechanism"] = GradientPerturbation(keep_transcript=True)
    return params


# -- what makes rows ------------------------------------------------------------------------------


def _check_table(path: Path, encoder: TableEncoder, records: Records) -> None:
    """Notes for the owner's terminal alone, as they tell of private records."""
    n, width = records.X.shape
    notes = [*unlike_declared(encoder, records.counts, n), *records.odd]
    if width * _RECORDS_PER_CELL > n:
        notes.append(
            f"{width:,} cells are many for {n:,} records, and noise goes into each: delete columns "
            "that are not needed."
        )
    for note in notes:
        warnings.warn(f"{path}: {note}", stacklevel=2)


def _tell_cut(step: Any, options: argparse.Namespace, *sides: Records | None) -> None:
    for path, side in zip((options.file, options.public), sides, strict=True):
        if isinstance(step, SentenceEncoder) and side is not None:
            tell_cut(path, side.X, step)


def _step(kind: str, options: argparse.Namespace) -> Any:
    """What makes rows of unit norm of the records."""
    if kind == "embedding":
        return Normalizer()
    named = kind == "text" and options.encoder not in (None, DEFAULT)
    if named and hub_name(options.encoder) is None:
        # A name that means nothing is mistyped.
        located(options.encoder)
    length = {} if options.max_length is None else {"max_length": options.max_length}
    return encoder_of(kind, options.encoder, cache_dir=options.cache, **length)


def _identity(name: str | None) -> str | None:
    """What a record says of the encoder of embeddings: a digest too, if its weights are at hand."""
    if name is None:
        return None
    if not name.strip():
        located(name)
    return _at_hand(SentenceEncoder(name)) or name


def _at_hand(encoder: Any) -> str | None:
    """Name and digest of an encoder's weights; None if they are not on this machine."""
    try:
        if not isinstance(encoder, ImageEncoder):
            located(encoder.model, download=False)
        return str(encoder.identity)
    except (ImportError, ValueError):
        return None


def _measured(encoder: Any, X: Any) -> tuple[int, float]:
    """Width of rows, and how many seconds all records will take, by a sample of them."""
    size = max(_BATCH, min(_SAMPLE, len(X) // 8))
    sample = X[:: max(1, len(X) // size)][:size]
    # The first batch loads the model, which takes as long for any number of records.
    encoder.fit(sample).transform(sample[:1])
    start = time.perf_counter()
    rows = encoder.transform(sample)
    return rows.shape[1], (time.perf_counter() - start) * len(X) / len(sample)


def seconds_of_steps(release: Release) -> float:
    """About how long the steps of a descent take, by one of them on rows drawn at random."""
    problem, bound, n = release.problem, release.bound, release.n_samples
    if not isinstance(bound, DescentBound):
        return 0.0
    shape = bound.shape(problem)
    if n * math.prod(shape) < _FAST:
        return 0.0
    size = min(n, max(_SAMPLE, _ENOUGH // math.prod(shape)))
    rows = np.random.default_rng(0).standard_normal((size, problem.n_features))
    some = ArrayRecords(rows, np.arange(size) % problem.n_classes)
    query = MeanGradient(np.zeros(shape), clip=bound.clip, constant=bound.constant)
    start = time.perf_counter()
    query.values(problem, some)
    return (time.perf_counter() - start) * bound.n_steps * n / size


def _width(encoder: BaseEncoder, *, assume: bool) -> int | None:
    """Width of rows of an encoder; if it is not on this machine, one is assumed, or it is None."""
    if isinstance(encoder, ImageEncoder):
        return IMAGE_WIDTH
    if encoder.model == DEFAULT:
        return DEFAULT_WIDTH
    try:
        located(encoder.model, download=False)
        return len(encoder.get_feature_names_out())
    except (ImportError, ValueError) as error:
        if not assume:
            return None
        warnings.warn(
            f"--encoder {encoder.model}: {DEFAULT_WIDTH} features are assumed, as it cannot be "
            f"loaded on this machine ({one_line(error, 160)}).",
            stacklevel=2,
        )
        return DEFAULT_WIDTH


# -- labels ---------------------------------------------------------------------------------------


def _check_labels(option: str, records: Records) -> None:
    """Public labels are published: they must be classes, not texts or names."""
    names = np.unique(np.asarray(records.y)).tolist()
    n_records, n_classes = len(records.X), len(names)
    if n_classes == 1:
        raise InputError(f"{option}: all records have one label; two are needed.")
    if n_records > _FEW and n_classes > n_records / 2:
        raise InputError(
            f"{option}: {n_classes} different labels in {n_records} records would be published; "
            "name the column of the classes."
        )
    looks = Counter(map(appearance, names))
    alike = [name for name in names if looks[appearance(name)] > 1]
    shown = ", ".join(repr(one_line(name, 40)) for name in alike[:SHOWN])
    notes = {
        f"{records.n_respelled:,} records write their class otherwise (7.0 for 7, blanks at an "
        "end); it is one class.": records.n_respelled,
        f"{len(alike)} classes differ by case, blanks or forms of letters alone: {shown}. Write "
        "them alike if they are one.": alike,
    }
    for note, holds in notes.items():
        if holds:
            warnings.warn(f"{option}: {note}", stacklevel=2)


def _classes(path: Path) -> list[str]:
    """Public labels, one a line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it cannot be read ({type(error).__name__}).") from None
    return sorted({*aligned(map(trimmed, lines))} - {""})


def _declared(records: Records, classes: list[str], path: Path) -> Records:
    """Records with the public labels, which must hold theirs."""
    y = np.array(aligned(np.asarray(records.y).tolist(), classes))
    unknown = np.flatnonzero(~np.isin(y, classes))
    if len(unknown):
        raise InputError(
            f"{path}: it lacks the label of complete record {unknown[0] + 1}, and of "
            f"{len(unknown) - 1} others; add it if it is public, or leave the records out."
        )
    return replace(records, y=y)
