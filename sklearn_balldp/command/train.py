"""``balldp train`` and ``balldp plan``: from a file of private records to a folder to publish."""

import argparse
import hashlib
import math
import time
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import Normalizer

from ..accounting import PrivacyAccountant
from ..audit.certificates import epsilon_from_certificate
from ..edits import edit_pairs
from ..encoder_weights import DEFAULT, DEFAULT_WIDTH, hub_name, located
from ..encoders import BaseEncoder, ImageEncoder, SentenceEncoder, encoder_of
from ..heads import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)
from ..heads.plan import AT_RISK, LOST, Plan
from ..mechanisms import GradientPerturbation
from ..progress import shown
from ..publish import save
from ..publish.card import NOTHING_HIDDEN
from ..publish.saving import check_writable
from ..radius import RadiusPolicy
from ..text import appearance, one_line, percent, spelling
from .predict import check_new
from .records import Columns, InputError, Records, read

HEADS = {
    "logistic": BallDPLogisticRegression,
    "svc": BallDPSquaredHingeSVC,
    "prototypes": BallDPRidgePrototype,
    "discriminant": BallDPLinearDiscriminant,
}
#: Share of the edits of public texts that a radius from them hides.
HIDDEN_EDITS = 0.9
EDITS = "edits"
#: Width of the rows of the command's encoder of images.
IMAGE_WIDTH = 512
#: Equally likely candidates that a risk is stated for.
CANDIDATES = 10
# Records that are embedded to tell how long all of them will take: at most these, and an eighth of
# all. Fewer than a batch would take longer each.
_SAMPLE, _BATCH = 256, 32
_MOST_AT_RISK = 10
_SHOWN = 5
# Among so few records many labels say nothing.
_FEW = 20


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of train and plan."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the private records")
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--text", metavar="COLUMN", help="column of texts")
    kinds.add_argument(
        "--image", metavar="COLUMN", help="column of image files (any name for a folder)"
    )
    kinds.add_argument(
        "--embedding", metavar="COLUMN", help="column of lists, or prefix of columns"
    )
    parser.add_argument("--label", metavar="COLUMN", required=True, help="column of labels")
    parser.add_argument("--owner", metavar="COLUMN", help="hide all records of one owner together")
    parser.add_argument(
        "--public",
        type=Path,
        metavar="FILE",
        help="public records in the same columns: for --radius edits, and to test the model on",
    )
    parser.add_argument(
        "--radius",
        required=True,
        metavar="R|edits|none",
        help="distance between unit rows within which a replaced record is hidden; edits takes it "
        f"from public texts, so that a share of {HIDDEN_EDITS:g} of small edits is hidden; none "
        "hides replacements at any distance",
    )
    parser.add_argument(
        "--encoder",
        metavar="NAME|FOLDER",
        help="weights that embed the records: a folder, an installed package or hf://OWNER/NAME; "
        "of embeddings, what made them",
    )
    parser.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="keep embeddings there: as private as the records",
    )
    parser.add_argument("--missing", choices=("error", "drop"), default="error")
    parser.add_argument("--classes", type=Path, help="with protected labels: one label a line")
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--epsilon", type=float, help="privacy loss: smaller hides more")
    goal.add_argument(
        "--risk",
        type=float,
        metavar="P",
        help=f"in place of epsilon: how often an attacker may name the right one of {CANDIDATES}",
    )
    parser.add_argument("--delta", type=float, default=1e-6, help="default 1e-6")
    parser.add_argument("--labels", choices=("public", "protected"), default="public")
    parser.add_argument("--head", choices=tuple(HEADS), default="logistic")
    rare = parser.add_mutually_exclusive_group()
    rare.add_argument(
        "--rare", action="store_true", help="rare classes count as much as others, when predicting"
    )
    rare.add_argument(
        "--class-weight",
        choices=("balanced",),
        help="rare classes count as much as others, in the loss (logistic and svc)",
    )


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Options of train alone, beside those of plan."""
    add_options(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    parser.add_argument("--force", action="store_true", help="replace a model in that folder")
    parser.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="count the fit in this file, made if it is missing, and keep its limit",
    )
    parser.add_argument(
        "--keep-transcript",
        type=Path,
        metavar="FILE.npz",
        help="keep the noisy steps beside the folder, to test the noise later",
    )


@dataclass(frozen=True)
class Job:
    """A fit before any noise is drawn.

    Attributes
    ----------
    head : BaseBallDPClassifier
        Not fitted.
    column : str
        Where the records lie.
    step : estimator
        What makes rows of unit norm of the records: an encoder, or for embeddings their norm.
    records, public : Records
        The private ones, and public ones if there are any.
    plan : Plan
        What the fit would release.
    seconds : float or None
        How long the records will take to be embedded, about; None where it was not measured.
    """

    head: Any
    column: str
    step: Any
    records: Records
    public: Records | None
    plan: Plan
    seconds: float | None

    def rows(self, X: Any) -> NDArray[Any]:
        """Rows as the head sees them."""
        return np.asarray(self.step.transform(X))


def prepare(options: argparse.Namespace) -> Job:
    """Read the files, and plan the fit.

    Raises
    ------
    InputError
        If a file or an option is invalid.
    """
    # What options alone decide is refused before a file is read.
    radius, choices = _radius(options), _choices(options)
    columns = Columns(options.text, options.image, options.embedding, options.label, options.owner)
    records = read(options.file, columns, missing=options.missing)
    n_units = len(records.X if records.owners is None else np.unique(records.owners))
    if not 0.0 < options.delta * n_units < 1.0:
        raise InputError(
            f"--delta {options.delta:g} must be above 0 and below 1/n, {1 / n_units:.2g}."
        )
    public = None
    if options.public is not None:
        # Public records need no owner, and incomplete ones serve nothing.
        named = Columns(options.text, options.image, options.embedding, options.label)
        public = read(options.public, named, missing="drop")
        _check_public(options, records, public)
    _check_labels(options, records)
    kind, training = columns.kind, options.command == "train"
    step, seconds = _step(kind, options), None
    if kind == "embedding":
        # Public rows of another width are refused before any noise is drawn.
        step.fit(records.X[:1])
        width, stated = records.X.shape[1], _stated(options.encoder)
    elif training:
        width, seconds = _measured(step, records.X)
        stated = step.identity
    else:
        # A plan counts: nothing is embedded, unless the radius comes from edits.
        width, stated = _width(step), None
    if radius == EDITS:
        assert public is not None
        radius = _radius_of_edits(public, step)
    protected = options.labels == "protected"
    if protected:
        choices |= {"protect_labels": True, "classes": _classes(options.classes, records)}
    head = HEADS[options.head](radius=radius, encoder=stated, **choices)
    if public is not None:
        public = _of_classes(options, public, head.classes if protected else records.y)
    plan = head.plan(
        len(records.X),
        width,
        **({} if protected else {"y": records.y}),
        **({} if records.owners is None else {"groups": records.owners}),
    )
    return Job(head, columns.content, step, records, public, plan, seconds)


def _step(kind: str, options: argparse.Namespace) -> Any:
    """What makes rows of unit norm of the records."""
    if kind == "embedding":
        return Normalizer()
    named = kind == "text" and options.encoder not in (None, DEFAULT)
    if named and hub_name(options.encoder) is None:
        # A name that means nothing is mistyped.
        located(options.encoder)
    return encoder_of(kind, options.encoder, cache_dir=options.cache)


def _stated(name: str | None) -> str | None:
    """What a record says of the encoder of embeddings: with a digest, if its weights are here."""
    if name is None:
        return None
    try:
        located(name, download=False)
    except ValueError:
        if not name.strip():
            raise
        return name
    return SentenceEncoder(name).identity


def _measured(encoder: Any, X: Any) -> tuple[int, float]:
    """Width of rows, and how many seconds all records will take, by a sample of them."""
    size = max(_BATCH, min(_SAMPLE, len(X) // 8))
    sample = X[:: max(1, len(X) // size)][:size]
    # The first batch loads the model, which takes as long for any number of records.
    encoder.fit(sample).transform(sample[:1])
    begun = time.perf_counter()
    rows = encoder.transform(sample)
    return rows.shape[1], (time.perf_counter() - begun) * len(X) / len(sample)


def _width(encoder: BaseEncoder) -> int:
    """Width of rows of an encoder that may not be on this machine."""
    if isinstance(encoder, ImageEncoder):
        return IMAGE_WIDTH
    if encoder.model == DEFAULT:
        return DEFAULT_WIDTH
    try:
        located(encoder.model, download=False)
        return len(encoder.get_feature_names_out())
    except (ImportError, ValueError) as error:
        warnings.warn(
            f"--encoder {encoder.model}: {DEFAULT_WIDTH} features are assumed, as it cannot be "
            f"loaded on this machine ({one_line(error, 160)}).",
            stacklevel=2,
        )
        return DEFAULT_WIDTH


def _check_public(options: argparse.Namespace, records: Records, public: Records) -> None:
    """Private records must not pass for public ones: radius and accuracy would be read off them."""
    private, own = (set(map(_content, part.X)) for part in (records, public))
    common = len(private & own)
    # Short answers are given by many: what counts is how many different ones there are.
    if common > len(own) / 2:
        raise InputError(
            f"--public {options.public}: {common:,} of its {len(own):,} different records are "
            "among the private ones; name records that may be published."
        )
    if common:
        warnings.warn(
            f"--public {options.public}: {common:,} of its records are among the private ones.",
            stacklevel=2,
        )


def _content(record: Any) -> bytes:
    """A digest of a record: rows and images would take their memory again."""
    body = record.encode() if isinstance(record, str) else np.asarray(record).tobytes()
    return hashlib.blake2b(body, digest_size=16).digest()


def _of_classes(options: argparse.Namespace, public: Records, classes: Any) -> Records | None:
    """Public records that a model can be right about; None if there are none."""
    assert public.y is not None
    labels, counts = np.unique(public.y, return_counts=True)
    strange = ~np.isin(labels, classes)
    if not strange.any():
        return public
    near = {appearance(str(name)): str(name) for name in classes}
    shown = []
    for label, count in list(zip(labels[strange].tolist(), counts[strange], strict=True))[:_SHOWN]:
        alike = near.get(appearance(label))
        hint = f", nearly {one_line(alike, 40)!r}" if alike else ""
        shown.append(f"{one_line(label, 40)!r} ({count:,} records{hint})")
    more = " and others" if strange.sum() > _SHOWN else ""
    kept = np.flatnonzero(~np.isin(public.y, labels[strange]))
    warnings.warn(
        f"--public {options.public}: {strange.sum():,} of its {len(labels):,} labels are no class: "
        f"{', '.join(shown)}{more}. "
        + (f"The other {len(kept):,} records are used." if len(kept) else "No accuracy is stated."),
        stacklevel=2,
    )
    if not len(kept):
        return None
    X = public.X[kept] if isinstance(public.X, np.ndarray) else [public.X[i] for i in kept]
    return replace(public, X=X, y=public.y[kept])


def _check_labels(options: argparse.Namespace, records: Records) -> None:
    """Public labels are published: they must be classes, not texts or names."""
    names = np.unique(np.asarray(records.y)).tolist()
    n_records, n_classes = len(records.X), len(names)
    if n_classes == 1 and options.labels == "public":
        raise InputError(f"--label {options.label}: all records have one label; two are needed.")
    if options.labels == "public" and n_records > _FEW and n_classes > n_records / 2:
        raise InputError(
            f"--label {options.label}: {n_classes} different labels in {n_records} records would "
            "be published; name the column of the classes."
        )
    if options.labels == "public" and records.n_respelled:
        warnings.warn(
            f"--label {options.label}: {records.n_respelled:,} records write their class "
            "otherwise (7.0 for 7, blanks at an end); it is one class.",
            stacklevel=2,
        )
    looks = Counter(map(appearance, names))
    alike = [name for name in names if looks[appearance(name)] > 1]
    if options.labels == "public" and alike:
        shown = ", ".join(repr(one_line(name, 40)) for name in alike[:_SHOWN])
        warnings.warn(
            f"--label {options.label}: {len(alike)} classes differ by case, blanks or forms of "
            f"letters alone: {shown}. Write them alike if they are one.",
            stacklevel=2,
        )


def _radius(options: argparse.Namespace) -> float | str | None:
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


def _radius_of_edits(public: Records, encoder: Any) -> Any:
    """A policy that was fitted on edits of public texts."""
    pairs = edit_pairs(public.X)
    before, after = (encoder.transform(own) for own in (pairs.before, pairs.after))
    policy = RadiusPolicy(HIDDEN_EDITS, source="edits")
    return FrozenEstimator(policy.fit(before, after, record=pairs.record))


def _choices(options: argparse.Namespace) -> dict[str, Any]:
    """Parameters that follow from options alone."""
    name, kept = options.head, getattr(options, "keep_transcript", None) is not None
    protected, descends = options.labels == "protected", name in ("logistic", "svc")
    risky = options.risk is not None and not 1.0 / CANDIDATES < options.risk < 1.0
    sizes = "--labels public: sizes of classes are hidden otherwise."
    refused = {
        f"--risk {options.risk} must lie between a blind guess, {1 / CANDIDATES:g}, and 1.": risky,
        f"--rare needs {sizes}": options.rare and protected,
        f"--class-weight needs {sizes}": options.class_weight and protected,
        "--rare: the SVC has no priors; use --class-weight balanced.": options.rare
        and name == "svc",
        f"--class-weight: --head {name} has no loss; use --rare.": options.class_weight
        and not descends,
        f"--keep-transcript: --head {name} has no steps to keep.": kept and not descends,
        "--labels protected needs --classes FILE, a public list of labels.": protected
        and options.classes is None,
        "--classes is for --labels protected; public labels are read from FILE.": options.classes
        and not protected,
        "--cache: embeddings are not computed; leave it out.": options.cache and options.embedding,
    }
    for reason, wrong in refused.items():
        if wrong:
            raise InputError(reason)
    epsilon = options.epsilon
    if options.risk is not None:
        epsilon = epsilon_from_certificate(options.risk, 1.0 / CANDIDATES, options.delta)
    params: dict[str, Any] = {"epsilon": epsilon, "delta": options.delta}
    if options.rare:
        params["priors"] = "uniform"
    if options.class_weight is not None:
        params["class_weight"] = options.class_weight
    if kept:
        params["mechanism"] = GradientPerturbation(keep_transcript=True)
    return params


def _classes(path: Path, records: Records) -> list[str]:
    """Public labels, one a line, which must hold those of the records."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it cannot be read ({type(error).__name__}).") from None
    classes = sorted({spelling(line) for line in lines} - {""})
    assert records.y is not None
    unknown = np.flatnonzero(~np.isin(records.y, classes))
    if len(unknown):
        raise InputError(
            f"{path}: it lacks the label of complete record {unknown[0] + 1}, and of "
            f"{len(unknown) - 1} others; add it if it is public, or leave the records out."
        )
    return classes


def describe(job: Job) -> str:
    """The plan in words: for the owner's terminal, as it counts private records."""
    release, records, plan = job.plan.release, job.records, job.plan
    lines = [f"Records   {len(records.X):,} in {release.n_classes} classes"]
    if records.n_dropped:
        lines.append(
            f"          {records.n_dropped:,} lacked something and are left out; whether a record "
            "did is not hidden"
        )
    if records.n_repeated:
        lines.append(f"          {records.n_repeated:,} repeat an earlier one; all are kept")
    if records.owners is not None:
        lines.append(f"Owners    {release.n_units:,}; all records of one are hidden together")
    lines.append(f"Radius    {_distance(release)}: it hides {_hidden(release)}")
    certificate = release.certificate(1.0 / CANDIDATES)
    lines.append(
        f"Promise   epsilon {release.epsilon:.4g}, delta {release.delta:g}, labels {release.labels}"
    )
    lines.append(
        f"          who knows all else names the right one of {CANDIDATES} candidates with "
        f"probability {percent(certificate)} at most"
    )
    lines += _at_risk(job, plan)
    if job.seconds is not None:
        lines.append(f"Time      {math.ceil(job.seconds / 60.0)} min or less to embed the records")
    if release.guarantee().advantage > NOTHING_HIDDEN:
        lines.append(f"Warning   epsilon {release.epsilon:.4g} hides next to nothing: lower it")
    return "\n".join(lines)


def _distance(release: Any) -> str:
    if release.radius >= 2.0:
        return "any distance between unit rows"
    return f"{release.radius:.4g} between unit rows"


def _hidden(release: Any) -> str:
    """Which other records could stand in a record's place."""
    protected = release.labels == "protected"
    if release.radius_source == "edits":
        return f"{release.hidden_edits}{', and its label' if protected else ''}"
    if release.radius >= 2.0 and protected:
        return "any other record and its label, which is standard DP"
    if release.radius >= 2.0:
        return "any other record of the same label"
    if protected:
        return "any other record that is as close, and its label"
    return "any other record of the same label that is as close"


def _at_risk(job: Job, plan: Plan) -> list[str]:
    """The classes that the noise drowns first, where labels are public."""
    ratios = plan.class_signal_to_noise
    if not ratios or plan.class_counts is None:
        return []
    names = np.unique(np.asarray(job.records.y))
    order = [int(i) for i in np.argsort(ratios) if ratios[int(i)] < AT_RISK][:_MOST_AT_RISK]
    below = sum(ratio < AT_RISK for ratio in ratios)
    lines = [f"At risk   {below} of {len(ratios)} classes may be lost in the noise"]
    for i in order:
        word = "lost" if ratios[i] < LOST else "at risk"
        lines.append(
            f"          {one_line(names[i], 40)}: {plan.class_counts[i]:,} records, {word} "
            f"(signal to noise at most {ratios[i]:.2g})"
        )
    return lines


def expected(job: Job, rows: NDArray[Any] | None) -> str:
    """Accuracy to expect, by the same fit on public records in place of the private ones.

    ``rows`` are the public ones. Each private record gives way to a public one of its label, or of
    any label where labels are hidden; so the noise is as it will be.
    """
    if job.public is None or job.public.y is None or rows is None:
        return ""
    labels, release = np.asarray(job.public.y), job.plan.release
    classes = np.unique(np.asarray(job.records.y) if job.head.classes is None else job.head.classes)
    rng = np.random.default_rng(0)
    order = rng.permutation(np.flatnonzero(np.isin(labels, classes)))
    own, tested = np.array_split(order, 2)
    if not len(tested) or len(np.unique(labels[own])) < 2:
        return "Accuracy  not foretold: public records are too few, or of one class"
    wanted = np.asarray(job.records.y)
    if release.labels == "protected":
        wanted = rng.choice(labels[own], len(wanted))
    places = {label: own[labels[own] == label] for label in np.unique(wanted)}
    lacking = sum(not len(found) for found in places.values())
    if lacking:
        return f"Accuracy  not foretold: {lacking} classes have too few public records"
    chosen = np.empty(len(wanted), dtype=np.intp)
    for label, found in places.items():
        chosen[wanted == label] = rng.choice(found, int(np.sum(wanted == label)))
    given = {} if job.records.owners is None else {"groups": job.records.owners}
    try:
        noisy = clone(job.head).fit(rows[chosen], labels[chosen], **given)
    except ValueError:
        # A forecast ends no run: what is wrong with the private records is said by their own fit.
        return "Accuracy  not foretold: public records cannot be fitted"
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(rows[own], labels[own])
    scores = [np.mean(model.predict(rows[tested]) == labels[tested]) for model in (noisy, plain)]
    return (
        f"Accuracy  the noise costs about {100.0 * max(scores[1] - scores[0], 0.0):.0f} points: "
        f"{scores[0]:.2f}, and {scores[1]:.2f} without it, by the same fit on {len(own):,} public "
        "records, repeated"
    )


def train(options: argparse.Namespace) -> None:
    """Plan, fit, and write the folder."""
    check_writable(options.out, options.force)
    kept = options.keep_transcript
    if kept is not None:
        check_new(kept, "--keep-transcript")
    job = prepare(options)
    print(describe(job), flush=True)
    accountant = None if options.ledger is None else _accountant(options.ledger, job)
    with shown(True):
        # Before any noise is drawn: what is wrong with public records ends the run here.
        public = _foretold(job)
        rows = job.rows(job.records.X)
    given = {} if job.records.owners is None else {"groups": job.records.owners}
    job.head.set_params(accountant=accountant).fit(rows, job.records.y, **given)
    model = Pipeline([("rows", job.step), ("head", job.head)])
    folder = save(model, options.out, force=options.force, column=job.column)
    score = None
    if job.public is not None and public is not None:
        score = float(np.mean(job.head.predict(public) == job.public.y))
        print(f"Measured  accuracy {score:.3f} on {len(job.public.X):,} public records")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"Wrote     {folder} ({size / 1e6:.1f} MB)")
    if accountant is not None:
        total = accountant.total()
        print(
            f"Ledger    {total.n_releases} release(s) of these records spent epsilon "
            f"{total.epsilon:.4g} in all, delta {total.delta:g}, labels {total.labels}"
        )
    if kept is not None:
        with kept.open("xb") as file:
            np.savez(file, **vars(job.head.transcript_))
        print(f"          {kept}, the transcript, for you alone: balldp verify --kept-transcript")
    warning = _warning(job, score)
    if warning:
        print(f"Warning   {warning}")
    else:
        print(f"Next      balldp verify {folder}; hf upload NAME {folder}")


def _accountant(path: Path, job: Job) -> PrivacyAccountant:
    """The ledger of a file; a new one gets the promise of this fit as its terms."""
    if path.exists():
        return PrivacyAccountant(path)
    release = job.plan.release
    return PrivacyAccountant(
        path,
        delta=release.delta,
        radius=release.radius,
        labels=release.labels,
        unit=release.unit,
    )


def _warning(job: Job, score: float | None) -> str | None:
    """What speaks against publishing a model: public numbers, and its score on public records."""
    if job.plan.release.guarantee().advantage > NOTHING_HIDDEN:
        return "the model hides next to nothing: lower epsilon before you publish one."
    ratios = job.plan.class_signal_to_noise or job.plan.signal_to_noise
    lost = bool(sum(ratio < LOST for ratio in ratios) > len(ratios) / 2)
    if score is not None and job.public is not None:
        labels = np.unique(np.asarray(job.public.y), return_counts=True)[1]
        lost = lost or bool(score <= labels.max() / labels.sum())
    if lost:
        return (
            "the model is mostly noise: more records, a larger epsilon or a smaller radius help; "
            "see docs/troubleshooting."
        )
    return None


def plan(options: argparse.Namespace) -> None:
    """Print what train would do; nothing of the private records is released or written."""
    job = prepare(options)
    print(describe(job), flush=True)
    with shown(True):
        _foretold(job)


def _foretold(job: Job) -> NDArray[Any] | None:
    """Public rows, after the accuracy that they let expect was printed."""
    if job.public is None:
        return None
    try:
        rows = job.rows(job.public.X)
    except (ImportError, ValueError) as error:
        if job.seconds is not None or not isinstance(job.step, BaseEncoder):
            raise
        # A plan can do without.
        print(f"Accuracy  not foretold: {one_line(error)}")
        return None
    line = expected(job, rows)
    if line:
        print(line, flush=True)
    return rows
