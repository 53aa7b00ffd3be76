"""Heads among other libraries: frames of polars, and what is loaded where there are none."""

import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    publish,
)

RNG = np.random.default_rng(0)
Y = np.arange(150) % 3
X = RNG.standard_normal((150, 4)) + 2 * np.eye(3, 4)[Y]
X /= np.linalg.norm(X, axis=1, keepdims=True)
NAMES = ["a", "b", "c", "d"]
HEADS = [
    BallDPRidgePrototype(8.0, radius=0.5, random_state=0),
    BallDPLinearDiscriminant(8.0, radius=0.5, random_state=0),
    BallDPLogisticRegression(8.0, radius=0.5, random_state=0, mechanism="output"),
    BallDPSquaredHingeSVC(8.0, radius=0.5, random_state=0, mechanism="output", fit_intercept=False),
]


@pytest.mark.parametrize("head", HEADS, ids=lambda head: type(head).__name__)
def test_frames(head):
    """Of polars: scikit-learn's contract has those of pandas."""
    frame = pl.DataFrame(dict(zip(NAMES, X.T, strict=True)))
    plain = clone(head).fit(X, Y)
    framed = clone(head).fit(frame, pl.Series(Y))
    assert framed.feature_names_in_.tolist() == NAMES
    np.testing.assert_array_equal(framed.predict(frame), plain.predict(X))
    with pytest.raises(ValueError, match="feature names"):
        framed.predict(frame[NAMES[::-1]])


# scikit-learn itself loads pandas where it can, so neither library can be found here.
WITHOUT_TABLES = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("pandas", "matplotlib"):
            raise ImportError(name)

sys.meta_path.insert(0, Hidden())
import tempfile
import numpy as np
import sklearn_balldp as own
from sklearn_balldp import edits

# Each would take as long to import as all that the check of a folder needs.
assert not own.verify(sys.argv[1]).failed
for name in (
    "decomposition", "ensemble", "linear_model", "metrics", "model_selection", "neighbors", "svm"
):
    assert f"sklearn.{name}" not in sys.modules, name

X, y = np.random.default_rng(0).standard_normal((60, 3)), np.arange(60) % 2
for head in (
    own.BallDPLogisticRegression(), own.BallDPSquaredHingeSVC(),
    own.BallDPRidgePrototype(), own.BallDPLinearDiscriminant(),
):
    head.set_params(epsilon=4.0, radius=0.5).fit(X, y)
    with tempfile.TemporaryDirectory() as place:
        assert not own.verify(own.publish.save(head, place)).failed
    assert head.to_sklearn().predict(X).shape == y.shape
    assert own.publish.card(head)
"""


def test_heads_and_checks_load_no_tables_and_no_figures(tmp_path):
    head = BallDPRidgePrototype(radius=0.5).fit(np.eye(3)[[0, 1] * 9], [0, 1] * 9)
    publish.save(make_pipeline(Normalizer(), head), tmp_path / "model")
    subprocess.run([sys.executable, "-c", WITHOUT_TABLES, tmp_path / "model"], check=True)
