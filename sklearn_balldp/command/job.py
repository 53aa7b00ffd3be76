"""A fit before any noise is drawn: from files and options to a head, and what it would release."""

import argparse
import math
import warnings
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.preprocessing import Normalizer

from ..audit.certificates import epsilon_from_certificate
from ..encoders import TableEncoder
from ..encoders.weights import DEFAULT_WIDTH
from ..heads import HEADS as CLASSES
from ..heads.plan import Plan
from ..mechanisms import GradientPerturbation
from ..publish.columns import HiddenColumns
from .columns import change_of, check_apart, declared_in
from .embed import encoder_from, maker_of, radius_of_edits, rows_of
from .names import beside_of, declared_classes, vectors_of
from .options import CANDIDATES, EDITS, HEADS, InputError
from .records import Records, aligned, of_classes, read, read_further
from .table import Columns

#: Width of the rows of the command's encoder of images.
IMAGE_WIDTH = 512
# Among so few records many labels say nothing.
_FEW = 20


@dataclass(frozen=True)
class Job:
    """A fit before any noise is drawn."""

    head: Any  # the head, which is not fitted
    column: str | None  # where the records lie; None of a table
    #: What makes rows of the records: an encoder, or of embeddings their norm; None where a plan of
    #: texts or images has no rows.
    step: Any
    records: Records  # the private records, which are rows but in such a plan
    public: Records | None  # public ones, if there are any
    plan: Plan  # what the fit would release
    change: Any = None  # of a table: the change of a record that is declared to be hidden
    #: Public examples, as a fit takes them.
    examples: dict[str, Any] = field(default_factory=dict)

    @property
    def named(self) -> bool:
        """Whether names of the classes are known to the fit."""
        return getattr(self.head, "class_embeddings", None) is not None

    @property
    def hidden(self) -> HiddenColumns | None:
        """What of declared columns is hidden; None of other records."""
        if not isinstance(self.step, TableEncoder):
            return None
        return HiddenColumns(self.plan.release, self.step, self.change)


def prepare(options: argparse.Namespace) -> Job:
    """Read the files, and plan the fit; an InputError if a file or an option is invalid."""
    # What options alone decide is refused before a file is read.
    params, table, change = _params(options), None, None
    if options.columns is not None:
        table = declared_in(options.columns)
        check_apart(options.columns, table, options.label, options.owner)
    if table is None or options.hide is None:
        radius = _radius(options)
    else:
        change = change_of(table, options.hide)
        radius = table.radius(change)
    columns = Columns(
        options.text, options.image, options.embedding, options.label, options.owner, table
    )
    records = read(options.file, columns, missing=options.missing)
    n_units = len(records.X if records.owners is None else np.unique(records.owners))
    if not 0.0 < options.delta * n_units < 1.0:
        raise InputError(
            f"--delta {options.delta:g} must be above 0 and below 1/n, {1 / n_units:.2g}."
        )
    alone = replace(columns, owner=None)
    public = read_further("public", options.public, alone, records)
    examples = read_further("examples", options.examples, alone, public)
    protected = options.labels == "protected"
    if protected:
        classes = declared_classes(options.classes)
        records = _declared(records, classes, options.classes)
        params |= {"protect_labels": True, "classes": classes}
    else:
        _check_labels(f"--label {options.label}", records)
    if columns.kind in ("text", "image") and options.command == "train":
        encoder = encoder_from(columns.kind, options, options.cache)
        beside = beside_of(options, records, encoder)
        records = rows_of(options.file, records, encoder, columns.content)
        records.beside.update(beside)
        if public is not None:
            edits = radius == EDITS
            public = rows_of(options.public, public, encoder, columns.content, edits=edits)
        if examples is not None:
            examples = rows_of(options.examples, examples, encoder, columns.content)
    if radius == EDITS:
        assert public is not None
        radius = radius_of_edits(public)
    step: Any = table
    column: str | None = None if table is not None else columns.content
    if table is not None:
        for note in records.notes:
            # For the owner's terminal alone, as it tells of private records.
            warnings.warn(f"{options.columns}: {note}", stacklevel=2)
        params |= {"encoder": table.identity, "domain": "sphere"}
    elif made := maker_of(options.file, records):
        step, column = made
        params["encoder"] = step.identity
        _check_made(options, step, public=public, examples=examples)
    elif columns.kind == "embedding":
        # Public rows of another width are refused before any noise is drawn.
        step, params["encoder"] = Normalizer().fit(records.X[:1]), options.encoder
        for found in filter(None, (records, public, examples)):
            found.X[:] = step.transform(found.X)
    width = records.X.shape[1] if step is not None else options.n_features
    width = width or (DEFAULT_WIDTH if options.text else IMAGE_WIDTH)
    own = classes if protected else np.unique(np.asarray(records.y)).tolist()
    if (vectors := vectors_of(options, records, own)) is not None:
        params["class_embeddings"] = vectors
    head = CLASSES[HEADS[options.head]](radius=radius, verbose=True, **params)
    if public is not None:
        public = of_classes(f"--public {options.public}", public, own)
    more = dict[str, Any]()
    if examples is not None:
        examples = of_classes(f"--examples {options.examples}", examples, own)
        if examples is None:
            raise InputError(f"--examples {options.examples}: none of its labels is a class.")
        more = {"X_public": examples.X, "y_public": examples.y}
    labels = {} if protected else {"y": records.y}
    plan = head.plan(len(records.X), width, **labels, **records.groups, **more)
    return Job(head, column, step, records, public, plan, change, more)


# -- options --------------------------------------------------------------------------------------


def _radius(options: argparse.Namespace) -> Any:
    """A number, :data:`EDITS`, or None for any distance."""
    text, radius = options.radius, math.nan
    if text in ("none", EDITS):
        return None if text == "none" else EDITS
    with suppress(ValueError):
        radius = float(text)
    if not 0.0 < radius <= 2.0:
        raise InputError(
            f"--radius {text}: give a number above 0 and at most 2 (rows of unit norm are never "
            "further apart), 'edits', or 'none' for any distance."
        )
    return radius


def _params(options: argparse.Namespace) -> dict[str, Any]:
    """Parameters that follow from options alone."""
    params: dict[str, Any] = {"epsilon": options.epsilon, "delta": options.delta}
    if options.risk is not None:
        params["epsilon"] = epsilon_from_certificate(options.risk, 1.0 / CANDIDATES, options.delta)
    if options.rare:
        rule = {"class_weight": "balanced"} if options.head == "logistic" else {"priors": "uniform"}
        params |= rule
    if getattr(options, "keep_transcript", None) is not None:
        params["mechanism"] = GradientPerturbation(keep_transcript=True)
    return params


# -- what makes rows ------------------------------------------------------------------------------


def _check_made(options: argparse.Namespace, step: Any, **public: Records | None) -> None:
    """Raise an InputError where options or public rows contradict what made the private ones."""
    if options.embedding and options.encoder:
        raise InputError(f"--encoder: {options.file} says what made its rows; leave it out.")
    for name, records in public.items():
        path = getattr(options, name)
        other = None if records is None else maker_of(path, records)
        if records is not None and (other is None or other[0].identity != step.identity):
            raise InputError(
                f"--{name} {path}: its rows were not made as those of {options.file}, by "
                f"{step.identity}; make them by balldp embed with the same options."
            )


# -- labels ---------------------------------------------------------------------------------------


def _check_labels(option: str, records: Records) -> None:
    """Public labels are published: they must be classes, not texts or names."""
    names = np.unique(np.asarray(records.y)).tolist()
    n_records, n_classes = len(records.X), len(names)
    if n_classes == 1:
        raise InputError(f"{option}: all records have one label; two are needed.")
    if n_records > _FEW and n_classes > n_records / 2:
        raise InputError(
            f"{option}: {n_classes} different labels in {n_records} records would be published; "
            "name the column of the classes."
        )


def _declared(records: Records, classes: list[str], path: Path) -> Records:
    """Records with the public labels, which must hold theirs."""
    y = np.array(aligned(np.asarray(records.y).tolist(), classes))
    unknown = np.flatnonzero(~np.isin(y, classes))
    if len(unknown):
        raise InputError(
            f"{path}: it lacks the label of complete record {unknown[0] + 1}, and of "
            f"{len(unknown) - 1} others; add it if it is public, or leave the records out."
        )
    return replace(records, y=y)
