"""The jobs that are timed, by topic: each beside what a user would take instead."""

import functools
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from unittest import mock

import numpy as np
import opendp.prelude as dp
import zarr
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
    publish,
)
from sklearn_balldp.mechanisms import MeanGradient, Records, gradients
from sklearn_balldp.privacy.exact_normal import GRID_EXPONENT, rounded_normal
from sklearn_balldp.privacy.problem import Problem
from sklearn_balldp.rows import SINGLE_BLAS_THREAD

from .. import peers as other_libraries
from .timing import against, bare, embeddings, interleaved, memory, row, unit_rows


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


def ridge(peers):
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


#: Name of a default fit; records, features and classes.
DEFAULT = "default fit"
SIZES = ((50_000, 384, 10), (10_000, 384, 77), (20_000, 768, 4), (2_000, 32, 2))


def defaults(peers):
    """Default fits against scikit-learn's of the same float32 rows, by either clock."""
    clocks = ("perf_counter", "process_time")

    def both():
        return np.array([getattr(time, clock)() for clock in clocks])

    for n, d, k in SIZES:
        X, y = embeddings(n, d, k)
        own, other = BallDPLogisticRegression(2.0, radius=0.5), LogisticRegression(max_iter=1000)
        models = {"ours": own, "scikit-learn's LogisticRegression": other}
        jobs = {name: functools.partial(model.fit, X, y) for name, model in models.items()}
        # A short one varies more.
        (_, ours), (name, theirs) = interleaved(jobs, 9 if n > 2_000 else 49, both).items()
        for clock, own, other in zip(clocks, ours.T, theirs.T, strict=True):
            job = f"{DEFAULT} ({clock}), {n:,} x {d:,} float32, {k} classes"
            yield row(job, own, name, other, 1)


def gradient(peers):
    """Noise on gradients: steps, passes and the sampler; Opacus."""
    X, y = embeddings(25_000, 384, 2)
    options = {"epsilon": 2.0, "radius": 1.2}
    steps = descent(150, **options)
    output = BallDPLogisticRegression(mechanism="output", alpha=0.01, **options)
    others = {"noise on the minimiser": (lambda: output.fit(X, y), 3)}
    yield from against("150 noisy steps, 25000 x 384, 2 classes", lambda: steps.fit(X, y), others)
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
        "NumPy's normal (not exact)": (lambda: np.random.default_rng().normal(size=n_values), None),
    }
    job = f"{n_values} exact normal values"
    yield from against(job, lambda: rounded_normal(n_values), others, repeats=3)
    if peers:
        yield _against_opacus(peers, X, y)


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
        )
        theta = np.random.default_rng(0).standard_normal((problem.kind.n_scores, d + 1))
        query, records = MeanGradient(theta, clip=0.2, constant=0.3), Records(X, y)
        weights, wide = np.ascontiguousarray(theta[:, :d].T), X.astype(np.float64)
        residuals = np.ascontiguousarray((wide @ weights).T)
        others = {
            "two bare products": (lambda X=wide, w=weights, r=residuals: (X @ w, r @ X), 1.5),
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
        np.savez(path, X=X, y=y, n_test=0, seeds=[0])
        # Each round is one call of each: the other library reports its own seconds.
        ours, theirs = [], []
        for _ in range(3):
            ours += interleaved({"ours": lambda: head.fit(X, y)}, repeats=1)["ours"].tolist()
            theirs.append(float(other_libraries.run_in(python, path).split()[-1]))
    job = "label-protecting fit, 25000 x 384, 6 classes"
    return row(job, np.array(ours), "Opacus DP-SGD, ten epochs", np.array(theirs))


def sources(X, folder):
    """What opens the same rows in files."""
    np.save(folder / "x.npy", X)
    zarr.save(str(folder / "x.zarr"), X)
    return {
        "memory map": lambda: np.load(folder / "x.npy", mmap_mode="r"),
        "Zarr": lambda: zarr.open_array(str(folder / "x.zarr"), mode="r"),
    }


def rows(peers):
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
        others = {"rows that are kept": (lambda f=fit: f(2**30), 2.0)}
        yield from against(job, lambda f=fit: f(0), others, repeats=7)
        yield memory(job, lambda f=fit: f(0), own)


def start(peers):
    """Commands from start to end, in processor seconds, against importing scikit-learn."""
    sklearn, balldp = "import sklearn", "from sklearn_balldp.command import main; exit(main())"

    def ended(expected, code, *arguments):
        done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True)
        assert done.returncode == expected, done.stderr

    with tempfile.TemporaryDirectory() as folder:
        head = BallDPRidgePrototype(4.0, radius=0.5).fit(unit_rows(1000, 64), np.arange(1000) % 4)
        publish.save(head, f"{folder}/model")
        commands = {
            "balldp --help": (0.25, 0, balldp, "--help"),
            "balldp train --epsilom 2": (0.25, 2, balldp, "train", "--epsilom", "2"),
            "balldp verify FOLDER": (1.5, 0, balldp, "verify", f"{folder}/model"),
            (other := 'python -c "import sklearn"'): (None, 0, sklearn),
        }
        jobs = {name: functools.partial(ended, *given) for name, (_, *given) in commands.items()}
        # Of processes that have ended.
        times = interleaved(jobs, repeats=9, clock=lambda: sum(os.times()[2:4]))
        for name, (asked, *_) in list(commands.items())[:-1]:
            yield row(f"{name} (processor time)", times[name], other, times[other], asked)


TOPICS = {topic.__name__: topic for topic in (ridge, defaults, gradient, rows, start)}
