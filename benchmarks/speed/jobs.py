"""The jobs that are timed, by topic: each beside what a user would take instead."""

import functools
import itertools
import tempfile
import time
import warnings
from pathlib import Path
from unittest import mock

import numpy as np
import opendp.prelude as dp
import pyarrow as pa
import zarr
from pyarrow import parquet
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import pairwise_distances_chunked
from sklearn.neighbors import NearestCentroid
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
)
from sklearn_balldp import verify as verify_release
from sklearn_balldp.distances import private_quantile, same_label_quantile
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.mechanisms import MeanGradient, Records, gradients
from sklearn_balldp.mechanisms.objective import LinearObjective
from sklearn_balldp.privacy.exact_normal import GRID_EXPONENT, rounded_normal
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.publish import save
from sklearn_balldp.rows import SINGLE_BLAS_THREAD, from_parquet, from_zarr

from ..paper import comparators as other_libraries
from .timing import against, bare, embeddings, interleaved, memory, row, unit_rows, without_noise


def descent(n_steps, **options):
    mechanism = GradientPerturbation(n_steps=n_steps, start="zero")
    return BallDPLogisticRegression(mechanism=mechanism, **options)


def heads(n_steps, **options):
    """A head of each kind, by the names of the lines that show its time."""
    return {
        "prototypes": BallDPRidgePrototype(radius=0.5, **options),
        "discriminant": BallDPLinearDiscriminant(radius=0.1, **options),
        "noisy steps": descent(n_steps, radius=0.5, **options),
    }


def ridge(comparators):
    """Prototypes: a fit against one pass over its rows, and against NearestCentroid."""
    X, y = unit_rows(120_000, 384), np.random.default_rng(1).integers(4, size=120_000)
    head, job = BallDPRidgePrototype(radius=0.5), "fit, 120000 x 384, 4 classes"
    others = {
        "one pass: np.add.reduce": (lambda: np.add.reduce(X, axis=0), 3),
        "scikit-learn's NearestCentroid": (lambda: NearestCentroid().fit(X, y), 0.2),
        # Noise takes a fifth of the fit at most.
        "the same apart from noise": (lambda: bare(head, X, y), 1.25),
    }
    yield from against(job, lambda: head.fit(X, y), others, repeats=25)
    yield memory(job, lambda: head.fit(X, y), X, 0.1)
    for n, d, k, asked, repeats in ((10_000, 384, 77, 2, 3), (50_000, 2048, 1000, None, 1)):
        X, y = unit_rows(n, d), np.arange(n) % k
        others = {"the same apart from noise": (lambda X=X, y=y: bare(head, X, y), asked)}
        job = f"fit, exact noise on {k} x {d} parameters"
        yield from against(job, lambda X=X, y=y: head.fit(X, y), others, repeats)


def statistics(comparators):
    """Sufficient statistics: a discriminant's fit against the bare product of its rows."""
    y = np.random.default_rng(1).integers(4, size=120_000)
    for dtype, domain in itertools.product((np.float32, np.float64), ("ball", "sphere")):
        X = unit_rows(120_000, 384).astype(dtype)
        head = BallDPLinearDiscriminant(radius=0.3, domain=domain).fit(X, y)
        released, records = head.released_, records_of(head, X, y)
        sums = lambda r=released, own=records: r.bound.values(r.problem, own)  # noqa: E731
        job = f"120000 x 384, {np.dtype(dtype).name}, {domain}"
        others = {"X.T @ X": (lambda X=X: X.T @ X, 1.6)}
        yield from against(f"class sums and second moment, {job}", sums, others, repeats=9)
        others = {
            # Noise takes a third of the fit at most.
            "the same apart from noise": (lambda head=head, X=X: bare(head, X, y), 1.5),
            "scikit-learn's LinearDiscriminantAnalysis": (
                lambda X=X: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(X, y),
                1,
            ),
        }
        yield from against(f"fit, {job}", lambda h=head, X=X: h.fit(X, y), others, repeats=3)
    yield memory(f"fit, {job}", lambda: head.fit(X, y), X, 0.25)


#: Loss, records, features and classes.
SHAPES = (
    ("logistic", 25_000, 384, 2),
    ("softmax", 50_000, 512, 10),
    ("squared_hinge", 25_000, 384, 2),
)
LONGEST = 60.0


def peers(loss, X, y, n_classes, alpha, norm_at, target):
    """Fits of scikit-learn by name, at the loosest tolerance whose gradient norm is the target's.

    Each solver has float32 and float64 rows with the constant column already appended.
    """
    n, d = X.shape
    solvers = ("liblinear",)
    if loss != "squared_hinge":
        solvers = "lbfgs", "newton-cg", "newton-cholesky", "liblinear"
    for solver, dtype in itertools.product(solvers, (np.float32, np.float64)):
        if solver == "liblinear" and (n_classes > 2 or dtype == np.float32):
            continue  # binary only, and it copies rows to float64
        if solver == "newton-cholesky" and n_classes > 2 and d * n_classes > 4000:
            continue  # a dense Hessian of all classes at once
        rows = np.hstack([X, np.ones((n, 1))]).astype(dtype)
        options = {"C": 1 / (alpha * n), "fit_intercept": False, "max_iter": 100_000}
        model = LinearSVC(dual=False, **options)
        if loss != "squared_hinge":
            model = LogisticRegression(solver=solver, **options)
        for exponent in range(4, 13):
            start = time.perf_counter()
            coef = model.set_params(tol=10.0**-exponent).fit(rows, y).coef_
            seconds = time.perf_counter() - start
            if norm_at(np.asarray(coef, float)) <= target:
                fit = lambda model=model, rows=rows: model.fit(rows, y)  # noqa: E731
                yield f"scikit-learn's {solver}, {np.dtype(dtype).name}", (fit, 1)
            if norm_at(np.asarray(coef, float)) <= target or seconds > LONGEST:
                break


def convex(comparators):
    """Minimisers against scikit-learn's solvers, to the same gradient norm, apart from noise."""
    for (loss, n, d, n_classes), alpha in itertools.product(SHAPES, (1e-2, 1e-4)):
        X, y = embeddings(n, d, n_classes)
        Head = BallDPSquaredHingeSVC if loss == "squared_hinge" else BallDPLogisticRegression
        head = Head(alpha=alpha, radius=0.5, mechanism="output").fit(X, y)
        options = {"alpha": alpha, "norm_bound": 1.0, "fit_intercept": True}
        objective = LinearObjective(loss, X, y, n_classes, **options)
        norm_at = lambda coef, o=objective: np.linalg.norm(o.value_and_gradient(coef)[1])  # noqa: E731
        job = f"{loss.replace('_', ' ')}, {n} x {d}, {n_classes} classes, alpha {alpha:g}"
        with without_noise(), warnings.catch_warnings():
            # Solvers that stop early say so; what counts is the gradient they reach.
            warnings.simplefilter("ignore", ConvergenceWarning)
            others = dict(peers(loss, X, y, n_classes, alpha, norm_at, 0.9 * head.release_.tol))
            rows = against(job, lambda h=head, X=X, y=y: h.fit(X, y), others, repeats=3)
            # The fastest.
            yield max(rows, key=lambda own: own["ratio"])
        yield memory(job, lambda h=head, X=X, y=y: h.fit(X, y), X, 0.25)


def gradient(comparators):
    """Noise on gradients: steps, passes and the sampler; Opacus."""
    for n, d, k in ((25_000, 384, 2), (50_000, 512, 10), (10_000, 384, 77), (120_000, 384, 4)):
        X, y = embeddings(n, d, k)
        options = {"epsilon": 2.0, "radius": 1.2}
        output = BallDPLogisticRegression(mechanism="output", alpha=0.01, **options)
        steps = descent(150, **options)
        others = {
            "noise on the minimiser": (
                lambda h=output, X=X, y=y: h.fit(X, y),
                3 if (n, k) == (25_000, 2) else None,
            )
        }
        job = f"150 noisy steps, {n} x {d}, {k} classes"
        yield from against(job, lambda h=steps, X=X, y=y: h.fit(X, y), others)
    # What a user waits for who sets nothing, against what the minimiser would take.
    X, y = embeddings(25_000, 384, 6)
    head = BallDPLogisticRegression(2.0, radius=0.5)
    output = clone(head).set_params(mechanism="output")
    others = {"noise on the minimiser": (lambda: output.fit(X, y), 1)}
    job = "default fit, 25000 x 384, 6 classes"
    yield from against(job, lambda: head.fit(X, y), others, repeats=9)
    yield from _on_all_cores(head)
    yield from _passes()
    n_values = 100_000
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=n_values)
    # On the same grid.
    draw = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=1.0, k=GRID_EXPONENT)
    others = {
        "OpenDP's discrete Gaussian": (lambda: draw([0.0] * n_values), None),
        "NumPy's normal (not exact)": (
            lambda: np.random.default_rng().standard_normal(n_values),
            None,
        ),
    }
    job = f"{n_values} exact normal values"
    yield from against(job, lambda: rounded_normal(n_values), others, repeats=3)
    if comparators:
        yield _against_opacus(comparators, X, y)


def _on_all_cores(head):
    """Wall time of a default fit, against that of one second moment and 20 times two products."""
    for n, d, k in ((50_000, 384, 10), (10_000, 384, 77), (20_000, 768, 4)):
        X, y = embeddings(n, d, k)
        weights = np.random.default_rng(0).standard_normal((d, k)).astype(np.float32)
        residuals = np.ascontiguousarray((X @ weights).T)

        def products(X=X, weights=weights, residuals=residuals):
            for _ in range(20):
                X @ weights, residuals @ X
            return X.T @ X

        job = f"default fit, {n} x {d} float32, {k} classes"
        others = {"X'X and 20 times two products": (products, 1.5)}
        yield from against(job, lambda X=X, y=y: head.fit(X, y), others, repeats=9)


def _passes():
    """One mean gradient against what any would take: two products, or a look at every row."""
    for n, d, k in ((60_000, 384, 2), (60_000, 384, 10), (60_000, 768, 77)):
        X, y = embeddings(n, d, k)
        problem = Problem(
            n_samples=n,
            n_features=d,
            n_classes=k,
            class_counts=tuple(np.bincount(y, minlength=k).tolist()),
            radius=0.3,
            loss="logistic" if k == 2 else "softmax",
            fit_intercept=True,
            precision="float32",
        )
        theta = np.random.default_rng(0).standard_normal((problem.kind.n_scores, d + 1))
        query, records = MeanGradient(theta, clip=0.2, constant=0.3), Records(X, y)
        weights = np.ascontiguousarray(theta[:, :d].T.astype(np.float32))
        residuals = np.ascontiguousarray((X @ weights).T)
        others = {
            "two bare products": (lambda X=X, w=weights, r=residuals: (X @ w, r @ X), 1.5),
            "np.add.reduce": (lambda X=X: np.add.reduce(X, axis=0), 2.0 if k == 2 else None),
        }
        job = f"one mean gradient (processor time), {n} x {d} float32, {k} classes"
        ours = lambda q=query, own=(problem, records): q.values(*own)  # noqa: E731
        # As a fit has it: each of its threads multiplies by itself.
        with SINGLE_BLAS_THREAD:
            yield from against(job, ours, others, repeats=15, clock=time.process_time)


def _against_opacus(python, X, y):
    """One fit of ours (100 steps) and one of Opacus (ten epochs of 20 steps), on the same rows."""
    options = {"mechanism": "gradient", "protect_labels": True, "classes": range(6)}
    head = BallDPLogisticRegression(2.0, **options)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npz"
        np.savez(path, X_train=X, y_train=y, X_test=X[:100], y_test=y[:100])
        # Each round is one call of each: the other library reports its own seconds.
        ours, theirs = [], []
        for _ in range(3):
            ours += interleaved({"ours": lambda: head.fit(X, y)}, repeats=1)["ours"].tolist()
            theirs.append(float(other_libraries.run_in(python, "--time", path).split()[-1]))
    job = "label-protecting fit, 25000 x 384, 6 classes"
    return row(job, np.array(ours), "Opacus DP-SGD, ten epochs", np.array(theirs))


def audit(comparators):
    """Audits against as many fits of the audited head; times include its fit and its noise."""

    def rows(n, k):
        X, y = embeddings(n + 7_600, 384, k)
        return X[:n], y[:n], X[n:], y[n:]

    data, head = rows(120_000, 4), BallDPRidgePrototype(8.0, radius=1.5)
    auditor = ReconstructionAuditor(head, n_supports=40)
    for n_draws, n_trials in ((None, 400), (250, 100_000)):
        own = clone(auditor) if n_draws is None else clone(auditor).set_params(n_draws=n_draws)
        others = {f"{n_trials} fits of the head": (lambda: head.fit(*data[:2]), None, n_trials)}
        job = f"{n_trials} ridge trials, 120000 x 384, 4 classes"
        yield from against(job, lambda own=own: own.fit(*data), others, repeats=3)
    for k, alpha in itertools.product((2, 6), (1e-2, 1e-4)):
        data = rows(25_000, k)
        logistic = BallDPLogisticRegression(8.0, radius=1.5, mechanism="output", alpha=alpha)
        own = ReconstructionAuditor(logistic)
        job = f"40 logistic trials, 25000 x 384, {k} classes, alpha {alpha:g}"
        fit = lambda head=logistic, data=data: head.fit(*data[:2])  # noqa: E731
        others = {"40 fits of the head": (fit, 1, 40)}
        yield from against(job, lambda own=own, data=data: own.fit(*data), others, repeats=3)


def radius(comparators):
    """Radii of 120000 rows against the pairs that a user would compute."""
    X, y = embeddings(120_000, 384, 4)

    def largest_distance():
        for label in np.unique(y):
            yield from map(np.max, pairwise_distances_chunked(X[y == label]))

    ours = {
        "same-label diameter": lambda: same_label_quantile(X, y, 1.0),
        "largest class's median": lambda: same_label_quantile(X, y),
        "private median": lambda: private_quantile(X, y, epsilon=0.5),
    }
    other = "scikit-learn's pairwise_distances_chunked"
    times = interleaved({other: lambda: max(largest_distance()), **ours}, repeats=1)
    for name in ours:
        yield row(f"{name}, 120000 x 384, 4 classes", times[name], other, times[other])
    job = "largest class's median, 120000 x 384, 4 classes"
    yield memory(job, ours["largest class's median"], X)


def predict(comparators):
    """Predictions against a plain product, in processor seconds of all cores together."""
    for n, d, k in ((120_000, 384, 2), (120_000, 384, 6), (60_000, 384, 77)):
        X, y = embeddings(n, d, k)
        head = BallDPLogisticRegression(1e6, radius=0.1, mechanism="gradient").fit(X, y)
        # One column of weights per class, as a user would write it.
        coef = np.vstack([-head.coef_, head.coef_]) if k == 2 else head.coef_
        weights = np.ascontiguousarray(coef.T, dtype=np.float32)
        for dtype in (np.float32, np.float16):
            rows = X.astype(dtype)
            plain = lambda X=rows, w=weights: (X.astype(np.float32, copy=False) @ w).argmax(1)  # noqa: E731
            others = {"argmax(X @ W.T), float32": (plain, 2)}
            job = f"predict (processor time), {n} x {d} {dtype.__name__}, {k} classes"
            ours = lambda head=head, rows=rows: head.predict(rows)  # noqa: E731
            # One BLAS thread each: idle ones go on spinning, at the cost of whoever comes next.
            with threadpool_limits(1, user_api="blas"):
                yield from against(job, ours, others, repeats=7, clock=time.process_time)


def sources(X, folder):
    """What opens the same rows in files of every format: a source keeps what it decoded."""
    np.save(folder / "x.npy", X)
    zarr.save(str(folder / "x.zarr"), X)
    column = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
    parquet.write_table(pa.table({"rows": column}), folder / "x.parquet", row_group_size=10_000)
    return {
        "memory map": lambda: np.load(folder / "x.npy", mmap_mode="r"),
        "Zarr": lambda: from_zarr(folder / "x.zarr"),
        "Parquet": lambda: from_parquet(folder / "x.parquet", "rows"),
    }


def rows(comparators):
    """Rows in files against rows in memory: the same fits, and passes over what is not kept."""
    X, y = embeddings(60_000, 384, 6)
    for dtype in (np.float32, np.float16):
        own, name = X.astype(dtype), f"60000 x 384 {dtype.__name__}"
        with tempfile.TemporaryDirectory() as folder:
            files = {"an array in memory": lambda X=own: X, **sources(own, Path(folder))}
            for title, head in heads(20).items():
                title = title.replace("noisy", "20 noisy")
                fits = {kind: lambda h=head, Z=Z: h.fit(Z(), y) for kind, Z in files.items()}
                times = interleaved(fits, repeats=3)
                other = "an array in memory"
                for kind in list(files)[1:]:
                    yield row(f"{title} of {name}, {kind}", times[kind], other, times[other])

        def fit(kept, own=own):
            with mock.patch.object(gradients, "KEPT_BYTES", kept):
                descent(20, radius=0.5).fit(own, y)

        job = f"20 noisy steps of {name}, rows made again in each"
        others = {"rows that are kept": (lambda f=fit: f(2**30), 1.3 if own.itemsize > 2 else 1.5)}
        yield from against(job, lambda f=fit: f(0), others, repeats=7)
        yield memory(job, lambda f=fit: f(0), own)


def verify(comparators):
    """A verification with rows, against a fit."""
    heads = {
        "prototypes": (BallDPRidgePrototype(4.0, radius=0.5), 120_000),
        "logistic, softmax": (
            BallDPLogisticRegression(4.0, radius=0.5, mechanism="output"),
            20_000,
        ),
        "descent, 20 steps": (descent(20, epsilon=4.0, radius=0.5), 20_000),
    }
    for name, (head, n) in heads.items():
        data = unit_rows(n, 384), np.arange(n) % 10
        if name.startswith("descent"):
            head.mechanism.set_params(keep_transcript=True)
        place = tempfile.mkdtemp()
        model = save(clone(head).fit(*data), place, transcript=name.startswith("descent"))
        others = {"a fit": (lambda h=head, data=data: clone(h).fit(*data), 1.5)}
        job, ours = f"verify with rows: {name}, {n} x 384", functools.partial(verify_release, model)
        yield from against(job, lambda f=ours, data=data: f(private=data), others)


TOPICS = {
    topic.__name__: topic
    for topic in (ridge, statistics, convex, gradient, audit, radius, predict, rows, verify)
}
