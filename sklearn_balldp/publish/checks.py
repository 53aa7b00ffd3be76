"""Checks of a published model that whoever receives it can run."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import helmert
from scipy.stats import chi2

from ..encoder_name import same_encoder
from ..heads import Released, Settings
from ..mechanisms import (
    MeanGradient,
    Minimiser,
    PrivacyError,
    PrivacyFilter,
    Query,
    Sums,
    answered,
    drive,
)
from ..mechanisms.settings import TUNING
from ..privacy.noise import EXACT_SAMPLER
from ..privacy.origins import Declared, Edits, Number, Reference
from ..privacy.release import Release
from ..showing import percent, up
from ..verdicts import CANNOT_CHECK, FAIL, FALSE_ALARM, PASS, STATED, WEAK, Check
from .card import NOTHING_HIDDEN, SAMPLERS, reach_of
from .columns import HiddenColumns
from .folder import folder_checks
from .model import Published
from .words import hidden_edits, unit_in_words, vouched_for

Array = NDArray[np.float64]

# The four kinds of tests of residuals, and the check of the weights' size, have equal shares.
_LEVEL = FALSE_ALARM / 5.0
# A longer label is a sentence, and somebody may have written it.
_LONG_LABEL = 60
_HUGE = 1e100
# Largest relative difference of a replay on another machine.
_ROUNDING = 1e-9
_RECORD = "all that it states is computed again"


def public_checks(model: Published, encoder: Any = None) -> tuple[list[Check], bool]:
    """All that needs no records, in the order of the report.

    With it comes whether a head could have released the model, so that more can be checked.
    """
    try:
        record = model.record
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        return [Check("record", FAIL, str(error), _RECORD)], False
    faults = model.faults()
    hidden = None if faults else model.hidden
    checks = [*_promise_checks(record, reach_of(record, hidden))]
    if faults:
        basis = "what a head of such a record releases"
        return [*checks, Check("model", FAIL, f"it has {'; '.join(faults)}", basis)], False
    compared = [*_parameters_checks(model), _encoder_check(model, encoder)]
    same = all(check.verdict != FAIL for check in compared)
    checks += [
        *compared,
        *_publishers_checks(model),
        *released_checks(model.released),
        *_statement_checks(record, hidden),
        *folder_checks(model, same),
    ]
    return checks, True


# -- the model beside its record ------------------------------------------------------------------


def _parameters_checks(model: Published) -> Iterator[Check]:
    record, digest = model.record, model.digest
    same = digest == record.digest
    shown = f"SHA-256 {digest[:16]}" + ("" if same else f", the record says {record.digest[:16]}")
    yield Check("parameters", PASS if same else FAIL, shown, "the record's digest")
    shown = f"{record.head}, {record.n_features} features, {record.n_classes} classes"
    yield Check("model", PASS, shown, "shape, labels and counts")
    follows = isinstance(record.bound, Sums) and model.has_probabilities
    if follows and record.rule != TUNING:
        shown = f"{_other_rule(record)}, and may predict otherwise than here"
        basis = "weights follow from the released sums by the rule that the record names"
        yield Check("weights", CANNOT_CHECK, shown, basis)


def _encoder_check(model: Published, encoder: Any) -> Check:
    basis, recorded = "the name and revision that each of them states", model.record.encoder
    own = next(filter(None, (step.identity for step in model.steps)), None)
    name = own if encoder is None else getattr(encoder, "identity", None)
    same = None if None in (name, recorded) else same_encoder(name, recorded)
    if name is None and recorded is None:
        shown = "neither model nor record names one: ask the publisher what made the rows"
    elif recorded is None:
        shown = f"only the model names {name}: ask the publisher"
    elif name is None:
        shown = f"only the record names {recorded}: embed records with it"
    elif same is None:
        shown = f"the record names {recorded}: pass these weights (encoder=), to compare"
    else:
        shown = str(name) if name == recorded else f"{name}, the record says {recorded}"
    asked = encoder is not None or None not in (name, recorded)
    unknown = CANNOT_CHECK if asked else STATED
    return Check("encoder", {True: PASS, False: FAIL, None: unknown}[same], shown, basis)


#: What models of the command hold, too: the publisher states where it comes from.
_USUAL = "declared columns", "name of the column", "public examples", "class_embeddings"


def _publishers_checks(model: Published) -> Iterator[Check]:
    """What a publisher chose freely: it moves predictions or can be read, and proves nothing."""
    notes = {}
    lengths = [len(t) for t in model.labels if isinstance(t, str)]
    defaults, words = vars(Settings()), set()
    for name, given in model.settings.items():
        if given != defaults[name]:
            # A word follows from public counts; numbers may be anything.
            words |= {name} if isinstance(given, str) else set()
            notes[name] = (
                f"{name}={given!r} moves its predictions; only the publisher knows whether it "
                "follows from private rows: ask"
            )
    if "class_embeddings" in model.arrays:
        notes["class_embeddings"] = (
            "vectors of the classes are part of the model; ask where they come from: means of "
            "private rows would be published without noise"
        )
    if n_examples := model.record.examples:
        notes["public examples"] = (
            f"sums of {n_examples} examples are part of the model; only the publisher knows "
            "whether they are public, and were chosen without a look at private rows: ask for them"
        )
    if model.columns:
        shown = f"{len(model.columns)} names of columns, from {model.columns[0]!r} on"
        notes["names of columns"] = f"{shown}, are part of the model; read them"
    if model.kind == "tables":
        shown = (
            "only the publisher knows whether they were declared before the records were seen: ask"
        )
        notes["declared columns"] = f"{shown} what they follow from"
    if model.column is not None:
        shown = f"the records' column {model.column!r} is named in the model; read it"
        notes["name of the column"] = shown
    if max(lengths, default=0) > _LONG_LABEL:
        shown = f"labels of up to {max(lengths)} characters are part of the model; read them"
        notes["texts of labels"] = shown
    for name, shown in notes.items():
        usual = name in _USUAL or name in words
        yield Check(name, STATED if usual else CANNOT_CHECK, shown, "nothing proves them")
    # Numbers that a step holds may be of private rows.
    named = enumerate(model.named_steps.items(), 1)
    learned = [f"{name} (step {i})" for i, (name, step) in named if step.arrays]
    if model.steps:
        basis = "a step that was fitted on private rows is not covered"
        why = "only the publisher knows whether the rows of its fit were public: ask"
        shown = f"{', '.join(learned)}: {why}" if learned else "every step maps each row on its own"
        yield Check("preprocessing", CANNOT_CHECK if learned else PASS, shown, basis)


# -- what follows from the answers ----------------------------------------------------------------


def released_checks(released: Released) -> list[Check]:
    """What released numbers alone can refute: their size, or the answers that led to them."""
    if not released.answers:
        return []
    replay = replay_check(released)
    if not released.of_one_query:
        return [replay]
    return [size_check(released), *([replay] if replay.verdict == FAIL else [])]


def replay_check(released: Released) -> Check:
    """Whether the released values follow from the answers, and the promise covers every query.

    The public algorithm is driven again, with the answers that were released. Each of its queries
    is charged to a new privacy filter, at the state that the answers before it lead to. A mismatch
    that may be due to the tuned rule of another version is no FAIL.
    """
    record, bound = released.release, released.bound
    name, basis = "transcript", "queries and model follow from the noisy answers by public rules"
    try:
        with np.errstate(all="ignore"):
            _replay(released)
    except _Refused as refused:
        fault, of_the_rule = refused.args
    except Exception as error:
        fault, of_the_rule = f"its answers lead to no model ({type(error).__name__})", True
    else:
        n, unit = len(released.answers), "answer"
        if bound.has_transcript:
            n, unit = bound.n_steps, "step"
        lead = f"1 {unit} leads" if n == 1 else f"{n} {unit}s lead"
        return Check(name, PASS, f"{lead} to the released model, within the promise", basis)
    if of_the_rule and record.rule != TUNING:
        return Check(name, CANNOT_CHECK, f"{_other_rule(record)} ({fault})", basis)
    return Check(name, FAIL, fault, basis)


class _Refused(Exception):
    """Why a replay ends, and whether another version's rule can be the reason."""


def _replay(released: Released) -> None:
    """Drive the conversation with the answers that were released; a _Refused if they do not fit."""
    problem, bound, mechanism = released.problem, released.bound, released.mechanism
    privacy = PrivacyFilter(problem, bound, mechanism.most_queries)
    answers = iter(enumerate(released.answers, 1))

    def answer(query: Query) -> Array:
        place, value = next(answers, (len(released.answers), None))
        if value is None:
            raise _Refused(f"it ends after {place} answers, where more are asked for", False)
        shape = query.shape(problem)
        if value.shape != shape or not (np.abs(value) < _HUGE).all():
            fault = f"answer {place} is no array of shape {shape} of ordinary numbers"
            raise _Refused(fault, False)
        if type(query) not in answered(mechanism):
            raise _Refused(f"query {place} is none that the mechanism vouches for", False)
        noise = np.broadcast_to(query.scales(problem), shape)
        least = chi2.ppf(_LEVEL / len(released.answers), np.count_nonzero(noise))
        if bound.has_transcript and ((value / noise)[noise > 0.0] ** 2).sum() < least:
            raise _Refused(f"answer {place} is smaller than the noise that it should carry", False)
        if bound.has_transcript and isinstance(query, MeanGradient) and query.whitening:
            # What is promised at other radii holds for rows that keep this part of their norm.
            unlike = query.whitening.fault(problem.norm_bound, bound.least_reach)
            if unlike is not None:
                raise _Refused(f"its map of the rows: {unlike}", True)
        try:
            privacy.charge(query)
        except PrivacyError as error:
            # Another rule may lead to a state that no proof speaks of.
            of_the_rule = not math.isfinite(query.mu(problem))
            raise _Refused(f"query {place}: {error}", of_the_rule) from None
        return value

    values = drive(released.conversation(), answer)
    unasked = len(list(answers))
    if unasked:
        raise _Refused(f"{unasked} of its answers were never asked for", False)
    if not _close(values, released.values, _ROUNDING):
        raise _Refused("the released parameters do not follow from its answers", True)


def _close(values: Any, released: Array, tolerance: float) -> bool:
    if np.shape(values) != released.shape:
        return False
    largest = float(np.max(np.abs(released), initial=0.0))
    return np.allclose(values, released, rtol=tolerance, atol=tolerance * largest)


def _other_rule(record: Release) -> str:
    return (
        f"its rule {record.rule or 'has no name, which'} is not that of this version; ask "
        f"sklearn_balldp {record.version}, and verify again"
    )


# -- how long the parameters are ------------------------------------------------------------------


def size_check(released: Released) -> Check:
    """Whether the released parameters are as long as noise and public limits allow.

    With noise of scale sigma in k values, parameters are no shorter than that noise alone
    (Anderson's inequality), and no longer than it and the longest noiseless ones.
    """
    name, bound = "size of the numbers", released.bound
    basis = "noise makes them no smaller; without it they are no larger than a proved bound"
    blocks, longest = (_of_sums if isinstance(bound, Sums) else _of_minimiser)(released, bound)
    level = _LEVEL / (2.0 * len(blocks))
    k = np.array([block.size for block in blocks])
    low, high = np.sqrt(chi2.ppf(level, k)), np.sqrt(chi2.isf(level, k)) + np.array(longest)
    with np.errstate(over="ignore"):
        sizes = np.array([np.linalg.norm(block) for block in blocks])
    # Of several blocks, report the one whose length is closest to a limit.
    i = int(np.argmin(np.minimum(sizes / low, high / np.maximum(sizes, 1e-300))))
    shown = f"{sizes[i]:.4g} times the scale of the noise, where {low[i]:.4g} to {high[i]:.4g} are "
    shown += "possible"
    if len(blocks) > 1:
        shown += f" (the tightest of {len(blocks)} parts)"
    inside = ((sizes >= low) & (sizes <= high)).all()
    return Check(name, PASS if inside else FAIL, shown, basis)


def _of_sums(released: Released, bound: Sums) -> tuple[list[Array], list[float]]:
    """Sums in units of their noise, and the largest lengths of the noiseless ones."""
    problem = released.problem
    scales, values = bound.scales(problem), released.answers[0]
    norm, total = problem.norm_bound * (1.0 + 1e-6), problem.sums_weights.total
    k, d, sizes = problem.n_classes, problem.n_features, problem.class_sizes
    masses = np.full(k, total) if sizes is None else sizes
    blocks, longest = [], []
    for c in range(k):
        part, scale = slice(c * d, (c + 1) * d), float(scales[c * d])
        if scale > 0.0:
            blocks.append(values[part] / scales[part])
            longest.append(float(masses[c]) * norm / scale)
    rest, counts = values[k * d :] / scales[k * d :], k if bound.constant > 0.0 else 0
    if bound.moment is not None:
        blocks.append(rest[: len(rest) - counts])
        longest.append(total * norm**2 / bound.moment)
    if counts:
        blocks.append(rest[len(rest) - counts :])
        longest.append(total * bound.constant / float(scales[-1]))
    return blocks, longest


def _of_minimiser(released: Released, bound: Minimiser) -> tuple[list[Array], list[float]]:
    problem, parameters = released.problem, released.answers[0]
    if problem.kind.centred:
        # Centring over classes leaves the orthonormal contrasts of the scores.
        parameters = helmert(len(parameters)) @ parameters
    # What is released is within tol / alpha of the minimiser.
    exact = math.sqrt(problem.kind.n_stacked) * bound.norm(problem) * (1.0 + 1e-9)
    longest = (exact + bound.tol / problem.alpha) / bound.sigma
    return [parameters.ravel() / bound.sigma], [longest]


# -- what the record states -----------------------------------------------------------------------

_RADII: dict[type, str] = {
    Number: "a plain number; only the publisher knows whether it was fixed before the "
    "rows were seen: ask how it was chosen",
    Reference: "computed from reference rows; only the publisher knows whether they are public: "
    "ask for them",
    Edits: "it hides {edits}; only the publisher knows whether those were public: "
    "ask for the texts",
    Declared: "a quantile of the private rows; the guarantee holds only if it may be public: ask "
    "the publisher why",
}


def _promise_checks(record: Release, reach: float) -> Iterator[Check]:
    """What the record promises, and whether it hides next to nothing; ``reach`` bounds
    how far apart rows are.
    """
    guarantee, anywhere = (record.guarantee(radius) for radius in (None, reach))
    shown = f"epsilon={up(anywhere.epsilon)}, delta={record.delta:g} at any distance"
    if record.radius < reach:
        near = f"epsilon={up(guarantee.epsilon)}, delta={record.delta:g} within {record.radius:g} "
        shown = f"{near}({record.metric}); epsilon={up(anywhere.epsilon)} at any distance"
    yield Check("record", PASS, shown, _RECORD)
    if guarantee.advantage > NOTHING_HIDDEN:
        shown = "an attacker who knows all else may tell two records apart, advantage "
        shown += percent(guarantee.advantage)
        yield Check("promise", WEAK, shown, "epsilon and delta of the record")


def _statement_checks(record: Release, hidden: HiddenColumns | None) -> Iterator[Check]:
    """Delta, labels, unit, proofs, radius and sampler: what is stated, and what that is worth."""
    persons = " of persons" if record.unit == "person" else ""
    yield Check(
        "delta",
        PASS if record.delta * record.n_units < 1.0 else FAIL,
        f"{record.delta:g} against 1/n{persons} = {1.0 / record.n_units:.3g}",
        f"a delta of 1/n allows a random {record.unit} to be published whole",
    )
    shown = "public: labels and class counts are not hidden"
    if record.labels == "protected":
        shown = "hidden: the promise covers a change of label too"
    yield Check("labels", STATED, shown, "what the record states; nothing proves it")
    if record.problem.weighted:
        shown = f"it hides {unit_in_words(record)}, {record.n_units} in all"
        why = "whose a record is, and what it weighs, only the publisher knows: ask"
        yield Check("unit", STATED, shown, why)
    if record.accepted:
        yield Check("proofs", STATED, vouched_for(record), "nobody else has checked them")
    shown = _RADII[type(record.radius_from)].format(edits=hidden_edits(record))
    if hidden is not None and hidden.change is not None:
        shown = f"it hides {hidden}; only the publisher knows whether that was declared before the "
        shown += "rows were seen: ask"
    # A quantile of private rows is no usual one.
    verdict = CANNOT_CHECK if isinstance(record.radius_from, Declared) else STATED
    yield Check("radius", verdict, shown, "where the record says that the radius came from")
    shown = f"made on {record.date} by sklearn_balldp {record.version}"
    yield Check("version", STATED, shown, "what the record states; nothing proves it")
    verdict, basis = FAIL, "whoever knows the seed can take the noise off"
    if record.sampler == EXACT_SAMPLER:
        verdict = STATED
        basis = "what the record states; only the publisher knows whether it is so, and whether a "
        basis += "copy of the noise was kept"
    yield Check("sampler", verdict, SAMPLERS[record.sampler], basis)
