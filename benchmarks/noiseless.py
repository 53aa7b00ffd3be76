"""Noiseless values of one dataset, computed once for all the releases that a benchmark draws."""

import contextlib
import functools
import zlib
from dataclasses import fields
from unittest import mock

from sklearn_balldp.mechanisms import Minimiser, Sums

# The values of these queries follow from the records, the problem and the query without its noise.
_KINDS = (Sums, Minimiser)


def _print_of(codes, weights):
    """What tells labels and weights from others."""
    return zlib.crc32(codes.tobytes()), None if weights is None else zlib.crc32(weights.tobytes())


def _asked(query):
    """A query without its noise scales; the second moment is asked or not."""
    own = {own.name: getattr(query, own.name) for own in fields(query) if own.name != "sigma"}
    own["moment"] = own.get("moment") is not None
    return type(query).__name__, *own.items()


# The rows last given, and what was computed of them.
_kept: dict = {"rows": None}


@contextlib.contextmanager
def shared(X):
    """Inside, what fits on this very array compute before noise is added is computed once."""
    if _kept["rows"] is not X:
        _kept.clear()
        _kept["rows"] = X
    with contextlib.ExitStack() as stack:
        for kind in _KINDS:
            stack.enter_context(mock.patch.object(kind, "values", _remembered(kind.values, X)))
        yield


def _remembered(values, X):
    @functools.wraps(values)
    def remembered(query, problem, records):
        if records.X is not X:
            return values(query, problem, records)
        public = problem.domain, problem.norm_bound, problem.n_classes
        if isinstance(query, Minimiser):
            public += problem.loss, problem.alpha, problem.fit_intercept
            public += problem.class_weights, problem.loss_weights.total
        place = _asked(query), public, _print_of(records.codes, records.weights)
        if place not in _kept:
            _kept[place] = values(query, problem, records)
        return _kept[place]

    return remembered
