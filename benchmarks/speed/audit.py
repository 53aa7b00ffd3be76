"""Audits against as many fits of the audited head; times include its fit and its noise."""

from sklearn.base import clone

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype, ReconstructionAuditor

from .timing import embeddings, interleaved, row

N_PUBLIC = 7_600


def _split(n, d, n_classes):
    X, y = embeddings(n + N_PUBLIC, d, n_classes)
    return X[:n], y[:n], X[n:], y[n:]


def measure(comparators):
    data = _split(120_000, 384, 4)
    head = BallDPRidgePrototype(8.0, radius=1.5)
    auditor = ReconstructionAuditor(head, n_supports=40)
    further = clone(auditor).set_params(n_draws=250)
    times = interleaved(
        {
            "audit": lambda: auditor.fit(*data),
            "draws": lambda: further.fit(*data),
            "fit": lambda: head.fit(*data[:2]),
        },
        repeats=3,
    )
    yield row(
        "audit",
        "400 ridge trials, 120000 x 384, 4 classes",
        times["audit"],
        "400 fits of the head",
        400 * times["fit"],
    )
    yield row(
        "audit",
        "100000 ridge trials, 250 for each candidate",
        times["draws"],
        "100000 fits of the head",
        100_000 * times["fit"],
    )
    for n_classes in (2, 6):
        data = _split(25_000, 384, n_classes)
        for alpha in (1e-2, 1e-4):
            head = BallDPLogisticRegression(8.0, radius=1.5, mechanism="output", alpha=alpha)
            auditor = ReconstructionAuditor(head)
            times = interleaved(
                {
                    "fit": lambda head=head, data=data: head.fit(*data[:2]),
                    "audit": lambda auditor=auditor, data=data: auditor.fit(*data),
                },
                repeats=3,
            )
            job = f"40 logistic trials, 25000 x 384, {n_classes} classes, alpha {alpha:g}"
            yield row(
                "audit", job, times["audit"], "40 fits of the head", 40 * times["fit"], asked=1
            )
