"""Writing a model as a folder to publish, as a whole or not at all."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._validation import caller_level
from ..audit.preparation import PooledPreprocessingWarning
from ..pipelines import parts_of
from ..showing import one_line
from ..verdicts import FAIL
from ..writing import new_folder, write_new
from .card import card_text
from .files import CARD, README
from .folder import readme
from .model import Published
from .verify import verify


def save(
    model: Any,
    folder: str | Path,
    *,
    transcript: bool = False,
    column: str | None = None,
    change: Any = None,
) -> Path:
    """Write a fitted model as a folder to publish: weights, record, settings and card.

    The folder holds ``model.safetensors`` (released arrays), ``release.json`` (the record),
    ``config.json`` (labels, steps, and settings of the rule), ``CARD.md`` (what it promises, in
    plain words) and a ``README.md`` for you to fill in. It is written as a whole or not at all, and
    only if :func:`.verify` finds no fault in it. It holds no code and no path of yours.
    ``hf upload NAME FOLDER`` uploads it to the model hub.

    Parameters
    ----------
    model : estimator
        A fitted Ball-DP head, or a Pipeline that ends in one.
    folder : str or path-like
        Folder to make, or an empty one.
    transcript : bool, default=False
        Publishes the noisy answers of a descent too, where the head kept them. Everybody can then
        check that the model follows from them, and the owner of the records can test their noise.
        The guarantee covers them. The folder is for its owner alone until you say otherwise.
    column : str or None, default=None
        Column of the records in a table, which ``balldp predict`` then looks for.
    change : int, mapping or None, default=None
        What the radius of a :class:`.TableEncoder`'s rows was declared for, as its ``radius`` took
        it. The card then names these columns and amounts, and :func:`.verify` computes them again.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    ValueError
        If the folder holds something or cannot be made, there is no transcript to write, or a
        receiver would refuse the model: it is not fitted, its noise was drawn from a seed, or a
        step is of no kind that can be published.
    OSError
        If the files cannot be written, or not be moved to their places: the error then says where
        they lie.

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
    ['CARD.md', 'README.md', 'config.json', 'model.safetensors', 'release.json']
    >>> bool((load(folder).predict(X) == head.predict(X)).all())
    True
    """
    with new_folder(Path(folder), private=transcript) as new:
        write_model(model, new, transcript=transcript, column=column, change=change)
    return Path(folder)


def write_model(
    model: Any,
    folder: Path,
    *,
    transcript: bool = False,
    column: str | None = None,
    change: Any = None,
) -> None:
    """Write a fitted model into an empty folder; an error unless a receiver takes it."""
    published = Published.of(model, transcript=transcript)
    if column is not None:
        published = replace(published, column=column)
    if change is not None:
        published = replace(published, change=change)
        published = replace(published, change=getattr(published.hidden, "change", change))
    if transcript and not any(name.startswith("transcript.") for name in published.arrays):
        raise ValueError(
            "transcript=True: the head kept none; fit it with "
            "mechanism=GradientPerturbation(keep_transcript=True), or leave transcript out."
        )
    faults = published.faults()
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
    write_files(published, folder)
    checks = verify(folder).checks
    failed = [f"{check.name}: {check.found}" for check in checks if check.verdict == FAIL]
    if failed:
        raise ValueError(f"model: whoever receives it would see FAIL ({'; '.join(failed)}).")


def write_files(model: Published, folder: Path) -> None:
    """Write the files of a model, whatever is wrong with it."""
    for name, body in model.files().items():
        write_new(folder / name, body)
    given = {"change": model.change, "names": model.has_names}
    card = card_text(model.record, model.named_steps, same=True, **given)
    write_new(folder / CARD, card.encode())
    write_new(folder / README, readme(model))
