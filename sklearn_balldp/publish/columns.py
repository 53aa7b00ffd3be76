"""What a release hides of declared columns, in words: for the card, and the owner's terminal."""

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from typing import Any

from ..encoders import TableEncoder
from ..encoders.tables import held
from ..privacy.release import Release
from ..showing import DOWN, UP, one_line, rounded
from .steps import Step, table_of

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
#: A change of a record as :meth:`.TableEncoder.radius` takes it; None where none is known.
Change = int | Mapping[str, float | None] | None
#: Categories of a column that are shown.
_SHOWN = 10


class HiddenColumns:
    """A release on rows of declared columns, and not on what was made of them."""

    def __init__(self, release: Release, encoder: TableEncoder, change: Change = None) -> None:
        self.release, self.encoder, self._all = release, encoder, len(encoder.columns)
        # Rows have norm one before the head brings them into its domain.
        scale = release.norm_bound if release.domain == "sphere" else min(1.0, release.norm_bound)
        self._radius = release.radius if scale == 1.0 else release.radius / scale * (1.0 - 1e-12)
        # The rounding of rows is the heads' to allow for.
        self.everything = self._radius >= math.sqrt(2.0)
        m = bisect_right(range(1, self._all + 1), self._radius, key=encoder.radius)
        #: How many cells are hidden at once, whatever they hold.
        self.n_hidden = self._all if self.everything else m
        #: A radius that no two rows exceed.
        self.reach = min(release.full_radius, encoder.radius(self._all) * scale * (1.0 + 1e-12))
        if self.n_hidden == self._all:
            self.reach = min(self.reach, release.radius)
        #: The change that was declared, in the order of the columns; None where none is known.
        self.change = _plain_change(encoder, change)

    @classmethod
    def of(
        cls, release: Release, steps: Mapping[str, Step] | None, change: Change = None
    ) -> "HiddenColumns | None":
        """What of a table a release hides; None if its rows are no table's."""
        given = [*(steps or {}).values()]
        if [step.kind for step in given] != ["table"] or release.metric != "euclidean":
            return None
        return cls(release, table_of(given[0].settings), change)

    @property
    def fault(self) -> str | None:
        """What is wrong with the change that was declared; None if the radius hides it."""
        if self.change is None or self.encoder.radius(self.change) <= self._radius:
            return None
        return "a declared change that its radius does not hide"

    def __str__(self) -> str:
        return self.shown(lambda name: one_line(name, 60))

    def shown(self, escaped: Callable[[str], str]) -> str:
        """Which changes are hidden; ``escaped`` makes a stranger's name fit for its place."""
        persons = self.release.unit == "person"
        whose, own = (
            ("every record of one person", "the labels") if persons else ("a record", "its label")
        )
        protected = self.release.labels == "protected"
        if self.n_hidden == self._all:
            label = f", and {own}" if protected else ""
            return f"all {in_words(self._all)} columns of {whose}, whatever they hold{label}"
        some = f"any {in_words(self.n_hidden)} of the {self._all} columns of {whose}, whatever "
        some += "they hold" if self.n_hidden != 1 else "it holds"
        parts = [some] if self.n_hidden else []
        if isinstance(self.change, Mapping):
            few = "this change" if len(self.change) == 1 else "these changes at once"
            parts.insert(0, f"{few}, in {whose}: {self._changes(escaped)}")
        parts = parts or [f"a change of one column of {whose}, by no more than the table says"]
        return "; or ".join([*parts, *([f"{own} and all columns at once"] * protected)])

    def _changes(self, escaped: Callable[[str], str]) -> str:
        """The declared change in words: how far each column may move, all of them at once."""
        assert isinstance(self.change, Mapping)
        shown, declared = [], dict(self.encoder.to_dict()["columns"])
        for name, amount in self.change.items():
            holds = declared[name]["holds"] if isinstance(declared[name], dict) else declared[name]
            # Of texts those that may change by an amount are days.
            days = " days" if isinstance(holds, list) and isinstance(holds[0], str) else ""
            far = "to any value" if amount is None else f"by up to {_plain(amount)}{days}"
            # A name that holds what the sentence is made of stands in quotes.
            quoted = name if re.fullmatch(r"[\w.-]+( [\w.-]+)*", name) else f'"{name}"'
            shown.append(f"{escaped(quoted)} {far}")
        return ", and ".join([", ".join(shown[:-1]), shown[-1]] if shown[1:] else shown)

    @property
    def rows(self) -> dict[str, list[str]]:
        """By column: what it may hold, and by how much it may change unseen, alone.

        It is empty where any change of one column is hidden.
        """
        if self.n_hidden:
            return {}
        amounts, found = self.encoder.hidden(self._radius), {}
        for name, own in self.encoder.to_dict()["columns"]:
            declared = held(own)
            values = [] if isinstance(declared, int) else [v for v in declared if v != ""]
            amount, texts = amounts[name], bool(values) and isinstance(values[0], str)
            # Of texts those that may change a little are days.
            days = texts and amount > 0.0
            # The amount is a lower bound; a rounder number just above it may be hidden too.
            rounder = math.floor(amount) + 1 if days else float(rounded(amount, 3, UP))
            if amount > 0.0 and self.encoder.radius({name: rounder}) <= self._radius:
                amount = rounder
            shown = f"{float(rounded(amount, 3, DOWN)):,.15g}"
            shown = f"{math.floor(amount):,} days" if days else shown
            change = f"by {shown} or less" if amount >= days and amount > 0.0 else "not hidden"
            more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
            holds = f"{', '.join(map(str, values[:_SHOWN]))}{more}"
            if not values:
                holds = f"codes, in {declared:,} cells"
            elif days or not texts:
                holds = " to ".join(_plain(value) for value in (values[0], values[-1]))
            missing = ", or missing" if values and "" in declared else ""
            found[name] = [holds + missing, change]
        return found


def _plain_change(encoder: TableEncoder, change: Change) -> Any:
    """A change as JSON has it, in the order of the columns; a ValueError if it is none."""
    if change is None:
        return None
    encoder.radius(change)
    if not isinstance(change, Mapping):
        return int(change)
    amounts = {name: change[name] for name in encoder.columns if name in change}
    return {name: amount if amount is None else _number(amount) for name, amount in amounts.items()}


def _number(amount: Any) -> float | int:
    return int(amount) if float(amount).is_integer() else float(amount)


def in_words(number: int) -> str:
    """A small number in words."""
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def _plain(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and abs(value) < 10**15 else str(value)
