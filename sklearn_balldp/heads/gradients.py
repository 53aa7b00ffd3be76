r"""Mean gradients of weighted records at any parameters, with a bound on what rounding moves.

Rows keep their precision: float32 is computed in float32, which halves the time of a pass. That is
accounted for as follows. A computed mean is a sum over small blocks of rows, added up in float64.
Between two datasets that differ in one row the other blocks are the same numbers, bit by bit; the
block of that row moves by the distance of the two gradients, plus what rounding does to one record
and to the sum of one block, twice. :meth:`MeanGradient.rounding` bounds both. For the other blocks
to be the same, nothing but a row itself may decide how it is stored or computed: rows are always
copied, to C order, from blocks in C order: where they lie in memory may decide bits of a product.

Several records of one person may be in as many blocks, each of which errs by itself: their sums are
made in double precision.
"""

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..losses import Array, Loss, clip_residuals, make_loss
from ..privacy.weights import Weights, mass_of
from ..rows import (
    Rows,
    ball_factors,
    check_unchanged,
    map_shards,
    project_onto_ball,
    row_blocks,
    shards_of,
    total_of_shards,
    working_precision,
)
from ..rows.passes import BLOCK_VALUES

# Rows that are added up in the rows' own precision.
_SUMMED = 128
#: Bytes of moved and projected rows that are kept between passes; more are made again in each.
KEPT_BYTES = 2**27
_PLACED_VALUES = 2**15
_FLOAT64_ROUNDOFF = 2.0**-53


class MeanGradient:
    """Mean gradients over a fixed dataset, without the regulariser.

    Parameters
    ----------
    loss : {"logistic", "softmax", "squared_hinge"}
        Loss of one record.
    X : ndarray of shape (n_samples, n_features)
        Rows, or a file of them.
    codes : ndarray of shape (n_samples,)
        Class codes.
    n_classes : int
        Number of classes.
    norm_bound : float
        Radius of the ball onto which rows are projected.
    constant : float
        Constant that rows are augmented by; 0 for no intercept.
    clip : float or None
        Norm to which the residual of each record, its derivative by the scores, is clipped.
    moved : tuple of (float, ndarray of shape (n_features,)), optional
        Radius of a ball onto which rows are projected first, and a public vector that they are
        moved by then.
    weights : tuple of (Weights, ndarray of shape (n_samples,)), optional
        Public numbers of the records' weights, and the weights; 1 by default.
    total : float, optional
        What sums are divided by; the number of records by default.
    pool : Executor, optional
        Threads for the passes, beside this one; none by default.

    Raises
    ------
    FloatingPointError
        If a row holds NaN or infinity.
    """

    def __init__(
        self,
        loss: str,
        X: Any,
        codes: NDArray[np.intp],
        n_classes: int,
        *,
        norm_bound: float,
        constant: float,
        clip: float | None,
        moved: tuple[float, Array] | None = None,
        weights: tuple[Weights | None, Array | None] = (None, None),
        total: float | None = None,
        pool: Executor | None = None,
    ) -> None:
        self._pool = pool
        self._public, self._weights = weights
        self._total = float(len(X)) if total is None else total
        self.loss, self.codes, self.clip = make_loss(loss, n_classes), codes, clip
        self.norm_bound, self.constant = norm_bound, float(constant)
        several = self._public is not None and self._public.most_records > 1
        numbers = [self.norm_bound, self.clip or 1.0]
        numbers += [] if self._public is None else [self._public.largest]
        precision: Any = np.float64 if several else working_precision(X.dtype, *numbers)
        #: Precision that rows are computed in.
        self.dtype: np.dtype = np.dtype(precision)
        self._source, self._moved = X, moved
        self._n, self._d = X.shape
        #: Rows as they are computed with, where they are kept; else what each is multiplied by.
        self.X: Any = None
        self._factors: list[Array | None] = [None, None]
        self._back = False
        self.shape = (self.loss.n_scores, self._d + int(constant > 0.0))
        self._prepare()

    def _prepare(self) -> None:
        """Keep the rows, moved and projected; or only what moves and projects them."""
        keep = self._n * self._d * self.dtype.itemsize <= KEPT_BYTES
        rows = np.empty((self._n, self._d), dtype=self.dtype) if keep else None
        moved = self._moved
        first = np.ones(self._n) if moved is not None and not keep else None
        second = None if keep else np.ones(self._n)

        def project(start: int, stop: int) -> tuple[bool, bool]:
            outside = [False, False]
            for part, block in row_blocks(self._source, start, stop):
                if moved is not None:
                    inside = project_onto_ball(block, moved[0])
                    if first is not None and inside is not block:
                        factors = ball_factors(block, moved[0])
                        if factors is not None:
                            first[part], outside[0] = factors, True
                    block = inside - moved[1]
                factors = ball_factors(block, self.norm_bound)
                if factors is not None:
                    outside[1] = True
                    if second is not None:
                        second[part] = factors
                if rows is not None:
                    # A factor of one changes nothing, so that a row is stored alike in any block.
                    rows[part] = block if factors is None else block * factors[:, None]
            return outside[0], outside[1]

        outside = list(map_shards(project, self._n, self._d))
        self.X = rows
        if any(one for one, _ in outside):
            self._factors[0] = first
        if any(other for _, other in outside):
            self._factors[1] = second

    def _chunks(self, start: int, stop: int) -> Iterator[tuple[slice, NDArray[np.floating]]]:
        """Rows as they are computed with: a few megabytes at a time, in whole summed blocks."""
        # Twice the bytes of a float64 block: residuals of a chunk stay in the cache with it.
        size = max(1, 4 * BLOCK_VALUES // (_SUMMED * self._d)) * _SUMMED
        if self.X is not None:
            # To and fro: a pass starts with the rows that the last one left in the cache.
            for first in range(start, stop, size)[:: -1 if self._back else 1]:
                rows = slice(first, min(first + size, stop))
                yield rows, self.X[rows]
            return
        exact = self._moved is None and self._factors[1] is None
        placed = np.empty((min(size, stop - start), self._d), dtype=self.dtype)
        # A few rows at a time: what is made of them in double precision stays in the cache.
        few = max(1, _PLACED_VALUES // self._d)
        scratch = np.empty((few, self._d))
        source: Any = self._source.dtype.newbyteorder("=").type
        for rows, block in row_blocks(self._source, start, stop, size=size, dtype=source):
            whole = placed[: len(block)]
            if exact:
                # Copied all the same: that a row is projected must not decide where others lie.
                whole[:] = block
                self._check(whole)
            else:
                for first in range(0, len(block), few):
                    part = block[first : first + few]
                    self._place(rows.start + first, part, scratch[: len(part)])
                    whole[first : first + len(part)] = scratch[: len(part)]
            yield rows, whole

    def _place(self, start: int, rows: NDArray[np.floating], out: Array) -> None:
        """Rows from position ``start`` on, moved and projected, in double precision."""
        before, after = self._factors
        np.copyto(out, rows)
        if before is not None:
            out *= before[start : start + len(rows), None]
        if self._moved is not None:
            out -= self._moved[1]
        if after is not None:
            out *= after[start : start + len(rows), None]
        self._check(out)

    def _check(self, rows: NDArray[np.floating]) -> None:
        """Raise a ValueError where rows of a file are not those that were projected."""
        if isinstance(self._source, Rows):
            check_unchanged(rows, self.norm_bound)

    def __call__(self, thetas: Array) -> Array:
        """Mean gradients at several parameters, in one pass over the rows."""
        n_features, n_columns = self._d, thetas.shape[0] * thetas.shape[1]
        columns = thetas.reshape(n_columns, -1).astype(self.dtype)
        weights = np.ascontiguousarray(columns[:, :n_features].T)
        offsets = (self.constant * columns[:, -1]).astype(self.dtype).reshape(thetas.shape[:2])

        def evaluate(start: int, stop: int) -> Array:
            total = np.zeros((n_columns, thetas.shape[2]))
            for rows, block in self._chunks(start, stop):
                # One column is a matrix-vector product, which BLAS runs faster as such.
                scores = block @ (weights[:, 0] if n_columns == 1 else weights)
                scores = scores.reshape(len(block), *thetas.shape[:2])
                if self.constant > 0.0:
                    scores += offsets
                residuals = self.loss.residuals(scores, self.codes[rows])
                if self.clip is not None:
                    clip_residuals(residuals, self.clip)
                residuals = residuals.reshape(len(block), n_columns)
                if self._weights is not None:
                    residuals *= self._weights[rows, None].astype(residuals.dtype)
                total[:, :n_features] += _block_sums(residuals, block)
                if self.constant > 0.0:
                    total[:, -1] += self.constant * _block_sums(residuals, None)[:, 0]
            return total

        parts: Iterator[Array]
        if self._pool is None:
            parts = (evaluate(*shard) for shard in shards_of(self._n, n_features))
        else:
            parts = map_shards(evaluate, self._n, n_features, self._pool, back=self._back)
        total = total_of_shards(parts)
        self._back = self.X is not None and not self._back
        return (total / self._total).reshape(thetas.shape)

    def rounding(self, theta: Array) -> float:
        """Half of what rounding adds to the sensitivity of a computed mean."""
        return mean_rounding(
            self.loss,
            theta,
            n_samples=self._n,
            n_features=self._d,
            norm_bound=self.norm_bound,
            constant=self.constant,
            clip=self.clip,
            dtype=self.dtype,
            weights=self._public,
        )


def mean_rounding(
    loss: Loss,
    theta: Array,
    *,
    n_samples: int,
    n_features: int,
    norm_bound: float,
    constant: float,
    clip: float | None,
    dtype: DTypeLike,
    weights: Weights | None = None,
) -> float:
    r"""Half of what rounding adds to the sensitivity of a mean gradient that is computed.

    With u the unit roundoff of the rows, scores err by :math:`(d + 6) u (\|w\| B + |b|)`,
    residuals by a Lipschitz constant times that and by :math:`(K + 20) u` times their size,
    clipping factors and stored rows likewise, and the sum of m gradients of norm M by
    :math:`m^2 u M`. float64 sums err by their number of terms times :math:`2^{-53} M`, and so
    does the division by the noise scale.

    With weights a record errs by its share of them, and each of the blocks that one person's
    records may be in by its m terms of the largest weight.
    """
    u = float(np.finfo(dtype).eps)
    norm, offset = float(np.linalg.norm(theta)), 0.0
    if constant > 0.0:
        norm = float(np.linalg.norm(theta[:, :-1]))
        offset = constant * float(np.linalg.norm(theta[:, -1]))
    # Stored rows may be rounded to outside of the ball.
    augmented = math.hypot(norm_bound, constant) * (1.0 + 1e-6)
    score = norm * norm_bound + offset
    largest = loss.score_residual_limit(score) * math.sqrt(loss.n_scores)
    evaluation = (loss.n_scores + 20.0) * u
    residual = loss.curvature * (n_features + 6.0) * u * score + evaluation * largest
    if clip is not None:
        largest = min(largest, clip)
    gradient = largest * augmented
    record = residual * augmented + evaluation * gradient
    # m sums of at most m terms err by m^2 u / (1 - m u): below 1.01 m^2 u also in float32.
    block = 1.01 * _SUMMED**2 * u * gradient
    sums = (n_samples / _SUMMED + _SUMMED + 8.0) * _FLOAT64_ROUNDOFF * gradient
    if weights is not None and not weights.uniform:
        # Weights are rounded, and so are their products.
        record += 4.0 * u * gradient
        block *= 1.02 * weights.most_records * weights.record / weights.largest
    return (record + block) / mass_of(weights, n_samples) + sums


def _block_sums(residuals: NDArray[np.floating], rows: NDArray[np.floating] | None) -> Array:
    """Residuals times rows (or times one): blocks in their own precision, added up in float64."""
    n_rows, n_columns = residuals.shape
    whole = n_rows // _SUMMED * _SUMMED
    total = np.zeros((n_columns, 1 if rows is None else rows.shape[1]))
    for part in (slice(0, whole), slice(whole, None)):
        if len(residuals[part]):
            size = min(_SUMMED, len(residuals[part]))
            blocks = residuals[part].reshape(-1, size, n_columns)
            if rows is None:
                total[:, 0] += blocks.sum(axis=1, dtype=np.float64).sum(axis=0)
            else:
                products = blocks.swapaxes(1, 2) @ rows[part].reshape(-1, size, rows.shape[1])
                total += products.sum(axis=0, dtype=np.float64)
    return total
