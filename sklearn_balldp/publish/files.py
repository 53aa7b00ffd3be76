"""Models, records, private rows and transcripts from files, without running what they hold."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..heads import Transcript

#: Classes of this package that a skops file may hold, beside those that skops trusts by itself.
TRUSTED = tuple(
    f"sklearn_balldp.{name}"
    for name in (
        "encoders.ImageEncoder",
        "encoders.SentenceEncoder",
        "heads.descent.GradientPerturbation",
        "heads.descent.Transcript",
        "heads.linear_discriminant.BallDPLinearDiscriminant",
        "heads.logistic.BallDPLogisticRegression",
        "heads.output.OutputPerturbation",
        "heads.ridge_prototype.BallDPRidgePrototype",
        "heads.squared_hinge.BallDPSquaredHingeSVC",
        "heads.statistics.Statistics",
        "privacy.bounds.MinimizerBound",
        "privacy.bounds.PrototypeBound",
        "privacy.release.Release",
        "privacy.statistics.StatisticsBound",
        "privacy.transcript.Descent",
        "privacy.transcript.TranscriptBound",
        "privacy.weights.Weights",
        "radius.ChosenRadius",
        "radius.RadiusPolicy",
    )
)


def load_model(path: str | Path, *, allow_joblib: bool = False) -> Any:
    """A model from a skops file; from joblib or pickle only when asked to, as they run code."""
    path = _existing(path, "model")
    if path.suffix != ".skops":
        if not allow_joblib:
            raise ValueError(
                f"model={str(path)!r}: only .skops files are loaded without running code of "
                "theirs; ask for such a file, or allow joblib for a publisher whom you trust "
                "(--joblib, allow_joblib=True)."
            )
        import joblib

        return _read(lambda: joblib.load(path), f"model={str(path)!r} is no joblib file")
    try:
        from skops import io
    except ImportError as error:
        raise ImportError(
            "skops files need skops; pip install 'sklearn_balldp[publish]'."
        ) from error
    none = f"model={str(path)!r} is no skops file"
    found = _read(lambda: io.get_untrusted_types(file=path), none)
    unknown = sorted(set(found) - set(TRUSTED))
    if unknown:
        raise ValueError(
            f"model={str(path)!r} holds types that are not trusted: {', '.join(unknown)}. Nothing "
            "was loaded; ask for a model of this package's heads and scikit-learn's steps."
        )
    return _read(lambda: io.load(path, trusted=list(TRUSTED)), none)


def load_record(path: str | Path) -> dict[str, Any]:
    """A record as written by ``json.dump(release_.to_dict(), file)``."""
    path = _existing(path, "release")
    name = f"release={str(path)!r}"
    twice: list[str] = []

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        twice.extend(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
        return dict(pairs)

    def read() -> Any:
        return json.loads(path.read_text(encoding="utf-8"), object_pairs_hook=once)

    record = _read(read, f"{name} is no JSON")
    if twice:
        raise ValueError(f"{name} holds {', '.join(twice)} more than once: readers may differ.")
    if not isinstance(record, dict):
        raise ValueError(f"release={str(path)!r} is no record; write release_.to_dict() into it.")
    return record


def load_rows(path: str | Path) -> dict[str, NDArray[Any]]:
    """Private records of an npz file: X and y, or X_train and y_train, and groups if it has any."""
    file = _arrays(path, "private")
    declared: dict[str, NDArray[Any]] = {k: file[k] for k in ("groups",) if k in file}
    for rows, labels in (("X", "y"), ("X_train", "y_train")):
        if rows in file and labels in file:
            return {"X": file[rows], "y": file[labels], **declared}
    raise ValueError(
        f"private={str(path)!r} holds {', '.join(file)}; save X and y in it "
        "(numpy.savez(FILE, X=X, y=y))."
    )


def load_transcript(path: str | Path) -> Transcript:
    """A transcript as written by ``numpy.savez(FILE, **vars(transcript))``."""
    file = _arrays(path, "transcript")
    names = ("gradients", "iterates", "sigma")
    missing = [name for name in names if name not in file]
    if missing:
        raise ValueError(
            f"transcript={str(path)!r} lacks {', '.join(missing)}; write it by "
            "numpy.savez(FILE, **vars(head.transcript_))."
        )
    known = Transcript.__dataclass_fields__
    return Transcript(**{name: values for name, values in file.items() if name in known})


def _existing(path: str | Path, name: str) -> Path:
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{name}={str(path)!r} is no file.")
    return path


def _arrays(path: str | Path, name: str) -> dict[str, NDArray[Any]]:
    path = _existing(path, name)

    def read() -> dict[str, NDArray[Any]]:
        # Objects would run code of the file's.
        with open(path, "rb") as handle, np.load(handle, allow_pickle=False) as file:
            return {key: file[key] for key in file.files}

    return _read(read, f"{name}={str(path)!r} is no npz file of plain arrays")


def _read(read: Callable[[], Any], none: str) -> Any:
    """What a file holds; whatever is wrong with it, it is none of its kind."""
    try:
        return read()
    except Exception as error:
        raise ValueError(f"{none} ({type(error).__name__}: {error}).") from None
