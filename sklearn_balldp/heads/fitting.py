"""Two steps of a fit: promise from public numbers, then let the kernel answer.

A radius policy that reads rows has chosen by then, once the accountant has counted it. The kernel
has the record counted when it accepts the first query, before it reads the rows: nothing takes that
back.
"""

import math
import warnings
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone

from .._validation import all_finite, caller_level
from .._version import __version__
from ..accounting import count
from ..losses import Array
from ..mechanisms import Kernel, Mechanism, Query, Records, Sums, answered, drive
from ..mechanisms.settings import TUNING
from ..privacy.bounds import Bound, check_rising, tag_of
from ..privacy.gaussian import mu_from_budget
from ..privacy.noise import Noise
from ..privacy.problem import Problem
from ..privacy.release import Release
from ..privacy.weights import Weights
from ..progress import bar
from ..radius import ChosenRadius
from ..rows import SINGLE_BLAS_THREAD, blas_threads_for, blocks_of, check_sizes
from .released import Released, Settings


@dataclass(frozen=True)
class Pledge:
    """What a fit will release (the record as it stands before the run): public numbers alone."""

    mechanism: Mechanism
    release: Release
    noise: Noise
    settings: Settings


def promise(head: Any, problem: Problem, radius: ChosenRadius, settings: Settings) -> Pledge:
    """The mechanism of a fit, what it promises, and the record of it."""
    noise = head._noise()
    mu = mu_from_budget(float(head.epsilon), float(head.delta))
    mechanism = clone(head._mechanism())
    if math.isnan(problem.alpha):
        problem = replace(problem, alpha=mechanism.alpha_for(problem, mu))
    public = settings.for_mechanism(problem)
    if public and not mechanism.uses_examples:
        raise ValueError(
            f"class_embeddings: mechanism {mechanism.name} uses nothing public about the classes; "
            "pass class_embeddings=None, or mechanism='gradient'."
        )
    bound = mechanism.bound(problem, mu, **public)
    if not isinstance(bound, Bound):
        raise ValueError(
            f"mechanism {mechanism.name}: bound() must return a Bound, got {type(bound).__name__}."
        )
    promised = bound.mu(problem)
    if not 0.0 <= promised <= mu:
        raise RuntimeError(
            f"mechanism {mechanism.name}: at the radius its bound states mu={promised!r}, which "
            f"misses its own guarantee (at most {mu!r}); nothing was released."
        )
    # The filter keeps what is promised at the radius; what is claimed beyond it is counted.
    named = {problem.euclidean_radius, problem.diameter}
    if head.accountant is not None and head.accountant.radius is not None:
        named.add(problem.euclidean(head.accountant.radius))
    for labels in {"public", problem.labels}:
        check_rising(bound, problem, named, labels)
    record = Release(
        head=type(head).__name__,
        mechanism=mechanism.name,
        problem=problem,
        bound=bound,
        epsilon=float(head.epsilon),
        delta=float(head.delta),
        radius_from=radius.origin,
        sampler=noise.name,
        version=__version__,
        numpy_version=np.__version__,
        date=datetime.now(UTC).date().isoformat(),
        encoder=None if head.encoder is None else str(head.encoder),
        rule=TUNING,
        accepted=tuple(tag_of(kind) for kind in mechanism.accepts if ":" in tag_of(kind)),
        examples=0 if settings.examples is None else settings.examples.total,
    )
    return Pledge(mechanism, record.checked(), noise, settings)


def release(head: Any, pledge: Pledge, records: Records) -> Released:
    """Let the kernel answer the queries of a mechanism, which has the record counted first."""
    mechanism, problem = pledge.mechanism, pledge.release.problem
    bound: Any = pledge.release.bound
    if not isinstance(bound, Sums) and getattr(records.X, "is_lazy", False):
        warnings.warn(
            "X is a Dask array that is not persisted: each pass of this fit computes it anew. Pass "
            "X.persist(), if its chunks fit into the memory of the workers.",
            UserWarning,
            stacklevel=caller_level(),
        )
    if head.accountant is not None:
        # A limit is told before rows are read, and rows that are refused anyway cost nothing.
        head.accountant.ledger.check(pledge.release)
        _check_rows(records.X, problem.domain)
    # Made before any row is in reach.
    conversation = mechanism.conversation(problem, bound, **pledge.settings.for_mechanism(problem))
    charge = partial(count, head.accountant, pledge.release)
    rules = answered(mechanism), mechanism.most_queries, charge
    kernel = Kernel(problem, records, bound, pledge.noise, *rules)
    kept = head._keep_answers or keeps_answers(mechanism, bound)
    answers: list[Array] = []
    with (
        all_finite(),
        blas_threads_for(problem.n_features),
        np.errstate(all="ignore"),
        bar(None, "descent", "step", bound.n_steps)
        if bound.has_transcript
        else nullcontext() as steps,
    ):

        def answer(query: Query) -> Array:
            with SINGLE_BLAS_THREAD:
                noisy = kernel(query)
            if kept:
                answers.append(noisy)
            if steps is not None and query is not bound.start:
                steps.update(1)
            return noisy

        # A copy, which nobody else can change.
        values = np.array(drive(conversation, answer), dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError(
            f"mechanism {mechanism.name}: parameters must be finite; nothing is published."
        )
    if problem.loss:
        shape = problem.kind.n_scores, problem.n_features + int(problem.fit_intercept)
        if values.shape != shape:
            raise ValueError(
                f"mechanism {mechanism.name}: parameters of shape {values.shape}, where this head "
                f"needs {shape} (scores, features and intercept)."
            )
    released = Released(
        pledge.release, head.classes_, values, mechanism, tuple(answers), pledge.settings
    )
    return released.with_digest()


def _check_rows(X: Any, domain: str) -> None:
    """Raise a ValueError if rows in memory are refused; those of files are read once counted."""
    if isinstance(X, np.ndarray):
        with all_finite():
            for _, block in blocks_of(X):
                check_sizes(block, domain)


def keeps_answers(mechanism: Mechanism, bound: Bound) -> bool:
    """Whether a fit keeps the noisy answers: a transcript only if the mechanism is asked to."""
    return not bound.has_transcript or bool(getattr(mechanism, "keep_transcript", False))


def warn_of_large_delta(delta: float, weights: Weights) -> None:
    """Warn where a delta would allow a whole record, or all of a person's, to be published."""
    share = 1.0 / weights.n_units
    if delta >= share:
        persons = weights.unit == "person"
        number, units = ("n_persons", "persons") if persons else ("n_samples", "records")
        warnings.warn(
            f"delta={delta!r} is not below 1/{number}={share:.3g}: releasing whole "
            f"{units} at random would satisfy it; choose a smaller delta.",
            UserWarning,
            stacklevel=caller_level(),
        )
