"""Writing a model as a folder to publish, as a whole or not at all."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._validation import caller_level
from ..audit.preparation import PooledPreprocessingWarning
from ..pipelines import parts_of
from ..text import one_line
from ..verdicts import FAIL
from .files import FILES, MODEL, README, RECORD, check_place, written_as_a_whole
from .folder import may_be_taken, publishers_text, readme
from .model import Published
from .verify import verify


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
        Folder to make, or an empty one.
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
        If the folder holds something or cannot be written, there is no transcript to write, or a
        receiver would refuse the model: it is not fitted, its noise was drawn from a seed, or a
        step is of no kind that can be published.

    Warns
    -----
    PooledPreprocessingWarning
        If a step learns from the rows and is not in a ``FrozenEstimator``. Of private rows, that
        is not covered by the promise.

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
    files, faults = published.files(), published.faults()
    if faults:
        raise ValueError(f"model: it has {'; '.join(faults)}, which no receiver would take.")
    # Their arrays may come from the private rows: a model does not tell.
    beyond = parts_of(model).beyond_rows
    if beyond:
        warnings.warn(
            f"steps before the head: {one_line(beyond)}. If these rows were private, one record "
            "moved every row, and the promise does not hold. Fit such steps on public rows, and "
            "put each into a FrozenEstimator before you fit the pipeline.",
            PooledPreprocessingWarning,
            stacklevel=caller_level(),
        )
    files[README] = readme(published, publishers_text(folder)).encode()
    with written_as_a_whole(folder, FILES) as new:
        for name, body in files.items():
            (new / name).write_bytes(body)
        checks = verify(new).checks
        failed = [f"{check.name}: {check.found}" for check in checks if check.verdict == FAIL]
        if failed:
            raise ValueError(f"model: whoever receives it would see FAIL ({'; '.join(failed)}).")
    return folder


def check_writable(folder: Path, force: bool) -> None:
    """A ValueError unless a model can be written there: asked before any noise is drawn."""
    check_place(folder)
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = {MODEL, RECORD} <= names and not any((folder / name).is_dir() for name in FILES)
    free = not folder.exists() or (folder.is_dir() and not names)
    if folder.is_symlink() or not (free or (ours and force)):
        remedy = "it holds something else" if force else "or replace a model in it, force=True"
        raise ValueError(f"folder={str(folder)!r} exists: name another one ({remedy}).")
    taken = [one_line(name, 60) for name in sorted(names - set(FILES)) if may_be_taken(name)]
    if taken:
        raise ValueError(
            f"folder={str(folder)!r} holds {', '.join(taken)}, which a reader could take for a "
            "part of the model: move it away."
        )
    publishers_text(folder)
