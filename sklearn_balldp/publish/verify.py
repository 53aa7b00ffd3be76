"""Check a published model: against its record, and against the private rows for their owner."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..audit.noise_tests import epsilon_after_redraws, weight_checks
from ..heads import Released
from ..heads.inspection import records_of
from ..mechanisms import Transcript
from ..privacy.release import Release
from ..verdicts import CANNOT_CHECK, FAIL, FALSE_ALARM, PASS, WEAK, Check
from .card import Card, card_text, marked, points
from .checks import checks_without_rows
from .files import load_record, load_rows
from .model import Published
from .steps import NamedEncoder, encoder_for

#: Lines that an honest model leaves open to whoever has neither its records nor its encoder.
_NORMAL = (
    "encoder",
    "name of the column",
    "noise in the numbers",
    "radius",
    "size of the numbers",
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
        return bool(self._named(FAIL))

    def _named(self, verdict: str) -> list[str]:
        return [check.name for check in self.checks if check.verdict == verdict]

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [f"{c.verdict:<12}  {c.name:<{width}}  {c.found} [{c.basis}]" for c in self.checks]
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
            same = not {"parameters", "encoder"} & {*self._named(FAIL)}
            card = card_text(self._model.record, self._model.named_steps, same)
            title, _, rest = card.partition("\n")
        return Card(f"{title}\n\n## What was checked\n\n{points(lines)}\n{notes}\n{rest}").to_html()

    @property
    def notes(self) -> list[str]:
        """What the lines mean, and what must not be made of them."""
        named = {verdict: self._named(verdict) for verdict in (FAIL, WEAK, CANNOT_CHECK, PASS)}
        private = [check for check in self.checks if check.private]
        noise = [check for check in private if check.name != "rows" and check.verdict == FAIL]
        notes = [
            "At least one check failed: the model differs from its record, the record promises no "
            "privacy, the folder was changed, or the rows passed are not those of the fit. The "
            "FAIL lines say which."
            if named[FAIL]
            else "Nothing was refuted."
        ]
        if "promise" in named[WEAK]:
            notes.append("It hides next to nothing, by its own record: see the line WEAK.")
        if "above the card" in named[WEAK]:
            notes.append(
                "Its README may mislead: what stands above the card looks like a part of it, or "
                "hides it. See the line WEAK; verify --html writes the card that was checked."
            )
        notes.append(
            "No check can certify a model. A publisher who keeps the seed of the noise, leaves "
            "it out of a few directions, or draws until an outcome is liked passes all of them."
        )
        if private:
            notes.append(
                "The lines about the rows and the noise depend on private records: do not publish "
                f"them. An honest release fails one of them with probability below {FALSE_ALARM:g}."
            )
        if noise and self.release is not None:
            epsilon, delta = epsilon_after_redraws(self.release.epsilon, self.release.delta)
            notes.append(
                "This verdict must not decide whether to publish: find the fault first. Fitting "
                f"again because of it makes (epsilon={self.release.epsilon:g}, "
                f"delta={self.release.delta:g}) into (epsilon={epsilon:.6g}, delta={delta:.2g}); "
                "start over with a budget of its own."
            )
        counts = ", ".join(f"{len(names)} {verdict}" for verdict, names in named.items() if names)
        return [*notes, f"Lines: {counts}.{self._of_open_lines(named[CANNOT_CHECK])}"]

    def _of_open_lines(self, names: list[str]) -> str:
        """Whether lines that say CANNOT CHECK are a warning."""
        # A radius that was read off private records may be one.
        declared = self.release is not None and self.release.radius_source == "declared"
        odd = [name for name in names if name not in _NORMAL or (name == "radius" and declared)]
        if odd:
            return f" These CANNOT CHECK lines are not the usual ones, read them: {', '.join(odd)}."
        if len(names) == 1:
            return " The CANNOT CHECK line above is a usual one, and no warning."
        return (
            " The CANNOT CHECK lines above are the usual ones; none is a warning." if names else ""
        )


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
    weights = None if encoder is None else encoder_for(published.encoder, encoder)
    others = [_read(other, "earlier") for other in earlier]
    record = load_record(release) if isinstance(release, (str, Path)) else release
    rows = _rows_of(private)
    checks, checked, sound = checks_without_rows(published, record, transcript, weights)
    if checked is None or not sound:
        return Verdict(tuple(checks), None if checked is None else checked.record)
    if rows is None:
        shown = "whether they carry the stated noise cannot be seen without the private records"
        basis = "the records' owner can test it (private=, --private)"
        checks.append(Check("noise in the numbers", CANNOT_CHECK, shown, basis))
    else:
        checks += _private_checks(checked.pipeline(weights), rows, others)
    return Verdict(tuple(checks), checked.record, checked)


def _read(model: Any, name: str) -> Published:
    return Published.read(model) if isinstance(model, (str, Path)) else Published.of(model, name)


def _rows_of(private: Any) -> dict[str, Any] | None:
    """Private records, and their owners if there are any, by name."""
    rows = load_rows(private) if isinstance(private, (str, Path)) else private
    if rows is None:
        return None
    if isinstance(rows, (tuple, list)) and len(rows) == 2:
        rows = {"X": rows[0], "y": rows[1]}
    if not isinstance(rows, Mapping):
        raise ValueError(f"private must be (X, y), a mapping or a file, got {type(rows)}.")
    if not {"X", "y"} <= set(rows) <= {"X", "y", "groups"}:
        raise ValueError(
            f"private holds {', '.join(map(str, rows))}; it needs X and y, and may hold groups."
        )
    return dict(rows)


def _private_checks(
    pipeline: Any, private: dict[str, Any], earlier: Iterable[Published]
) -> Iterator[Check]:
    """The noise itself, for the owner of the rows."""
    steps = pipeline.steps[:-1] if isinstance(pipeline, Pipeline) else []
    head = pipeline[-1] if steps else pipeline
    released, X, groups = head.released_, private["X"], private.get("groups")

    def of_rows(verdict: str, shown: str, basis: str) -> Check:
        return Check("rows", verdict, shown, basis, True)

    for name, step in steps:
        basis = "the model's own steps"
        if isinstance(step, NamedEncoder):
            shown = f"{step.identity} made them: pass the weights that you trust (encoder=)"
            yield of_rows(CANNOT_CHECK, shown, basis)
            return
        try:
            X = step.transform(X)
        except Exception as error:
            # Its message may quote a record.
            kind = type(error).__name__
            yield of_rows(FAIL, f"the step {name} cannot transform them ({kind})", basis)
            return
    persons = released.release.unit == "person"
    if persons != (groups is not None):
        shown = "owners of the records were passed (groups), and the model was fitted without: the "
        shown += "record hides single records. Leave them out to test the noise"
        if persons:
            shown = "the model was fitted with owners of the records: pass groups, as it was given"
        yield of_rows(CANNOT_CHECK, shown, "all that the fit was given")
        return
    try:
        with np.errstate(all="ignore"):
            records = records_of(head, X, np.asarray(private["y"]), groups)
    except (AttributeError, TypeError, ValueError) as error:
        yield of_rows(FAIL, str(error), "the record's counts")
        return
    basis = "only the noise tests can tell whether these are the rows of the fit"
    yield of_rows(PASS, f"{len(records)} records, with the record's counts", basis)
    sound, odd = list[Released](), list[str]()
    for other in earlier:
        try:
            faults = other.faults()
        except ValueError:
            faults = ["a record that contradicts itself"]
        if faults:
            odd.append(f"it has {'; '.join(faults)}")
        else:
            sound.append(other.released)
    try:
        yield from weight_checks(released, records, sound)
    except ValueError as error:
        yield Check("noise in the numbers", CANNOT_CHECK, str(error), "a model as it was", True)
    for why in odd:
        yield Check("earlier release", CANNOT_CHECK, why, "models as they were", True)
