"""Predictions against a plain product, in processor seconds of all cores together."""

import time

import numpy as np
from threadpoolctl import threadpool_limits

from sklearn_balldp import BallDPLogisticRegression

from .timing import embeddings, interleaved, row

SHAPES = [(120_000, 384, 2), (120_000, 384, 6), (60_000, 384, 77)]


def measure(comparators):
    for n, d, n_classes in SHAPES:
        X, y = embeddings(n, d, n_classes)
        head = BallDPLogisticRegression(1e6, radius=0.1, mechanism="gradient").fit(X, y)
        # One column of weights per class, as a user would write it.
        coef = np.vstack([-head.coef_, head.coef_]) if n_classes == 2 else head.coef_
        weights = np.ascontiguousarray(coef.T, dtype=np.float32)
        for dtype in (np.float32, np.float16):
            rows = X.astype(dtype)

            def plain(rows=rows, weights=weights):
                """The product alone, in single precision."""
                return (rows.astype(np.float32, copy=False) @ weights).argmax(axis=1)

            # One BLAS thread each: idle ones go on spinning, at the cost of whoever comes next.
            with threadpool_limits(1, user_api="blas"):
                times = interleaved(
                    {"plain": plain, "predict": lambda head=head, rows=rows: head.predict(rows)},
                    repeats=7,
                    clock=time.process_time,
                )
            job = f"predict (processor time), {n} x {d} {dtype.__name__}, {n_classes} classes"
            yield row(
                "predict",
                job,
                times["predict"],
                "argmax(X @ W.T), float32",
                times["plain"],
                asked=2,
            )
