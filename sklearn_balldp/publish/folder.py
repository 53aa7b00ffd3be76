"""A folder that holds a published model: the model's files, and the card that follows from them."""

import os
import re
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._validation import caller_level
from .._version import __version__
from ..audit.preparation import PooledPreprocessingWarning
from ..checks import CANNOT_CHECK, FAIL, PASS, Check
from ..encoder_weights import from_hub, hub_name
from ..encoders import encoder_of
from ..pipelines import parts_of
from ..text import one_line
from .files import difference, root_of, text_of, written_as_a_whole
from .model import CONFIG, MODEL, RECORD, Published
from .steps import Step

README = "README.md"
FILES = (README, CONFIG, MODEL, RECORD)
_BEGIN = "<!-- What follows is made from the record: verify compares it. -->\n"
_END = "<!-- The end of what is made from the record. -->\n"
_TASKS = {"texts": "text-classification", "images": "image-classification"}
_TABLE = "tabular-classification"
#: Names of further files that a reader could take for part of the model: before the first dot, and
#: behind the last one.
_STEMS = {"card", "config", "model", "model_card", "modelcard", "predict", "readme", "release"}
_ENDINGS = {
    *(".bin", ".ckpt", ".gguf", ".h5", ".joblib", ".mat", ".msgpack", ".npy", ".npz", ".onnx"),
    *(".pb", ".pickle", ".pkl", ".pt", ".pth", ".safetensors", ".skops", ".so", ".zip"),
    *(".html", ".ipynb", ".json", ".py", ".pyc", ".yaml", ".yml"),
}
_MOST_NAMED = 10


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
        Replaces a folder that holds such a model. Nothing else is ever replaced, and what you wrote
        above the card in its ``README.md`` stays.
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
    from .verify import verify

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
    with written_as_a_whole(folder) as new:
        for name, body in files.items():
            (new / name).write_bytes(body)
        checks = verify(new).checks
        failed = [f"{check.name}: {check.found}" for check in checks if check.verdict == FAIL]
        if failed:
            raise ValueError(f"model: whoever receives it would see FAIL ({'; '.join(failed)}).")
    return folder


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
        model = Published.read(located(path))
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


def check_writable(folder: Path, force: bool) -> None:
    """An error unless a model can be written there: before any noise is drawn, if it is asked.

    Raises
    ------
    ValueError
        If the folder is there, and holds no model that may be replaced.
    """
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = force and {MODEL, RECORD} <= names <= set(FILES)
    if folder.is_symlink() or (folder.exists() and not ours):
        remedy = "it holds something else" if force else "or replace a model in it, --force"
        raise ValueError(f"folder={str(folder)!r} exists: name another one ({remedy}).")
    _own_text(folder)
    nearest = next(parent for parent in folder.absolute().parents if parent.exists())
    if not (nearest.is_dir() and os.access(nearest, os.W_OK)):
        raise ValueError(f"folder={str(folder)!r} cannot be made: {nearest} takes no new folder.")


def located(path: str | Path) -> Path:
    """The folder; or where the four files of ``hf://OWNER/NAME`` were downloaded to."""
    folder, hub = Path(path), hub_name(str(path))
    if hub is not None:
        try:
            return from_hub(*hub, FILES)
        except ValueError as error:
            raise ValueError(f"{error}; name a folder of this machine.") from None
    if not folder.is_dir():
        what = "is a file, and no folder" if folder.exists() else "is no folder"
        raise ValueError(
            f"{str(path)!r} {what}; name the folder that publish.save wrote, or hf://OWNER/NAME on "
            "the model hub."
        )
    return folder


# -- the card -------------------------------------------------------------------------------------


def kind_of(model: Published) -> str:
    """What a model labels: "texts", "images" or "rows"."""
    if model.encoder is not None:
        return str(model.encoder.settings["of"])
    return "texts" if any(step.kind == "words" for step in model.steps) else "rows"


def readme(model: Published, own: str | None = None) -> str:
    """The README.md: the publisher's own text, or that of the start, and the card."""
    task = _TASKS.get(kind_of(model), _TABLE)
    front = _front(task)
    if own is not None:
        tag = f"pipeline_tag: {task}"
        front = re.sub(r"^pipeline_tag: .*$", tag, own, count=1, flags=re.MULTILINE)
    card = model.record.card(model.pipeline()).to_markdown()
    # The card's own front matter stays out.
    return front + _BEGIN + card.split("---\n", 2)[2].lstrip("\n") + _END


def _front(task: str) -> str:
    """The hub's fields, of which the licence is for the publisher to fill in, and how to use it."""
    how = "The records are rows of numbers, as\nthe head sees them."
    if task != _TABLE:
        how = "If a model embeds the records, it is\nnot part of the folder: name the one that you "
        how += "trust (`--encoder`)."
    return f"""\
---
library_name: sklearn_balldp
license: unknown
pipeline_tag: {task}
tags:
- ball-differential-privacy
- differential-privacy
- sklearn
---

FILL IN: what the records are, what the model is for, its licence (above), and the address of the
source of sklearn_balldp, in the version that the card names.

`balldp verify FOLDER` checks this folder, and `balldp predict FOLDER FILE` labels new records. Both
come with sklearn_balldp: install it from a source that you trust. A package of that name in an
index may be a stranger's. {how}

"""


def _own_text(folder: Path) -> str | None:
    """What the publisher wrote above the card; None if it is the text of the start.

    Raises
    ------
    ValueError
        If the card cannot be told from that text, or it is too long.
    """
    if not (folder / README).exists():
        return None
    text = text_of(folder / README, root_of(folder)) or ""
    front, mark, rest = text.partition(_BEGIN)
    if not mark or _BEGIN in rest or not rest.endswith(_END):
        raise ValueError(
            f"folder={str(folder)!r}: its README.md was edited so that your text cannot be told "
            "from the card, and would be lost; move it away."
        )
    return None if front in map(_front, (*_TASKS.values(), _TABLE)) else front


# -- checks of the folder -------------------------------------------------------------------------


def folder_checks(folder: Path, model: Published) -> list[Check]:
    """Whether a folder holds its files, and a card that follows from model and record."""
    return [*_file_checks(folder), *_readme_checks(folder, model)]


def _file_checks(folder: Path) -> list[Check]:
    names = {path.name for path in folder.iterdir()}
    missing = [f"no {name}" for name in FILES if name not in names]
    further = sorted(names - set(FILES))
    taken = [f"a further file {one_line(name, 60)}" for name in further if _may_be_taken(name)]
    checks = []
    if missing or taken:
        found = "; ".join([*missing, *taken][:_MOST_NAMED])
        basis = "no further file may pass for a part of the model"
        checks.append(Check("folder", FAIL, found, basis))
    others = [one_line(name, 60) for name in further if not _may_be_taken(name)]
    if others:
        shown = ", ".join(others[:_MOST_NAMED])
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        found = f"{shown}{more}: no part of the model, and not looked at"
        checks.append(Check("further files", CANNOT_CHECK, found, "four files are the model"))
    return checks


def _may_be_taken(name: str) -> bool:
    """Whether a reader could take a further file for a part of the model."""
    lower = name.lower().strip()
    if lower.startswith("."):
        return False
    return lower.split(".")[0] in _STEMS or Path(lower).suffix in _ENDINGS or not name.isprintable()


def _readme_checks(folder: Path, model: Published) -> list[Check]:
    """Of a README: the card in it, and the publisher's own text."""
    path, basis = folder / README, "the card in it is made again from model and record"
    if not path.exists() and not path.is_symlink():
        return []
    text = text_of(path, root_of(folder))
    if text is None:
        return [Check(README, FAIL, "it is no short text of this folder", basis)]
    expected = readme(model)
    front, mark, card = text.partition(_BEGIN)
    first, _, other = expected.partition(_BEGIN)
    if mark and card == other:
        checks = [Check(README, PASS, "its card matches model and record", basis)]
        if front != first:
            found = "the text above the card is the publisher's own: read it"
            checks.append(Check("text of the README", CANNOT_CHECK, found, "nothing that it says"))
        return checks
    if model.record.version != __version__ and mark:
        found = f"this version writes it otherwise than {model.record.version} did, or it was "
        found += "changed: install that version to compare it, and do not trust it before"
        return [Check(README, CANNOT_CHECK, found, basis)]
    if not mark:
        where = "no line says where its card begins"
    else:
        lines = front.count("\n") + 1
        where = difference("\n" * lines + card, "\n" * lines + other)
    found = f"differs from what model and record give: {where}"
    return [Check(README, FAIL, found, basis)]
