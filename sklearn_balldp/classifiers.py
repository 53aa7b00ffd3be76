"""Whole classifiers of texts and images: an encoder and a head, as one scikit-learn pipeline."""

from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .encoders.base import BaseEncoder
from .encoders.named import encoder_of
from .heads import BallDPLogisticRegression


def text_classifier(head: Any = None, *, encoder: Any = None, **params: Any) -> Pipeline:
    """Classify texts: a sentence encoder and a Ball-DP head in one pipeline.

    Parameters
    ----------
    head : BaseBallDPClassifier or None, default=None
        The head; logistic regression by default.
    encoder : str, path-like, SentenceEncoder or None, default=None
        Embeds the texts: an encoder, or what :class:`.SentenceEncoder` takes for ``model``. None is
        its default, which the extra ``text`` brings.
    **params
        Parameters of the head: ``epsilon``, ``radius`` and so on.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Steps ``encoder`` and ``head``. The head's record will name the encoder.

    Raises
    ------
    ImportError
        If the extra ``text`` is not installed.
    ValueError
        If the weights are not on this machine, and the hub does not give them.

    Examples
    --------
    >>> from sklearn_balldp.classifiers import text_classifier
    >>> model = text_classifier(epsilon=2.0, radius=0.6)  # doctest: +SKIP
    >>> model.named_steps["head"].encoder  # doctest: +SKIP
    'all-MiniLM-L6-v2 sha256:...'
    """
    return _classifier("text", head, encoder, params)


def image_classifier(head: Any = None, *, encoder: Any = None, **params: Any) -> Pipeline:
    """Classify images: a residual network without its last layer, and a Ball-DP head.

    Parameters
    ----------
    head : BaseBallDPClassifier or None, default=None
        The head; logistic regression by default.
    encoder : str, path-like, ImageEncoder or None, default=None
        Embeds the images: the file of a state dict of a ResNet-18, or an encoder. None takes
        torchvision's published weights.
    **params
        Parameters of the head: ``epsilon``, ``radius`` and so on.

    Returns
    -------
    sklearn.pipeline.Pipeline
        Steps ``encoder`` and ``head``. The head's record will name the encoder.
    """
    return _classifier("image", head, encoder, params)


def _classifier(kind: str, head: Any, encoder: Any, params: dict[str, Any]) -> Pipeline:
    if not isinstance(encoder, BaseEncoder):
        encoder = encoder_of(kind, None if encoder is None else str(encoder))
        # Without it no weights help: the error names the extra.
        encoder.check_library()
    head = BallDPLogisticRegression() if head is None else clone(head)
    head.set_params(**{"encoder": encoder.identity, **params})
    return Pipeline([("encoder", encoder), ("head", head)])
