"""Check a published model: against its record, and against the private rows for their owner."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..audit.preparation import complete_problem
from ..audit.residuals import (
    CANNOT_CHECK,
    FAIL,
    FALSE_ALARM,
    PASS,
    WEAK,
    Check,
    epsilon_after_redraws,
    fault_check,
    rule_check,
    size_check,
    transcript_fault,
    weight_checks,
)
from ..heads import ReleasedModel, Transcript
from ..privacy.card import NOTHING_HIDDEN
from ..privacy.noise import EXACT_SAMPLER
from ..privacy.release import Release
from .consistency import consistency_checks, shape_fault
from .files import load_record, load_rows, load_transcript
from .folder import folder_checks, model_in, parts_of_folder
from .loading import embed_with, received_from
from .received import Received

#: Lines that an honest model leaves open to whoever has neither its records nor its encoder.
_NORMAL = (
    "encoder",
    "noise in the weights",
    "radius",
    "size of the weights",
    "text of the README",
    "unit",
)


@dataclass(frozen=True)
class Verdict:
    """What was checked of a published model, line by line.

    Attributes
    ----------
    checks : tuple of Check
        Lines: name, verdict ("PASS", "FAIL", "WEAK" or "CANNOT CHECK"), what was found, what it
        rests on. WEAK is a release that says of itself that it hides next to nothing.
    release : Release or None
        The record that was checked; None when it contradicts itself.
    """

    checks: tuple[Check, ...]
    release: Release | None

    @property
    def failed(self) -> bool:
        """Whether any line says FAIL."""
        return any(check.verdict == FAIL for check in self.checks)

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [
            f"{check.verdict:<12}  {check.name:<{width}}  {check.found} [{check.basis}]"
            for check in self.checks
        ]
        return "\n".join([*lines, "", *self.notes])

    @property
    def notes(self) -> list[str]:
        """What the lines mean, and what must not be made of them."""
        found = [check.verdict for check in self.checks]
        notes = [
            "At least one check failed: the model differs from its record, the record promises no "
            "privacy, the folder was changed, or the rows passed are not those of the fit. The "
            "FAIL lines say which."
            if FAIL in found
            else "Nothing was refuted."
        ]
        if WEAK in found:
            notes.append("It hides next to nothing, by its own record: see the line WEAK.")
        notes.append(
            "No check can certify a model. A publisher who keeps the seed of his noise, leaves the "
            "noise out of a few directions, or draws until he likes the outcome passes all of them."
        )
        private = [check for check in self.checks if check.private]
        if private:
            notes.append(
                "The lines about the rows and the noise depend on private records: do not publish "
                f"them. An honest release fails one of them with probability below {FALSE_ALARM:g}."
            )
        noise = [check for check in private if check.name != "rows"]
        if any(check.verdict == FAIL for check in noise) and self.release is not None:
            epsilon, delta = epsilon_after_redraws(self.release.epsilon, self.release.delta)
            notes.append(
                "This verdict must not decide whether to publish: find the fault first. Fitting "
                f"again because of it makes (epsilon={self.release.epsilon:g}, "
                f"delta={self.release.delta:g}) into (epsilon={epsilon:.6g}, delta={delta:.2g}); "
                "start over with a budget of its own."
            )
        counts = [f"{found.count(v)} {v}" for v in (FAIL, WEAK, CANNOT_CHECK, PASS) if v in found]
        notes.append(f"Lines: {', '.join(counts)}.")
        open_ = [check.name for check in self.checks if check.verdict == CANNOT_CHECK]
        odd = [name for name in open_ if name not in _NORMAL]
        if open_ and not odd:
            notes[-1] += " CANNOT CHECK is normal there for such a model."
        elif open_:
            notes[-1] += f" CANNOT CHECK is not normal for such a model at: {', '.join(odd)}."
        return notes


def verify(
    model: Any,
    release: Release | Mapping[str, Any] | str | Path | None = None,
    *,
    private: tuple[Any, Any] | Mapping[str, Any] | str | Path | None = None,
    transcript: Transcript | str | Path | None = None,
    earlier: Iterable[Any] = (),
    encoder: Any = None,
    allow_joblib: bool = False,
) -> Verdict:
    """Check a published model, its record, and (for their owner) the private rows.

    A model may come from anybody: it is made anew from a closed list of fields, and nothing of it
    runs. Whatever else it holds is a FAIL by name.

    Parameters
    ----------
    model : estimator, str or path-like
        A fitted Ball-DP head, or a Pipeline that ends in one; or the folder that :func:`.save`
        wrote; or its file: skops, or joblib and pickle with ``allow_joblib``.
    release : Release, mapping, str, path-like or None, default=None
        Its public record, as :meth:`.Release.to_dict` or a JSON file of it; the model's own by
        default.
    private : tuple (X, y), mapping, str, path-like or None, default=None
        Tests the noise itself, which only the owner of the records can do; the verdict is then for
        that owner alone. Pass the records that the model was fitted on, as it takes them, or an npz
        file with arrays X and y; for a fit with owners a mapping or a file with X, y and groups.
    transcript : Transcript, str, path-like or None, default=None
        Lets the noise on gradients be tested: the noisy gradients of all steps, or an npz file of
        them; the model's own by default.
    earlier : iterable of estimator, str or path-like
        Finds noise that was used twice: pass earlier releases from the same records.
    encoder : str, path-like, estimator or None, default=None
        Embeds the private records of a model from a file, whose own encoder never runs: an encoder,
        or the name or folder of the weights that you trust (of a name, the newest revision).
    allow_joblib : bool, default=False
        Loads joblib and pickle files too, which can run code chosen by whoever wrote them.

    Returns
    -------
    Verdict
        One line for each check; printing it shows them.

    Raises
    ------
    ValueError
        If a file cannot be read, or the model is no Ball-DP head.

    Notes
    -----
    Without rows only consistency can be checked: a forger who makes weights, record and digest anew
    passes, unless the weights are too short or too long for the noise. With the rows the noise
    itself is tested (:mod:`.residuals`).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, verify
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5).fit(normalize(X), y)
    >>> verify(head, head.release_.to_dict(), private=(normalize(X), y)).failed
    False
    >>> head.prototypes_[:] = 123.0
    >>> [check.name for check in verify(head).checks if check.verdict == "FAIL"]
    ['parameters', 'size of the weights']
    """
    folder = parts_of_folder(model) if isinstance(model, (str, Path)) else None
    if folder is not None:
        model, release = folder[1], folder[2] if release is None else release
    received = received_from(model, "model", allow_joblib=allow_joblib)
    stated = received
    if encoder is not None:
        if folder is not None:
            # Its files follow from what it says, whatever weights the caller trusts.
            stated = received_from(model, "model")
        embed_with(received, encoder)
    before = [received_from(model_in(m), "earlier", allow_joblib=allow_joblib) for m in earlier]
    given = load_record(release) if isinstance(release, (str, Path)) else release
    rows: Any = load_rows(private) if isinstance(private, (str, Path)) else private
    if rows is not None and not isinstance(rows, Mapping):
        if not (isinstance(rows, (tuple, list)) and len(rows) == 2):
            raise ValueError(f"private must be (X, y), a mapping or a file, got {type(rows)}.")
        rows = dict(zip(("X", "y"), rows, strict=True))
    if rows is not None and not {"X", "y"} <= set(rows) <= {"X", "y", "groups"}:
        raise ValueError(
            f"private holds {', '.join(map(str, rows))}; it needs X and y, and may hold groups."
        )
    is_file = isinstance(transcript, (str, Path))
    steps: Any = load_transcript(transcript) if is_file else transcript  # type: ignore[arg-type]
    checks, record = _record_checks(received, given)
    if record is None:
        return Verdict(tuple(checks), None)
    # From here on the record counts that was checked, whatever the model says of itself.
    released = _released(received, record)
    steps = getattr(received.head, "transcript_", None) if steps is None else steps
    fault = shape_fault(released)
    if fault is not None:
        beside = f"; it holds {', '.join(received.faults)}" if received.faults else ""
        checks.append(Check("model", FAIL, fault + beside, "shape of what the record speaks of"))
        return Verdict(tuple(checks), record)
    checks += consistency_checks(released, received)
    checks += _public_checks(released, steps)
    checks += _statement_checks(record)
    if folder is not None:
        checks += folder_checks(folder[0], stated, record)
    if rows is None:
        checks.append(
            Check(
                "noise in the weights",
                CANNOT_CHECK,
                "whether the weights carry the stated noise cannot be seen without the rows",
                "the records' owner can test it (private=, --private)",
            )
        )
    else:
        others = [_released(other, other.release()) for other in before]
        checks += _private_checks(released, received, rows, steps, others)
    return Verdict(tuple(checks), record)


def _released(received: Received, record: Release) -> ReleasedModel:
    """The model beside a record that was checked."""
    if received.head_is_new:
        received.head.release_ = record
    return ReleasedModel(received.head, record)


def _record_checks(
    received: Received, given: Release | Mapping[str, Any] | None
) -> tuple[list[Check], Release | None]:
    """Whether the record agrees with itself, and with the one that the model holds."""
    basis = "every derived number is computed again from the bound"
    try:
        record = own = received.release()
        if given is not None:
            written = given.to_dict() if isinstance(given, Release) else given
            record = Release.from_dict(written)
    except (ValueError, TypeError, AttributeError, ArithmeticError, LookupError) as error:
        return [Check("record", FAIL, str(error), basis)], None
    at_full = f"epsilon={record.epsilon_full_radius:.4g} at full radius"
    found = (
        f"mu={record.mu:.4f}: epsilon={record.guarantee().epsilon:.4g}, delta={record.delta:g} "
        f"within {record.radius:g} ({record.metric}); {at_full}"
    )
    checks = [Check("record", PASS, found, basis)]
    advantage = record.guarantee().advantage
    if advantage > NOTHING_HIDDEN:
        found = (
            f"an attacker who knows all else may tell two records apart, advantage {advantage:.4f}"
        )
        checks.append(Check("promise", WEAK, found, "epsilon and delta of the record"))
    if given is not None:
        same = record == own
        held = own.to_dict()
        odd = [k for k, v in record.to_dict().items() if v != held[k]]
        found = "equal" if same else f"they differ in {', '.join(odd)}"
        checks.append(
            Check("the model's own record", PASS if same else FAIL, found, "the record handed over")
        )
    return checks, record


def _public_checks(model: ReleasedModel, transcript: Transcript | None) -> list[Check]:
    """What released numbers alone can refute."""
    if model.record.mechanism != "gradient" or transcript is None:
        return [size_check(model)]
    fault = transcript_fault(model, transcript)
    basis = "iterates and model follow from the noisy gradients by public rules"
    if fault is not None:
        return [fault_check(model, fault, basis)]
    found = f"{len(transcript.sigma)} steps lead to the released model"
    rule = rule_check(model, transcript)
    return [Check("transcript", PASS, found, basis), *([] if rule is None else [rule])]


def _statement_checks(record: Release) -> list[Check]:
    """Delta, labels, radius and sampler: what the record states, and what that is worth."""
    small = record.delta * record.n_units < 1.0
    persons = " of persons" if record.unit == "person" else ""
    checks = [
        Check(
            "delta",
            PASS if small else FAIL,
            f"{record.delta:g} against 1/n{persons} = {1.0 / record.n_units:.3g}",
            f"a delta of 1/n allows a random {record.unit} to be published whole",
        ),
        Check(
            "labels",
            PASS,
            "hidden: a change of label is adjacent too"
            if record.labels == "protected"
            else "public: labels and class counts are not hidden",
            "the record's adjacency",
        ),
    ]
    if record.weights is not None:
        found = f"it hides {record.unit_in_words}, {record.n_units} in all"
        found += ", with weights" if record.has_weights else ""
        why = "whose a record is, and what it weighs, only the publisher knows: ask him"
        checks.append(Check("unit", CANNOT_CHECK, found, why))
    radius = {
        "number": (
            CANNOT_CHECK,
            "a plain number; only the publisher knows whether it was fixed before he saw the rows: "
            "ask him how he chose it",
        ),
        "reference": (
            CANNOT_CHECK,
            "computed from reference rows; only the publisher knows whether they are public: ask "
            "him for them",
        ),
        "edits": (
            CANNOT_CHECK,
            f"it hides {record.hidden_edits}; only the publisher knows whether those were public: "
            "ask him for the texts",
        ),
        "declared": (
            CANNOT_CHECK,
            "a quantile of the private rows; the guarantee holds only if it may be public: ask the "
            "publisher why",
        ),
        "private": (
            CANNOT_CHECK,
            f"drawn privately, epsilon={record.radius_epsilon:g} is in the total; only the "
            "publisher knows whether it was drawn so: ask him",
        ),
        "seeded": (FAIL, "drawn from a seed, which hides nothing"),
    }[record.radius_source]
    checks.append(Check("radius", *radius, "where the record says that the radius came from"))
    exact = record.sampler == EXACT_SAMPLER
    checks.append(
        Check(
            "sampler",
            PASS if exact else FAIL,
            record.sampler,
            "what the record states; only the publisher knows whether a copy of the noise was kept"
            if exact
            else "whoever knows the seed can take the noise off",
        )
    )
    return checks


def _private_checks(
    model: ReleasedModel,
    received: Received,
    private: Mapping[str, Any],
    transcript: Transcript | None,
    earlier: Sequence[ReleasedModel],
) -> list[Check]:
    """The noise itself, for the owner of the rows."""
    declared = dict(private)
    X, y = declared.pop("X"), declared.pop("y")
    unread = [step for step in received.steps if step.made is None]
    if unread:
        found = (
            f"nothing of a file runs, and {unread[0].shown} is none that is made anew: embed the "
            "records (encoder=, --encoder), or verify the last step on rows as it sees them"
        )
        return [Check("rows", CANNOT_CHECK, found, "the pipeline's own steps", True)]
    for step in received.steps:
        try:
            X = X if step.made == "passthrough" else step.made.transform(X)
        except Exception as error:
            # Its message may quote a record.
            found = f"the step {step.shown} cannot transform them ({type(error).__name__})"
            return [Check("rows", FAIL, found, "the pipeline's own steps", True)]
    try:
        with np.errstate(all="ignore"):
            problem, placeholder = complete_problem(model, model.on(X, np.asarray(y), **declared))
    except (AttributeError, TypeError, ValueError) as error:
        return [Check("rows", FAIL, str(error), "the record's counts", True)]
    if placeholder is not None:
        return [
            Check("rows", CANNOT_CHECK, "one record is missing", "all records of the fit", True)
        ]
    found = f"{len(problem.X)} records, with the record's counts"
    rows = Check(
        "rows",
        PASS,
        found,
        "only the noise tests can tell whether these are the rows of the fit",
        True,
    )
    try:
        return [rows, *weight_checks(model, problem, transcript, earlier)]
    except ValueError as error:
        return [
            rows,
            Check("noise in the weights", CANNOT_CHECK, str(error), "a model as it was", True),
        ]
