"""Fit time of the convex heads against scikit-learn's solvers, to the same gradient norm.

python benchmarks/speed_convex.py

Each scikit-learn solver is given float32 and float64 rows with the constant column already
appended, and the loosest tolerance (by factors of ten) at which its gradient norm reaches the
head's certified one. Fits are timed in turn, apart from the noise; the ratio is to the fastest.
"""

import itertools
import time
import tracemalloc
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import sklearn_balldp.heads.base as base
from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC
from sklearn_balldp.heads.objectives import LinearObjective

SHAPES = [
    ("logistic", 25_000, 384, 2),
    ("softmax", 50_000, 512, 10),
    ("squared_hinge", 25_000, 384, 2),
]
ALPHAS = (1e-2, 1e-4)
SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "liblinear")
LONGEST = 60.0


def embeddings(n, d, n_classes):
    """Unit rows with a decaying spectrum and noisy class structure, float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    scale = (1.0 + np.arange(d)) ** -0.5
    X = rng.standard_normal((n, d)) * scale + 0.4 * (rng.standard_normal((n_classes, d)) * scale)[y]
    X += 0.5 * scale
    y = np.where(rng.random(n) < 0.1, rng.integers(n_classes, size=n), y)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y


def competitor(loss, solver, tol, alpha, n):
    if loss == "squared_hinge":
        return LinearSVC(C=1 / (alpha * n), dual=False, fit_intercept=False, tol=tol,
                         max_iter=100_000)  # fmt: skip
    return LogisticRegression(C=1 / (alpha * n), solver=solver, fit_intercept=False, tol=tol,
                              max_iter=10_000)  # fmt: skip


def median_times(functions, repeats=3):
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(values)) for name, values in times.items()}


def main():
    warnings.simplefilter("ignore")
    base.add_gaussian_noise = lambda values, sigma, random_state: values
    for (loss, n, d, n_classes), alpha in itertools.product(SHAPES, ALPHAS):
        X, y = embeddings(n, d, n_classes)
        Head = BallDPSquaredHingeSVC if loss == "squared_hinge" else BallDPLogisticRegression
        head = Head(alpha=alpha, radius=0.5, fit_intercept=True)
        objective = LinearObjective(
            loss, X, y, n_classes, alpha=alpha, norm_bound=1.0, fit_intercept=True
        )
        head.fit(X, y)
        theta = np.hstack([head.coef_, head.intercept_[:, None]])
        reached = np.linalg.norm(objective.value_and_gradient(theta)[1])
        target = 0.9 * head.release_.tol
        print(f"\n{loss}, {n} x {d}, {n_classes} classes, alpha={alpha:g}: certified gradient norm "
              f"{target:.1e}, reached {reached:.1e}")  # fmt: skip

        functions = {"balldp": lambda head=head, X=X, y=y: head.fit(X, y)}
        rows = {dtype: np.hstack([X, np.ones((n, 1))]).astype(dtype)
                for dtype in (np.float32, np.float64)}  # fmt: skip
        solvers = ("liblinear",) if loss == "squared_hinge" else SOLVERS
        for solver, dtype in itertools.product(solvers, rows):
            if solver == "liblinear" and (n_classes > 2 or dtype == np.float32):
                continue  # binary only, and it copies rows to float64
            if solver == "newton-cholesky" and n_classes > 2 and d * n_classes > 4000:
                continue  # a dense Hessian of all classes at once
            name = f"{solver} {np.dtype(dtype).name}"
            for exponent in range(4, 13):
                model = competitor(loss, solver, 10.0**-exponent, alpha, n)
                start = time.perf_counter()
                coef = model.fit(rows[dtype], y).coef_
                seconds = time.perf_counter() - start
                norm = np.linalg.norm(objective.value_and_gradient(np.asarray(coef, float))[1])
                if norm <= target:
                    functions[name] = lambda model=model, Z=rows[dtype], y=y: model.fit(Z, y)
                    break
                if seconds > LONGEST:
                    break
            else:
                print(f"  {name:<24} never reaches it (best {norm:.1e})")
        seconds = median_times(functions)
        fastest = min((s, name) for name, s in seconds.items() if name != "balldp")
        for name, value in sorted(seconds.items(), key=lambda item: item[1]):
            print(f"  {name:<24} {value:8.3f} s")
        print(f"  balldp / {fastest[1]}: {seconds['balldp'] / fastest[0]:.2f}")
        tracemalloc.start()
        head.fit(X, y)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        print(f"  peak memory over X: {100 * peak / X.nbytes:.1f} %")


if __name__ == "__main__":
    main()
