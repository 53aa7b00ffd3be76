"""A model from a file that anybody may have made, ready to predict."""

import numbers
from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from ..audit.residuals import FAIL
from ..encoder_weights import encoder_of
from ..encoders import BaseEncoder, ImageEncoder, SentenceEncoder
from ..heads import ReleasedModel
from ..text import one_line
from .consistency import consistency_checks, shape_fault
from .files import load_model, load_record
from .folder import downloaded, parts_of_folder
from .received import Received, receive

#: Most tokens of a text: what an encoder pads texts to is allocated.
_MOST_TOKENS = 2**16


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Load a published model: it is made anew from a closed list of fields, and nothing of it runs.

    Parameters
    ----------
    path : str or path-like
        The folder that :func:`.save` wrote, or the name of such a repository on the model hub; or a
        skops file of a fitted Ball-DP head, or of a Pipeline that ends in one.
    encoder : str, path-like, estimator or None, default=None
        Embeds new records, where the model has a step for that: an encoder, or the name or folder
        of the weights that you trust. A name or folder is read by an encoder with default settings
        (for texts: the newest revision, or that of ``NAME@REVISION``), except for the model's own
        ``max_length``, or its architecture for images; pass an encoder for other settings.

    Returns
    -------
    estimator
        The head, or a Pipeline, whose parameters are those of its record (``release_``). That says
        nothing of the noise, or of who made it: :func:`.verify` has further checks.

    Raises
    ------
    ValueError
        If the file cannot be read, holds what no head releases, or a record that contradicts
        itself or is of another model; or if a step is none that is made anew.
    """
    path = downloaded(path)
    folder = parts_of_folder(path)
    received = received_from(path if folder is None else folder[1], "model")
    if encoder is not None:
        embed_with(received, encoder)
    if received.faults:
        raise ValueError(
            f"model={str(path)!r} holds {one_line(', '.join(received.faults))}, which no head "
            "releases; ask for another file."
        )
    head = received.head
    head.release_ = received.release()
    if folder is not None and load_record(folder[2]) != head.release_.to_dict():
        raise ValueError(
            f"model={str(path)!r}: the record beside the model is not its own; ask for another."
        )
    released = ReleasedModel(head, head.release_)
    fault = shape_fault(released)
    lines = [] if fault else consistency_checks(released, received)
    # An encoder of the caller's may bear another name than the one of the record.
    failed = [line.found for line in lines if line.verdict == FAIL and line.name != "encoder"]
    if fault or failed:
        raise ValueError(
            f"model={str(path)!r} is not the one of its record: "
            f"{one_line(fault or '; '.join(failed))}; ask for another file."
        )
    for step in received.steps:
        if step.made is None:
            remedy = "pass encoder=" if step.encoder is not None else "load the steps elsewhere"
            raise ValueError(f"model={str(path)!r}: the step {step.shown} is not made; {remedy}.")
    steps = [(step.name, step.made) for step in received.steps]
    steps.append((received.name, head))
    names = [step for step, _ in steps]
    if len(set(names)) < len(names) or any("__" in step for step in names):
        # A pipeline of these could not be fitted again, nor its parameters be set.
        raise ValueError(
            f"model={str(path)!r}: names of steps must differ, and not contain '__'; got "
            f"{one_line(', '.join(names))}."
        )
    return Pipeline(steps) if len(steps) > 1 else head


def embed_with(received: Received, encoder: Any) -> None:
    """Let the caller's encoder, or weights, take the place of the encoder among a model's steps."""
    own = [step.encoder for step in received.steps if step.encoder is not None]
    if own and isinstance(encoder, (str, Path)):
        encoder = _fresh(own[0], str(encoder))
    received.embed_with(encoder)


def _fresh(stated: Any, weights: str) -> BaseEncoder:
    """An encoder with the caller's weights.

    A stranger's revision may be anybody's weights, and his batch size or device may not fit.
    """
    if isinstance(stated, ImageEncoder):
        return ImageEncoder(stated.model, weights=weights)
    if not isinstance(stated, SentenceEncoder):
        raise ValueError(f"encoder={weights!r}: the model's own is of another kind; pass one.")
    length = stated.max_length
    if length is not None:
        whole = isinstance(length, numbers.Integral) and not isinstance(length, bool)
        if not (whole and 1 <= int(length) <= _MOST_TOKENS):
            raise ValueError(
                "max_length of the model's own encoder must be a whole number from 1 to "
                f"{_MOST_TOKENS}; pass an encoder."
            )
        length = int(length)
    return encoder_of("text", weights, length)


def received_from(model: Any, name: str, *, allow_joblib: bool = False) -> Received:
    """A model made anew, from its file or from memory."""
    further: list[str] = []
    if isinstance(model, (str, Path)):
        model, further = load_model(model, allow_joblib=allow_joblib)
    received = receive(model, name)
    received.faults += [f"a further file {member!r}" for member in further]
    return received
