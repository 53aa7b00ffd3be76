"""What a record says, in words: what the card, reports and the command have in common."""

import math
from collections.abc import Iterable

from ..privacy.bounds import Blocks
from ..privacy.origins import Declared, Edits, Number, Reference
from ..privacy.release import Release
from ..showing import DOWN, UP, one_line, rounded, up

_OF_RADIUS: dict[type, tuple[str, ...]] = {
    Number: (),
    Reference: ("the radius was read off public reference rows",),
    Edits: ("the radius was read off public records before and after an edit",),
    Declared: ("the radius, a quantile of the private rows, is declared public",),
}
_OF_LABELS = {
    "public": "labels and class counts are public",
    "protected": "label changes are hidden too",
}
_PRIVATE = {
    True: "yes",
    False: "NO: the noise was drawn from a seed",
    "conditional": "if the radius, a quantile of private rows, is public",
}


def unit_in_words(release: Release) -> str:
    """What one substitution replaces."""
    if release.unit == "record":
        return "one record"
    n_records = release.weights.most_records
    return f"one person (at most {n_records} record{'s' if n_records > 1 else ''})"


def weights_in_words(release: Release) -> str:
    """Public weights; empty where records count once each."""
    weights = release.weights
    if weights.uniform:
        return ""
    return f"noise of {weights.effective_size:.6g} records, for {release.n_units} {release.unit}s"


def hidden_edits(release: Release) -> str:
    """Which share of the edits the radius hides; empty where it came from none."""
    origin = release.radius_from
    if not isinstance(origin, Edits):
        return ""
    # Rounded down: they are claims.
    pairs, records = (
        None if share is None else f"{math.floor(1000.0 * share + 1e-9) / 10.0:g} %"
        for share in (origin.share, origin.share_of_records)
    )
    all_of = "" if records is None else f", and all of them for {records} of the records"
    return f"{pairs} of the {origin.n} given edits{all_of}"


def started_from(release: Release) -> str:
    """What of public examples a fit started from; empty where it had none."""
    return f"started from {release.examples} public examples" if release.examples else ""


def vouched_for(release: Release) -> str:
    """Which proofs the publisher alone vouches for; empty where none."""
    if not release.accepted:
        return ""
    names = ", ".join(one_line(name, 80) for name in release.accepted)
    return f"the sensitivity of {names} is as the publisher states; nobody else has checked it"


def assumptions(release: Release) -> tuple[str, ...]:
    """What the guarantee takes for granted."""
    persons = "whose each record is, and how many records each person has, are public"
    scaled = "radii are distances between rows scaled to one norm"
    given = {
        "the number of records, the label set, the encoder and every parameter are public": True,
        _OF_LABELS[release.labels]: True,
        persons: release.unit == "person",
        "each record is one row, mapped to it without looking at the others": True,
        scaled: release.domain == "sphere",
        **dict.fromkeys(_OF_RADIUS[type(release.radius_from)], True),
        "public examples were chosen without a look at the private records, and what an attacker "
        "may guess beforehand is meant with these at hand": release.examples > 0,
        vouched_for(release): bool(release.accepted),
    }
    return tuple(text for text, holds in given.items() if holds)


def summary(release: Release) -> str:
    """A record in a dozen lines, for readers who know the terms; :func:`.card` explains them.

    Parameters
    ----------
    release : Release
        The record of a fit (``release_``).

    Returns
    -------
    str
        A line for each title. Bounds are rounded up, and noise scales down.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_balldp import BallDPRidgePrototype
    >>> from sklearn_balldp.publish import summary
    >>> head = BallDPRidgePrototype(epsilon=4.0, radius=0.5).fit(*load_iris(return_X_y=True))
    >>> print(summary(head.release_).partition("\\n")[0])
    head            BallDPRidgePrototype
    """
    of_persons = f" of {release.n_units} persons" if release.unit == "person" else ""
    encoder = f", encoder {release.encoder}" if release.encoder else ""
    edits, weights = hidden_edits(release), weights_in_words(release)
    examples = started_from(release)
    rows = {
        "head": release.head,
        "mechanism": release.bound.what,
        "data": f"{release.n_samples} records{of_persons}, {release.n_features} features, "
        f"{release.n_classes} classes{encoder}",
        "hides": f"substitution of {unit_in_words(release)} within {release.radius:g} "
        f"({release.metric}){edits and ': '}{edits}",
        "labels": release.labels,
        "guarantee": f"epsilon={release.epsilon:g}, delta={release.delta:g} "
        f"(mu={up(release.mu)}, zCDP rho={up(release.rho)})",
        **({"weights": weights} if weights else {}),
        **({"examples": examples} if examples else {}),
        "at full radius": f"epsilon={up(release.epsilon_full_radius)}, labels {release.labels}",
        "sensitivity": f"{_by_query(release, 1, UP)}; {release.theorem}",
        "noise scale": f"{_by_query(release, 2, DOWN)}; {release.sampler}",
        "private": _PRIVATE[release.private],
        "assumes": "; ".join(assumptions(release)),
        "parameters": f"SHA-256 {release.digest[:16] or 'not yet known'}, {release.date}, "
        f"sklearn_balldp {release.version}, numpy {release.numpy_version}",
    }
    width = max(map(len, rows))
    return "\n".join(f"{title:<{width}}  {text}" for title, text in rows.items())


def _by_query(release: Release, which: int, way: str) -> str:
    """Sensitivity (1) or noise scale (2) of what was released, query by query."""
    if release.head == "BallDPRidgePrototype":
        return _range((release.sensitivity, release.sigma)[which - 1], "prototypes", way)
    asked = release.bound.by_query(release.problem)
    shown = [_range((moves, scales)[which - 1], part, way) for part, moves, scales in asked]
    if len(asked) == 1:
        return shown[0]
    return ", ".join(f"{text} ({query[0]})" for text, query in zip(shown, asked, strict=True))


def _range(values: Blocks, parts: str, way: str) -> str:
    """Of sensitivities no less than there is, of noise scales no more."""
    if isinstance(values, float):
        return rounded(values, 4, way) if math.isfinite(values) else "infinite"
    if not values:
        return f"one for each of its {parts}, which depends on released values"
    ends: Iterable[str] = dict.fromkeys(rounded(end, 4, way) for end in (min(values), max(values)))
    return f"{' to '.join(ends)} over {len(values)} {parts}"
