"""``--ledger``: the file that counts a fit, opened and tried before anything is embedded."""

import argparse
from typing import Any

from .._parameters import Epsilon, in_range
from ..accounting import PrivacyAccountant, Total
from ..privacy.release import Release
from ..showing import UP, one_line, rounded
from .options import InputError


class Account:
    """The ledger of one run, if any; a new one is made once it is sure that there will be a fit."""

    def __init__(self, options: argparse.Namespace):
        """Open the ledger that options name, if they do; an InputError if it cannot count a fit."""
        path, limit = self._path, self._limit = options.ledger, options.limit
        self.accountant: PrivacyAccountant | None = None
        #: Terms of a new ledger, and what there is to say of it, once a fit was planned.
        self._terms: dict[str, Any] = {}
        self.state = ""
        # Any distance, in the ledger's metric.
        self._full = 0.0
        if path is None:
            return
        named = f"--ledger {path}"
        if limit is not None and not in_range(limit, Epsilon):
            raise InputError(f"--limit {limit:g} must be a positive epsilon.")
        if not path.exists():
            if not path.parent.is_dir():
                raise InputError(f"{named}: its folder is missing; make it, or correct the name.")
            return
        self.accountant = PrivacyAccountant(path)
        terms, kept = self.accountant.ledger.terms, self.accountant.limit
        if limit not in (None, kept):
            made = "without a limit" if kept is None else f"with {kept:g}"
            raise InputError(
                f"--limit {limit:g}: {path} was made {made}, and keeps its terms; leave --limit "
                "out, or name another ledger."
            )
        if terms.unit == "person" and options.owner is None:
            raise InputError(
                f"{named} counts by person, and this fit would hide one record: name the column of "
                "owners with --owner COLUMN."
            )
        if terms.labels == "protected" and options.labels == "public":
            raise InputError(
                f"{named} counts what hides labels: add --labels protected --classes FILE."
            )

    def check(self, release: Release, reach: float | None = None) -> None:
        """Refuse a planned release that the ledger would; nothing is counted, and no file made.

        No two of its rows are further apart than the ``reach`` (by default, than any two rows).
        """
        if self._path is None:
            return
        self._full, trial = reach or release.full_radius, self.accountant
        if trial is None:
            names = ("delta", "radius", "labels", "unit")
            self._terms = {n: getattr(release, n) for n in names} | {"limit": self._limit}
            trial = PrivacyAccountant(**self._terms)
            state = "is new, without a limit (--limit EPSILON sets one)"
            if self._limit is not None:
                within = self._within(release.unit, release.radius)
                state = f"is new; its limit is epsilon {self._limit:g} {within}"
        else:
            total = trial.total()
            state = f"holds {total.n_releases} release(s), epsilon {self._spent(total)}"
        trial.ledger.check(release)
        counted = trial.radius or self._full
        if release.radius < counted:
            cost = rounded(release.guarantee(counted).epsilon, 4, UP)
            state += f"\n          there this fit counts as epsilon {cost}"
        self.state = f"\nLedger    {self._path} {state}"

    def begun(self) -> PrivacyAccountant | None:
        """The accountant of the fit: the file is made, if it is missing."""
        if self.accountant is None and self._path is not None:
            self.accountant = PrivacyAccountant(self._path, **self._terms)
        return self.accountant

    def __str__(self) -> str:
        """What was spent, at the radius of the ledger and at any distance."""
        if self.accountant is None:
            return ""
        total = self.accountant.total()
        text = f"{total.n_releases} release(s) of these records spent epsilon {self._spent(total)}"
        if total.radius is not None and total.radius < self._full:
            try:
                anywhere = self.accountant.total(self._full).epsilon
                text += f", and {rounded(anywhere, 4, UP)} at any distance"
            except ValueError as error:
                text += f"; at any distance it is not known ({one_line(error)})"
        return f"Ledger    {text}; delta {total.delta:g}, labels {total.labels}\n"

    def _spent(self, total: Total) -> str:
        limit = "" if total.limit is None else f" of the limit {total.limit:g}"
        return f"{rounded(total.epsilon, 4, UP)}{limit} {self._within(total.unit, total.radius)}"

    def _within(self, unit: str, radius: float | None) -> str:
        anywhere = radius is None or radius >= self._full
        return f"for one {unit} {'at any distance' if anywhere else f'within {radius:g}'}"
