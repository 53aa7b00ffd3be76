"""Noise on gradients: 150 steps against a fit of the output mechanism, the sampler, and Opacus."""

import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import opendp.prelude as dp

from sklearn_balldp import BallDPLogisticRegression, GradientPerturbation
from sklearn_balldp.mechanisms import MeanGradient, Records
from sklearn_balldp.privacy.exact_normal import GRID_EXPONENT, rounded_normal
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.rows import SINGLE_BLAS_THREAD

from ..paper import comparators as other_libraries
from .timing import embeddings, interleaved, row

PASSES = [(60_000, 384, 2), (60_000, 384, 10), (60_000, 768, 77)]
SHAPES = [(25_000, 384, 2), (50_000, 512, 10), (10_000, 384, 77), (120_000, 384, 4)]
# Default fits that use all cores, against products of the same rows that do.
CORES = [(50_000, 384, 10), (10_000, 384, 77), (20_000, 768, 4)]
STEPS = 150


def measure(comparators):
    for n, d, n_classes in SHAPES:
        X, y = embeddings(n, d, n_classes)
        output = BallDPLogisticRegression(2.0, radius=1.2, mechanism="output", alpha=0.01)
        descent = GradientPerturbation(n_steps=STEPS, start="zero")
        gradient = BallDPLogisticRegression(2.0, radius=1.2, mechanism=descent)
        times = interleaved(
            {
                "output": lambda head=output, X=X, y=y: head.fit(X, y),
                "gradient": lambda head=gradient, X=X, y=y: head.fit(X, y),
            }
        )
        job = f"{STEPS} noisy steps, {n} x {d}, {n_classes} classes"
        yield row(
            "gradient",
            job,
            times["gradient"],
            "noise on the minimiser",
            times["output"],
            asked=3 if (n, n_classes) == (25_000, 2) else np.nan,
        )
    yield _default_fit()
    yield from _on_all_cores()
    yield from _passes()
    n_values = 100_000
    times = interleaved(
        {
            "ours": lambda: rounded_normal(n_values),
            "opendp": opendp_gaussian(n_values),
            "numpy": lambda: np.random.default_rng().standard_normal(n_values),
        },
        repeats=3,
    )
    yield row(
        "gradient",
        f"{n_values} exact normal values",
        times["ours"],
        "OpenDP's discrete Gaussian",
        times["opendp"],
    )
    yield row(
        "gradient",
        f"{n_values} exact normal values",
        times["ours"],
        "NumPy's normal (not exact)",
        times["numpy"],
    )
    if comparators:
        yield from _against_opacus(comparators)


def _default_fit():
    """What a user waits for who sets nothing, against what the minimiser would take."""
    X, y = embeddings(25_000, 384, 6)
    heads = {
        "default": BallDPLogisticRegression(2.0, radius=0.5),
        "output": BallDPLogisticRegression(2.0, radius=0.5, mechanism="output"),
    }
    jobs = {name: lambda head=head: head.fit(X, y) for name, head in heads.items()}
    times = interleaved(jobs, repeats=9)
    job = "default fit, 25000 x 384, 6 classes"
    return row(
        "gradient", job, times["default"], "noise on the minimiser", times["output"], asked=1
    )


def _on_all_cores():
    """Wall time of a default fit, against that of one second moment and 20 times two products."""
    for n, d, n_classes in CORES:
        X, y = embeddings(n, d, n_classes)
        head = BallDPLogisticRegression(2.0, radius=0.5)
        weights = np.random.default_rng(0).standard_normal((d, n_classes)).astype(np.float32)
        residuals = np.ascontiguousarray((X @ weights).T)

        def products(X=X, weights=weights, residuals=residuals):
            for _ in range(20):
                X @ weights, residuals @ X
            return X.T @ X

        times = interleaved({"fit": lambda h=head, X=X, y=y: h.fit(X, y), "bare": products}, 9)
        job = f"default fit, {n} x {d} float32, {n_classes} classes"
        yield row(
            "gradient", job, times["fit"], "X'X and 20 times two products", times["bare"], 1.5
        )


def _passes():
    """One mean gradient against what any would take: two products, or a look at every row."""
    for n, d, n_classes in PASSES:
        X, y = embeddings(n, d, n_classes)
        loss = "logistic" if n_classes == 2 else "softmax"
        problem = Problem(
            n_samples=n,
            n_features=d,
            n_classes=n_classes,
            class_counts=tuple(np.bincount(y, minlength=n_classes).tolist()),
            radius=0.3,
            loss=loss,
            fit_intercept=True,
            precision="float32",
        )
        shape = problem.kind.n_scores, d + 1
        theta = np.random.default_rng(0).standard_normal(shape)
        query, records = MeanGradient(theta, clip=0.2, constant=0.3), Records(X, y)
        weights = np.ascontiguousarray(theta[:, :d].T.astype(np.float32))
        residuals = np.ascontiguousarray((X @ weights).T)
        jobs = {
            "pass": lambda own=(problem, records), query=query: query.values(*own),
            "products": lambda X=X, w=weights, r=residuals: (X @ w, r @ X),
            "look": lambda X=X: np.add.reduce(X, axis=0),
        }
        # As a fit has it: each of its threads multiplies by itself.
        with SINGLE_BLAS_THREAD:
            times = interleaved(jobs, repeats=15, clock=time.process_time)
        job = f"one mean gradient (processor time), {n} x {d} float32, {n_classes} classes"
        yield row("gradient", job, times["pass"], "two bare products", times["products"], 1.5)
        asked = 2.0 if n_classes == 2 else np.nan
        yield row("gradient", job, times["pass"], "np.add.reduce", times["look"], asked)


def opendp_gaussian(n_values):
    """OpenDP's sampler of as many values, on the same grid."""
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n_values)
    draw = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0, k=GRID_EXPONENT)
    return lambda: draw([0.0] * n_values)


def _against_opacus(python):
    """One fit of ours (100 steps) and one of Opacus (ten epochs of 20 steps), on the same rows."""
    X, y = embeddings(25_000, 384, 6)
    head = BallDPLogisticRegression(
        2.0, mechanism="gradient", protect_labels=True, classes=range(6)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X_train=X, y_train=y, X_test=X[:100], y_test=y[:100])
        # Each round is one call of each: the other library reports its own seconds.
        ours, theirs = [], []
        for _ in range(3):
            ours += interleaved({"ours": lambda: head.fit(X, y)}, repeats=1)["ours"].tolist()
            done = subprocess.run(
                [python, other_libraries.__file__, "--time", path],
                check=True,
                capture_output=True,
                text=True,
            )
            theirs.append(float(done.stdout.split()[-1]))
    yield row(
        "gradient",
        "label-protecting fit, 25000 x 384, 6 classes",
        np.array(ours),
        "Opacus DP-SGD, ten epochs",
        np.array(theirs),
    )
