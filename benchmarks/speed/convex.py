"""Convex heads against scikit-learn's solvers, to the same gradient norm.

Each scikit-learn solver is given float32 and float64 rows with the constant column already
appended, and the loosest tolerance (by factors of ten) at which its gradient norm reaches the
head's certified one. Fits are timed in turn, apart from the noise; the ratio is to the fastest.
"""

import itertools
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from sklearn_balldp import BallDPLogisticRegression, BallDPSquaredHingeSVC
from sklearn_balldp.mechanisms.objective import LinearObjective

from .timing import Memory, embeddings, interleaved, peak, row, without_noise

SHAPES = [
    ("logistic", 25_000, 384, 2),
    ("softmax", 50_000, 512, 10),
    ("squared_hinge", 25_000, 384, 2),
]
ALPHAS = (1e-2, 1e-4)
SOLVERS = ("lbfgs", "newton-cg", "newton-cholesky", "liblinear")
LONGEST = 60.0


def competitor(loss, solver, tol, alpha, n):
    if loss == "squared_hinge":
        return LinearSVC(
            C=1 / (alpha * n), dual=False, fit_intercept=False, tol=tol, max_iter=100_000
        )
    return LogisticRegression(
        C=1 / (alpha * n), solver=solver, fit_intercept=False, tol=tol, max_iter=10_000
    )


def competitors(loss, X, y, n_classes, alpha, objective, target):
    """Fits of scikit-learn that reach the target, by name."""
    n, d = X.shape
    rows = {
        dtype: np.hstack([X, np.ones((n, 1))]).astype(dtype) for dtype in (np.float32, np.float64)
    }
    solvers = ("liblinear",) if loss == "squared_hinge" else SOLVERS
    functions = {}
    for solver, dtype in itertools.product(solvers, rows):
        if solver == "liblinear" and (n_classes > 2 or dtype == np.float32):
            continue  # binary only, and it copies rows to float64
        if solver == "newton-cholesky" and n_classes > 2 and d * n_classes > 4000:
            continue  # a dense Hessian of all classes at once
        for exponent in range(4, 13):
            model = competitor(loss, solver, 10.0**-exponent, alpha, n)
            start = time.perf_counter()
            coef = model.fit(rows[dtype], y).coef_
            seconds = time.perf_counter() - start
            norm = np.linalg.norm(objective.value_and_gradient(np.asarray(coef, float))[1])
            if norm <= target:
                name = f"scikit-learn's {solver}, {np.dtype(dtype).name}"
                functions[name] = lambda model=model, Z=rows[dtype]: model.fit(Z, y)
                break
            if seconds > LONGEST:
                break
    return functions


def measure(comparators):
    for shape, alpha in itertools.product(SHAPES, ALPHAS):
        with without_noise(), warnings.catch_warnings():
            # Solvers that stop early say so; what counts is the gradient they reach.
            warnings.simplefilter("ignore", ConvergenceWarning)
            found = _measure(*shape, alpha)
        yield from found


def _measure(loss, n, d, n_classes, alpha):
    X, y = embeddings(n, d, n_classes)
    Head = BallDPSquaredHingeSVC if loss == "squared_hinge" else BallDPLogisticRegression
    head = Head(alpha=alpha, radius=0.5, mechanism="output").fit(X, y)
    objective = LinearObjective(
        loss, X, y, n_classes, alpha=alpha, norm_bound=1.0, fit_intercept=True
    )
    target = 0.9 * head.release_.tol
    others = competitors(loss, X, y, n_classes, alpha, objective, target)
    times = interleaved({"ours": lambda: head.fit(X, y), **others}, repeats=3)
    fastest = min(others, key=lambda name: np.median(times[name]))
    job = f"{loss.replace('_', ' ')}, {n} x {d}, {n_classes} classes, alpha {alpha:g}"
    share = peak(lambda: head.fit(X, y)) / X.nbytes
    return [
        row("convex", job, times["ours"], fastest, times[fastest], asked=1),
        Memory("convex", job, share, 0.25),
    ]
