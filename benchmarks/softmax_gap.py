"""``python -m benchmarks.softmax_gap --data DIR``: what a sharper gap of softmax could win.

At iterates of default fits a search climbs over pairs of rows. The gap that it finds over the
stated one is how little noise a better bound could do with. The table has the accuracy that fits
gain with that noise: what no bound can beat, where the search finds the largest gap.
"""

import argparse
import itertools
import math
from pathlib import Path
from unittest import mock

import numpy as np
import pandas as pd
from scipy.special import softmax
from tqdm import tqdm

from benchmarks.paper.protocol import DATASETS
from benchmarks.paper.tables import markdown
from benchmarks.radius.settings import subset
from sklearn_balldp import BallDPLogisticRegression
from sklearn_balldp.losses import clip_residuals
from sklearn_balldp.mechanisms import queries

NAMES = ("trec6", "banking77", "mnist", "cifar10")
RADII, EPSILONS = (0.02, 0.1, 0.3, "any"), (0.5, 2.0, 8.0)
RELEASES, STARTS, CLIMBS = 10, 800, 300
# Noise that is smaller by less gains nothing that can be measured.
SEEN = 0.99
STEPS = (0, 1, 4, 19, 59)


def residuals(scores, labels, clip):
    """Probabilities, residuals, and clipped residuals."""
    shares = softmax(scores, axis=1)
    plain = shares - np.eye(scores.shape[1])[labels]
    return shares, plain, clip_residuals(plain.copy(), clip)


def pulled(shares, plain, clip, by):
    """Derivative by the scores, from that by clipped residuals."""
    size = np.linalg.norm(plain, axis=1, keepdims=True) + 1e-300
    turned = clip / size * (by - plain * (plain * by).sum(1, keepdims=True) / size**2)
    by = np.where(size > clip, turned, by)
    return shares * (by - (shares * by).sum(1, keepdims=True))


def allowed(rows, domain, radius):
    """Pairs of rows, brought into the ball and then within the radius."""
    size = np.linalg.norm(rows, axis=2, keepdims=True)
    rows = rows * np.minimum(1.0, domain.norm_bound / np.maximum(size, 1e-300))
    middle, half = rows.mean(axis=0), 0.5 * (rows[1] - rows[0])
    size = np.linalg.norm(half, axis=1, keepdims=True)
    half *= np.minimum(1.0, 0.5 * radius / np.maximum(size, 1e-300))
    return np.stack([middle - half, middle + half])


def largest_gap(theta, domain, clip, change, rng):
    """The largest gap found, in the plane of the weights and two directions across."""
    k, bound, constant = len(theta), domain.norm_bound, domain.constant
    radius = 2.0 * bound if change else domain.radius
    theta = theta - theta.mean(axis=0)
    left, sizes, _ = np.linalg.svd(theta[:, :-1], full_matrices=False)
    weights, offsets = np.pad(left * sizes, ((0, 0), (0, 2))), theta[:, -1] * constant
    apart = np.linalg.norm(weights[:, None] - weights, axis=2)
    others, own = np.divmod(np.argsort(-apart, axis=None)[: min(STARTS, k * (k - 1))], k)
    # At the edge of the clip between two classes and of no third, far ones first; and anywhere.
    again = math.ceil(240 / len(own))
    others, own = np.tile(others, again), np.tile(own, again)
    line, middle = weights[others] - weights[own], weights[others] + weights[own]
    line += 1e-9 * rng.standard_normal(line.shape)
    length = np.linalg.norm(line, axis=1, keepdims=True)
    line /= length
    middle -= (middle * line).sum(1, keepdims=True) * line
    middle += 1e-9 * rng.standard_normal(line.shape)
    middle /= np.linalg.norm(middle, axis=1, keepdims=True)
    share = 0.5 if change else min(clip / math.sqrt(2.0), 0.9)
    at = (math.log(share / (1.0 - share)) - offsets[others] + offsets[own])[:, None] / length
    at = np.clip(at, -0.99 * bound, 0.99 * bound)
    edge = at * line + np.sqrt(bound**2 - at**2) * middle
    random = rng.standard_normal(edge.shape)
    random *= bound * rng.random((len(own), 1)) / np.linalg.norm(random, axis=1, keepdims=True)
    down, up = np.concatenate([edge, edge, random]), np.concatenate([edge, edge, random])
    down[: len(own)] -= 0.0 if change else radius * line
    down[len(own) : 2 * len(own)] += 0.5 * radius * rng.standard_normal((len(own), 1)) * line
    move = radius * rng.standard_normal(edge.shape) / math.sqrt(edge.shape[1])
    down[2 * len(own) :], up[2 * len(own) :] = random - 0.5 * move, random + 0.5 * move
    labels = np.tile(own, 3), np.tile(others if change else own, 3)

    def value(rows):
        """Squared gaps, and their derivatives by the rows."""
        each = zip(rows, labels, strict=True)
        seen = [residuals(row @ weights.T + offsets, y, clip) for row, y in each]
        a = np.stack([clipped for _, _, clipped in seen])
        inner = lambda one, other: (one * other).sum(-1)[:, None]  # noqa: E731
        gap, slopes = 0.0, []
        for i in (0, 1):
            square, across = inner(rows[i], rows[i]) + constant**2, inner(*rows) + constant**2
            gap = gap + inner(a[i], a[i]) * square - inner(*a) * across
            by = pulled(*seen[i][:2], clip, a[i] * square - a[1 - i] * across)
            slopes.append(inner(a[i], a[i]) * rows[i] - inner(*a) * rows[1 - i] + by @ weights)
        return gap[:, 0], np.stack(slopes)

    rows = allowed(np.stack([down, up]), domain, radius)
    best, slopes = value(rows)
    step = np.full((len(best), 1), 0.3 * radius)
    for climb in range(CLIMBS):
        size = np.sqrt((slopes**2).sum((0, 2)))[:, None] + 1e-300
        moved = allowed(rows + step * slopes / size, domain, radius)
        found, after = value(moved)
        up = found > best
        rows, slopes = np.where(up[:, None], moved, rows), np.where(up[:, None], after, slopes)
        best = np.maximum(best, found)
        step = np.clip(np.where(up[:, None], 1.4, 0.5) * step, 1e-9 * bound, 2.0 * bound)
        if climb == CLIMBS // 5:
            # The best tenth goes on.
            kept = np.argsort(-best)[: max(20, len(best) // 10)]
            labels = tuple(y[kept] for y in labels)
            rows, slopes, best, step = rows[:, kept], slopes[:, kept], best[kept], step[kept]
    return math.sqrt(best.max())


def fitted(rows, radius, epsilon, seed, ratio=None):
    """A default head, and the iterate and stated gap of each of its steps."""
    params = {"epsilon": epsilon, "radius": None if radius in ("full", "any") else radius}
    if radius == "any":
        params |= {"protect_labels": True, "classes": np.unique(rows[1])}
    found, real = {}, queries.gap_at

    def gap_at(loss, theta, domain, **given):
        gap = real(loss, theta, domain, **given)
        # The declared radius is asked for first; further promises keep their gaps.
        place = found.setdefault(theta.tobytes(), (len(found), theta, domain, gap, given))
        declared = ratio is not None and domain.radius == place[2].radius
        return gap * float(np.interp(place[0], *ratio)) if declared else gap

    queries._moved.cache_clear()
    with mock.patch.object(queries, "gap_at", gap_at):
        head = BallDPLogisticRegression(**params, random_state=seed).fit(*rows[:2])
    queries._moved.cache_clear()
    return 100.0 * head.score(*rows[2:]), list(found.values())


def cell(rows, radius, epsilon, rng):
    """Ratios at some steps of one fit, and what accuracy fits gain by them."""
    steps = fitted(rows, radius, epsilon, 0)[1]
    looked = [steps[i] for i in STEPS if i < len(steps)]
    ratios = [
        max(
            largest_gap(theta, domain, given["clip"], change, rng)
            for change in ((False, True) if given["labels"] == "protected" else (False,))
        )
        / gap
        for _, theta, domain, gap, given in looked
    ]
    assert max(ratios) <= 1.0, ratios
    known = [step for step, *_ in looked], ratios
    gain = "-"
    if min(ratios) < SEEN:
        gains = [
            fitted(rows, radius, epsilon, seed, known)[0] - fitted(rows, radius, epsilon, seed)[0]
            for seed in range(RELEASES)
        ]
        error = np.std(gains, ddof=1) / math.sqrt(RELEASES)
        gain = f"{np.mean(gains):.2f} ± {error:.2f}"
    return {
        "radius": radius,
        "epsilon": f"{epsilon:g}",
        "steps": len(steps),
        "least": f"{min(ratios):.3f}",
        "median": f"{np.median(ratios):.3f}",
        "gain (points)": gain,
    }


def table(cells):
    """Least ratio of each cell, and what fits gain, in points; a row for each promise."""
    shown = cells["least"] + cells["gain (points)"].map(lambda g: "" if g == "-" else f" ({g})")
    titles = "ε = " + cells["epsilon"]
    keys = cells["dataset"], cells["radius"].astype(str), titles
    wide = shown.groupby(list(keys), sort=False).first().unstack()
    return wide.rename_axis(columns=None, index=["dataset", "radius"]).reset_index()


def main(argv=None):
    """Measure, print and write the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.softmax_gap", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("paper-results"))
    options = parser.parse_args(argv)
    cells, rng = [], np.random.default_rng(0)
    for name in NAMES:
        rows = subset(str(options.data), name)
        for radius, epsilon in tqdm([*itertools.product(RADII, EPSILONS)], desc=name, disable=None):
            cells.append({"dataset": DATASETS[name]} | cell(rows, radius, epsilon, rng))
    found = table(pd.DataFrame(cells))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "softmax_gap.md").write_text(markdown(found))
    print(found.to_string(index=False))


if __name__ == "__main__":
    main()
