"""Rows on a device: arrays of other libraries give the models of NumPy, but for rounding."""

import array_api_strict
import numpy as np
import pytest
from sklearn.base import clone

from sklearn_balldp import BallDPRidgePrototype, ReconstructionAuditor, verify
from sklearn_balldp.mechanisms.objective import LinearObjective
from sklearn_balldp.rows import device, on_device, table_of
from tests.mechanisms.means import Mean
from tests.rows.conftest import (
    HEADS,
    KINDS,
    D,
    assert_refused,
    assert_same,
    extreme_records,
    fitted,
    records,
)

N = 3000


def strict(X):
    return array_api_strict.asarray(X)


def tensor(X):
    import torch

    return torch.from_numpy(X)


needs_torch = pytest.mark.needs("torch")
LIBRARIES = (strict, pytest.param(tensor, marks=needs_torch))


@pytest.fixture
def small_portions(many_shards, monkeypatch):
    monkeypatch.setattr(device, "SHARD_ROWS", 200)


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", HEADS)
def test_a_device_gives_the_model_of_numpy(name, n_classes, library):
    X, y = records(n_classes=n_classes)
    given = on_device(library(X))
    head, other = fitted(name, X, y), fitted(name, given, y)
    # Rounded to a grid of 2^-40 noise scales; a minimiser to its tolerance.
    assert_same(head, other, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(head.predict(given), head.predict(X))
    np.testing.assert_allclose(
        head.decision_function(given), head.decision_function(X), rtol=1e-9, atol=1e-9
    )


@pytest.mark.usefixtures("small_portions")
@pytest.mark.parametrize("name", KINDS)
def test_persons_on_a_device(name):
    X, y = records()
    owners = np.random.default_rng(1).integers(0, N // 2, N)
    head, other = (fitted(name, rows, y, groups=owners) for rows in (X, on_device(strict(X))))
    assert_same(head, other, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
@pytest.mark.parametrize("moved", [None, False, True])
def test_passes_on_a_device_are_those_of_numpy(loss, moved, library, whitening):
    """One pass each: nothing evens out what differs."""
    n_classes = 2 if loss == "logistic" else 3
    X, y = records(n_classes=n_classes)
    given, weights = on_device(library(X)), np.linspace(0.1, 2.0, N)
    rng, common = np.random.default_rng(1), {"norm_bound": 0.7, "constant": 0.3, "clip": 0.1}
    if moved is not None:
        own, _ = whitening(0.2 * np.ones(D), 0.8, moved, 0.7)
        common |= {"seen": own, "norm_bound": 0.9}
    means = [Mean(loss, rows, y, n_classes, weights=weights, **common) for rows in (X, given)]
    theta = 3.0 * rng.standard_normal((1, *means[0].shape))
    np.testing.assert_allclose(means[1](theta), means[0](theta), atol=1e-15, rtol=1e-12)
    objectives = [
        LinearObjective(
            loss, rows, y, n_classes, alpha=0.1, norm_bound=0.7, fit_intercept=True, weights=weights
        )
        for rows in (X, given)
    ]
    found = []
    for objective in objectives:
        value, gradient = objective.value_and_gradient(theta[0], curvature=True)
        found.append([value, gradient, objective.curvature_product(gradient)])
        found[-1].append(objective.second_moment(100))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-14)


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_less_precise_tensors_are_computed_with_in_double(dtype):
    X, y = records(np.dtype(dtype))
    head = fitted("descent", on_device(tensor(X)), y)
    wide = fitted("descent", X.astype(np.float64), y)
    np.testing.assert_allclose(head.coef_, wide.coef_, rtol=1e-4, atol=1e-6)
    (part,) = table_of(on_device(tensor(X)))._parts.values()
    assert {str(block.dtype) for _, block in part.blocks()} == {"torch.float64"}


def test_rows_stay_on_the_device(monkeypatch):
    """Only sums and predictions come to the host."""
    X, y = records()
    rows, moved, kept = on_device(strict(X)), [], device.on_host
    monkeypatch.setattr(
        device, "on_host", lambda array: moved.append(np.size(kept(array))) or kept(array)
    )
    for name in HEADS:
        fitted(name, rows, y).predict(rows)
        assert max(moved) <= max(N, 3 * D * D), name
    assert moved.count(N) == len(HEADS)


@pytest.mark.parametrize("name", HEADS)
def test_rows_that_are_not_finite_are_refused(name):
    for bad in (np.nan, np.inf):
        X, y = records()
        X[2500, 3] = bad
        assert_refused(name, on_device(strict(X)), y, "NaN or infinity")


def test_huge_and_tiny_rows():
    X, y = extreme_records()
    for name in HEADS:
        head, other = (fitted(name, rows, y) for rows in (X, on_device(strict(X))))
        assert_same(head, other, rtol=1e-5, atol=1e-6)


@needs_torch
def test_arrays_that_are_no_rows_are_refused(monkeypatch):
    X, y = records(n=100)
    import torch

    for rows in (torch.from_numpy(X).bfloat16(), torch.from_numpy(X[:, 0]), strict(X).device):
        with pytest.raises((ValueError, TypeError)):
            on_device(rows)

    class Tensor:
        shape, device = X.shape, "cuda:0"

    with pytest.raises(TypeError, match=r"cuda:0.*copy it to the host"):
        BallDPRidgePrototype(delta=1e-3).fit(Tensor(), y)
    with monkeypatch.context() as patch:
        # As where arrays cannot be written to, or float64 is missing.
        patch.delattr(array_api_strict, "zeros")
        with pytest.raises(ValueError, match="copy the rows to the host"):
            on_device(strict(X))
    monkeypatch.setitem(__import__("sys").modules, "array_api_compat", None)
    with pytest.raises(ImportError, match="pip install array-api-compat"):
        on_device(strict(X))


@needs_torch
def test_a_tensor_with_a_derivative_is_detached():
    X, y = records()
    rows = tensor(X).requires_grad_()
    head = fitted("prototypes", on_device(rows), y)
    np.testing.assert_allclose(head.prototypes_, fitted("prototypes", X, y).prototypes_)


def test_audits_and_checks_copy_rows_to_the_host():
    X, y = records(n=600)
    given = on_device(strict(X))
    head = BallDPRidgePrototype(delta=1e-4, radius=1.0).fit(given, y)
    assert not verify(head, private=(given, y)).failed
    auditor = ReconstructionAuditor(clone(head), n_candidates=3, random_state=0).fit(given, y)
    assert auditor.guarantee_holds_


@needs_torch
@pytest.mark.parametrize("name", HEADS)
def test_rows_and_labels_on_a_gpu(name):
    """Where there is one."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    X, y = records(np.float32)
    given = torch.from_numpy(X).cuda()
    head = fitted(name, given, torch.from_numpy(y).cuda())
    host = fitted(name, X.astype(np.float64), y)
    assert_same(host, head, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(head.predict(given), head.predict(X))
