"""A model from a file that anybody may have made, ready to predict."""

from pathlib import Path
from typing import Any

from sklearn.pipeline import Pipeline

from ..text import one_line
from .files import load_model
from .received import Received, receive


def load(path: str | Path, *, encoder: Any = None) -> Any:
    """Load a published model: it is made anew from a closed list of fields, and nothing of it runs.

    Parameters
    ----------
    path : str or path-like
        A skops file of a fitted Ball-DP head, or of a Pipeline that ends in one.
    encoder : str, path-like, estimator or None, default=None
        Embeds new records, where the model has a step for that: an encoder, or the name or folder
        of the weights that you trust.

    Returns
    -------
    estimator
        The head, or a Pipeline, with its record checked (``release_``). It says nothing of who made
        it: :func:`.verify` does the checks.

    Raises
    ------
    ValueError
        If the file cannot be read, holds what no head releases, or a record that contradicts
        itself; or if a step is none that is made anew.
    """
    received = received_from(path, "model")
    if encoder is not None:
        received.embed_with(encoder)
    if received.faults:
        raise ValueError(
            f"model={str(path)!r} holds {one_line(', '.join(received.faults))}, which no head "
            "releases; ask for another file."
        )
    head = received.head
    head.release_ = received.release()
    for step in received.steps:
        if step.made is None:
            remedy = "pass encoder=" if step.encoder is not None else "load the steps elsewhere"
            raise ValueError(f"model={str(path)!r}: the step {step.shown} is not made; {remedy}.")
    steps = [(step.name, step.made) for step in received.steps]
    return Pipeline([*steps, ("head", head)]) if steps else head


def received_from(model: Any, name: str, *, allow_joblib: bool = False) -> Received:
    """A model made anew, from its file or from memory."""
    further: list[str] = []
    if isinstance(model, (str, Path)):
        model, further = load_model(model, allow_joblib=allow_joblib)
    received = receive(model, name)
    received.faults += [f"a further file {member!r}" for member in further]
    return received
