"""Rows on a device: arrays of other libraries give the models of NumPy, but for rounding."""

import array_api_strict
import numpy as np
import pytest
from sklearn.base import clone

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.heads.gradients import MeanGradient
from sklearn_balldp.heads.objective import LinearObjective
from sklearn_balldp.rows import device, on_device, passes, table_of

N, D = 6000, 16
HEADS = {
    "prototypes": BallDPRidgePrototype(),
    "discriminant": BallDPLinearDiscriminant(),
    "discriminant, sphere": BallDPLinearDiscriminant(domain="sphere"),
    "descent": BallDPLogisticRegression(mechanism=GradientPerturbation(n_steps=10)),
    "SVC": BallDPSquaredHingeSVC(mechanism=GradientPerturbation(start="zero", n_steps=10)),
    "minimiser": BallDPLogisticRegression(mechanism="output", alpha=0.01),
    "descent, sphere": BallDPLogisticRegression(
        domain="sphere", mechanism=GradientPerturbation(n_steps=5)
    ),
    "minimiser, sphere": BallDPLogisticRegression(domain="sphere", mechanism="output", alpha=0.01),
}


def strict(X):
    return array_api_strict.asarray(X)


def tensor(X):
    return pytest.importorskip("torch").from_numpy(X)


LIBRARIES = {"strict": strict, "torch": tensor}


def records(dtype=np.float64, n=N, n_classes=3):
    """Rows around a long mean, some of them outside of the ball."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, n_classes, n)
    X = 0.3 * rng.standard_normal((n, D)) + 0.4 * np.eye(n_classes, D)[y] + 0.2
    return X.astype(dtype), y


@pytest.fixture
def many_shards(monkeypatch):
    monkeypatch.setattr(passes, "SMALL", 8000)
    monkeypatch.setattr(passes, "SHARD_ROWS", 512)
    monkeypatch.setattr(device, "SHARD_ROWS", 200)


def fitted(head, X, y, **sides):
    return clone(head).set_params(delta=1e-5, radius=0.3, random_state=0).fit(X, y, **sides)


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", HEADS)
def test_a_device_gives_the_model_of_numpy(name, n_classes, library):
    X, y = records(n_classes=n_classes)
    given = on_device(LIBRARIES[library](X))
    head, other = fitted(HEADS[name], X, y), fitted(HEADS[name], given, y)
    np.testing.assert_allclose(other.release_.sigma, head.release_.sigma, rtol=1e-9)
    for key, values in head.released_parameters().items():
        found = other.released_parameters()[key]
        if values.dtype.kind == "f":
            # Rounded to a grid of 2^-40 noise scales; a minimiser to its tolerance.
            np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-6 * np.abs(values).max())
        else:
            np.testing.assert_array_equal(found, values)
    np.testing.assert_array_equal(head.predict(given), head.predict(X))
    np.testing.assert_allclose(
        head.decision_function(given), head.decision_function(X), rtol=1e-9, atol=1e-9
    )


@pytest.mark.usefixtures("many_shards")
@pytest.mark.parametrize("name", ["prototypes", "discriminant", "descent", "minimiser"])
def test_persons_on_a_device(name):
    X, y = records()
    rng = np.random.default_rng(1)
    sides, head = {"groups": rng.integers(0, 3000, N)}, clone(HEADS[name])
    expected, found = (fitted(head, rows, y, **sides) for rows in (X, on_device(strict(X))))
    for key, values in expected.released_parameters().items():
        np.testing.assert_allclose(found.released_parameters()[key], values, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared_hinge"])
@pytest.mark.parametrize("moved", [None, False, True])
def test_passes_on_a_device_are_those_of_numpy(loss, moved, library, whitening):
    """One pass each: nothing evens out what differs."""
    n_classes = 2 if loss == "logistic" else 3
    X, y = records(n_classes=n_classes)
    given, weights = on_device(LIBRARIES[library](X)), np.linspace(0.1, 2.0, N)
    rng, common = np.random.default_rng(1), {"norm_bound": 0.7, "constant": 0.3, "clip": 0.1}
    if moved is not None:
        own, _ = whitening(0.2 * np.ones(D), 0.8, moved, 0.7)
        common |= {"whitening": own, "reach": 0.9}
    means = [
        MeanGradient(loss, rows, y, n_classes, weights=(None, weights), **common)
        for rows in (X, given)
    ]
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
        if len(theta[0]) == 1:
            found[-1].append(objective.hessian(theta[0]))
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_less_precise_tensors_are_computed_with_in_double(dtype):
    X, y = records(np.dtype(dtype))
    head = fitted(HEADS["descent"], on_device(tensor(X)), y)
    wide = fitted(HEADS["descent"], X.astype(np.float64), y)
    np.testing.assert_allclose(head.coef_, wide.coef_, rtol=1e-4, atol=1e-6)
    (part,) = table_of(on_device(tensor(X)))._parts.values()
    assert {str(block.dtype) for _, block in part.blocks()} == {"torch.float64"}


def test_rows_stay_on_the_device(monkeypatch):
    """Only sums and predictions come to the host."""
    X, y = records()
    rows = on_device(strict(X))
    moved = []
    kept = device.on_host
    monkeypatch.setattr(
        device, "on_host", lambda array: moved.append(np.size(kept(array))) or kept(array)
    )
    for name, head in HEADS.items():
        fitted(head, rows, y).predict(rows)
        assert max(moved) <= max(N, 3 * D * D), name
    assert moved.count(N) == len(HEADS)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", HEADS)
def test_rows_that_are_not_finite_are_refused(name, bad):
    X, y = records()
    X[2500, 3] = bad
    head = clone(HEADS[name]).set_params(delta=1e-4, radius=0.3)
    with pytest.raises(ValueError, match=r"NaN or infinity"):
        head.fit(on_device(strict(X)), y)
    assert not hasattr(head, "release_")


def test_huge_and_tiny_rows():
    X, y = records()
    X[7, 3], X[8], X[9], X[10] = 1e200, -1e300, 0.0, 1e-220
    for name in HEADS:
        expected, found = (fitted(HEADS[name], rows, y) for rows in (X, on_device(strict(X))))
        for key, values in expected.released_parameters().items():
            np.testing.assert_allclose(
                found.released_parameters()[key], values, rtol=1e-5, atol=1e-6
            )


def test_arrays_that_are_no_rows_are_refused(monkeypatch):
    X, y = records(n=100)
    torch = pytest.importorskip("torch")
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
    with pytest.raises(ImportError, match=r"sklearn_balldp\[device\]"):
        on_device(strict(X))


def test_a_tensor_with_a_derivative_is_detached():
    X, y = records()
    rows = tensor(X).requires_grad_()
    head = fitted(HEADS["prototypes"], on_device(rows), y)
    np.testing.assert_allclose(head.prototypes_, fitted(HEADS["prototypes"], X, y).prototypes_)


def test_audits_and_checks_copy_rows_to_the_host():
    X, y = records(n=600)
    given = on_device(strict(X))
    head = BallDPRidgePrototype(delta=1e-4, radius=1.0).fit(given, y)
    assert not verify(head, private=(given, y)).failed
    auditor = ReconstructionAuditor(clone(head), n_candidates=3, random_state=0).fit(given, y)
    assert auditor.guarantee_holds_


@pytest.mark.parametrize("name", HEADS)
def test_rows_and_labels_on_a_gpu(name):
    """Where there is one."""
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    X, y = records(np.float32)
    given = torch.from_numpy(X).cuda()
    head = fitted(HEADS[name], given, torch.from_numpy(y).cuda())
    host = fitted(HEADS[name], X.astype(np.float64), y)
    for key, values in host.released_parameters().items():
        np.testing.assert_allclose(head.released_parameters()[key], values, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(head.predict(given), head.predict(X))
