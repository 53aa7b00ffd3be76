"""Check a published model: against its record, and against the private rows for their owner."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from ..audit.noise_tests import epsilon_after_redraws
from ..privacy.release import Release
from ..showing import one_line
from ..verdicts import CANNOT_CHECK, FAIL, FALSE_ALARM, STATED, WEAK, Check
from .checks import public_checks
from .files import Differs, load_rows
from .model import Published
from .private import private_checks
from .steps import encoder_for


@dataclass(frozen=True)
class Verdict:
    """What was checked of a published model, line by line.

    Attributes
    ----------
    folder : str
        The folder, as it was named.
    date : str
        Day of the check.
    checks : tuple of Check
        Lines: name, verdict, what was found, what it rests on. PASS and FAIL were computed here;
        WEAK is a release that says of itself that it hides next to nothing, or a folder with
        further files that may hold records; STATED is the publisher's word; CANNOT CHECK, which is
        unusual, says what is missing.
    release : Release or None
        The record that was checked; None when it contradicts itself.
    """

    folder: str
    date: str
    checks: tuple[Check, ...]
    release: Release | None

    @property
    def failed(self) -> bool:
        """Whether any line says FAIL."""
        return bool(self._named(FAIL))

    def _named(self, verdict: str) -> list[str]:
        return [check.name for check in self.checks if check.verdict == verdict]

    def __str__(self) -> str:
        width = max(len(check.name) for check in self.checks)
        lines = [f"{c.verdict:<12}  {c.name:<{width}}  {c.found} [{c.basis}]" for c in self.checks]
        head = [f"Folder    {one_line(self.folder)}", f"Date      {self.date}"]
        return "\n".join([*head, f"Verdict   {self.sentence}", "", *lines, "", *self.notes])

    @property
    def sentence(self) -> str:
        """The verdict in one sentence."""
        if self.failed:
            return (
                f"At least one check failed ({', '.join(self._named(FAIL))}): the model differs "
                "from its record, the record promises no privacy, the folder was changed, or the "
                "rows passed are not those of the fit."
            )
        weak = {
            "promise": "it hides next to nothing, by its own record",
            "further files": "it holds files that are no part of the model and may hold records",
        }
        odd = [weak[name] for name in self._named(WEAK)]
        if unread := self._named(CANNOT_CHECK):
            odd.append(f"some lines say CANNOT CHECK, read them: {', '.join(unread)}")
        return f"Nothing was refuted{'; but ' if odd else ''}{'; and '.join(odd)}."

    @property
    def notes(self) -> list[str]:
        """What the lines mean, and what must not be made of them."""
        private = [check for check in self.checks if check.private]
        noise = [check for check in private if check.name != "rows" and check.verdict == FAIL]
        notes = [
            "No check can certify a model. A publisher who keeps the seed of the noise, leaves "
            "it out of a few directions, or draws until an outcome is liked passes all of them."
        ]
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
        return notes


def verify(
    folder: str | Path,
    *,
    private: tuple[Any, Any] | Mapping[str, Any] | str | Path | None = None,
    earlier: Iterable[str | Path] = (),
    encoder: Any = None,
) -> Verdict:
    """Check a published model, its record, and (for their owner) the private rows.

    The folder may come from anybody: it is plain data, and nothing of it runs.

    Parameters
    ----------
    folder : str or path-like
        The folder that :func:`.save` wrote, or ``hf://OWNER/NAME`` on the model hub.
    private : tuple (X, y), mapping, str, path-like or None, default=None
        Tests the noise itself, which only the owner of the records can do; the verdict is then for
        that owner alone. Pass the records that the model was fitted on, as it takes them, or an npz
        file with arrays X and y; for a fit with owners a mapping or a file with X, y and groups.
        The noise on the steps of a descent is tested if the folder holds the transcript
        (``save(..., transcript=True)``).
    earlier : iterable of str or path-like
        Finds noise that was used twice: pass folders of earlier releases from the same records.
    encoder : str, path-like, estimator or None, default=None
        Embeds the private records of a model that has a step for that, as the folder holds no
        weights: an encoder, or the name or folder of the weights that you trust, as
        :class:`.SentenceEncoder` takes it.

    Returns
    -------
    Verdict
        One line for each check; printing it shows them.

    Raises
    ------
    ValueError
        If a file is missing or cannot be read. One that can be read, and is not what this version
        writes, is a line FAIL.

    Notes
    -----
    Without rows only consistency can be checked: a forger who makes weights, record and digest anew
    passes, unless the weights are too short or too long for the noise, or a transcript does not
    lead to them. With the rows the noise itself is tested (:mod:`.noise_tests`).

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype, verify
    >>> from sklearn_balldp.publish import save
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5).fit(normalize(X), y)
    >>> folder = save(head, tempfile.mkdtemp() + "/model")
    >>> verify(folder, private=(normalize(X), y)).failed
    False
    >>> text = (folder / "release.json").read_text()
    >>> _ = (folder / "release.json").write_text(text.replace('"epsilon": 4.0', '"epsilon": 0.1'))
    >>> [check.name for check in verify(folder).checks]
    ['record']
    """
    earlier = [*earlier]
    for name, place in (("folder", folder), *(("earlier", one) for one in earlier)):
        if not isinstance(place, (str, Path)):
            raise ValueError(
                f"{name}: expected a folder, got {type(place).__name__}; publish.save writes one."
            )
    rows, others, release = _rows_of(private), [*map(Published.read, earlier)], None
    try:
        model = Published.read(folder)
    except Differs as error:
        basis = "what each file holds can be written in one way only"
        checks = [Check(error.name, FAIL, error.found, basis)]
    else:
        weights = None if encoder is None else encoder_for(model.encoder, encoder)
        checks, sound = public_checks(model, weights)
        if sound and rows is not None:
            checks += private_checks(model.pipeline(weights), rows, others)
        elif sound:
            shown = "they carry the noise that the record states"
            basis = "only the records' owner can test it (private=)"
            checks.append(Check("noise in the numbers", STATED, shown, basis))
        with suppress(ValueError, TypeError, AttributeError, ArithmeticError, LookupError):
            release = model.record
    return Verdict(str(folder), date.today().isoformat(), tuple(checks), release)


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
