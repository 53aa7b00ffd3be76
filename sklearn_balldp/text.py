"""Text of a stranger, and numbers that are bounds, as they may be shown."""

import re
import unicodedata
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

#: Ways to round: an upper bound goes up, a lower one down.
UP, DOWN = ROUND_CEILING, ROUND_FLOOR

# Printable for Python, yet drawn as nothing, as a gap, or over their neighbours.
_BLANKS = "\u115f\u1160\u2800\u3164\uffa0"
_UNSEEN = ("Mn", "Me", "Cf")


def one_line(text: object, most: int = 400) -> str:
    """One printable line of a text: the rest is escaped, or cut off.

    Line feeds, terminal codes, gaps and marks without width could forge a line of a report.
    """
    start = re.sub("  +", " ", str(text))[: most + 1]
    safe = "".join(c if _is_seen(c) else ascii(c)[1:-1] for c in start)
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."


def _is_seen(c: str) -> bool:
    return c.isprintable() and c not in _BLANKS and unicodedata.category(c) not in _UNSEEN


def rounded(value: float, digits: int, way: str) -> str:
    """A number in few significant digits; one that has no more of them stays as it is."""
    found = Context(prec=digits, rounding=way).create_decimal(repr(float(value)))
    return f"{float(found):.{digits}g}"


def percent(share: float, way: str = UP, places: int | None = None) -> str:
    """A share in percent, rounded up as an upper bound is; :data:`DOWN` is for lower ones."""
    if places is None:
        places = 3 if share < 0.001 else 2 if share < 0.01 else 1
    # The decimal that the share is written as: 0.07, not the double next to it.
    written = 100 * Decimal(repr(float(share)))
    return f"{written.quantize(Decimal(1).scaleb(-places), way)} %"
