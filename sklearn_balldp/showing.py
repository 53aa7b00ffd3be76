"""Text of a stranger, and numbers that are bounds, as they may be shown."""

import math
import re
import unicodedata
from collections.abc import Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

#: Ways to round: an upper bound goes up, a lower one down.
UP, DOWN = ROUND_CEILING, ROUND_FLOOR

# Printable for Python, yet drawn as nothing, as a gap, or over their neighbours.
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
_INVISIBLE = ("Mn", "Me", "Cf")


def one_line(text: object, limit: int = 400) -> str:
    """One printable line of a text: what could forge a line of a report is escaped."""
    start = re.sub("  +", " ", str(text))[: limit + 1]
    safe = "".join(c if _is_visible(c) else ascii(c)[1:-1] for c in start)
    return safe if len(safe) <= limit else f"{safe[: limit - 3]}..."


def listed(names: Sequence[object], most: int) -> str:
    """The first of some names, each on one line, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{', '.join(one_line(name, 60) for name in names[:most])}{more}"


def by_numbers(name: str) -> list[str | int]:
    """What names are sorted by, so that 2 comes before 10."""
    # Of the parts of a split every second one is a number.
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def _is_visible(c: str) -> bool:
    return c.isprintable() and c not in _BLANKS and unicodedata.category(c) not in _INVISIBLE


def rounded(value: float, digits: int, way: str) -> str:
    """A number in few significant digits; one that has no more of them stays as it is."""
    # What comes behind the fourteenth digit is of the computation: 8.000000000000005 is 8.
    shortened = Context(prec=digits, rounding=way).create_decimal(f"{float(value):.14g}")
    return f"{float(shortened):.{digits}g}"


def up(value: float) -> str:
    """An upper bound in four digits, never below it."""
    return rounded(value, 4, UP) if math.isfinite(value) else "none"


def down(value: float) -> str:
    """A distance in three digits, rounded down: what a larger one hides it hides too."""
    return rounded(value, 3, DOWN)


def percent(share: float, way: str = UP, places: int | None = None) -> str:
    """A share in percent, rounded up as an upper bound is; :data:`DOWN` is for lower ones."""
    if places is None:
        places = 3 if share < 0.001 else 2 if share < 0.01 else 1
    # The decimal that the share is written as: 0.07, not the double next to it.
    written = 100 * Decimal(repr(float(share)))
    return f"{written.quantize(Decimal(1).scaleb(-places), way)} %"
