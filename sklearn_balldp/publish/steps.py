"""Steps before a head, as one of six kinds of plain data.

======== ==================================================== =============================
kind     what it does to a row                                arrays
======== ==================================================== =============================
affine   subtracts a shift, and divides each column by a      shift, and scale or matrix
         scale, or multiplies by a matrix
norm     divides it by its norm (l1, l2 or max)
fourier  sqrt(2 / n) cos(x W + offset)                        weights, offset
words    counts hashed words of a text
encoder  embeds a text or an image by named weights, which no
         file holds
table    makes cells of declared columns
======== ==================================================== =============================
"""

import math
import re
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType
from numpy.typing import NDArray
from sklearn.frozen import FrozenEstimator

from .._parameters import LEAST, MOST
from ..encoders import ImageEncoder, SentenceEncoder, TableEncoder
from ..encoders.named import encoder_of
from ..pipelines import DenseRows, RowWise
from ..showing import one_line

_MAX_FEATURES, _MAX_GRAMS, _MAX_TOKENS, _MAX_NAME = 2**16, 10, 2**16, 200
# Entries of a matrix whose norm is computed exactly; the sum of its squares takes no time.
_LARGE = 2**20
_UP = 1.0 + 1e-9
# How a name says that texts are cut off.
_TOKENS = re.compile(r", ([0-9]+) tokens$")
_Name = Annotated[str, Meta(min_length=1, max_length=_MAX_NAME)]


class Affine(Struct, tag_field="kind", tag=str.lower, forbid_unknown_fields=True):
    """What ``config.json`` says of a step: its kind, where all else is in arrays."""


class Fourier(Affine):
    """The same of another kind."""


class Norm(Affine):
    """Settings of a Normalizer."""

    norm: Literal["l1", "l2", "max"]


class Words(Affine):
    """Settings of a HashingVectorizer that may differ from its defaults."""

    n_features: Annotated[int, Meta(ge=1, le=_MAX_FEATURES)]
    ngram_range: tuple[int, int]
    analyzer: Literal["word", "char", "char_wb"]
    lowercase: bool
    strip_accents: Literal["ascii", "unicode"] | None
    binary: bool
    norm: Literal["l1", "l2"] | None
    alternate_sign: bool

    def __post_init__(self) -> None:
        if not 1 <= self.ngram_range[0] <= self.ngram_range[1] <= _MAX_GRAMS:
            raise ValueError("its n-grams are too long, or none")


class Encoder(Affine):
    """Name of the weights; of texts with a length, which the name ends with, of images a model."""

    of: Literal["texts", "images"]
    name: _Name
    max_length: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] | UnsetType | None = UNSET
    model: _Name | UnsetType = UNSET

    def __post_init__(self) -> None:
        length = _TOKENS.search(self.name)
        expected = (UNSET, str) if self.of == "images" else (length and length[1], UnsetType)
        stated = str(self.max_length) if isinstance(self.max_length, int) else self.max_length
        sound = stated == expected[0] and isinstance(self.model, expected[1])
        if not (sound and f"{self.name}{self.model}".isprintable()):
            raise ValueError("it is no encoder's name and length, or model")


class Table(Affine):
    """The declaration of a TableEncoder, as its ``to_dict`` spells it."""

    columns: list[Any]
    knots: int

    def __post_init__(self) -> None:
        own = {"columns": self.columns, "knots": self.knots}
        # 18.0 is 18 for Python, and no other spelling of a file is taken.
        if repr(table_of(own).to_dict()) != repr(own):
            raise ValueError("these are no declared columns")


#: Steps that a file may hold.
KINDS = Affine | Norm | Fourier | Words | Encoder | Table
#: Arrays of a step, with a letter for the size of each axis: n features of a row before, m after.
_LAYOUTS = (
    ("affine", {"shift": "n", "scale": "n"}),
    ("affine", {"shift": "n", "matrix": "nm"}),
    ("fourier", {"weights": "nm", "offset": "m"}),
)


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its kind, its settings and its arrays, all of them plain."""

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    @property
    def stretch(self) -> float | None:
        """Upper bound of how many times as far apart it moves two rows; None without one."""
        a = self.arrays
        with np.errstate(all="ignore"):
            if "scale" in a:
                factor = float(np.max(1.0 / np.abs(a["scale"].astype(np.float64)))) * _UP
            elif "matrix" in a:
                factor = _norm(a["matrix"])
            elif "weights" in a:
                # The slope of each cosine is at most one.
                factor = _norm(a["weights"]) * math.sqrt(2.0 / len(a["offset"]))
            else:
                return None
        return factor if LEAST <= factor <= MOST else None

    @property
    def identity(self) -> str | None:
        """What a record calls the encoder that it is; None of other steps."""
        if self.kind == "table":
            return str(table_of(self.settings).identity)
        return str(self.settings["name"]) if self.kind == "encoder" else None


def _norm(matrix: NDArray[Any]) -> float:
    """Largest stretch of a linear map, rounded up."""
    exactly = matrix.size <= _LARGE and np.isfinite(matrix).all()
    # Both norms may be one, and either is computed with rounding.
    return float(np.linalg.norm(matrix.astype(np.float64), 2 if exactly else None)) * _UP


def step_of(live: Any) -> Step | None:
    """A step as plain data, or None if it does nothing; a ValueError if no file can hold it."""
    # A check of a folder needs none of them, and each takes as long to import as the check.
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
    from sklearn.random_projection import GaussianRandomProjection

    live = live.estimator if isinstance(live, FrozenEstimator) else live
    kind = type(live)
    if live is None or isinstance(live, (str, DenseRows)):
        return None
    if kind is NamedEncoder:
        return Step("encoder", live.step.settings)
    if kind is Normalizer:
        return Step("norm", {"norm": live.norm})
    if kind in (SentenceEncoder, ImageEncoder):
        of, setting = ("texts", "max_length") if kind is SentenceEncoder else ("images", "model")
        named = {
            "of": of,
            "name": str(live.identity),
            setting: setting_as_json(getattr(live, setting)),
        }
        return Step("encoder", named)
    if kind is TableEncoder:
        return Step("table", live.to_dict())
    if kind is HashingVectorizer:
        default, params = HashingVectorizer().get_params(), live.get_params()
        names = Words.__struct_fields__
        if all(name in names or params[name] == default[name] for name in params):
            return Step("words", {name: setting_as_json(params[name]) for name in names})
    with suppress(AttributeError):  # of one that is not fitted
        if kind is StandardScaler:
            zero = np.zeros(live.n_features_in_)
            scale = live.scale_ if live.with_std else zero + 1.0
            return _arrays_step("affine", shift=live.mean_ if live.with_mean else zero, scale=scale)
        if kind is MaxAbsScaler and not getattr(live, "clip", False):
            return _arrays_step("affine", shift=np.zeros(live.n_features_in_), scale=live.scale_)
        if kind is MinMaxScaler and not live.clip:
            return _arrays_step("affine", shift=-live.min_ / live.scale_, scale=1.0 / live.scale_)
        if kind in (PCA, TruncatedSVD, GaussianRandomProjection):
            matrix = np.asarray(live.components_).T
            if getattr(live, "whiten", False):
                matrix = matrix / np.sqrt(live.explained_variance_)
            shift = getattr(live, "mean_", None)
            shift = np.zeros(len(matrix)) if shift is None else shift
            return _arrays_step("affine", shift=shift, matrix=matrix)
        if kind is RBFSampler:
            weights, offset = live.random_weights_, live.random_offset_
            return _arrays_step("fourier", weights=weights, offset=offset)
    raise ValueError(
        f"the step {one_line(kind.__name__, 60)} cannot be published; publish the head alone, or "
        "take a fitted scaler, Normalizer, PCA, TruncatedSVD, GaussianRandomProjection, RBFSampler "
        "or HashingVectorizer with their usual settings, or an encoder of this package."
    )


def _arrays_step(kind: str, **arrays: Any) -> Step:
    # Single and double precision stay as they are.
    floats = {name: np.asarray(a, np.result_type(a, np.float32)) for name, a in arrays.items()}
    return Step(kind, {}, floats)


def setting_as_json(value: Any) -> Any:
    """A setting as JSON has it."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    return [setting_as_json(item) for item in value] if isinstance(value, (list, tuple)) else value


def fault_of(step: Step, width: int | None, *, first: bool) -> tuple[str | None, int | None]:
    """What is wrong with a step that takes rows of a width, and the width of the rows it gives.

    The width is None where nothing tells it, and where records have no columns.
    """
    arrays = step.arrays.values()
    if not all(a.dtype in (np.float32, np.float64) and np.isfinite(a).all() for a in arrays):
        return "its arrays are no finite numbers", None
    try:
        sound, out = _checked(step, width, first)
    except (KeyError, ValueError):  # an array with another number of axes
        sound, out = False, None
    if sound and (out is None or 0 < out <= _MAX_FEATURES):
        return None, out
    return "its arrays or its place are not those of such a step", None


def _checked(step: Step, width: int | None, first: bool) -> tuple[Any, int | None]:
    """Whether arrays and place are those of such a step, and the width of the rows it gives."""
    a, alone = step.arrays, not step.arrays and first and width is None
    match step.kind:
        case "norm":
            return not a, width
        case "words":
            return alone, step.settings["n_features"]
        case "encoder":
            return alone, None
        case "table":
            return alone, len(table_of(step.settings).get_feature_names_out())
    for kind, layout in _LAYOUTS:
        if kind == step.kind and layout.keys() == a.keys():
            sizes = {} if width is None else {"n": width}
            axes = [
                axis for name in layout for axis in zip(layout[name], a[name].shape, strict=True)
            ]
            fits = all([sizes.setdefault(*axis) == axis[1] for axis in axes])
            divides = np.all(np.abs(a.get("scale", 1.0)) > 0.0)
            return fits and divides, sizes.get("m", sizes["n"])
    return False, None


def table_of(settings: dict[str, Any]) -> TableEncoder:
    """The encoder of a table; a ValueError if its settings are no declaration."""
    return TableEncoder(dict(settings["columns"]), knots=settings["knots"]).fit()


@dataclass(frozen=True)
class NamedEncoder(RowWise):
    """In place of an encoder whose weights are not at hand: what a folder says of it."""

    step: Step

    @property
    def identity(self) -> str:
        """What a record calls it."""
        return str(self.step.settings["name"])


def made(step: Step) -> list[Any]:
    """The step as scikit-learn's estimators; of an encoder its name."""
    from sklearn.decomposition import PCA
    from sklearn.feature_extraction.text import HashingVectorizer
    from sklearn.kernel_approximation import RBFSampler
    from sklearn.preprocessing import Normalizer, StandardScaler

    s, a = step.settings, step.arrays
    match step.kind:
        case "norm":
            return [Normalizer(**s)]
        case "affine" if "scale" in a:
            return [_fitted(StandardScaler(), mean_=a["shift"], scale_=a["scale"])]
        case "affine":
            components, out = np.ascontiguousarray(a["matrix"].T), a["matrix"].shape[1]
            state = {"mean_": a["shift"], "components_": components, "n_components_": out}
            # Looked up by releases of scikit-learn before 1.7, used where rows are whitened alone.
            state["explained_variance_"] = np.ones(out)
            return [_fitted(PCA(out), **state)]
        case "fourier":
            state = {"random_weights_": a["weights"], "random_offset_": a["offset"]}
            return [_fitted(RBFSampler(n_components=len(a["offset"])), **state)]
        case "words":
            return [HashingVectorizer(**{**s, "ngram_range": tuple(s["ngram_range"])}), DenseRows()]
        case "table":
            return [table_of(s)]
    return [NamedEncoder(step)]


def _fitted(live: Any, **state: Any) -> Any:
    # The first array has an entry, or a row, for each feature.
    vars(live).update(state, n_features_in_=len(next(iter(state.values()))))
    return live


def encoder_for(step: Step | None, encoder: Any) -> Any:
    """The caller's encoder; of a name or folder of weights, with the model's length of texts.

    A stranger's batch size or device may not fit.
    """
    if step is None:
        raise ValueError(f"encoder={encoder!r}: the model has no step that embeds records.")
    if not isinstance(encoder, (str, Path)):
        return encoder
    if step.settings["of"] == "texts":
        return encoder_of("text", str(encoder), max_length=step.settings["max_length"])
    return encoder_of("image", str(encoder)).set_params(model=step.settings["model"])
