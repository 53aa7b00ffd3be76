"""Files of embeddings: made of records in a folder, and read by the studies."""

import json

import numpy as np
import pytest
from PIL import Image

from benchmarks import embeddings, study

TEXTS = {"train": ["Who?", "How far?", "Who else?"], "test": ["Where?"]}
CODES = {"train": [3, 5, 3], "test": [4]}


class Sizes:
    """Stands for an encoder: rows of a text's length, or of a picture's mean."""

    def fit_transform(self, records):
        sizes = [len(r) if isinstance(r, str) else np.asarray(r).mean() for r in records]
        return np.column_stack([sizes, np.ones(len(sizes))]).astype(np.float32)


@pytest.mark.needs("datasets")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_studies_read_what_is_made_of_a_folder(tmp_path, monkeypatch, capsys):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(embeddings, "ENCODERS", dict.fromkeys(("text", "image"), Sizes()))
    for split, texts in TEXTS.items():
        path = tmp_path / "copies" / "trec6" / f"{split}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = zip(texts, CODES[split], strict=True)
        path.write_text("".join(json.dumps({"text": t, "coarse_label": c}) + "\n" for t, c in rows))
        for label in ("0", "1"):
            folder = tmp_path / "copies" / "mnist" / split / label
            folder.mkdir(parents=True)
            Image.new("L", (4, 4), 50 * (1 + int(label))).save(folder / "a.png")
    options = ["--out", str(tmp_path / "made"), "--datasets", "trec6", "mnist"]
    embeddings.main([*options, "--copies", str(tmp_path / "copies")])
    X, y, X_test, y_test = study.rows_of(tmp_path / "made", "trec6")
    assert X.dtype == np.float32
    expected = np.array([[4, 1], [8, 1], [9, 1]]) / np.sqrt([[17], [65], [82]])
    np.testing.assert_allclose(X, expected, atol=1e-6)
    assert (X_test.shape, y.tolist(), y_test.tolist()) == ((1, 2), CODES["train"], CODES["test"])
    X, y, *_ = study.rows_of(tmp_path / "made", "mnist")
    assert (np.round(X[:, 0] / X[:, 1]).tolist(), y.tolist()) == ([50, 100], [0, 1])
    # What lies there is not made again.
    capsys.readouterr()
    embeddings.main(options)
    assert capsys.readouterr().out == ""


def test_records_are_those_of_a_fixed_revision():
    assert list(embeddings.SOURCES) == list(study.DATASETS)
    for _, revision in embeddings.SOURCES.values():
        assert len(bytes.fromhex(revision)) == 20


def test_rows_of_a_file_have_unit_norm(tmp_path):
    rows = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float16)
    rows[0] = 0
    y = np.array([0, 1, 0, 1, 1])
    np.savez(tmp_path / "small.npz", X_train=rows, y_train=y, X_test=rows[:2], y_test=y[:2])
    X, _, X_test, _ = study.rows_of(tmp_path, "small")
    assert X.dtype == X_test.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), [0, 1, 1, 1, 1], rtol=1e-6)
