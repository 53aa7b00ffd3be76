"""Steps before a head, as one of five kinds of plain data.

======== ==================================================== =============================
kind     what it does to a row                                arrays
======== ==================================================== =============================
affine   subtracts a shift, and divides each column by a      shift, and scale or matrix
         scale, or multiplies by a matrix
norm     divides it by its norm (l1, l2 or max)
fourier  sqrt(2 / n) cos(x W + offset)                        weights, offset
words    counts hashed words of a text
encoder  embeds a text or an image by weights that no file
         holds, and that are named
======== ==================================================== =============================
"""

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler
from sklearn.random_projection import GaussianRandomProjection

from .._parameters import LEAST, MOST
from ..encoders import ImageEncoder, SentenceEncoder, encoder_of
from ..rows import DenseRows
from ..text import one_line

_MOST_FEATURES, _MOST_GRAMS, _MOST_TOKENS, _LONGEST_NAME = 2**16, 10, 2**16, 200
# Entries of a matrix whose norm is computed exactly; the sum of its squares takes no time.
_LARGE = 2**20
# How a name says that texts are cut off.
_TOKENS = re.compile(r", ([0-9]+) tokens$")
_NORMS = ("l1", "l2", "max")
_ANALYZERS = ("word", "char", "char_wb")
_WORDS = (
    "n_features",
    "ngram_range",
    "analyzer",
    "lowercase",
    "strip_accents",
    "binary",
    "norm",
    "alternate_sign",
)


@dataclass(frozen=True, eq=False)
class Step:
    """One step: its kind, its settings and its arrays, all of them plain.

    ``live`` holds a step of the publisher's own, which is of the kind "own", can be used and cannot
    be written; and an encoder in memory, whose weights no file holds.
    """

    kind: str
    settings: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    live: Any = None

    @property
    def width(self) -> int | None:
        """Features of the rows that it gives, where they do not follow from those it takes."""
        if self.kind == "words":
            return int(self.settings["n_features"])
        last = self.arrays.get("offset", self.arrays.get("matrix", self.arrays.get("scale")))
        return None if last is None else last.shape[-1]

    @property
    def stretch(self) -> float | None:
        """How many times as far apart it moves two rows, at most; None where that is not known."""
        a, found = self.arrays, None
        with np.errstate(all="ignore"):
            if "scale" in a:
                found = float(np.max(1.0 / np.abs(a["scale"].astype(np.float64)))) * (1.0 + 1e-9)
            elif "matrix" in a:
                found = _norm(a["matrix"])
            elif "weights" in a:
                # The slope of each cosine is at most one.
                found = _norm(a["weights"]) * math.sqrt(2.0 / len(a["offset"]))
        return found if found is not None and LEAST <= found <= MOST else None


def _norm(matrix: NDArray[Any]) -> float:
    """Largest stretch of a linear map, rounded up."""
    exactly = matrix.size <= _LARGE and np.isfinite(matrix).all()
    # Both norms may be one, and either is computed with rounding.
    return float(np.linalg.norm(matrix.astype(np.float64), 2 if exactly else None)) * (1.0 + 1e-9)


def step_of(live: Any) -> Step | None:
    """A step of a pipeline as plain data; None if it does nothing.

    Raises
    ------
    ValueError
        If it is none that can be published.
    """
    live = live.estimator if isinstance(live, FrozenEstimator) else live
    kind = type(live)
    if live is None or isinstance(live, (str, DenseRows)):
        return None
    if kind is Normalizer:
        return Step("norm", {"norm": live.norm})
    if kind is StandardScaler and hasattr(live, "n_features_in_"):
        width = live.n_features_in_
        shift = live.mean_ if live.with_mean else np.zeros(width)
        return _affine(shift, scale=live.scale_ if live.with_std else np.ones(width))
    if kind is MaxAbsScaler and hasattr(live, "scale_") and not getattr(live, "clip", False):
        return _affine(np.zeros(live.n_features_in_), scale=live.scale_)
    if kind is MinMaxScaler and hasattr(live, "scale_") and not live.clip:
        return _affine(-live.min_ / live.scale_, scale=1.0 / live.scale_)
    if kind in (PCA, TruncatedSVD, GaussianRandomProjection) and hasattr(live, "components_"):
        matrix = np.asarray(live.components_).T
        if getattr(live, "whiten", False):
            matrix = matrix / np.sqrt(live.explained_variance_)
        shift = getattr(live, "mean_", None)
        return _affine(np.zeros(len(matrix)) if shift is None else shift, matrix=matrix)
    if kind is RBFSampler and hasattr(live, "random_weights_"):
        own = {"weights": live.random_weights_, "offset": live.random_offset_}
        return Step("fourier", {}, {name: _floats(value) for name, value in own.items()})
    if kind is HashingVectorizer:
        default = HashingVectorizer().get_params()
        given = live.get_params()
        if all(n in _WORDS or given[n] == default[n] for n in given):
            return Step("words", {name: _plain(given[name]) for name in _WORDS})
    if kind in (SentenceEncoder, ImageEncoder):
        of, setting = ("texts", "max_length") if kind is SentenceEncoder else ("images", "model")
        named = {"of": of, "name": str(live.identity), setting: _plain(getattr(live, setting))}
        return Step("encoder", named, live=live)
    raise ValueError(
        f"the step {one_line(kind.__name__, 60)} cannot be published; publish the head alone, or "
        "take a fitted scaler, Normalizer, PCA, TruncatedSVD, GaussianRandomProjection, RBFSampler "
        "or HashingVectorizer with their usual settings, or an encoder of this package."
    )


def own_step(name: str, live: Any) -> Step:
    """A step as :func:`step_of` has it; one of the publisher's own as it is."""
    try:
        step = step_of(live)
    except ValueError:
        if type(getattr(live, "estimator", live)) in (SentenceEncoder, ImageEncoder):
            raise  # Its weights are not on this machine.
        return Step("own", {"name": one_line(name, 60)}, live=live)
    return Step("none") if step is None else step


def _affine(shift: Any, **last: Any) -> Step:
    arrays = {"shift": shift, **last}
    return Step("affine", {}, {name: _floats(value) for name, value in arrays.items()})


def _floats(values: Any) -> NDArray[Any]:
    found = np.asarray(values)
    return found if found.dtype in (np.float32, np.float64) else found.astype(np.float64)


def _plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value


def fault_of(step: Step, width: int | None, *, first: bool) -> tuple[str | None, int | None]:
    """What is wrong with a step that takes rows of a width, and the width of the rows it gives."""
    s, a = step.settings, step.arrays
    shapes = {name: array.shape for name, array in a.items()}
    if not all(v.dtype in (np.float32, np.float64) and np.isfinite(v).all() for v in a.values()):
        return "its arrays are no finite numbers", None
    match step.kind:
        case "own" | "none":
            return None, None
        case "norm":
            sound, out = s.keys() == {"norm"} and s["norm"] in _NORMS and not a, width
        case "affine":
            last = "matrix" if "matrix" in a else "scale"
            n = a["shift"].shape[0] if a.get("shift") is not None and a["shift"].ndim else 0
            out = a[last].shape[-1] if last in a and a[last].ndim else 0
            wanted = {"shift": (n,), last: (n, out) if last == "matrix" else (n,)}
            sound = not s and shapes == wanted and width in (None, n)
            sound = sound and (last == "matrix" or bool((np.abs(a["scale"]) > 0.0).all()))
        case "fourier":
            n, out = shapes["weights"] if len(shapes.get("weights", ())) == 2 else (0, 0)
            wanted = {"weights": (n, out), "offset": (out,)}
            sound = not s and shapes == wanted and width in (None, n)
        case "words":
            sound, out = not a and first and _are_words(s), s.get("n_features")
        case "encoder":
            sound, out = not a and first and _is_encoder(s), None
        case _:
            return "it is of a kind that is not known", None
    sound = sound and (out is None or (type(out) is int and 0 < out <= _MOST_FEATURES))
    fault = None if sound else "its settings or arrays are not those of such a step"
    return fault, out if sound else None


def _are_words(s: dict[str, Any]) -> bool:
    grams = s.get("ngram_range")
    return (
        s.keys() == set(_WORDS)
        and type(s["n_features"]) is int
        and type(grams) is list
        and [type(n) for n in grams] == [int, int]
        and 1 <= grams[0] <= grams[1] <= _MOST_GRAMS
        and s["analyzer"] in _ANALYZERS
        and s["strip_accents"] in (None, "ascii", "unicode")
        and s["norm"] in (None, "l1", "l2")
        and all(type(s[name]) is bool for name in ("lowercase", "binary", "alternate_sign"))
    )


def _is_encoder(s: dict[str, Any]) -> bool:
    of = s.get("of")
    own = {"texts": "max_length", "images": "model"}.get(of) if isinstance(of, str) else None
    if own is None or s.keys() != {"of", "name", own} or not _is_name(s["name"]):
        return False
    if own == "model":
        return _is_name(s["model"])
    length, said = s["max_length"], _TOKENS.search(s["name"])
    if length is None or said is None:
        return length is said is None
    return type(length) is int and 1 <= length <= _MOST_TOKENS and said[1] == str(length)


def _is_name(value: Any) -> bool:
    return type(value) is str and value.isprintable() and 0 < len(value) <= _LONGEST_NAME


@dataclass(frozen=True)
class NamedEncoder:
    """In place of an encoder whose weights are not at hand: what it is called."""

    identity: str


def made(step: Step) -> list[Any]:
    """The step as scikit-learn's own estimators; an encoder in memory, or its name."""
    s, a = step.settings, step.arrays
    match step.kind:
        case "norm":
            return [Normalizer(**s)]
        case "affine" if "scale" in a:
            own = {"mean_": a["shift"], "scale_": a["scale"]}
            return [_fitted(StandardScaler(), len(a["shift"]), **own)]
        case "affine":
            n, out = a["matrix"].shape
            own = {"mean_": a["shift"], "components_": np.ascontiguousarray(a["matrix"].T)}
            return [_fitted(PCA(out), n, n_components_=out, **own)]
        case "fourier":
            own = {"random_weights_": a["weights"], "random_offset_": a["offset"]}
            sampler = RBFSampler(n_components=len(a["offset"]))
            return [_fitted(sampler, len(a["weights"]), **own)]
        case "words":
            given = {**s, "ngram_range": tuple(s["ngram_range"])}
            return [HashingVectorizer(**given), DenseRows()]
        case "encoder" if step.live is None:
            return [NamedEncoder(s["name"])]
        case "none":
            return []
    return [step.live]


def encoder_for(step: Step | None, encoder: Any) -> Any:
    """The caller's encoder; of a name or folder of weights, with the model's own length of texts.

    A stranger's batch size or device may not fit.
    """
    if step is None:
        raise ValueError(f"encoder={encoder!r}: the model has no step that embeds records.")
    if not isinstance(encoder, (str, Path)):
        return encoder
    if step.settings["of"] == "texts":
        return encoder_of("text", str(encoder), max_length=step.settings["max_length"])
    return encoder_of("image", str(encoder)).set_params(model=step.settings["model"])


def _fitted(live: Any, width: int, **state: Any) -> Any:
    vars(live).update(state, n_features_in_=width)
    return live
