"""Names of owners, labels and columns, and numbers in cells, as they are compared; and in words."""

import re
import unicodedata
from decimal import Decimal

# Blanks, control codes and marks without width: invisible at the ends of a name.
_CODES = (
    *(*range(0x21), *range(0x7F, 0xA1), 0xAD, 0x61C, 0x115F, 0x1160, 0x1680, 0x180E),
    *(*range(0x2000, 0x2010), *range(0x2028, 0x2030), *range(0x205F, 0x2070)),
    *(0x2800, 0x3000, 0x3164, 0xFEFF, 0xFFA0),
)
_EMPTY = "".join(map(chr, _CODES))
# A whole number as tables write it where a cell is missing.
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)\.0")
# A number as a reader of tables takes it for one.
_NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d{1,3})?", re.IGNORECASE)
# The same in spreadsheets, by decimal mark: thousands are grouped by one of the other marks.
_GROUPED = {
    mark: re.compile(
        rf"([-+]?)([0-9]*|[0-9]{{1,3}}(?:(?P<group>[{other} \xa0\u202f'\u2019])[0-9]{{3}})"
        rf"(?:(?P=group)[0-9]{{3}})*)({re.escape(mark)}[0-9]*)?(e[-+]?[0-9]{{1,3}})?",
        re.IGNORECASE,
    )
    for mark, other in ((",", "."), (".", ","))
}
# A longer one is no number of a table, and Python limits how long a whole one is as a text.
_LONGEST = 400


def trimmed(text: str) -> str:
    """A text in Unicode's composed form, without invisible marks at its ends."""
    return unicodedata.normalize("NFC", text).strip(_EMPTY)


def number_of(text: str, decimal: str = "") -> int | float | None:
    """The number that a text writes: exactly where it is whole, else in double precision.

    A decimal mark, "," or ".", says that thousands may be grouped. Then 1.500 is none with ",", as
    a reader may have meant 1.5.
    """
    if decimal:
        parts = _GROUPED[decimal].fullmatch(text)
        if parts is None or (parts["group"] == "." and not parts[4] and len(parts[2]) < 8):
            return None
        sign, whole, part, exponent = (parts[place] or "" for place in (1, 2, 4, 5))
        text = f"{sign}{re.sub('[^0-9]', '', whole)}{part.replace(',', '.')}{exponent}"
    if len(text) > _LONGEST or not _NUMBER.fullmatch(text):
        return None
    if text.isdecimal():
        return int(text)
    value = Decimal(text)
    if value == value.to_integral_value():
        return int(value)
    near = float(value)
    # Too small to be told from 0; too large to be told from a whole number stays a float.
    return 0 if near == 0.0 else near


def spelling(text: str) -> str:
    """The name of an owner as it is compared; of equal numbers one: 7.0 and 007 are 7."""
    name = trimmed(text)
    number = number_of(name)
    return name if number is None else repr(number)


def label_key(name: str) -> str:
    """What a label is compared by: 7.0, as tables write it, is 7; 3.10 and 007 are codes."""
    return name.removesuffix(".0") if _WHOLE.fullmatch(name) else name


def appearance(text: str) -> str:
    """A name without what is easily overlooked: case, blanks, forms of letters."""
    return unicodedata.normalize("NFKC", text).casefold().translate(dict.fromkeys(map(ord, _EMPTY)))


def in_words(name: str) -> str:
    """A label as a person writes it: card_arrival and cardArrival are "card arrival".

    It is empty for a number or a code: where no part is of letters alone, or only a single one of
    ASCII.
    """
    parted = "".join(
        f" {c}" if c.isupper() and before.islower() else c
        for before, c in zip(f" {name}", name, strict=False)
    )
    parts = re.sub(r"[\s_-]+", " ", parted).strip().split(" ")
    plain = [p for p in parts if any(map(str.isalpha, p)) and not any(map(str.isdigit, p))]
    return " ".join(parts) if any(len(p) > 1 or not p.isascii() for p in plain) else ""
