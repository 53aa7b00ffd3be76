"""Docstrings of heads: a head shows what its bases say of the parameters that it has."""

import inspect
import re
from dataclasses import fields
from typing import TypeVar

Head = TypeVar("Head", bound=type)


def documented(head: Head) -> Head:
    """Add to a head's docstring the parameters and attributes that its bases document."""
    names = [field.name for field in fields(head)]
    tables = {"Parameters": dict.fromkeys(names, ""), "Attributes": {}}
    for kind in reversed(head.__mro__):
        intro, *sections = _sections(kind)
        for title, text in (section.split("\n", 1) for section in sections):
            for entry in re.split(r"\n(?=\S)", text)[1:] if title in tables else ():
                name = entry.partition(" ")[0]
                if title == "Attributes" or name in names:
                    tables[title][name] = entry
    # The last kind was the head itself.
    shown = [
        "\n".join([title, "-" * len(title), *filter(None, entries.values())])
        for title, entries in tables.items()
    ]
    others = [section for section in sections if section.split("\n")[0] not in tables]
    head.__doc__ = "\n\n".join([intro, *shown, *others]) + "\n"
    return head


def _sections(kind: type) -> list[str]:
    """The text of a docstring before its sections, and each of these."""
    doc = inspect.cleandoc(vars(kind).get("__doc__") or "")
    return re.split(r"\n\n(?=[A-Z][\w ]+\n---)", doc)
