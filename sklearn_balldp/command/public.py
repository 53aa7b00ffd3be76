"""Public records: compared with the private ones, and what they foretell of a model."""

import hashlib
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from ..showing import listed, one_line
from .options import InputError
from .records import Records, aligned, read
from .table import SHOWN, Columns

#: An epsilon at which nobody sees the noise, and points of accuracy within which a forecast helps.
_NOISELESS, _TOO_FAR = 1e3, 10.0


def read_further(
    option: str, path: Path | None, columns: Columns, others: Records | None
) -> Records | None:
    """Records of a public file that lack nothing, if one is named; others must not pass for them.

    Those of ``--public`` are compared with the private ones, and ``--examples`` with ``--public``
    alone: what is said of the private ones would tell that one is there.
    """
    if path is None:
        return None
    named, found = f"--{option} {path}", read(path, columns, missing="drop")
    if found.n_dropped:
        warnings.warn(
            f"{named}: {found.n_dropped:,} of its records lack something, and are left out.",
            stacklevel=2,
        )
    # Short answers are given by many: what counts is how many different ones there are.
    contents = {*map(_digest, found.X)}
    common = 0 if others is None else len({*map(_digest, others.X)} & contents)
    most, of, remedy = {
        "public": (0.5, "among the private ones", "name records that may be published"),
        "examples": (0.0, "in --public too, which tests the model", "take them out of one of both"),
    }[option]
    # In tables of few values many records are equal by chance.
    if common > (most * len(contents) if columns.table is None else len(found.X) / 2):
        raise InputError(
            f"{named}: {common:,} of its {len(contents):,} different records are {of}; {remedy}."
        )
    if common:
        warnings.warn(f"{named}: {common:,} of its records are {of}.", stacklevel=2)
    return found


def _digest(record: Any) -> bytes:
    # Rows and images would take their memory again.
    body = record.encode() if isinstance(record, str) else np.asarray(record).tobytes()
    return hashlib.blake2b(body, digest_size=16).digest()


def of_classes(named: str, public: Records, classes: Any) -> Records | None:
    """Public records that a model can be right about; None if there are none."""
    y = np.array(aligned(np.asarray(public.y).tolist(), classes))
    labels, counts = np.unique(y, return_counts=True)
    strange = ~np.isin(labels, classes)
    if not strange.any():
        return replace(public, y=y)
    shown = [
        f"{one_line(label, 40)!r} ({count:,} records)"
        for label, count in zip(labels[strange].tolist(), counts[strange], strict=True)
    ]
    places = np.flatnonzero(~np.isin(y, labels[strange]))
    use = f"The other {len(places):,} records are used" if len(places) else "No accuracy is stated"
    warnings.warn(
        f"{named}: {len(shown):,} of its {len(labels):,} labels are no class: "
        f"{listed(shown, SHOWN)}. {use}.",
        stacklevel=2,
    )
    if not len(places):
        return None
    X = public.X[places] if isinstance(public.X, np.ndarray) else [public.X[i] for i in places]
    return replace(public, X=X, y=y[places])


def foretold(
    head: Any,
    private: Records,
    public: Records,
    rows: NDArray[Any],
    examples: dict[str, Any] | None = None,
) -> str:
    """Accuracy to expect, by the same fit on public ``rows`` in place of the private ones.

    Each private record gives way to one of its label, or of any where labels are hidden. Beside it
    stands the same fit without noise, on the same rows; ``examples`` are the fit's own.
    """
    labels, wanted, rng = np.asarray(public.y), np.asarray(private.y), np.random.default_rng(0)
    classes = np.unique(wanted if head.classes is None else head.classes)
    order = rng.permutation(np.flatnonzero(np.isin(labels, classes)))
    fitted, tested = np.array_split(order, 2)
    if not len(tested) or len(np.unique(labels[fitted])) < 2:
        return "not foretold: public records are too few, or of one class"
    if head.protect_labels:
        wanted = rng.choice(labels[fitted], len(wanted))
    names, own = np.unique(wanted, return_inverse=True)
    # Places of each label one after another: where they begin, and how many there are.
    ordered = fitted[np.argsort(labels[fitted], kind="stable")]
    first = np.searchsorted(labels[ordered], names)
    sizes = np.searchsorted(labels[ordered], names, side="right") - first
    lacking = int(np.sum(sizes == 0))
    if lacking:
        return f"not foretold: {lacking} classes have too few public records"
    chosen = ordered[first[own] + rng.integers(sizes[own])]
    given, more = (rows[chosen], labels[chosen]), private.groups | (examples or {})
    try:
        noisy = clone(head).fit(*given, **more)
        plain = clone(head).set_params(epsilon=_NOISELESS).fit(*given, **more)
    except ValueError:
        # A forecast ends no run: what is wrong with the private records is said by their fit.
        return "not foretold: public records cannot be fitted"

    def right(model: Any) -> NDArray[np.bool_]:
        return model.predict(rows[tested]) == labels[tested]

    before, after, n = right(plain), right(noisy), len(tested)
    cost = 100.0 * max(float(np.mean(before) - np.mean(after)), 0.0)
    # Two standard deviations of how many records only one of the two models is right about; one
    # more that differs, as none in few tells little.
    error = 200.0 * math.sqrt(np.sum(before != after) + 1) / n
    few = f" ({n:,} records tell no more: name more public ones)" if error > _TOO_FAR else ""
    return (
        f"the noise costs {cost:.0f} points, give or take {error:.0f}{few}: {np.mean(after):.2f}, "
        f"and {np.mean(before):.2f} without it (the same fit on {len(fitted):,} public records, "
        f"repeated, and tested on {n:,} others)"
    )
