"""A published model: released arrays, their record, labels, and what predictions follow from."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, cast

import numpy as np
from msgspec import Meta, Struct, ValidationError, convert, to_builtins
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline

from .._cached import cached_property
from .._parameters import MAX_CLASSES
from .._version import __version__
from ..encoder_name import same_encoder
from ..heads import HEADS, Released, Settings
from ..heads.inspection import head_of, rule_of
from ..heads.released import EXAMPLES
from ..heads.weighing import weights_of_classes
from ..labels import as_json, from_json
from ..labels import fault_of as labels_fault
from ..mechanisms import MECHANISMS, Examples, OutputPerturbation, Sums, Transcript
from ..pipelines import ModelParts, parts_of
from ..privacy.digest import parameters_digest
from ..privacy.problem import Problem
from ..privacy.release import Release
from ..privacy.serialisation import FORMAT as RECORD_FORMAT
from ..showing import one_line
from .columns import HiddenColumns
from .examples import fault_of as fault_of_examples
from .files import (
    CONFIG,
    MODEL,
    RECORD,
    Differs,
    Folder,
    arrays_text,
    difference,
    json_text,
)
from .steps import KINDS, Step, encoder_for, fault_of, made, setting_as_json, step_of

Array = NDArray[np.float64]
#: Number of the layout of the folder.
FORMAT = 1
#: Settings of a rule that are JSON; vectors of the classes are an array.
SETTINGS = ("class_weight", "decision", "priors", "shrinkage")
_TRANSCRIPT, _VECTORS = "transcript.", "class_embeddings"
_MAX_STEPS, _MAX_COLUMN, _HUGE = 20, 100, 1e100
_FAULTS = (ValueError, TypeError, AttributeError, LookupError, ArithmeticError, ValidationError)
_Column = Annotated[str, Meta(max_length=_MAX_COLUMN)]


class _Labels(Struct):
    type: str
    values: Annotated[list[bool | int | float | str], Meta(max_length=MAX_CLASSES)]


class Config(Struct, forbid_unknown_fields=True):
    """What ``config.json`` may hold."""

    format: int
    labels: _Labels
    settings: dict[str, Any]
    #: Names of the features, one short text for each.
    columns: Annotated[list[_Column], Meta(min_length=1)] | None
    steps: Annotated[list[KINDS], Meta(max_length=_MAX_STEPS)]
    digest: str | None
    #: Column of a table that holds the records.
    column: _Column | None = None
    change: Any = None

    def __post_init__(self) -> None:
        if self.columns is not None and len({*self.columns}) < len(self.columns):
            raise ValueError("two names of columns are the same")
        if self.column == "" or not (self.column or "").isprintable():
            raise ValueError("the name of the records' column is not one line of text")


@dataclass(frozen=True, eq=False)
class Published:
    """A model as plain data; nothing else of it is ever written, read or checked."""

    #: The record, as JSON.
    as_json: Mapping[str, Any]
    #: The classes, in order.
    labels: NDArray[Any]
    #: Released arrays, by the names that the record's digest uses; and the transcript.
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    #: Settings of the rule.
    settings: dict[str, Any] = field(default_factory=dict)
    #: Names of the features.
    columns: list[str] | None = None
    #: What comes before the head.
    steps: tuple[Step, ...] = ()
    #: Column of a table that holds the records, as the publisher's has it.
    column: str | None = None
    #: The change of a record of declared columns that the publisher says is hidden.
    change: Any = None
    #: The folder that it was read from.
    source: Folder | None = None

    @cached_property
    def record(self) -> Release:
        """The record; a ValueError if it contradicts itself."""
        return Release.from_dict(self.as_json)

    @property
    def kind(self) -> str:
        """What it labels: "texts", "images", "tables" of columns, or "rows"."""
        first = self.steps[0] if self.steps else Step("none")
        of = {"table": "tables", "words": "texts", "encoder": first.settings.get("of", "texts")}
        return str(of.get(first.kind, "rows"))

    @property
    def encoder(self) -> Step | None:
        """The step that embeds records."""
        return next((step for step in self.steps if step.kind == "encoder"), None)

    # -- from a fitted model, and back --------------------------------------------------------

    @classmethod
    def of(cls, model: Any, *, transcript: bool = True) -> "Published":
        """What of a fitted head, or of a Pipeline that ends in one, is published."""
        parts = parts_of(model)
        head: Any = parts.head
        released = vars(head).get("released_") if hasattr(head, "__dict__") else None
        if parts.outer_type or not isinstance(released, Released):
            may = f", and a {parts.outer_type} may publish more" if parts.outer_type else ""
            if hasattr(parts.head, "estimators_"):
                may = ", which holds several models, each with a record of its own: save each of "
                may += "its estimators_"
            raise ValueError(
                f"model: expected a fitted Ball-DP head, or a Pipeline that ends in one (of a "
                f"search its best_estimator_); got {type(model).__name__}{may}."
            )
        record, labels = released.release, np.asarray(head.classes_)
        if not (type(head) is HEADS.get(type(head).__name__) and released.by_package):
            raise ValueError(
                f"model: a {type(head).__name__} by {record.mechanism} cannot be published: a "
                "receiver knows the heads and mechanisms of this package alone."
            )
        arrays: dict[str, NDArray[Any]] = {}
        # Of parts that lead to no arrays the line on the model says so.
        with contextlib.suppress(*_FAULTS):
            arrays = dict(head.released_parameters())
        # Labels are in another file, and public counts in the record.
        public = {"classes_", "class_counts_"}
        public |= {"counts"} if released.problem.class_counts is not None else set()
        arrays = {title: array for title, array in arrays.items() if title not in public}
        settings, params = released.settings, head.get_params(deep=False)
        if settings.class_embeddings is not None:
            arrays[_VECTORS] = np.asarray(settings.class_embeddings, dtype=np.float64)
        if transcript and released.bound.has_transcript and released.answers:
            try:
                kept = vars(Transcript.of(list(released.answers), released.bound)).items()
                held = {f"{_TRANSCRIPT}{n}": np.asarray(a, dtype=np.float64) for n, a in kept}
                # Of a descent that begins at zero there is no start.
                arrays |= {n: a for n, a in held.items() if a.size or n != f"{_TRANSCRIPT}start"}
            except (TypeError, ValueError):
                # Ragged answers are no array: a fault of the model, which names its shape.
                arrays[f"{_TRANSCRIPT}gradients"] = np.empty(0)
        rule = {n: getattr(settings, n) for n in SETTINGS if n in params}
        if isinstance(settings.class_weight, Mapping):
            # By position: labels need not be keys that JSON has.
            rule["class_weight"] = weights_of_classes(settings.class_weight, labels, None)
        rule = {n: setting_as_json(value) for n, value in rule.items()}
        steps = [step for _, live in parts.steps if (step := step_of(live)) is not None]
        return cls(record.to_dict(), labels, arrays, rule, _columns(parts), tuple(steps))

    @property
    def rule(self) -> dict[str, Any]:
        """Settings of the rule as parameters of a head, which has weights of classes by label."""
        rule = dict(self.settings)
        if isinstance(weights := rule.get("class_weight"), list):
            rule["class_weight"] = dict(zip(list(self.labels), weights, strict=True))
        return rule

    @property
    def has_names(self) -> bool:
        """Whether it holds public vectors of the classes."""
        return _VECTORS in self.arrays

    @property
    def has_probabilities(self) -> bool:
        """Whether its scores are probabilities, which follow from sums by a tuned rule."""
        return hasattr(self.head(), "predict_proba")

    @cached_property
    def examples(self) -> Examples | None:
        """Sums of public examples."""
        held = self.arrays.items()
        named = {n.removeprefix(EXAMPLES): a for n, a in held if n.startswith(EXAMPLES)}
        return Examples(**named) if named else None

    @cached_property
    def released(self) -> Released:
        """Record, values and settings of the rule."""
        record, a, problem = self.record, self.arrays, self.record.problem
        bound: Any = record.bound
        answers: tuple[Array, ...] = ()
        if f"{_TRANSCRIPT}gradients" in a:
            steps = {n.removeprefix(_TRANSCRIPT): a[n] for n in a if n.startswith(_TRANSCRIPT)}
            answers = tuple(Transcript(**steps).answers(bound))
        if isinstance(bound, Sums):
            values = _flat(problem, bound, a)
        elif problem.fit_intercept:
            values = np.hstack([a["coef_"], a["intercept_"][:, None]])
        else:
            values = a["coef_"]
        if not bound.has_transcript:
            # One noisy answer, which the values are; of softmax parameters its centred part.
            answers = (values,)
        vectors = a.get(_VECTORS)
        settings = Settings(**self.rule, class_embeddings=vectors, examples=self.examples)
        mechanism = MECHANISMS[record.mechanism]()
        return Released(record, self.labels, values, mechanism, answers, settings)

    def head(self) -> Any:
        """The fitted head, made of the record; its parameters only act at its next fit."""
        record, problem = self.record, self.record.problem
        same = ("radius", "metric", "domain", "norm_bound", "alpha", "fit_intercept")
        protected = problem.labels == "protected"
        params: dict[str, Any] = {
            **{name: getattr(record, name) for name in ("epsilon", "delta", "encoder")},
            **{name: getattr(problem, name) for name in same},
            **self.rule,
            "mechanism": record.mechanism,
            "protect_labels": protected,
            "classes": self.labels if protected else None,
            _VECTORS: self.arrays.get(_VECTORS),
        }
        if record.mechanism == "output":
            method = getattr(record.bound, "method", "tight")
            params["mechanism"] = OutputPerturbation(sensitivity=method)
        taken = HEADS[record.head]().get_params(deep=False)
        params = {name: value for name, value in params.items() if name in taken}
        return head_of(self.released, params, None if self.steps else self.columns)

    @cached_property
    def named_steps(self) -> dict[str, Step]:
        """The steps by names that differ."""
        named: dict[str, Step] = {}
        for step in self.steps:
            named[f"{step.kind}{len(named) + 1}" if step.kind in named else step.kind] = step
        return named

    def pipeline(self, encoder: Any = None) -> Any:
        """The head behind its steps; ``encoder`` takes the place of the model's."""
        named: list[tuple[str, Any]] = []
        for name, step in self.named_steps.items():
            embeds = step.kind == "encoder" and encoder is not None
            first, *more = live = [encoder] if embeds else made(step)
            for one in () if embeds else live:
                if hasattr(one, "set_output"):
                    # Names that a step gives its columns are those of no fit.
                    one.set_output(transform="default")
            if self.columns is not None and not named:
                first.feature_names_in_ = np.array(self.columns, dtype=object)
            named += [(name, first), *((f"{name}_{type(m).__name__.lower()}", m) for m in more)]
        return Pipeline([*named, ("head", self.head())]) if named else self.head()

    # -- what it must look like ---------------------------------------------------------------

    def faults(self) -> list[str]:
        """What no head of such a record releases; the record must be one that can be read."""
        try:
            faults = self._label_faults() or [*self._step_faults()]
            faults += self._head_faults()
            if not faults and self.examples is not None:
                fault = fault_of_examples(self.examples, self.record.examples)
                faults = [] if fault is None else [fault]
            if not faults:
                with np.errstate(all="ignore"):
                    coef, intercept = rule_of(self.head())
                if not np.isfinite(coef).all() or np.isnan(intercept).any() or not self.digest:
                    faults = ["values that lead to no scores"]
        except _FAULTS as error:
            faults = [one_line(f"its parts are of no use ({type(error).__name__}: {error})", 160)]
        return faults

    def _head_faults(self) -> Iterator[str]:
        record, arrays = self.record, self.arrays
        sigma = getattr(record.bound, "sigma", None)
        kind = HEADS.get(record.head)
        if kind is None or record.mechanism not in MECHANISMS:
            sound = f"{', '.join(HEADS)} by {', '.join(MECHANISMS)}"
            yield f"a {record.head} by {record.mechanism}, which is none of {sound}"
            return
        params = kind().get_params(deep=False)
        names = {name for name in SETTINGS if name in params}
        if self.settings.keys() != names:
            yield f"settings that are not {', '.join(sorted(names)) or 'empty'}"
        helps = MECHANISMS[record.mechanism].uses_examples or not record.problem.loss
        if record.examples and not (helps and _VECTORS in params):
            yield f"public examples, which no {record.head} by {record.mechanism} uses"
            return
        wanted, allowed = self._shapes(_VECTORS in params)
        for name, shape in {**wanted, **allowed}.items():
            array = arrays.get(name)
            if array is None and name in allowed:
                continue
            if array is None or array.shape != shape or array.dtype != np.float64:
                yield f"{name} that is no array of shape {shape}"
            elif not (np.abs(array) < _HUGE).all():
                yield f"{name} with numbers that are not finite, or huge"
            elif name == "class_sums":
                # A class without records has no noise, and no sum.
                quiet = np.broadcast_to(np.asarray(sigma) == 0.0, len(array))
                if np.any(array[quiet]):
                    yield "sums of a class without records"
        for name in sorted(arrays.keys() - wanted.keys() - allowed.keys()):
            yield f"an array {one_line(name, 60)}"
        moment = arrays.get("second_moment")
        if moment is not None and not np.array_equal(moment, moment.T):
            yield "a second moment that is not symmetric"
        if not record.problem.fit_intercept and np.any(arrays.get("intercept_", 0.0)):
            yield "an intercept that is not zero, though none is fitted"
        if "domain" not in params and record.domain != kind.domain:
            yield f"rows on the {record.domain}, where a {record.head} takes the {kind.domain}"

    def _shapes(self, shrinks: bool) -> tuple[dict[str, tuple[int, ...]], ...]:
        """Arrays that belong to the record, and those that may be there.

        ``shrinks`` says whether such a head takes vectors of the classes.
        """
        problem, bound = self.record.problem, cast(Any, self.record.bound)
        d, k = problem.n_features, problem.n_classes
        wanted: dict[str, tuple[int, ...]] = {}
        allowed: dict[str, tuple[int, ...]] = {}
        if isinstance(bound, Sums):
            wanted["class_sums"] = k, d
            if bound.moment is not None:
                wanted["second_moment"] = d, d
            if problem.labels == "protected":
                wanted["counts"] = (k,)
                shrinks = shrinks and bound.constant > 0.0
        else:
            scores, start = problem.kind.n_scores, getattr(bound, "start", None)
            wanted |= {"coef_": (scores, d), "intercept_": (scores,)}
            shrinks = shrinks and start is not None
            if bound.has_transcript:
                steps = (bound.n_steps, *bound.shape(problem)) if bound.n_steps else (0,)
                allowed[f"{_TRANSCRIPT}gradients"] = steps
            if start is not None:
                allowed[f"{_TRANSCRIPT}start"] = start.shape(problem)
        if shrinks:
            allowed[_VECTORS] = k, d
        if self.record.examples:
            wanted |= {f"{EXAMPLES}{n}": shape for n, shape in Examples.shapes(k, d).items()}
        return wanted, allowed

    def _label_faults(self) -> list[str]:
        labels, n = self.labels, self.record.n_classes
        fault = labels_fault(labels) if len(labels) == n else f"that are no list of {n}"
        return [] if fault is None else [f"labels {fault}"]

    def _step_faults(self) -> Iterator[str]:
        convert(self._described(), Config)
        width = None if self.columns is None else len(self.columns)
        for position, (name, step) in enumerate(self.named_steps.items()):
            fault, width = fault_of(step, width, first=position == 0)
            if fault is not None:
                yield f"step {position + 1} ({one_line(name, 60)}): {fault}"
                return
        if self.change is not None:
            yield from self._change_faults()
        if width not in (None, self.record.n_features):
            what = "steps that give" if self.steps else "names of columns that are those of"
            yield f"{what} rows of {width} features, where the head takes others"

    @property
    def hidden(self) -> HiddenColumns | None:
        """What of declared columns it hides; None of other models."""
        return HiddenColumns.of(self.record, self.named_steps, self.change)

    def _change_faults(self) -> Iterator[str]:
        hidden: HiddenColumns | None = None
        fault: str | None = "a declared change that is none of its columns"
        with contextlib.suppress(*_FAULTS):
            hidden = self.hidden
        if hidden is not None:
            # 5.0 is 5 for Python, and no other spelling of a file is taken.
            same = repr(hidden.change) == repr(self.change)
            fault = hidden.fault if same else fault
        if fault is not None:
            yield fault

    def check(self) -> None:
        """Raise a ValueError unless all of it is what a head of such a record releases."""
        faults = self.faults()
        if not faults and self.digest != self.record.digest:
            faults = ["parameters of another digest"]
        elif not faults:
            named = (step.identity for step in self.steps if self.record.encoder is not None)
            if any(
                same_encoder(name, self.record.encoder) is False for name in filter(None, named)
            ):
                faults = ["another encoder, or other columns"]
        if faults:
            raise ValueError(f"the model is not the one of its record: it has {'; '.join(faults)}.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the released parameters."""
        return parameters_digest(self.head().released_parameters())

    # -- from files, and back -----------------------------------------------------------------

    def files(self) -> dict[str, bytes]:
        """The bytes of the files that hold it."""
        return {
            MODEL: arrays_text({**self.arrays, **self._step_arrays()}),
            CONFIG: json_text(self._described()),
            RECORD: json_text(self.as_json),
        }

    def _step_arrays(self) -> dict[str, NDArray[Any]]:
        steps = enumerate(self.steps)
        return {
            f"step{i}.{name}": array for i, step in steps for name, array in step.arrays.items()
        }

    def _described(self) -> dict[str, Any]:
        """What ``config.json`` holds, with a digest of arrays that the record has none of."""
        held = self.arrays.items()
        others = {n: a for n, a in held if n.startswith(_TRANSCRIPT) or n == _VECTORS}
        others |= self._step_arrays()
        return {
            "format": FORMAT,
            "labels": as_json(self.labels),
            "settings": dict(sorted(self.settings.items())),
            "columns": self.columns,
            **({} if self.column is None else {"column": self.column}),
            **({} if self.change is None else {"change": self.change}),
            "steps": [{"kind": step.kind, **step.settings} for step in self.steps],
            "digest": sha256(arrays_text(others)).hexdigest() if others else None,
        }

    @classmethod
    def read(cls, path: str | Path) -> "Published":
        """A model from its folder, or from the hub; a ValueError if a file holds anything else.

        Whether it is the model of its record is not checked.
        """
        try:
            source = Folder.of(path)
        except OSError as error:
            raise ValueError(
                f"{error.filename!r} cannot be read ({error.strerror}); allow it."
            ) from None
        arrays, record, config = dict(source.arrays), source.record, source.config
        for name, held, known in ((CONFIG, config, FORMAT), (RECORD, record, RECORD_FORMAT)):
            if held.get("format") != known:
                shown = one_line(repr(held.get("format")), 40)
                raise ValueError(
                    f"{name}: format={shown} is not known, and sklearn_balldp {__version__} reads "
                    f"{known}; install the version that wrote it."
                )
        try:
            held = convert(config, Config)
            steps = enumerate(to_builtins(held.steps))
            model = cls(
                record,
                from_json(config["labels"]),
                arrays,
                held.settings,
                held.columns,
                tuple(_read_step(step, f"step{i}.", arrays) for i, step in steps),
                held.column,
                held.change,
                source=source,
            )
            given, expected = json_text(config).decode(), json_text(model._described()).decode()
        except _FAULTS as error:
            raise Differs(CONFIG, one_line(error, 200)) from None
        if given != expected:
            raise Differs(CONFIG, difference(given, expected))
        with contextlib.suppress(*_FAULTS):  # of a record that contradicts itself
            expected = json_text(_as_written(record, model.record.to_dict())).decode()
            given = json_text(record).decode()
        if given != expected:
            raise Differs(RECORD, difference(given, expected))
        return model


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Load a published model. It is plain data: nothing of it runs.

    Parameters
    ----------
    path : str or path-like
        The folder that :func:`.save` wrote, or ``hf://OWNER/NAME`` (``hf://OWNER/NAME@REVISION``)
        on the model hub.
    encoder : str, path-like, estimator or None, default=None
        Embeds new records, where the model has a step for that: an encoder, or the name or folder
        of the weights that you trust, as :class:`.SentenceEncoder` takes it. Its other settings are
        the defaults, except for the model's own ``max_length``, or its architecture for images;
        pass an encoder for others.

    Returns
    -------
    estimator
        The head, or a Pipeline of scikit-learn's own steps, whose parameters are those of its
        record (``release_``). That says nothing of the noise, or of who made it: :func:`.verify`
        has further checks.

    Raises
    ------
    ValueError
        If a file cannot be read, holds what no head releases, or a record that contradicts itself
        or is of another model; or if the model needs an encoder, and none is named.
    """
    try:
        model = Published.read(path)
        model.check()
    except ValueError as error:
        raise ValueError(f"model={str(path)!r}: {error}") from None
    return loaded(model, str(path), encoder)


def loaded(model: Published, path: str, encoder: Any = None) -> Any:
    """A model that was read, ready to predict."""
    if model.encoder is not None and encoder is None:
        raise ValueError(
            f"model={path!r}: its encoder {model.encoder.settings['name']!r} is not in the folder; "
            "pass encoder=, the weights that you trust."
        )
    return model.pipeline(None if encoder is None else encoder_for(model.encoder, encoder))


def _columns(parts: ModelParts) -> list[str] | None:
    """Names of the columns that the first step sees, or the head where none comes before it."""
    steps = (live for _, live in parts.steps if not (live is None or isinstance(live, str)))
    names = getattr(next(steps, parts.head), "feature_names_in_", None)
    return None if names is None else list(np.asarray(names).tolist())


def _as_written(value: Any, pattern: Any) -> Any:
    """What a record states, with its fields in order, and each number as it is written."""
    if isinstance(pattern, dict):
        return {name: _as_written(value[name], held) for name, held in pattern.items()}
    if isinstance(pattern, list):
        return [_as_written(*pair) for pair in zip(value, pattern, strict=True)]
    alone = isinstance(pattern, float) and isinstance(value, (int, list))
    return float(np.ravel(value)[0]) if alone else value


def _read_step(settings: dict[str, Any], prefix: str, arrays: dict[str, NDArray[Any]]) -> Step:
    """A step of a file; its arrays are taken out of the others."""
    names = [name for name in arrays if name.startswith(prefix)]
    parts = {name.removeprefix(prefix): arrays.pop(name) for name in names}
    return Step(settings.pop("kind"), settings, parts)


def _flat(problem: Problem, bound: Sums, arrays: Mapping[str, NDArray[Any]]) -> Array:
    """The flat values that give these sums by name, to the last bit."""
    size = bound.shape(problem)[0]
    values = np.full(size, np.nan)
    # What is made of the positions themselves tells where each number belongs.
    places = bound.statistics(problem, np.arange(size, dtype=np.float64))
    values[np.rint(places.class_sums).astype(int)] = arrays["class_sums"]
    if bound.moment is not None:
        root = np.where(np.eye(problem.n_features, dtype=bool), 1.0, math.sqrt(2.0))
        where = np.rint(places.second_moment * root).astype(int)
        values[where] = _undivided(arrays["second_moment"], root)
    if bound.constant > 0.0:
        where = np.rint(places.counts * bound.constant).astype(int)
        values[where] = _undivided(arrays["counts"], bound.constant)
    return values


def _undivided(quotients: Array, divisor: Any) -> Array:
    """Numbers whose quotients are these, to the last bit."""
    numbers: Array = quotients * divisor
    for direction in (-math.inf, math.inf):
        near = numbers
        for _ in range(2):
            near = np.nextafter(near, direction)
            better = (near / divisor == quotients) & (numbers / divisor != quotients)
            numbers = np.where(better, near, numbers)
    return numbers
