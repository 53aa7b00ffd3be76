"""What parameters and attributes of several heads mean: written once, shown by each head."""

import inspect
import re
from string import Template
from typing import TypeVar

_SHARED = """\
epsilon : float, default=1.0
    How strongly a substitution is hidden: a smaller value hides more, and takes more noise.
    Positive.
delta : float, default=1e-6
    A small allowance beside ``epsilon``: a smaller value promises more, and takes a little more
    noise. Strictly between 0 and 1. Choose it far below ``1 / n_samples``; ``fit`` warns if it
    is not below.
radius : float, RadiusPolicy or None, default=None
    Which substitutions are hidden: a larger radius hides larger changes, and takes more noise.
    It is a distance in units of ``metric`` between rows as this head sees them; a
    :class:`.RadiusPolicy` chooses it. None is the full radius ``2 * norm_bound``: every change
    of a row is hidden, and labels and class counts stay public (with ``protect_labels=True``
    this is standard bounded DP).
metric : {"euclidean", "manhattan", "chebyshev"}, default="euclidean"
    How the distance between two rows of one label is measured. "euclidean" wastes no noise. For
    the others the noise is that of the smallest Euclidean ball that holds theirs; with
    "chebyshev" its radius is up to ``sqrt(n_features)`` times as large.
domain : {"ball", "sphere"}, default="ball"
    Choose "sphere" for rows of unit norm and a small radius: the second moment of the rows,
    which a descent starts from too, then takes up to 29 % less noise. It scales every row to
    norm ``norm_bound`` by itself, and radii are distances between scaled rows; zero rows stay
    zero. "ball" projects rows outside the ball of radius ``norm_bound`` onto it.
mechanism : {"auto", "output", "gradient"} or Mechanism, default="auto"
    Where the noise is added, which decides how accurate the head is. "gradient"
    (:class:`.GradientPerturbation`) adds it to class sums, and then to the gradients of a
    descent that starts from them. "output" (:class:`.OutputPerturbation`) adds it to the
    certified minimiser, as the paper does. "auto" takes "output" only if its noise would be
    small at ``alpha``, or at ``0.3 / n_samples`` if that is None: in practice at an epsilon of
    several hundred at least. Elsewhere it takes "gradient", which is more accurate by far. The
    record names the choice. Pass an object to set a mechanism's parameters, or a mechanism of
    your own.
alpha : float or None, default=None
    Strength of the regularisation, which pulls the weights towards zero. Leave it at None with
    noise on gradients, which needs none (None is 0): alpha saves no noise there, and the model
    fits worse. With noise on the minimiser a larger alpha takes less noise. None then picks the
    smallest that keeps the noise small, by public numbers; it is at least ``0.3 / n_samples``.
    A number also enters the choice of "auto", and can turn it to "output". Alpha is the paper's
    lambda; scikit-learn's ``C`` is ``1 / (alpha * n_samples)``.
norm_bound : float, default=1.0
    The radius B of the ball that rows are projected onto: longer rows are shortened to it (on
    the sphere all rows have this norm). A large B can cost noise, a small one changes the rows.
    1 suits embeddings of unit norm. Declare it; never read it off the rows.
fit_intercept : bool, default=True
    Gives each score an offset of its own. That costs noise where noise is added to the
    minimiser; where it is added to gradients, it lets rows be centred, which saves noise. Rows
    are augmented by a constant (1; on gradients 0.15 times ``norm_bound``), whose weight, the
    intercept, is regularised.
class_weight : "balanced", dict or None, default=None
    Makes rare classes count more in the loss, and takes more noise: the noise grows with the
    largest weight over the mean weight. For public labels. "balanced" is
    ``n_samples / (n_classes * n_c)``, capped at 4, with ``n_classes`` those that have records; a
    dict maps labels to positive weights.
priors : array-like of shape (n_classes,), "uniform" or None, default=None
    Keeps rare classes in view without any noise: the class probabilities that predictions
    assume. "uniform" takes all classes to be equally common; None takes the shares that the
    classes have in the fit.
class_embeddings : array-like of shape (n_classes, n_features) or None, default=None
    Helps where classes are many and the noise is large, at no cost in privacy: a public vector
    for each class, such as the embedding of its name. Noisy class means are shrunk towards a
    fitted multiple of it.
protect_labels : bool, default=False
    Hides a change of one record's label too, at any distance. Needs ``classes``.
classes : array-like or None, default=None
    Which labels exist: a public list, needed with ``protect_labels=True``. It may name labels
    that are absent from ``y``; noise may then have some rows predicted as these. None takes the
    labels seen in ``y`` (public labels only).
encoder : str or None, default=None
    Keeps apart what must not be added up: a name for where the rows come from (encoder, scale),
    which goes into the record. Releases that name different ones are not added up.
random_state : None, int, Generator or RandomState, default=None
    Leave it at None for privacy: noise is then drawn exactly, from operating-system entropy. A
    seed makes the release reproducible and therefore not private, which ``release_.private``
    states.
verbose : bool, default=False
    Long passes and descents of a fit show a bar on a terminal. True shows it in notebooks and
    logs too.
classes_ : ndarray of shape (n_classes,)
    Labels.
class_counts_ : ndarray of shape (n_classes,)
    Public class counts; absent with ``protect_labels=True``.
transcript_ : Transcript
    Noisy gradients, iterates and noise scales, where the mechanism keeps them.
release_ : Release
    Public record of the release: guarantee, sensitivity, noise, assumptions.
n_features_in_ : int
    Number of features.
feature_names_in_ : ndarray of shape (n_features,)
    Feature names, when ``X`` has string column names."""

_BY_NAME = {text.split(" ", 1)[0]: text for text in re.split(r"\n(?=\S)", _SHARED)}

Head = TypeVar("Head", bound=type)


def described(head: Head) -> Head:
    """Fill in the docstring of a head: ``$name`` on a line becomes the shared description.

    Indented lines that follow add what holds for that head alone.
    """
    # Under python -OO there is no docstring.
    if head.__doc__ is not None:
        own = inspect.cleandoc(head.__doc__)
        head.__doc__ = Template(own).substitute(_BY_NAME) + "\n"
    return head
