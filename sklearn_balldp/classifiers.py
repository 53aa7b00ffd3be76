"""Whole classifiers of texts and images: an encoder and a head, as one scikit-learn pipeline."""

from collections.abc import Mapping
from typing import Any

from sklearn.base import clone
from sklearn.pipeline import Pipeline

from .encoders.base import BaseEncoder
from .encoders.named import encoder_of
from .heads import BallDPLogisticRegression
from .names import in_words


def text_classifier(
    head: Any = None, *, encoder: Any = None, class_texts: Any = None, **params: Any
) -> Pipeline:
    """Classify texts: a sentence encoder and a Ball-DP head in one pipeline.

    Parameters
    ----------
    head : BaseBallDPClassifier or None, default=None
        The head; logistic regression by default.
    encoder : str, path-like, SentenceEncoder or None, default=None
        Embeds the texts: an encoder, or what :class:`.SentenceEncoder` takes for ``model``. None is
        its default, which the extra ``text`` brings.
    class_texts : mapping, sequence of labels or None, default=None
        Public texts of the classes, by label; or their labels, which are read as words:
        ``card_arrival`` and ``cardArrival`` are "card arrival". The encoder embeds them at once as
        the head's ``class_embeddings``, at no cost in privacy. Labels that ``y`` lacks are ignored.
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
        If the weights are not on this machine, and the hub does not give them. If a class has no
        text, or a label among ``class_texts`` no word. If the head takes no ``class_embeddings``.

    Examples
    --------
    >>> from sklearn_balldp.classifiers import text_classifier
    >>> topics = {"card": "a problem with a bank card", "rain": "the weather"}
    >>> model = text_classifier(class_texts=topics, epsilon=2.0, radius=0.6)  # doctest: +SKIP
    >>> model.named_steps["head"].encoder  # doctest: +SKIP
    'all-MiniLM-L6-v2 sha256:...'
    """
    model = _classifier("text", head, encoder, params)
    if class_texts is None:
        return model
    if "class_embeddings" in params:
        raise ValueError("class_texts: class_embeddings are vectors of them; pass one of both.")
    texts = class_texts
    if not isinstance(texts, Mapping):
        texts = {label: in_words(str(label)) for label in texts}
    for label, text in texts.items():
        if not (isinstance(text, str) and text.strip()):
            raise ValueError(f"class_texts: label {label!r} has no word; map each label to a text.")
    vectors = dict(zip(texts, model[0].transform([*texts.values()]), strict=True))
    return model.set_params(head__class_embeddings=vectors)


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
