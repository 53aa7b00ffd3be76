"""What is public about classes: their names or descriptions, embedded as the texts are.

A fit starts from these vectors too, at no cost in privacy.
"""

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..heads import HEADS as CLASSES
from ..names import in_words, trimmed
from ..showing import listed
from .options import HEADS, NO_NAMES, InputError
from .records import Records, aligned, read
from .table import BESIDE, SHOWN, Columns

#: Arrays beside rows: classes, their vectors, and whether a public list declared these classes.
NAMES, VECTORS, DECLARED = (f"{BESIDE}{name}" for name in ("classes", "vectors", "declared"))


def declared_classes(path: Path) -> list[str]:
    """Public labels, one a line."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: it cannot be read ({type(error).__name__}).") from None
    return sorted({*aligned(map(trimmed, lines))} - {""})


def beside_of(
    options: argparse.Namespace, records: Records, encoder: Any
) -> dict[str, NDArray[Any]]:
    """Vectors of the classes, as a file of rows holds them; none where names are no words."""
    texts = _texts_of(options, records)
    if not texts:
        return {}
    declared = np.array(options.classes is not None)
    arrays = np.array([*texts]), encoder.transform([*texts.values()]), declared
    return dict(zip((NAMES, VECTORS, DECLARED), arrays, strict=True))


def _texts_of(options: argparse.Namespace, records: Records) -> dict[str, str]:
    """A text for each class, declared or of the records."""
    given, classes = options.class_texts, list[str]()
    if records.y is not None:
        classes = np.unique(records.y).tolist()
    if options.classes is not None:
        classes = declared_classes(options.classes)
    if given == NO_NAMES or not classes or options.text is None:
        return {}
    if given is not None:
        found = read(Path(given), Columns("text", label="label"))
        texts = dict(zip(aligned(np.asarray(found.y).tolist(), classes), found.X, strict=True))
        lacking = [name for name in classes if name not in texts]
        if lacking or len(texts) < len(found.X):
            what = f"lacks {listed(lacking, SHOWN)}" if lacking else "describes a class twice"
            raise InputError(f"--class-texts {given}: it {what}; name each class once.")
        return {name: texts[name] for name in classes}
    words = {name: in_words(name) for name in classes}
    odd = [name for name, text in words.items() if not text]
    if odd:
        warnings.warn(
            f"names of {len(odd):,} of {len(classes):,} classes are no words, so none is embedded: "
            "describe them (--class-texts FILE), or do without (--class-texts none).",
            stacklevel=2,
        )
        return {}
    return words


def vectors_of(
    options: argparse.Namespace, records: Records, classes: list[str]
) -> NDArray[np.float64] | None:
    """Vectors of the classes of a fit, in their order; None where its head or rows have none."""
    takes = "class_embeddings" in CLASSES[HEADS[options.head]]().get_params(deep=False)
    # Examples tell more of the classes, and a fit takes one of both.
    without = options.class_texts == NO_NAMES or options.examples is not None
    if NAMES not in records.beside or not takes or without:
        return None
    if options.labels == "protected" and not records.beside[DECLARED]:
        warnings.warn(
            "names that were read off the labels tell which classes occur, and are left out: make "
            "the rows by balldp embed --classes FILE.",
            stacklevel=2,
        )
        return None
    names = records.beside[NAMES].tolist()
    found = dict(zip(aligned(names, classes), records.beside[VECTORS], strict=True))
    lacking = [name for name in classes if name not in found]
    if lacking:
        raise InputError(
            f"--class-texts: the rows lack vectors of {listed(lacking, SHOWN)}; embed them again "
            "with these classes, or say --class-texts none."
        )
    return np.stack([found[name] for name in classes]).astype(np.float64)
