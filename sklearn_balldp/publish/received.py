"""A received model, made anew from what a closed list of fields allows.

A file, or a stranger's object, may hold anything. Here is said which fields a head, a mechanism, a
policy, a step and an encoder may have, and of which kind. New objects are made from these alone;
whatever else is found is a fault by name, and no attribute of the model itself is ever used.
"""

import contextlib
import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection

from .._parameters import is_real
from ..encoders import BaseEncoder, ImageEncoder, SentenceEncoder
from ..heads import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    BaseBallDPClassifier,
    GradientPerturbation,
    Mechanism,
    OutputPerturbation,
    Statistics,
    Transcript,
)
from ..pipelines import learns
from ..privacy.bounds import bound_from_dict, kinds_of_bounds
from ..privacy.encoder_name import has_digest, same_encoder
from ..privacy.fields import check_at_least, check_follows, with_floats
from ..privacy.release import Release
from ..radius import ChosenRadius, RadiusPolicy
from ..rows import DenseRows
from ..text import one_line
from .tree import SCALARS, Thing, tree_of


def _named(*kinds: type) -> dict[str, type]:
    return {f"{kind.__module__}.{kind.__qualname__}": kind for kind in kinds}


_HEADS = _named(
    BallDPLinearDiscriminant, BallDPLogisticRegression, BallDPRidgePrototype, BallDPSquaredHingeSVC
)
_MECHANISMS = _named(GradientPerturbation, OutputPerturbation)
_POLICY = _named(RadiusPolicy)
_RELEASE = _named(Release)
_FROZEN = _named(FrozenEstimator)
_PIPELINE = _named(Pipeline)
_ENCODERS = _named(ImageEncoder, SentenceEncoder)
#: Steps of scikit-learn that are made anew, and what their fit leaves behind.
_STEPS: dict[type, tuple[str, ...]] = {
    DenseRows: (),
    HashingVectorizer: (),
    Normalizer: (),
    StandardScaler: ("mean_", "var_", "scale_", "n_samples_seen_"),
    MinMaxScaler: ("min_", "scale_", "data_min_", "data_max_", "data_range_", "n_samples_seen_"),
    MaxAbsScaler: ("max_abs_", "scale_", "n_samples_seen_"),
    PCA: (
        "components_",
        "mean_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "noise_variance_",
        "n_components_",
        "n_samples_",
        "_fit_svd_solver",
    ),
    TruncatedSVD: (
        "components_",
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
    ),
    RBFSampler: ("random_weights_", "random_offset_", "_gamma", "_n_features_out"),
    GaussianRandomProjection: (
        "components_",
        "inverse_components_",
        "n_components_",
        "_n_features_out",
    ),
}
_KNOWN_STEPS = _named(*_STEPS)
#: State that is an array, of a number or more for each feature.
_ARRAYS_OF_STEPS = (
    *("mean_", "var_", "scale_", "min_", "data_min_", "data_max_", "data_range_", "max_abs_"),
    *("components_", "inverse_components_", "explained_variance_", "explained_variance_ratio_"),
    *("singular_values_", "random_weights_", "random_offset_"),
)
#: State whose length is that of the rows that a step gives.
_LONG = ("components_", "random_offset_")

#: What a fit of scikit-learn adds; its version is no attribute once a model was loaded.
_COMMON = (
    "n_features_in_",
    "feature_names_in_",
    "_metadata_request",
    "_sklearn_output_config",
    "_sklearn_version",
)
#: Parameters that hold more than one number or text.
_ARRAYS = ("classes", "class_weight", "class_embeddings", "priors")
#: What a record computes once and keeps.
_CACHED = ("mu", "epsilon_full_radius", "_bound_scales")
#: Parameters of a hashing vectorizer that may differ from the defaults.
_HASHING = (
    "n_features",
    "ngram_range",
    "analyzer",
    "lowercase",
    "strip_accents",
    "binary",
    "norm",
    "alternate_sign",
)
_MOST_HASHED, _MOST_GRAMS, _MOST_STEPS = 2**16, 10, 20
# Longer texts, and larger numbers, are no labels, no settings, no names and no counts.
_LONGEST_LABEL, _LONGEST, _LARGEST = 1000, 200, 2**64
_MOST_NAMES, _LONGEST_NAME = 10**5, 100
_NAME_OF_STEP = re.compile(r"[\w .:+-]{1,60}")
#: What stands for itself in requests of metadata.
_REQUESTS = (None, True, False, "$UNUSED$", "$WARN$")


@dataclass
class Step:
    """A step before the head.

    Attributes
    ----------
    name, kind : str
        Its name in the pipeline, and that of its type.
    made : estimator, "passthrough" or None
        Made anew, or the caller's own; None for one that must not run, or is not read.
    has_state : bool
        Whether it may have learned from rows.
    encoder : estimator or None
        The step itself, if it embeds records by weights that no model holds.
    """

    name: str
    kind: str
    made: Any
    has_state: bool
    encoder: Any = None

    @property
    def shown(self) -> str:
        """Its name, as it may be shown."""
        return one_line(self.name, 60)

    @property
    def encoder_name(self) -> str:
        """What its encoder calls itself; no file is opened for one that must not run."""
        name = self.encoder.stated_identity if self.made is None else self.encoder.identity
        return one_line(name, 200)

    def names_encoder(self, stated: str | None) -> bool | None:
        """Whether a record names this encoder; None if only the weights could tell."""
        if self.made is not None:
            known: str = self.encoder.identity
            return same_encoder(known, stated)
        if has_digest(stated) or not isinstance(self.encoder, BaseEncoder):
            return None
        own: str = self.encoder.stated_identity
        # The version of a library is the publisher's.
        library = re.escape(own) + r", torchvision [0-9A-Za-z.+_]{1,40}"
        return own == stated or re.fullmatch(library, str(stated)) is not None


@dataclass
class Received:
    """A model made anew.

    Attributes
    ----------
    head : BaseBallDPClassifier
        With the parameters and the released values that were sound, and no record yet.
    steps : list of Step
        What comes before it.
    record : mapping
        Fields of the record that it holds; empty if there is none.
    faults : list of str
        What it holds and should not, or holds of another kind.
    head_is_new : bool
        False for a head of a class of the caller's own, which is used as it is.
    name : str
        The head's name in its pipeline.
    """

    head: BaseBallDPClassifier
    steps: list[Step] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    head_is_new: bool = True
    name: str = "head"

    def release(self) -> Release:
        """The record that it holds, computed anew; a ValueError if it contradicts itself."""
        if not self.record:
            raise ValueError("record: release_ is missing; ask for it.")
        return _release(self.record)

    def embed_with(self, encoder: Any) -> None:
        """Let an encoder that the caller trusts take the place of the one among the steps.

        Raises
        ------
        ValueError
            If there is none.
        """
        own = [step for step in self.steps if step.encoder is not None]
        if not own:
            raise ValueError(f"encoder={encoder!r}: the model has no step that embeds records.")
        own[0].made = own[0].encoder = encoder


def receive(model: Any, name: str = "model") -> Received:
    """Make a model anew.

    Parameters
    ----------
    model : estimator or Thing
        The model, or what a file holds.
    name : str
        What errors call it.

    Raises
    ------
    ValueError
        If it is no fitted Ball-DP head, and no Pipeline that ends in one.
    """
    tree, outer, faults, steps = tree_of(model), "", list[str](), list[Step]()
    in_file, label = isinstance(model, Thing), "head"
    while isinstance(tree, Thing):
        if tree.kind in _FROZEN:
            faults += _surplus(tree, "frozen.", ("estimator",))
            tree = tree_of(tree.attributes.get("estimator"))
        elif tree.kind in _PIPELINE and _is_list_of_steps(tree):
            parameters = ("steps", "memory", "transform_input", "verbose")
            faults += _surplus(tree, "pipeline.", parameters)
            for parameter in parameters[1:] if in_file else ():
                value = tree_of(tree.attributes.get(parameter))
                if not (value is None or type(value) is bool):
                    faults.append(f"pipeline.{parameter}")
            names = [own for own, _ in tree.attributes["steps"]]
            if len(set(names)) < len(names) or not all(map(_NAME_OF_STEP.fullmatch, names)):
                faults.append("pipeline.steps, whose names are no short names")
            *before, (label, last) = tree.attributes["steps"]
            if len(steps) + len(before) > _MOST_STEPS:
                faults.append(f"pipeline.steps, of which there are more than {_MOST_STEPS}")
                before = before[: _MOST_STEPS - len(steps)]
            steps += [_step(own, step, faults) for own, step in before]
            tree = tree_of(last)
        elif "release_" not in tree.attributes and "estimator_" in tree.attributes:
            outer = outer or tree.name
            tree = tree_of(tree.attributes["estimator_"])
        else:
            break
    own = isinstance(tree, Thing) and isinstance(tree.own, BaseBallDPClassifier)
    known = isinstance(tree, Thing) and (tree.kind in _HEADS or own)
    if not (known and not outer and isinstance(tree, Thing) and "release_" in tree.attributes):
        found = outer or (tree.name if isinstance(tree, Thing) else type(tree).__name__)
        more = ", which may publish more than the head in it" if outer else ""
        raise ValueError(
            f"{name}: expected a fitted Ball-DP head, or a Pipeline that ends in one (of a search "
            f"its best_estimator_); got {one_line(found)}{more}."
        )
    received = _head(tree) if tree.kind in _HEADS else _own_head(tree)
    received.steps, received.faults = steps, faults + received.faults
    received.name = label
    if in_file:
        received.faults += _widths(steps, received.record.get("n_features"))
    return received


def _is_list_of_steps(tree: Thing) -> bool:
    steps: Any = tree.attributes.get("steps")
    pairs = type(steps) is list and all(type(s) in (list, tuple) and len(s) == 2 for s in steps)
    return pairs and bool(steps) and all(type(name) is str for name, _ in steps)


# Heads ------------------------------------------------------------------------------------------


def _own_head(tree: Thing) -> Received:
    """A head of a class of the caller's own: only its record is looked at."""
    faults: list[str] = []
    held = tree_of(tree.attributes["release_"])
    record = _record(held, "release_.", faults)
    return Received(tree.own, record=record, faults=faults, head_is_new=False)


def _head(tree: Thing) -> Received:
    if isinstance(tree.own, BaseBallDPClassifier):
        # In memory, parameters may have been set since the fit; a file is judged by what it says.
        fitted: Any = tree_of(tree.own._as_fitted())
        tree = fitted
    kind: Any = _HEADS[tree.kind]
    faults: list[str] = []
    parameters = kind._get_param_names()
    given: dict[str, Any] = {}
    for name in parameters:
        if name in tree.attributes:
            value = tree_of(tree.attributes[name])
            sound, made = _parameter(name, value, faults)
            if sound:
                given[name] = made
            else:
                faults.append(f"its parameter {name}={_shown(value)} is not one that a head takes")
    head = kind(**given)
    held = tree_of(tree.attributes["release_"])
    received = Received(head, faults=faults)
    received.record = _record(held, "release_.", faults)
    mechanism = given.get("mechanism")
    custom = isinstance(mechanism, Mechanism) and type(mechanism) not in _MECHANISMS.values()
    fitted = ("classes_", *kind._parameters, "transcript_", "release_", *_COMMON)
    for name, value in tree.attributes.items():
        if name in parameters or name == "release_":
            continue
        if name not in fitted:
            # A mechanism of one's own may publish more, by names of its own.
            if not (custom and name.endswith("_")):
                faults.append(name)
            continue
        value = tree_of(value)
        sound, made = _fitted(tree, name, value, faults)
        if sound:
            vars(head)[name] = made
        else:
            faults.append(f"{name}, {_shown(value)}")
    vars(head).pop("_sklearn_version", None)
    vars(head).pop("_metadata_request", None)
    return received


def _parameter(name: str, value: Any, faults: list[str]) -> tuple[bool, Any]:
    """Whether a parameter of a head is of a kind that it may have, and the parameter made anew."""
    if name == "radius" and isinstance(value, Thing):
        frozen = value.kind in _FROZEN
        policy = tree_of(value.attributes.get("estimator")) if frozen else value
        if not (isinstance(policy, Thing) and policy.kind in _POLICY):
            return False, None
        if frozen:
            faults += _surplus(value, "radius.", ("estimator",))
        made = _policy(policy, faults)
        return True, FrozenEstimator(made) if frozen else made
    if name == "mechanism" and isinstance(value, Thing):
        if value.kind in _MECHANISMS:
            return True, _made(_MECHANISMS[value.kind], value, "mechanism.", faults)
        return isinstance(value.own, Mechanism), value.own
    return (_is_plain(value) if name in _ARRAYS else _is_scalar(value)), value


def _policy(tree: Thing, faults: list[str]) -> RadiusPolicy:
    policy: RadiusPolicy = _made(RadiusPolicy, tree, "radius.", faults, ("radius_", "choice_"))
    if not {"choice_", "radius_"} & set(tree.attributes):
        return policy
    choice = tree_of(tree.attributes.get("choice_"))
    if isinstance(choice, Thing) and choice.kind in _named(ChosenRadius):
        own = {name: tree_of(value) for name, value in choice.attributes.items()}
        radius = tree_of(tree.attributes.get("radius_"))
        with contextlib.suppress(TypeError, ValueError):
            made = ChosenRadius(**own)
            if all(map(_is_scalar, [*own.values(), radius])) and radius == made.value:
                policy.choice_, policy.radius_ = made, radius
                return policy
    faults.append("radius.choice_ and radius_")
    return policy


def _made(
    kind: Any, tree: Thing, prefix: str, faults: list[str], fitted: tuple[str, ...] = ()
) -> Any:
    """An object of plain parameters, made anew."""
    parameters = kind._get_param_names()
    # A vectorizer notes where its stop words lie in memory, which no file needs.
    noted = ("_stop_words_id",) if kind is HashingVectorizer and tree.own is not None else ()
    faults += _surplus(tree, prefix, (*parameters, *fitted, *noted))
    given = {}
    for name in parameters:
        value = tree_of(tree.attributes.get(name, getattr(kind(), name)))
        if kind is HashingVectorizer and name not in _HASHING:
            # Others read files, run patterns and functions, or hold words of the records.
            if not _is_default(value, getattr(kind(), name)):
                faults.append(f"{prefix}{name}={_shown(value)}, other than the default")
        elif name == "n_features" and not 0 < _whole(value) <= _MOST_HASHED:
            faults.append(f"{prefix}{name}={_shown(value)}, more than rows may have")
        elif name == "ngram_range":
            if not _is_ngram_range(value):
                faults.append(f"{prefix}{name}={_shown(value)}, no two lengths up to {_MOST_GRAMS}")
            else:
                given[name] = tuple(value)
        elif _is_scalar(value) or (name == "feature_range" and _is_range(value)):
            given[name] = value
        else:
            faults.append(f"its parameter {prefix}{name}={_shown(value)} is no number or text")
    return kind(**given)


def _is_default(value: Any, own: Any) -> bool:
    """Whether a parameter has the value that it has by default; a file names types of NumPy."""
    if own is np.float64:
        known = isinstance(value, Thing) and not value.attributes
        return known and (value.own is own or (value.is_type and value.kind == "numpy.float64"))
    return type(value) is type(own) and bool(value == own)


def _fitted(tree: Thing, name: str, value: Any, faults: list[str]) -> tuple[bool, Any]:
    """Whether a fitted attribute is of the kind that a head releases."""
    if name == "statistics_":
        return _dataclass(Statistics, value, f"{name}.", faults)
    if name == "transcript_":
        return _dataclass(Transcript, value, f"{name}.", faults)
    if name == "classes_":
        return _is_labels(value), value
    if name == "class_counts_":
        return _is_counts(value), value
    if name in _COMMON:
        return _is_common(tree, name, value), value
    return _is_released(value), value


def _dataclass(kind: Any, tree: Any, prefix: str, faults: list[str]) -> tuple[bool, Any]:
    """Noisy statistics, or a transcript: arrays in double precision, numbers, and a record."""
    if not (isinstance(tree, Thing) and tree.kind in _named(kind)):
        return False, None
    names = [item.name for item in fields(kind)]
    faults += [f"{prefix}{name}" for name in tree.attributes if name not in names]
    given: dict[str, Any] = {}
    own = {name: _PUBLIC.get(name, _is_released) for name in names}
    for name in names:
        if name not in tree.attributes:
            continue
        value = tree_of(tree.attributes[name])
        if name == "release" and isinstance(value, Thing):
            try:
                given[name] = _release(_record(value, f"{prefix}release.", faults))
            except ValueError:
                faults.append(f"{prefix}release")
        elif _is_released(value) or _is_scalar(value) or own[name](value):
            given[name] = value
        else:
            faults.append(f"{prefix}{name}, {_shown(value)}")
    try:
        return True, kind(**given)
    except TypeError:
        return False, None


# Records ----------------------------------------------------------------------------------------


def _record(tree: Any, prefix: str, faults: list[str]) -> dict[str, Any]:
    """Fields of a record; what else it holds is a fault."""
    if not (isinstance(tree, Thing) and tree.kind in _RELEASE):
        faults.append(f"{prefix[:-1]}, which is no record")
        return {}
    names = {item.name for item in fields(Release)}
    faults += [f"{prefix}{n}" for n in tree.attributes if n not in names and n not in _CACHED]
    record = {name: _plain(value) for name, value in tree.attributes.items() if name in names}
    bound = tree_of(tree.attributes.get("bound"))
    if isinstance(bound, Thing):
        record["bound"] = {**record["bound"], "type": kinds_of_bounds().get(bound.kind)}
    cached = {name: _plain(tree.attributes[name]) for name in _CACHED if name in tree.attributes}
    return {**record, "_cached": cached}


def _plain(value: Any) -> Any:
    """A field of a record as JSON would hold it, with tuples for lists."""
    value = tree_of(value)
    if isinstance(value, Thing):
        return {name: _plain(item) for name, item in value.attributes.items()}
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _release(record: Mapping[str, Any]) -> Release:
    own = {name: value for name, value in record.items() if name != "_cached"}
    try:
        bound = bound_from_dict(own.pop("bound", None))
        release = Release(**with_floats(Release, own), bound=bound)
        _check_cached(record["_cached"], release)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(
            f"record: it cannot be made sense of ({type(error).__name__}: {error})."
        ) from None
    return release


def _check_cached(cached: Mapping[str, Any], release: Release) -> None:
    """What an object computed once may be more than is computed now, as a sharper bound gives."""
    for name, value in cached.items():
        own = getattr(release, name)
        if name == "_bound_scales" and own is not None and type(value) is tuple and len(value) == 2:
            check_at_least("sensitivity", value[0], own[0])
            check_follows("sigma", value[1], own[1])
        elif name == "_bound_scales":
            check_follows(name, value, own)
        else:
            check_at_least(name, value, own)


# Steps ------------------------------------------------------------------------------------------


def _step(name: str, value: Any, faults: list[str]) -> Step:
    tree, prefix = tree_of(value), f"{name}."
    if tree is None or (type(tree) is str and tree == "passthrough"):
        return Step(name, "passthrough", "passthrough", has_state=False)
    if not isinstance(tree, Thing):
        faults.append(f"{name}, {_shown(tree)}")
        return Step(name, type(tree).__name__, None, has_state=True)
    inner = tree
    while inner.kind in _FROZEN:
        faults += _surplus(inner, prefix, ("estimator",))
        inner = tree_of(inner.attributes.get("estimator"))
        if not isinstance(inner, Thing):
            return Step(name, tree.name, None, has_state=True)
    made, has_state, encoder = None, True, None
    if inner.kind in _ENCODERS:
        encoder, has_state = _encoder(_ENCODERS[inner.kind], inner, prefix, faults), False
    elif inner.kind in _KNOWN_STEPS:
        kind = _KNOWN_STEPS[inner.kind]
        made = _stateful(kind, inner, prefix, _STEPS[kind], faults)
        has_state = bool(_STEPS[kind])
    elif inner.own is not None:
        has_state = learns(inner.own)
    if inner.own is not None:
        # The caller's own object: his process runs its code anyway.
        made = tree.own
        encoder = inner.own if hasattr(inner.own, "identity") else None
    return Step(name, inner.name, made, has_state, encoder)


def width_of(step: Any) -> int | None:
    """Features of the rows that a step made anew gives, as far as its settings and state tell."""
    if isinstance(step, HashingVectorizer):
        return _whole(step.n_features)
    for name in _LONG:
        state: Any = getattr(step, name, None)
        if _is_rows(state):
            return len(state)
    return None if isinstance(step, str) else getattr(step, "n_features_in_", None)


def _widths(steps: list[Step], n_features: Any) -> Iterator[str]:
    """Steps whose rows do not fit into the next one, or into the head."""
    width: int | None = None
    for step in steps:
        if step.made is None:
            width = None
            continue
        takes = getattr(step.made, "n_features_in_", None)
        if takes is not None and width is not None and takes != width:
            yield f"{step.shown}, which takes rows of {_shown(takes)} features, not of {width}"
        width = width_of(step.made) or width
        if width is not None and width > _MOST_HASHED:
            yield f"{step.shown}, whose rows have more than {_MOST_HASHED} features"
    if width is not None and width != _whole(n_features):
        yield f"steps that give rows of {_shown(width)} features, where the head takes others"


def _stateful(
    kind: Any, tree: Thing, prefix: str, state: tuple[str, ...], faults: list[str]
) -> BaseEstimator:
    made: BaseEstimator = _made(kind, tree, prefix, faults, state)
    try:
        made._validate_params()
    except ValueError:
        faults.append(f"{prefix[:-1]}, whose parameters are none of a {kind.__name__}")
    held = {name: tree_of(value) for name, value in tree.attributes.items() if name in state}
    # The rows of the fit would fit into arrays of other shapes.
    sizes = {_whole(tree_of(tree.attributes.get("n_features_in_")))}
    sizes |= {len(held[name]) for name in _LONG if _is_rows(held.get(name))}
    for name in (*state, "n_features_in_", "feature_names_in_", "_sklearn_output_config"):
        if name not in tree.attributes:
            continue
        value = tree_of(tree.attributes[name])
        common = name in _COMMON
        if _is_common(tree, name, value) if common else _is_state(name, value, sizes):
            vars(made)[name] = value
        else:
            faults.append(f"{prefix}{name}, {_shown(value)}")
    if not _agree(made):
        faults.append(f"{prefix[:-1]}, whose numbers of features, or whose gammas, differ")
    return made


def _is_rows(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim in (1, 2)


def _agree(made: Any) -> bool:
    """Whether all that a step says of how many features it gives agrees."""
    known = vars(made)
    rows = [known[name] for name in _LONG if name in known]
    if isinstance(made, RBFSampler):
        weights, gamma = known.get("random_weights_"), known.get("_gamma")
        if weights is None or not (rows and is_real(gamma) and gamma > 0.0):
            return False
        if not (weights.shape[1] == len(rows[0]) == _whole(made.n_components)):
            return False
        if not (made.gamma == "scale" or (is_real(made.gamma) and made.gamma == gamma)):
            return False
    said = [known[name] for name in ("n_components_", "_n_features_out") if name in known]
    return all(_whole(own) == len(rows[0]) for own in said) if rows else not said


def _encoder(kind: Any, tree: Thing, prefix: str, faults: list[str]) -> BaseEncoder:
    """An encoder of these settings, without the folder of its cache."""
    made: BaseEncoder = _made(kind, tree, prefix, faults)
    made.set_params(cache_dir=None)
    for name in ("model", "weights", "revision", "device"):
        value = getattr(made, name, None)
        if not (isinstance(value, str) or (value is None and name != "model")):
            faults.append(f"{prefix}{name}, which is no name")
            made.set_params(**{name: "unreadable"})
    for name in ("max_length", "batch_size"):
        value = getattr(made, name, None)
        if not (value is None or type(value) is int):
            faults.append(f"{prefix}{name}, which is no whole number")
            made.set_params(**{name: 1})
    return made


# Kinds of values --------------------------------------------------------------------------------


def _surplus(tree: Thing, prefix: str, known: tuple[str, ...]) -> Iterator[str]:
    """Names of attributes that no object of this kind has, or that hold what they should not."""
    for name, value in tree.attributes.items():
        if name in _COMMON:
            if not _is_common(tree, name, tree_of(value)):
                yield f"{prefix}{name}"
        elif name not in known:
            yield f"{prefix}{name}"


def _is_scalar(value: Any, longest: int = _LONGEST) -> bool:
    """Whether it is one number, truth value or short text, or None."""
    if isinstance(value, str):
        return len(value) <= longest
    if isinstance(value, np.generic):
        return value.dtype.kind in "biufUMm" and value.nbytes <= 4 * longest
    if type(value) is int:
        return abs(value) < _LARGEST
    return type(value) in SCALARS


def _is_plain(value: Any) -> bool:
    """Whether it is a scalar, an array of numbers or texts, or a list or mapping of such."""
    if isinstance(value, np.ndarray) and value.dtype != object:
        return value.dtype.kind in "biufUMm" and value.dtype.itemsize <= 4 * _LONGEST_LABEL
    if isinstance(value, (list, tuple, np.ndarray)):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        pairs = value.items()
        return all(_is_scalar(key, _LONGEST_LABEL) and _is_scalar(item) for key, item in pairs)
    return _is_scalar(value, _LONGEST_LABEL)


def _is_range(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and len(value) == 2 and all(map(is_real, value))


def _is_ngram_range(value: Any) -> bool:
    """Whether it is a least and a largest number of words or letters, and no large one."""
    pair = isinstance(value, (list, tuple)) and len(value) == 2 and {*map(type, value)} == {int}
    return pair and 1 <= value[0] <= value[1] <= _MOST_GRAMS


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (int, np.integer)) else -1


def _is_state(name: str, value: Any, sizes: set[int]) -> bool:
    """Whether a step keeps such a value of its fit: a number, or one for each feature."""
    if name not in _ARRAYS_OF_STEPS:
        return (
            value is None
            or is_real(value)
            or (
                isinstance(value, (str, np.ndarray))
                and (_is_scalar(value, 20) or _is_numbers(value, 1, sizes, ("<i8",)))
            )
        )
    if value is None:
        return name in ("scale_", "mean_", "var_")
    ranks = 2 if name in ("components_", "inverse_components_", "random_weights_") else 1
    if not _is_numbers(value, ranks, sizes, ("<f8", "<f4", "<f2")):
        return False
    # What only describes the fit may be undefined, as shares of no variance are.
    used = name not in ("explained_variance_ratio_", "explained_variance_", "singular_values_")
    return not used or bool(np.isfinite(value).all() and (name != "scale_" or (value > 0.0).all()))


def _is_numbers(value: Any, ranks: int, sizes: set[int], kinds: tuple[str, ...]) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.dtype.str in kinds
        and value.ndim == ranks
        and set(value.shape) <= sizes
    )


def _is_released(value: Any) -> bool:
    """Whether it is an array of noisy values: in double precision, which has no bits to spare."""
    return isinstance(value, np.ndarray) and value.dtype.str == np.dtype(np.float64).str


def _is_labels(value: Any) -> bool:
    # Long doubles have bits that no digest covers.
    return (
        isinstance(value, np.ndarray)
        and value.ndim == 1
        and _is_plain(value)
        and value.dtype not in (np.longdouble, np.clongdouble)
        and (value.dtype != object or all(_is_scalar(v, _LONGEST_LABEL) for v in value))
    )


def _is_counts(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim == 1


#: Public arrays beside noisy ones.
_PUBLIC = {"classes": _is_labels, "counts": _is_counts}


def _is_common(tree: Thing, name: str, value: Any) -> bool:
    """Whether what every fit of scikit-learn may leave behind is of that kind."""
    if name == "n_features_in_":
        return 0 < _whole(value) < _LARGEST
    if name == "feature_names_in_":
        one = isinstance(value, np.ndarray) and value.ndim == 1 and len(value) <= _MOST_NAMES
        if not one or len(value) != _whole(tree_of(tree.attributes.get("n_features_in_"))):
            return False
        names = value.tolist()
        texts = all(type(own) is str and len(own) <= _LONGEST_NAME for own in names)
        return texts and len(set(names)) == len(names)
    if name == "_sklearn_version":
        return isinstance(value, str) and re.fullmatch(r"[0-9a-z.+]{1,40}", value) is not None
    if name == "_sklearn_output_config":
        known = [{"transform": kind} for kind in ("default", "pandas", "polars")]
        return type(value) is dict and value in known
    return _is_routing(tree.own, value)


def _is_routing(own: Any, value: Any) -> bool:
    """Whether it requests metadata by the names of parameters; no file can hold such requests."""
    if own is None or not isinstance(value, Thing):
        return False
    methods = {name: item for name, item in value.attributes.items() if name != "owner"}
    for name, item in methods.items():
        asked = tree_of(item).attributes.get("_requests") if isinstance(item, Thing) else None
        method = getattr(type(own), name, None)
        if not (callable(method) and type(asked) is dict):
            return False
        known = inspect.signature(method).parameters
        if not all(key in known and tree_of(kind) in _REQUESTS for key, kind in asked.items()):
            return False
    return True


def _shown(value: Any) -> str:
    """A value in a few words: the whole of it could be private."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Thing):
        return f"a {one_line(value.name, 60)}"
    if isinstance(value, (list, tuple, dict)):
        return f"a {type(value).__name__} of {len(value)}"
    if type(value) is int:
        return one_line(value, 60) if abs(value) < _LARGEST else "a number of many digits"
    return one_line(repr(value), 60)
