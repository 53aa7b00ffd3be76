"""Edits of texts, to give a radius a meaning: "another name, number or date in the text".

An encoder maps both versions to rows, and ``RadiusPolicy(source="edits")`` takes the distance that
covers a share of them: a list of changes is easier to justify than a distance.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ._parameters import check_whole

#: Kinds of edits that need no list from the user.
KINDS = ("number", "date", "name", "city", "word")
_WORDS = json.loads(Path(__file__).with_name("edits.json").read_text(encoding="utf-8"))
#: First names that stand for one another, and cities that do.
NAMES, CITIES = tuple(_WORDS["names"]), tuple(_WORDS["cities"])
_MONTHS, _DAYS = tuple(_WORDS["months"]), tuple(_WORDS["days"])
_MONTH = "|".join(_MONTHS)
# As in 2024-03-12, 12/03/2024, 12 March (2024), March 12(, 2024), March 2024, Tuesday.
_DATE = re.compile(
    rf"\b(?:\d{{4}}-\d\d-\d\d|\d{{1,2}}[/.]\d{{1,2}}[/.]\d{{2,4}}"
    rf"|\d{{1,2}} (?:{_MONTH})(?: \d{{4}})?|(?:{_MONTH}) \d{{1,2}}(?:, \d{{4}})?"
    rf"|(?:{_MONTH}) \d{{4}}|(?:{'|'.join(_DAYS)}))\b"
)
_NUMBER = re.compile(r"(?<![\w.,-])\d+(?:[.,]\d+)*(?![\w-])")
_WORD = re.compile(r"[^\W\d_]{3,}")
Span = tuple[int, int]
Places = Callable[[str], list[Span]]
Replace = Callable[[str, np.random.Generator], str]


@dataclass(frozen=True)
class EditPairs:
    """Texts before and after an edit, in pairs.

    Attributes
    ----------
    before, after : list of str
        The two versions of each pair.
    kind : list of str
        Kind of each edit.
    record : list of int
        Number of the text that each pair came from; equal texts have one number. Pass it to
        :meth:`.RadiusPolicy.fit`.
    """

    before: list[str]
    after: list[str]
    kind: list[str]
    record: list[int]

    def __len__(self) -> int:
        return len(self.kind)


def edit_pairs(
    texts: Iterable[str],
    kinds: str | Iterable[str] = KINDS,
    *,
    lists: Mapping[str, Sequence[str]] | None = None,
    nlp: Any = None,
    n_per_text: int = 1,
    random_state: int | np.random.Generator | None = 0,
) -> EditPairs:
    """Change one number, date, name, city or word in public texts: texts before and after.

    An edit replaces a value by another one of its kind wherever the text has it: a city that is
    named twice is another city in both places. Texts without one give no pair of that kind.

    Parameters
    ----------
    texts : iterable of str
        Public texts, of the kind that a head will be trained on.
    kinds : str or iterable of str, default=("number", "date", "name", "city", "word")
        Which changes are made, and so what a radius computed from them hides. A number gets as many
        new digits. A date becomes another date in the same form. A name or a city is replaced by
        another one of a short built-in list, a word by another word of the texts.
    lists : mapping of str to sequence of str, optional
        Values that stand for one another, by kind: of names or cities in place of the built-in
        ones, or of a kind of your own (diagnoses, say), which is then edited too.
    nlp : callable, optional
        A spaCy pipeline, or anything that gives a text's entities (``nlp(text).ents`` with
        ``text``, ``label_``, ``start_char`` and ``end_char``). Entities of one label found in the
        texts then stand for one another; their label, as it is, is the kind.
    n_per_text : int, default=1
        How many edits of each kind are made in one text: more give more pairs. Each edit has a pair
        of its own.
    random_state : int, Generator or None, default=0
        Draws places and values.

    Returns
    -------
    EditPairs
        ``before``, ``after``, ``kind`` and ``record``: encode the first two, and fit the policy on
        the rows and on ``record``.

    Raises
    ------
    ValueError
        If a parameter is invalid, or no text holds anything to edit.

    Examples
    --------
    >>> from sklearn_balldp.edits import edit_pairs
    >>> texts = ["Anna paid 120 euros on 3 May", "Card lost in Paris by Peter"]
    >>> pairs = edit_pairs(texts, kinds=("number", "name", "city"))
    >>> sorted(set(pairs.kind))
    ['city', 'name', 'number']
    >>> pairs.before[0] == texts[0], pairs.before[0] == pairs.after[0]
    (True, False)
    """
    several = np.iterable(texts) and not isinstance(texts, str)
    texts = list(texts) if several else []
    if not several or not all(isinstance(text, str) for text in texts):
        raise ValueError("texts must be a sequence of strings, one text each.")
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    check_whole("n_per_text", n_per_text)
    rng = np.random.default_rng(random_state)
    editors = _editors(texts, kinds, dict(lists or {}))
    entities = {} if nlp is None else _entities(texts, nlp)
    if both := sorted(editors.keys() & entities):
        raise ValueError(
            f"nlp: its label {both[0]!r} is the name of a kind that is edited already; leave it "
            "out of kinds and lists, or give the entities another label."
        )
    editors |= entities
    pairs = EditPairs([], [], [], [])
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
    for text in texts:
        for kind, (places_in, other) in editors.items():
            places = places_in(text)
            # With fewer places than edits, a place is edited several times, with a new draw each.
            for i in rng.permutation(len(places) * n_per_text)[:n_per_text] if places else []:
                old = text[slice(*places[int(i) % len(places)])]
                new = other(old, rng)
                if new != old:
                    pairs.before.append(text)
                    pairs.after.append(_replaced(text, old, new, places))
                    pairs.kind.append(kind)
                    pairs.record.append(numbers[text])
    if not pairs:
        raise ValueError(
            f"texts hold nothing to edit (kinds={tuple(editors)!r}); add kinds, or lists of values."
        )
    return pairs


def _replaced(text: str, old: str, new: str, places: Sequence[Span]) -> str:
    """A text with another value in all places that hold the old one, in capitals or not."""
    for start, stop in sorted(places, reverse=True):
        value = text[start:stop]
        if value.casefold() == old.casefold():
            text = text[:start] + _as_capital(new, value) + text[stop:]
    return text


def _as_capital(new: str, old: str) -> str:
    """A value, with a capital if the one in whose place it stands has one."""
    return new.capitalize() if old[:1].isupper() and new.islower() else new


def _editors(
    texts: Sequence[str], kinds: Sequence[str], lists: dict[str, Sequence[str]]
) -> dict[str, tuple[Places, Replace]]:
    """For each kind, the spans of a text that can be replaced, and their replacements."""
    words = sorted({word.lower() for text in texts for word in _WORD.findall(text)})
    built_in: dict[str, tuple[Places, Replace]] = {
        "number": (_number_spans, _other_number),
        "date": (_spans(_DATE), _other_date),
        "word": (_spans(_WORD), _one_of(words)),
    }
    values = {"name": NAMES, "city": CITIES, **lists}
    editors = {}
    for kind in dict.fromkeys([*kinds, *lists]):
        if kind in built_in:
            editors[kind] = built_in[kind]
        elif kind in values:
            options = [str(value) for value in values[kind]]
            if isinstance(values[kind], str) or len(set(options)) < 2:
                raise ValueError(f"lists[{kind!r}] must hold at least two values, each a string.")
            editors[kind] = _spans_of(options), _one_of(options)
        else:
            raise ValueError(
                f"kinds: {kind!r} is none of {', '.join(KINDS)}; give its values in lists."
            )
    return editors


def _entities(texts: Sequence[str], nlp: Any) -> dict[str, tuple[Places, Replace]]:
    """Editors that replace an entity by another one of the same label."""
    entities: dict[str, dict[str, list[str]]] = {}
    for text in texts:
        for entity in nlp(text).ents:
            value = text[int(entity.start_char) : int(entity.end_char)]
            entities.setdefault(str(entity.label_), {}).setdefault(text, []).append(value)
    editors: dict[str, tuple[Places, Replace]] = {}
    for kind, of_kind in entities.items():
        values = [value for found in of_kind.values() for value in found]
        if len(set(values)) > 1:
            # The same words elsewhere in a text are entities too.
            places = {text: _spans_of(found)(text) for text, found in of_kind.items()}
            editors[kind] = partial(_known, places), _one_of(values)
    return editors


def _known(places: Mapping[str, list[Span]], text: str) -> list[Span]:
    return places.get(text, [])


def _spans(pattern: re.Pattern[str]) -> Places:
    return lambda text: [match.span() for match in pattern.finditer(text)]


def _spans_of(values: Iterable[str]) -> Places:
    """Where whole values stand in a text, the longest first."""
    longest_first = sorted(map(re.escape, values), key=len, reverse=True)
    return _spans(re.compile(rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)"))


def _number_spans(text: str) -> list[Span]:
    """Numbers that are no part of a date."""
    dates = _spans(_DATE)(text)
    return [(a, b) for a, b in _spans(_NUMBER)(text) if all(b <= c or d <= a for c, d in dates)]


def _one_of(values: Sequence[str]) -> Replace:
    """Replace a value by another one of the list; it gets a capital if the old one had one."""
    options = list(dict.fromkeys(values))
    lower = [value.lower() for value in options]
    only = lower[0] if len(set(lower)) == 1 else None

    def other(old: str, rng: np.random.Generator) -> str:
        if only == old.lower():
            return old
        # Draw again until it is another one: a list of the others would be as long as all of them.
        while lower[drawn := int(rng.integers(len(options)))] == old.lower():
            pass
        return _as_capital(options[drawn], old)

    return other


def _until_other(draw: Callable[[], str], old: str) -> str:
    while (new := draw()) == old:
        pass
    return new


def _other_number(old: str, rng: np.random.Generator) -> str:
    """Draw other digits in the same places; the first digit becomes zero only if it was zero."""

    def digit(match: re.Match[str]) -> str:
        return str(rng.integers(match.start() == 0 and match.group() != "0", 10))

    return _until_other(lambda: re.sub(r"\d", digit, old), old)


def _other_date(old: str, rng: np.random.Generator) -> str:
    """Draw another date in the same form: every month, weekday and number is drawn again."""

    def drawn(match: re.Match[str]) -> str:
        part = match.group()
        for names in (_MONTHS, _DAYS):
            if part in names:
                return str(rng.choice(names))
        if len(part) == 4:
            return str(rng.integers(1990, 2030))
        # A number below 13 may be a month, so it stays below 13; 03 keeps two digits.
        return f"{rng.integers(1, 13 if int(part) < 13 else 29):0{len(part)}d}"

    return _until_other(lambda: re.sub(r"\d+|[A-Z][a-z]+", drawn, old), old)
