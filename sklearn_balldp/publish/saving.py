"""Writing a model as a folder to publish, as a whole or not at all."""

import os
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._validation import caller_level
from ..audit.preparation import PooledPreprocessingWarning
from ..checks import FAIL
from ..pipelines import parts_of
from ..text import one_line
from .files import FILES, MODEL, README, RECORD, root_of, text_of
from .folder import is_blank, may_be_taken, parted, readme
from .model import Published
from .verify import verify


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


def save(
    model: Any,
    folder: str | Path,
    *,
    force: bool = False,
    transcript: bool = False,
    column: str | None = None,
) -> Path:
    """Write a fitted model as a folder to publish: weights, record, settings and card.

    The folder holds ``model.safetensors`` (released arrays), ``release.json`` (the record),
    ``config.json`` (labels, steps, and settings of the rule) and ``README.md`` (your text, and the
    card). It is written as a whole or not at all, and only if :func:`.verify` finds no fault in it.
    It holds no code and no path of yours. ``hf upload NAME FOLDER`` uploads it to the model hub.

    Parameters
    ----------
    model : estimator
        A fitted Ball-DP head, or a Pipeline that ends in one.
    folder : str or path-like
        Folder to make.
    force : bool, default=False
        Replaces the four files of a folder that holds such a model. Other files in it stay, and so
        does what you wrote above the card in its ``README.md``.
    transcript : bool, default=False
        Publishes the noisy answers of a descent too, where the head kept them. Everybody can then
        check that the model follows from them, and the owner of the records can test their noise.
        The guarantee covers them.
    column : str or None, default=None
        Column of the records in a table, which ``balldp predict`` then looks for.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    ValueError
        If the folder exists, there is no transcript to write, or a receiver would refuse the model:
        it is not fitted, its noise was drawn from a seed, or a step is of no kind that can be
        published.

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
    >>> sorted(path.name for path in folder.iterdir())
    ['README.md', 'config.json', 'model.safetensors', 'release.json']
    >>> bool((load(folder).predict(X) == head.predict(X)).all())
    True
    """
    folder = Path(folder)
    check_writable(folder, force)
    published = Published.of(model, transcript=transcript)
    if column is not None:
        published = replace(published, column=column)
    if transcript and not any(name.startswith("transcript.") for name in published.arrays):
        raise ValueError(
            "transcript=True: the head kept none; fit it with "
            "mechanism=GradientPerturbation(keep_transcript=True), or leave transcript out."
        )
    files = published.files()
    faults = published.faults()
    if faults:
        raise ValueError(f"model: it has {'; '.join(faults)}, which no receiver would take.")
    _warn_of_learners(parts_of(model).learners)
    files[README] = readme(published, _own_text(folder)).encode()
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside the folder: its name is taken once all files are there.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as place:
        new, old = Path(place, "new"), Path(place, "old")
        new.mkdir()
        for name, body in files.items():
            (new / name).write_bytes(body)
        checks = verify(new).checks
        failed = [f"{check.name}: {check.found}" for check in checks if check.verdict == FAIL]
        if failed:
            raise ValueError(f"model: whoever receives it would see FAIL ({'; '.join(failed)}).")
        if folder.exists():
            _replace(folder, new, old)
        else:
            os.rename(new, folder)
    return folder


def _replace(folder: Path, new: Path, old: Path) -> None:
    """Put the files of a new model in the place of those of an old one: all of them, or none."""
    old.mkdir()
    try:
        for name in FILES:
            if os.path.lexists(folder / name):
                os.rename(folder / name, old / name)
            os.rename(new / name, folder / name)
    except BaseException:
        for name in FILES:
            if os.path.lexists(old / name):
                os.replace(old / name, folder / name)
            elif not (new / name).exists():
                (folder / name).unlink()
        raise


def check_writable(folder: Path, force: bool) -> None:
    """An error unless a model can be written there: before any noise is drawn, if it is asked.

    Raises
    ------
    ValueError
        If the folder is there, and holds no model that may be replaced.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = {MODEL, RECORD} <= names and not any((folder / name).is_dir() for name in FILES)
    if folder.is_symlink() or (folder.exists() and not (ours and force)):
        remedy = "it holds something else" if force else "or replace a model in it, --force"
        raise ValueError(f"folder={str(folder)!r} exists: name another one ({remedy}).")
    taken = [one_line(name, 60) for name in sorted(names - set(FILES)) if may_be_taken(name)]
    if taken:
        raise ValueError(
            f"folder={str(folder)!r} holds {', '.join(taken)}, which a reader could take for a "
            "part of the model: move it away."
        )
    _own_text(folder)
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ValueError(f"folder={str(folder)!r} cannot be made: {nearest} takes no new folder.")


def _own_text(folder: Path) -> str | None:
    """What the publisher wrote above the card; None if it is the text of the start.

    Raises
    ------
    ValueError
        If the card cannot be told from that text, or it is too long.
    """
    if not os.path.lexists(folder / README):
        return None
    front, card = parted(text_of(folder / README, root_of(folder)) or "")
    if card is None:
        raise ValueError(
            f"folder={str(folder)!r}: its README.md was edited so that your text cannot be told "
            "from the card, and would be lost; move it away."
        )
    return None if is_blank(front) else front
