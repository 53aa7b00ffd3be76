"""Text of a stranger, as it may be shown."""

import re
import unicodedata

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
