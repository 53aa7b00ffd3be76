"""A fitted model as a folder that can be published, after it was checked as a receiver would."""

import copy
import importlib.util
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

from sklearn.base import clone
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline

from .._validation import caller_level
from ..audit.preparation import PooledPreprocessingWarning
from ..encoders import BaseEncoder
from ..pipelines import parts_of
from ..privacy.encoder_name import public_name
from ..text import one_line
from .folder import FILES, MODEL, README, RECORD, files_of, own_text, with_own_text
from .loading import received_from
from .verify import verify


def save(model: Any, folder: str | Path, *, force: bool = False) -> Path:
    """Write a fitted model as a folder to publish: model, record, card, and how to predict.

    The folder holds ``model.skops``, ``release.json``, ``README.md`` (the card, with the fields of
    the model hub), ``card.html``, ``config.json`` and ``predict.py``. It is written as a whole or
    not at all, and only if :func:`.verify` finds no fault in it. It names no path of yours, and no
    folder of a cache. ``hf upload NAME FOLDER`` uploads it to the model hub.

    Parameters
    ----------
    model : estimator
        A fitted Ball-DP head, or a Pipeline that ends in one.
    folder : str or path-like
        Folder to make.
    force : bool, default=False
        Replaces a folder that holds such a model. Nothing else is ever replaced, and what you wrote
        above the card in its ``README.md`` stays.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    ValueError
        If the folder exists, or a receiver would refuse the model: it is not fitted, its noise was
        drawn from a seed, or a step is none that is made anew.
    ImportError
        If skops is not installed.

    Warns
    -----
    PooledPreprocessingWarning
        If a step learned from rows and is not in a ``FrozenEstimator``. Of private rows, that is
        not covered by the promise.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_balldp import BallDPRidgePrototype
    >>> from sklearn_balldp.publish import load, save
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5).fit(X, y)
    >>> folder = save(head, tempfile.mkdtemp() + "/model")
    >>> (load(folder).predict(X) == head.predict(X)).all()
    np.True_
    """
    folder = Path(folder)
    check_writable(folder, force)
    import skops.io

    public = _public(model)
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder, so that it takes its place in one step.
    written = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        skops.io.dump(public, written / MODEL)
        received = received_from(written / MODEL, "model")
        unread = [step.shown for step in received.steps if step.made is None and not step.encoder]
        faults = received.faults + [f"the step {name}, which nobody can load" for name in unread]
        if faults:
            raise ValueError(
                f"model: {one_line('; '.join(faults))} would be refused by whoever receives it; "
                "take it out, or publish the head alone."
            )
        _warn_of_learners(parts_of(model).learners)
        own = own_text(folder)
        for name, text in files_of(received, received.release()).items():
            whole = with_own_text(text, own) if name == README else text
            (written / name).write_bytes(whole.encode())
        verdict = verify(written)
        failed = [
            f"{check.name}: {check.found}" for check in verdict.checks if check.verdict == "FAIL"
        ]
        if failed:
            raise ValueError(f"model: whoever receives it would see FAIL ({'; '.join(failed)}).")
        mask = os.umask(0)
        os.umask(mask)
        written.chmod(0o777 & ~mask)
        _put(written, folder)
    finally:
        shutil.rmtree(written, ignore_errors=True)
    return folder


def _warn_of_learners(names: list[str]) -> None:
    """Warn of steps whose state may come from the private rows: a model does not tell."""
    if names:
        warnings.warn(
            f"the step(s) {one_line(', '.join(names))} learned from rows. If these were private, "
            "one record moved every row, and the promise does not hold. Fit such steps on public "
            "rows, and put each into a FrozenEstimator before you fit the pipeline.",
            PooledPreprocessingWarning,
            stacklevel=caller_level(),
        )


def check_writable(folder: Path, force: bool) -> None:
    """An error unless a model can be written there: before any noise is drawn, if it is asked.

    Raises
    ------
    ValueError
        If the folder is there, and holds no model that may be replaced.
    ImportError
        If skops is not installed.
    """
    if importlib.util.find_spec("skops") is None:
        raise ImportError("A model is written by skops; pip install skops.")
    if folder.is_symlink() or (folder.exists() and not (force and _is_ours(folder))):
        remedy = "it holds something else" if force else "or replace a model in it, --force"
        raise ValueError(f"folder={str(folder)!r} exists: name another one ({remedy}).")
    if folder.exists():
        own_text(folder)
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ValueError(f"folder={str(folder)!r} cannot be made: {nearest} takes no new folder.")


def _put(written: Path, folder: Path) -> None:
    """Let a folder take the place of another, which is deleted last."""
    if not folder.exists():
        os.rename(written, folder)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    os.rename(folder, old / "old")
    try:
        os.rename(written, folder)
    except BaseException:
        os.rename(old / "old", folder)
        old.rmdir()
        raise
    shutil.rmtree(old, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a published model, and nothing else."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {MODEL, RECORD} <= names <= set(FILES)


def _public(model: Any) -> Any:
    """The model without what is its owner's: paths, caches, devices, requests of metadata."""
    parts = parts_of(model)
    if parts.outer_type or not hasattr(parts.head, "release_"):
        raise ValueError(
            "model: expected a fitted Ball-DP head, or a Pipeline that ends in one (of a search "
            f"its best_estimator_); got {type(model).__name__}."
        )
    steps = [(name, _step(step)) for name, step in parts.steps]
    head = copy.copy(parts.head._as_fitted())
    vars(head).pop("_metadata_request", None)
    return Pipeline([*steps, ("head", head)]) if steps else head


def _step(step: Any) -> Any:
    inner = step.estimator if isinstance(step, FrozenEstimator) else step
    if isinstance(inner, HashingVectorizer):
        return clone(inner)
    if not isinstance(inner, BaseEncoder):
        return step
    own = clone(inner).set_params(cache_dir=None, device=None)
    vars(own).pop("_metadata_request", None)
    for name in ("model", "weights"):
        value = getattr(own, name, None)
        if value is not None and Path(value).exists():
            # The record has the digest of the files; their place is the owner's.
            own.set_params(**{name: public_name(str(value))})
    return own
