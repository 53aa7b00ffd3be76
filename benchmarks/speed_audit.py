"""Time of audits: 400 ridge trials, 40 logistic trials against 40 fits, 100000 extra draws.

python benchmarks/speed_audit.py

Times include the fit of the audited head, and its noise, but not making the data.
"""

import time

import numpy as np
from speed_convex import embeddings

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype, ReconstructionAuditor


def seconds(function, repeats=3):
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return np.median(times), min(times), max(times)


def show(name, times):
    print(f"{name:<58} {times[0]:7.3f} s  ({times[1]:.3f} to {times[2]:.3f})")


def main():
    X, y = embeddings(127_600, 384, 4)
    X, y, public, public_y = X[:120_000], y[:120_000], X[120_000:], y[120_000:]
    head = BallDPRidgePrototype(8.0, radius=1.5)
    show("one ridge fit, 120000 x 384, 4 classes", seconds(lambda: head.fit(X, y)))
    auditor = ReconstructionAuditor(head, n_repeats=10)
    show("400 ridge trials (40 supports)", seconds(lambda: auditor.fit(X, y, public, public_y)))
    show("100000 further draws", seconds(lambda: auditor.attack(100_000)))

    for n_classes in (2, 6):
        X, y = embeddings(30_000, 384, n_classes)
        X, y, public, public_y = X[:25_000], y[:25_000], X[25_000:], y[25_000:]
        for alpha in (1e-2, 1e-4):
            head = BallDPLogisticRegression(8.0, radius=1.5, alpha=alpha)
            auditor = ReconstructionAuditor(head)
            print(f"\nlogistic, 25000 x 384, {n_classes} classes, alpha={alpha:g}")
            fit = seconds(lambda head=head, X=X, y=y: head.fit(X, y))
            show("one fit", fit)
            audit = seconds(lambda a=auditor, data=(X, y, public, public_y): a.fit(*data))
            show("40 trials (4 supports, 40 candidate models)", audit)
            print(f"audit / 40 fits: {audit[0] / (40 * fit[0]):.2f}")


if __name__ == "__main__":
    main()
