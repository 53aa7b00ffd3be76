"""Ridge prototypes: one noisy shrunken mean per class."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._parameters import check_option, checked_priors
from ..privacy.bounds import Bound, PrototypeBound
from ..privacy.noise import Noise
from ..privacy.release import Release
from ..privacy.sensitivity import COUNT_MODES
from ..rows import Shard, ball_factors, block_rows, project_onto_ball, table_of
from .base import BaseBallDPClassifier
from .descriptions import described
from .mechanism import (
    Array,
    Budget,
    Codes,
    Mechanism,
    Neighbours,
    Outcome,
    PrivateProblem,
    Problem,
    Promise,
    Rows,
    as_sets,
)
from .prototype_rule import gaussian_rule, shift_of_priors
from .scoring import ProbabilitiesMixin


@described
class BallDPRidgePrototype(ProbabilitiesMixin, BaseBallDPClassifier):
    r"""Ball-DP classifier by noisy class means (ridge prototypes).

    Releases one prototype per class, the minimiser of

    .. math:: \frac1n \sum_i \|x_i - \mu_{y_i}\|^2 + \frac{\alpha}{2} \sum_c \|\mu_c\|^2,
              \qquad \mu_c = \frac{2 S_c}{2 n_c + \alpha n},

    with class sums :math:`S_c`, plus Gaussian noise that hides the substitution of one row by
    another of the same label within ``radius``, at (epsilon, delta).

    Parameters
    ----------
    $epsilon
    $delta
    $radius
    $metric
    alpha : float, default=0.01
        How far prototypes are shrunk towards zero. With ``counts="per_class"`` the noise shrinks as
        much, so it hardly matters. With ``counts="worst"`` or protected labels a larger alpha takes
        less noise relative to the prototypes. It is the paper's lambda.
    norm_bound : float, default=1.0
        The radius B of the ball that rows are projected onto: longer rows are shortened to it. A
        large B can cost noise, a small one changes the rows. 1 suits embeddings of unit norm.
        Declare it; never read it off the rows.
    counts : {"per_class", "min", "worst"}, default="per_class"
        How much noise each class gets: accuracy falls from "per_class" to "worst", and so does the
        measured success of an attack, under the same certificate. "per_class" gives each class the
        noise that its own public count asks for. "min" gives all classes the noise of the smallest.
        "worst" does not use counts (the paper's Table 1); it raises a ValueError for unequal
        weights, and for persons with several records. Not used with ``protect_labels=True``, where
        counts are private.
    decision : {"auto", "nearest", "gaussian"}, default="auto"
        How a row is classified; it can be changed after the fit, at no cost in privacy. "gaussian"
        knows how much of a prototype is noise, uses class priors and offers ``predict_proba``; it
        needs public labels. "nearest" takes the closest noisy prototype, as the paper does. "auto"
        is "gaussian" where labels are public, else "nearest".
    $priors
        The "gaussian" rule takes them; they can be changed after the fit, at no cost in privacy.
    $protect_labels
        That takes far more noise: at epsilon 2 it costs 5 to 18 points of accuracy where classes
        have thousands of records, and more where they have fewer.
    $classes
    $encoder
    $random_state
    $verbose

    Attributes
    ----------
    prototypes_ : ndarray of shape (n_classes, n_features)
        Noisy prototypes.
    $classes_
    $class_counts_
    $release_
    $n_features_in_
    $feature_names_in_

    References
    ----------
    Margaryan & Gupta, "Ball Differential Privacy: How to Mitigate Data Reconstruction with Less
    Noise" (mechanism, "worst" and "min"); per-class noise, label protection and the "gaussian"
    rule are derived in this package's documentation.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> X, y = load_digits(return_X_y=True)
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5, random_state=0)
    >>> head.fit(normalize(X), y).score(normalize(X), y) > 0.8
    True
    >>> head.release_.private  # seeded: reproducible, so not private
    False
    """

    _acting = ("decision", "priors", "verbose")
    _parameters = ("prototypes_", "class_counts_")

    def __init__(
        self,
        epsilon=1.0,
        delta=1e-6,
        radius=None,
        metric="euclidean",
        *,
        alpha=0.01,
        norm_bound=1.0,
        counts="per_class",
        decision="auto",
        priors=None,
        protect_labels=False,
        classes=None,
        encoder=None,
        random_state=None,
        verbose=False,
    ):
        self.epsilon = epsilon
        self.delta = delta
        self.radius = radius
        self.metric = metric
        self.alpha = alpha
        self.norm_bound = norm_bound
        self.counts = counts
        self.decision = decision
        self.priors = priors
        self.protect_labels = protect_labels
        self.classes = classes
        self.encoder = encoder
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_option("counts", self.counts, COUNT_MODES)
        check_option("decision", self.decision, ("auto", "nearest", "gaussian"))
        if self.protect_labels and self.decision == "gaussian":
            raise ValueError(
                "decision='gaussian' uses class counts, which protect_labels=True keeps private; "
                "use decision='nearest'."
            )
        if self.priors is not None and not self._would_be_gaussian():
            raise ValueError(
                f"priors={self.priors!r} go with the 'gaussian' decision, for public labels; use "
                "priors=None."
            )

    def _would_be_gaussian(self) -> bool:
        """Whether the rule of a fit to come is the noise-aware one."""
        return self.decision == "gaussian" or (self.decision == "auto" and not self.protect_labels)

    def _mechanism(self) -> Mechanism:
        return PrototypePerturbation(self.counts)

    def _publish(
        self, parameters: NDArray[np.float64], problem: Problem, bound: Bound
    ) -> dict[str, Any]:
        return {"prototypes_": parameters}

    def _released_values(self, record: Release) -> NDArray[np.float64]:
        return self.prototypes_

    def _is_gaussian(self) -> bool:
        """Whether the rule in use is the noise-aware one."""
        if self.decision != "auto":
            return self.decision == "gaussian"
        fitted = getattr(self, "release_", None)
        return fitted.labels == "public" if fitted is not None else self._would_be_gaussian()

    def _has_probabilities(self) -> bool:
        return self._is_gaussian()

    def _linear_rule(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        if self._is_gaussian():
            if self.release_.labels == "protected":
                raise ValueError(
                    "decision='gaussian' uses class counts, which this release keeps private; set "
                    "decision='nearest', or fit with protect_labels=False."
                )
            masses = self._class_sizes()
            priors = checked_priors(self.priors, len(self.classes_), masses)
            coef, intercept = gaussian_rule(
                self.prototypes_,
                masses,
                np.broadcast_to(self.release_.sigma, len(self.classes_)),
                alpha=self.release_.alpha,
                norm_bound=self.release_.norm_bound,
            )
            return coef, intercept + shift_of_priors(priors, masses)
        if self.priors is not None:
            raise ValueError(
                f"priors={self.priors!r}: the nearest prototype knows no class probabilities; use "
                "decision='gaussian', or priors=None."
            )
        offsets = -0.5 * np.vecdot(self.prototypes_, self.prototypes_)
        if self.release_.labels == "public":
            offsets[self._class_sizes() == 0] = -np.inf
        return self.prototypes_, offsets


class PrototypePerturbation(Mechanism):
    """Noise on ridge prototypes, a closed form of the class sums; ``counts`` is the head's."""

    name = "output"

    def __init__(self, counts="per_class"):
        self.counts = counts

    def settings_beside(self, record: Any) -> dict[str, tuple[Any, Any]]:
        public = record.labels == "public"
        return {"counts": (str(self.counts), record.bound.mode)} if public else {}

    def promise(self, problem: Problem, budget: Budget) -> Promise:
        mode = "worst" if problem.labels == "protected" else str(self.counts)
        bound = PrototypeBound(
            n_samples=problem.n_samples,
            n_values=problem.n_classes * problem.n_features,
            alpha=problem.alpha,
            norm_bound=problem.norm_bound,
            mode=mode,
            class_counts=None if mode == "worst" else problem.class_counts,
            labels=problem.labels,
            weights=problem.sums_weights,
        ).calibrated(problem.radius, budget.mu)
        return Promise(bound)

    def run(self, problem: PrivateProblem, promise: Promise, noise: Noise) -> Outcome:
        return Outcome(noise(*self.noiseless(problem, promise)))

    def noiseless(self, problem: PrivateProblem, promise: Promise) -> tuple[Array, Array]:
        bound: Any = promise.bound
        shrink = 2.0 * problem.counts() + problem.alpha * problem.sums_total
        sums = class_sums(
            problem.X, problem.codes, problem.n_classes, problem.norm_bound, problem.row_weights
        )
        return 2.0 * sums / shrink[:, None], np.array(bound.sigma)[:, None]

    def neighbours(self, problem: PrivateProblem, promise: Promise) -> Neighbours:
        # In closed form: a record moves the prototype of its class alone.
        bound: Any = promise.bound
        all_sums = class_sums(
            problem.X, problem.codes, problem.n_classes, problem.norm_bound, problem.row_weights
        )
        ridge = problem.alpha * problem.sums_total

        def models(left_out: Any, rows: Rows, codes: Codes) -> Array:
            places, rows, codes = as_sets(left_out, rows, codes)
            weights = np.ones(len(places))
            if problem.row_weights is not None:
                weights = problem.row_weights[places]

            def weighed(some: Rows) -> Array:
                inside = project_onto_ball(some.astype(np.float64), problem.norm_bound)
                return weights[:, None] * inside

            known, counts = all_sums.copy(), problem.counts()
            np.subtract.at(known, problem.codes[places], weighed(problem.X[places]))
            np.subtract.at(counts, problem.codes[places], weights)
            fits = []
            for some, code in zip(rows, codes, strict=True):
                sums, masses = known.copy(), counts.copy()
                np.add.at(sums, code, weighed(some))
                np.add.at(masses, code, weights)
                fits.append(2.0 * sums / (2.0 * masses + ridge)[:, None])
            return np.stack(fits)

        return Neighbours(models, np.array(bound.sigma)[:, None])


def class_sums(
    X: NDArray[np.floating],
    codes: NDArray[np.intp],
    n_classes: int,
    norm_bound: float,
    row_weights: Array | None = None,
) -> NDArray[np.float64]:
    """Class sums of the projected rows, in one pass over row blocks, accumulated in float64."""
    table = table_of(X, codes=codes, weights=row_weights)
    sums: Array = table.total(_class_sums, n_classes, norm_bound)[0]
    return sums


def _class_sums(part: Shard, n_classes: int, norm_bound: float) -> tuple[Array]:
    """Class sums of one shard."""
    codes, weights = part.column("codes"), part.column("weights")
    total = part.to_device(np.zeros((n_classes, part.shape[1])))
    sums_of = part.class_sums(n_classes)
    # One pass only: larger blocks spend less time between them.
    for rows, block in part.blocks(2 * block_rows(part.shape[1])):
        factors = ball_factors(block, norm_bound)
        entries = part.to_device(np.ones(block.shape[0])) if factors is None else factors
        if weights is not None:
            entries = entries * weights[rows]
        total += sums_of(block, codes[rows], entries)
    return (total,)
