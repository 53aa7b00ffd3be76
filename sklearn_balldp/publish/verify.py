"""Check a published model: against its record, and against the private rows for their owner."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..audit.noise_tests import epsilon_after_redraws, weight_checks
from ..audit.preparation import complete_records
from ..checks import CANNOT_CHECK, FAIL, FALSE_ALARM, PASS, WEAK, Check
from ..heads import Released
from ..mechanisms import Transcript
from ..privacy.release import Release
from .card import Card, card_text, marked, points
from .checks import checks_without_rows
from .files import load_record, load_rows
from .model import Published
from .steps import NamedEncoder, encoder_for

#: Lines that an honest model leaves open to whoever has neither its records nor its encoder.
_NORMAL = (
    "encoder",
    "further files",
    "name of the column",
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
        rests on. WEAK is a release that says of itself that it hides next to nothing, or a README
        that may mislead.
    release : Release or None
        The record that was checked; None when it contradicts itself.
    """

    checks: tuple[Check, ...]
    release: Release | None
    _model: Published | None = field(default=None, repr=False, compare=False)

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

    def to_html(self) -> str:
        """Write one page of HTML: what was checked, and the card of the model.

        Lines that depend on private records are not for others, and stay out.

        Returns
        -------
        str
            A document of its own.
        """
        public = replace(self, checks=tuple(c for c in self.checks if not c.private))
        lines = [f"{c.verdict}, {c.name}: {c.found} ({c.basis})" for c in public.checks]
        notes = "\n\n".join(map(marked, public.notes))
        title, rest = "# A model that has no card", ""
        if self._model is not None:
            same = all(
                c.verdict != FAIL for c in self.checks if c.name in ("parameters", "encoder")
            )
            card = card_text(self._model.record, self._model.named_steps, same)
            title, _, rest = card.partition("\n")
        return Card(f"{title}\n\n## What was checked\n\n{points(lines)}\n{notes}\n{rest}").to_html()

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
        weak = [check.name for check in self.checks if check.verdict == WEAK]
        if "promise" in weak:
            notes.append("It hides next to nothing, by its own record: see the line WEAK.")
        if "above the card" in weak:
            notes.append(
                "Its README may mislead: what stands above the card looks like a part of it, or "
                "hides it. See the line WEAK; verify --html writes the card that was checked."
            )
        notes.append(
            "No check can certify a model. A publisher who keeps the seed of the noise, leaves "
            "it out of a few directions, or draws until an outcome is liked passes all of them."
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
    transcript: Transcript | None = None,
    earlier: Iterable[Any] = (),
    encoder: Any = None,
) -> Verdict:
    """Check a published model, its record, and (for their owner) the private rows.

    A folder may come from anybody: it is plain data, and nothing of it runs. Of a model in memory
    that is checked which :func:`.save` would publish.

    Parameters
    ----------
    model : estimator, str or path-like
        The folder that :func:`.save` wrote, or ``hf://OWNER/NAME`` on the model hub; or a fitted
        Ball-DP head, or a Pipeline that ends in one.
    release : Release, mapping, str, path-like or None, default=None
        Its public record, as :meth:`.Release.to_dict` or a JSON file of it; the model's own by
        default.
    private : tuple (X, y), mapping, str, path-like or None, default=None
        Tests the noise itself, which only the owner of the records can do; the verdict is then for
        that owner alone. Pass the records that the model was fitted on, as it takes them, or an npz
        file with arrays X and y; for a fit with owners a mapping or a file with X, y and groups.
    transcript : Transcript or None, default=None
        Lets the noise on gradients be tested: the noisy answers of a descent; the model's own by
        default.
    earlier : iterable of estimator, str or path-like
        Finds noise that was used twice: pass earlier releases from the same records.
    encoder : str, path-like, estimator or None, default=None
        Embeds the private records of a model from a folder, which holds no weights of an encoder:
        an encoder, or the name or folder of the weights that you trust, as
        :class:`.SentenceEncoder` takes it.

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
    passes, unless the weights are too short or too long for the noise, or a transcript does not
    lead to them. With the rows the noise itself is tested (:mod:`.noise_tests`).

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, verify
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5).fit(normalize(X), y)
    >>> record = head.release_.to_dict()
    >>> verify(head, record, private=(normalize(X), y)).failed
    False
    >>> [check.name for check in verify(head, {**record, "epsilon": 0.1}).checks]
    ['record']
    """
    published = _read(model, "model")
    own_encoder = None if encoder is None else encoder_for(published.encoder, encoder)
    others = [_read(other, "earlier") for other in earlier]
    given = load_record(release) if isinstance(release, (str, Path)) else release
    rows = _rows_of(private)
    checks, checked, sound = checks_without_rows(published, given, transcript, own_encoder)
    if checked is None or not sound:
        return Verdict(tuple(checks), None if checked is None else checked.record)
    if rows is None:
        found = "whether the weights carry the stated noise cannot be seen without the rows"
        basis = "the records' owner can test it (private=, --private)"
        checks.append(Check("noise in the weights", CANNOT_CHECK, found, basis))
    else:
        checks += _private_checks(checked.pipeline(own_encoder), rows, others)
    return Verdict(tuple(checks), checked.record, checked)


def _read(model: Any, name: str) -> Published:
    return Published.read(model) if isinstance(model, (str, Path)) else Published.of(model, name)


def _rows_of(private: Any) -> dict[str, Any] | None:
    """Private records, and their owners if there are any, by name."""
    rows = load_rows(private) if isinstance(private, (str, Path)) else private
    if rows is None:
        return None
    if not isinstance(rows, Mapping):
        if not (isinstance(rows, (tuple, list)) and len(rows) == 2):
            raise ValueError(f"private must be (X, y), a mapping or a file, got {type(rows)}.")
        rows = dict(zip(("X", "y"), rows, strict=True))
    if not {"X", "y"} <= set(rows) <= {"X", "y", "groups"}:
        raise ValueError(
            f"private holds {', '.join(map(str, rows))}; it needs X and y, and may hold groups."
        )
    return dict(rows)


def _private_checks(
    pipeline: Any, private: dict[str, Any], earlier: Iterable[Published]
) -> list[Check]:
    """The noise itself, for the owner of the rows."""
    steps = pipeline.steps[:-1] if isinstance(pipeline, Pipeline) else []
    head = pipeline[-1] if steps else pipeline
    released = head.released_
    basis, X, groups = "the model's own steps", private["X"], private.get("groups")
    for name, step in steps:
        if isinstance(step, NamedEncoder):
            found = f"{step.identity} made them: pass the weights that you trust (encoder=, "
            return [Check("rows", CANNOT_CHECK, f"{found}--encoder)", basis, True)]
        try:
            X = step.transform(X)
        except Exception as error:
            # Its message may quote a record.
            found = f"the step {name} cannot transform them ({type(error).__name__})"
            return [Check("rows", FAIL, found, basis, True)]
    persons = released.release.unit == "person"
    if persons != (groups is not None):
        found = "owners of the records were passed (groups), and the model was fitted without: the "
        found += "record hides single records. Leave them out to test the noise"
        if persons:
            found = "the model was fitted with owners of the records: pass groups, as it was given"
        return [Check("rows", CANNOT_CHECK, found, "all that the fit was given", True)]
    try:
        with np.errstate(all="ignore"):
            records = head._records(X, np.asarray(private["y"]), groups)
            records, placeholder = complete_records(head, records)
    except (AttributeError, TypeError, ValueError) as error:
        return [Check("rows", FAIL, str(error), "the record's counts", True)]
    if placeholder is not None:
        found = "one record is missing"
        return [Check("rows", CANNOT_CHECK, found, "all records of the fit", True)]
    found, basis = f"{len(records)} records, with the record's counts", "only the noise tests can "
    rows = Check("rows", PASS, found, f"{basis}tell whether these are the rows of the fit", True)
    known, left_out = list[Released](), []
    for other in earlier:
        try:
            faults = other.faults()
        except ValueError:
            faults = ["a record that contradicts itself"]
        if not faults:
            known.append(other.released)
        else:
            why = f"it has {'; '.join(faults)}"
            left_out.append(
                Check("earlier release", CANNOT_CHECK, why, "models as they were", True)
            )
    try:
        return [rows, *weight_checks(released, records, known), *left_out]
    except ValueError as error:
        unread = Check("noise in the weights", CANNOT_CHECK, str(error), "a model as it was", True)
        return [rows, unread, *left_out]
