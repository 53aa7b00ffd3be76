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

from ..names import appearance
from ..showing import one_line
from .options import InputError
from .records import Records, aligned, read
from .table import SHOWN, Columns

#: An epsilon at which nobody sees the noise, and points of accuracy within which a forecast helps.
_NOISELESS, _TOO_FAR = 1e3, 10.0


def read_public(path: Path | None, columns: Columns, private: Records) -> Records | None:
    """Public records of a file, if one is named; private records must not pass for them."""
    if path is None:
        return None
    public = _whole(f"--public {path}", path, columns)
    contents = {*map(_digest, public.X)}
    common = len({*map(_digest, private.X)} & contents)
    # Short answers are given by many: what counts is how many different ones there are.
    # In tables of few values many records are equal, and that tells nothing.
    if common > len(contents) / 2 and (columns.table is None or 2 * common > len(public.X)):
        raise InputError(
            f"--public {path}: {common:,} of its {len(contents):,} different records are "
            "among the private ones; name records that may be published."
        )
    if common:
        warnings.warn(
            f"--public {path}: {common:,} of its records are among the private ones.", stacklevel=2
        )
    return public


def read_examples(path: Path | None, columns: Columns, public: Records | None) -> Records | None:
    """Public examples of a file, if one is named; those that test the model must not be among them.

    Nothing compares them with the private records: what is said of it would tell that one is there.
    """
    if path is None:
        return None
    examples = _whole(f"--examples {path}", path, columns)
    contents = {*map(_digest, examples.X)}
    common = 0 if public is None else len({*map(_digest, public.X)} & contents)
    # In tables of few values many records are equal by chance.
    if common > (0 if columns.table is None else len(contents) / 2):
        raise InputError(
            f"--examples {path}: {common:,} of its {len(contents):,} different records are in "
            "--public too, which tests the model; take them out of one of the two."
        )
    return examples


def _digest(record: Any) -> bytes:
    # Rows and images would take their memory again.
    body = record.encode() if isinstance(record, str) else np.asarray(record).tobytes()
    return hashlib.blake2b(body, digest_size=16).digest()


def _whole(named: str, path: Path, columns: Columns) -> Records:
    """Records of a public file that lack nothing; how many others there are is said."""
    records = read(path, columns, missing="drop")
    if records.n_dropped:
        warnings.warn(
            f"{named}: {records.n_dropped:,} of its records lack something, and are left out.",
            stacklevel=3,
        )
    return records


def of_classes(named: str, public: Records, classes: Any) -> Records | None:
    """Public records that a model can be right about; None if there are none."""
    y = np.array(aligned(np.asarray(public.y).tolist(), classes))
    labels, counts = np.unique(y, return_counts=True)
    strange = ~np.isin(labels, classes)
    if not strange.any():
        return replace(public, y=y)
    near = {appearance(str(name)): f", nearly {one_line(name, 40)!r}" for name in classes}
    shown = [
        f"{one_line(label, 40)!r} ({count:,} records{near.get(appearance(label), '')})"
        for label, count in zip(labels[strange].tolist(), counts[strange], strict=True)
    ]
    more = " and others" if len(shown) > SHOWN else ""
    places = np.flatnonzero(~np.isin(y, labels[strange]))
    use = f"The other {len(places):,} records are used" if len(places) else "No accuracy is stated"
    warnings.warn(
        f"{named}: {len(shown):,} of its {len(labels):,} labels are no class: "
        f"{', '.join(shown[:SHOWN])}{more}. {use}.",
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

    said = f"{_cost(right(plain), right(noisy), 'the noise')} (the same fit on {len(fitted):,} "
    said += f"public records, repeated, and tested on {len(tested):,} others)"
    rules = [name for name in ("priors", "class_weight") if getattr(head, name, None) is not None]
    if not rules:
        return said
    common = _cost(right(plain.with_rule(**dict.fromkeys(rules))), right(plain), "--rare")
    return f"{said}\n{' ' * 10}{common}, for the sake of rare classes"


def _cost(before: NDArray[np.bool_], after: NDArray[np.bool_], what: str) -> str:
    """How much accuracy is lost between two models of the same records, and how far that may err.

    The error is two standard deviations of how many records only one of the two is right about.
    """
    n, differ = len(before), int(np.sum(before != after))
    cost = 100.0 * max(float(np.mean(before) - np.mean(after)), 0.0)
    # One more that differs, as none in few tells little.
    error = 200.0 * math.sqrt(differ + 1) / n
    found = f"{what} costs {cost:.0f} points, give or take {error:.0f}"
    if error > _TOO_FAR:
        found += f" ({n:,} records tell no more: name more public ones)"
    return f"{found}: {np.mean(after):.2f}, and {np.mean(before):.2f} without it"
