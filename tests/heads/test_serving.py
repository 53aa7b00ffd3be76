"""Heads as plain scikit-learn, in processes without this package, and as ONNX."""

import pickle
import subprocess
import sys

import numpy as np
import onnxruntime
import pandas as pd
import pytest
import skl2onnx
from head_cases import rows
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
)

D = 5
HEADS = [
    BallDPRidgePrototype(8.0),
    BallDPRidgePrototype(8.0, decision="gaussian"),
    BallDPRidgePrototype(8.0, decision="gaussian", norm_bound=0.3),
    BallDPRidgePrototype(8.0, protect_labels=True, classes=range(4)),
    BallDPLogisticRegression(8.0, mechanism="output"),
    BallDPLogisticRegression(8.0, mechanism="gradient", norm_bound=2.0),
    BallDPSquaredHingeSVC(8.0, fit_intercept=True, mechanism="output"),
    BallDPLinearDiscriminant(8.0, norm_bound=0.3),
    BallDPLinearDiscriminant(8.0, domain="sphere", norm_bound=2.0),
    BallDPLinearDiscriminant(8.0, share=1.0),
    BallDPLogisticRegression(8.0, domain="sphere", mechanism="gradient", norm_bound=2.0),
    BallDPSquaredHingeSVC(8.0, domain="sphere", mechanism="output"),
]


def data(n_classes, n=120, dtype=np.float64):
    return rows(n, n_classes, D, dtype=dtype)


def fitted(head, n_classes, declared=0, **params):
    """With classes that are declared where they must be, or without records."""
    head = clone(head).set_params(**params)
    if declared or head.protect_labels:
        head.set_params(classes=range(n_classes + declared))
    return head.fit(*data(n_classes))


def onnx_outputs(plain, X):
    """Labels and scores of a model in ONNX, of rows in single precision."""
    options = {"zipmap": False} if hasattr(plain, "predict_proba") else None
    X = X.astype(np.float32)
    model = skl2onnx.to_onnx(plain, X[:1], options=options).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})


def wild(n_rows=80):
    """Rows in the ball, on it, far outside, and at its centre."""
    X = data(2, n_rows)[0]
    return np.concatenate(
        [X, 1e-10 * X, 7.0 * X, 1e139 * X, np.zeros((1, D)), np.eye(D), 1e9 * np.eye(D)]
    )


@pytest.mark.parametrize(
    ("head", "n_classes", "declared"),
    [*((head, 4, 1) for head in HEADS), *((HEADS[i], 2, 0) for i in (0, 1, 4, 8))],
)
def test_plain_models_predict_alike(head, n_classes, declared):
    head = fitted(head, n_classes, declared)
    plain, X = head.to_sklearn(), wild()
    np.testing.assert_array_equal(plain.predict(X), head.predict(X))
    np.testing.assert_array_equal(plain.classes_, head.classes_)
    scores = np.maximum(head.decision_function(X), -1e30)
    np.testing.assert_allclose(plain.decision_function(X), scores, rtol=1e-12, atol=1e-11)
    assert hasattr(plain, "predict_proba") == hasattr(head, "predict_proba")
    if hasattr(head, "predict_proba"):
        np.testing.assert_allclose(plain.predict_proba(X), head.predict_proba(X), atol=1e-12)
    # Without the projection: rows in the ball, and the coefficients themselves.
    bare = head.to_sklearn(project=False)
    assert isinstance(bare, LogisticRegression if hasattr(head, "predict_proba") else LinearSVC)
    inside = X[np.linalg.norm(X, axis=1) <= head.norm_bound]
    if head.release_.domain == "sphere":
        inside = head.norm_bound * X[:80]
    np.testing.assert_array_equal(bare.predict(inside), head.predict(inside))


def test_absent_classes_of_a_huge_ball():
    """Scores beyond 1e30: what stands for minus infinity stays below them."""
    X, y = data(3)
    head = BallDPRidgePrototype(1e3, norm_bound=1e20, classes=range(4)).fit(1e20 * X, y)
    np.testing.assert_array_equal(head.to_sklearn().predict(1e20 * X), head.predict(1e20 * X))
    assert 3 not in head.to_sklearn(project=False).predict(1e20 * X)


def test_labels_frames_and_single_precision():
    X, codes = data(3)
    y = np.array(["no", "perhaps", "yes"])[codes]
    frame = pd.DataFrame(X, columns=[f"x{i}" for i in range(D)])
    head = BallDPLogisticRegression(50.0, norm_bound=0.5, mechanism="output").fit(frame, y)
    np.testing.assert_array_equal(head.to_sklearn().predict(frame), head.predict(frame))
    single = X.astype(np.float32)
    bare = BallDPLogisticRegression(50.0, mechanism="output").fit(X, y)
    close = np.abs(bare.to_sklearn().predict_proba(single) - bare.predict_proba(single))
    assert close.max() < 1e-6
    with pytest.raises(NotFittedError):
        clone(bare).to_sklearn()
    with pytest.raises(ValueError, match="project must be True or False"):
        bare.to_sklearn(project="no")


def test_a_process_without_this_package(tmp_path):
    head = BallDPLogisticRegression(8.0, norm_bound=0.5, mechanism="output").fit(*data(3))
    X = wild(10)
    np.save(tmp_path / "rows.npy", X)
    (tmp_path / "model.pkl").write_bytes(pickle.dumps(head.to_sklearn()))
    code = """if True:
        import pickle, sys
        sys.modules["sklearn_balldp"] = None
        import numpy as np
        folder = sys.argv[1]
        X = np.load(folder + "/rows.npy")
        model = pickle.load(open(folder + "/model.pkl", "rb"))
        np.save(folder + "/shares.npy", model.predict_proba(X))
    """
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "shares.npy"), head.predict_proba(X), atol=1e-12)


@pytest.mark.parametrize(
    ("head", "n_classes"), [*((HEADS[i], 4) for i in (1, 3, 4, 6, 8)), (HEADS[1], 2), (HEADS[6], 2)]
)
def test_onnx(head, n_classes):
    head, X = fitted(head, n_classes, norm_bound=1.0), data(n_classes)[0]
    labels, scores = onnx_outputs(head.to_sklearn(project=False), X)
    assert (labels == head.predict(X)).mean() > 0.98  # single precision may turn a tie
    if hasattr(head, "predict_proba"):
        np.testing.assert_allclose(scores, head.predict_proba(X), atol=1e-5)


def test_dask_tells_fits_of_the_same_parameters_apart():
    """Tasks of one name are computed once, whichever of two fits they are of."""
    da = pytest.importorskip("dask.array")
    X, y = data(2)
    heads = [BallDPLogisticRegression(8.0).fit(X, y) for _ in range(2)]
    chunks = da.from_array(X, chunks=(50, D))
    lazy = (chunks.map_blocks(head.decision_function, drop_axis=1, dtype=float) for head in heads)
    scores = da.compute(*lazy, scheduler="synchronous")
    for head, computed in zip(heads, scores, strict=True):
        np.testing.assert_allclose(computed, head.decision_function(X))
