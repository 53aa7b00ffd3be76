"""What a smaller ball buys, head by head.

Test accuracy of the linear discriminant, prototypes, noisy descent and the noisy minimiser over
radii and epsilons, with standard differential privacy (every substitution and label changes) and no
noise beside them.

The default head, at the median distance, is set against the best of the heads without noise: 40
releases each, other ones than the ten of the cells.
"""

import itertools

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import ParameterGrid
from sklearn.svm import LinearSVC

from benchmarks.study import (
    DATASETS,
    EXACT,
    Study,
    accuracies,
    draw,
    mean_error,
    radius_of,
    rows_of,
    seeds_of,
    show,
)
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
)

RADII = (0.02, 0.1, 0.3, 0.6, "q50", 1.3, 2.0)
EPSILONS = (0.5, 2.0, 8.0)
#: Radii of the default head, which takes longest.
SHOWN = RADII[:-1]
#: Small balls: here sums are nearly exact, and steps would only add noise.
SMALL = (0.02, 0.1)
RELEASES, CONFIRMING = 10, 40
STANDARD = ", standard DP"
HEADS = {
    "logistic": BallDPLogisticRegression(domain="sphere"),
    "discriminant": BallDPLinearDiscriminant(domain="sphere"),
    "prototypes": BallDPRidgePrototype(),
    # Noise on gradients from zero: clipping, steps and averaging fixed.
    "descent from zero": BallDPLogisticRegression(
        mechanism=GradientPerturbation(n_steps=100, clip=0.2, start="zero")
    ),
    "minimiser": BallDPLogisticRegression(mechanism="output", alpha=0.01),
}
#: Heads without noise, for reference, and the settings of which the best on the test rows counts.
NOISELESS = {
    "no noise": (EXACT, {}),
    "discriminant, no noise": (
        LinearDiscriminantAnalysis(solver="lsqr"),
        {"shrinkage": [0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, "auto"]},
    ),
    "SVM, no noise": (LinearSVC(), {}),
}
#: Epsilons, and how far below the best of these the default head is meant to be at most.
NEAR = {0.5: 0.05, 2.0: 0.02}
KEY = ("dataset", "head", "radius", "epsilon")
COLOURS = {"logistic": "C3", "discriminant": "C0", "prototypes": "C2", "descent from zero": "C1"}


def measure(run, dataset, head, radius, epsilon, releases=range(RELEASES)):
    rows = X, y, Xt, yt = rows_of(run.data, dataset)
    if head in NOISELESS:
        estimator, grid = NOISELESS[head]
        heads = (clone(estimator).set_params(**settings) for settings in ParameterGrid(grid))
        return mean_error([max(fitted.fit(X, y).score(Xt, yt) for fitted in heads)])
    # One stream for each cell, the same for every head.
    seeds = seeds_of(run, releases, dataset, radius, epsilon)
    radius = radius_of(run.data, dataset, 0.5) if radius == "q50" else radius
    head = HEADS[head.removesuffix(STANDARD)]
    return mean_error(accuracies(head, rows, radius, epsilon, seeds))


def measure_again(run, *cell):
    """With other releases."""
    return measure(run, *cell, range(RELEASES, RELEASES + CONFIRMING))


def cells_of(name):
    """Cells to measure on a dataset."""
    for head in ("discriminant", "prototypes"):
        yield from itertools.product([name], [head], RADII, EPSILONS)
    yield from ((name, head, "none", 0.0) for head in NOISELESS)
    for head in ("logistic", "discriminant", "descent from zero"):
        yield from ((name, head + STANDARD, "any", epsilon) for epsilon in EPSILONS)
    yield from itertools.product([name], ["logistic"], SHOWN, EPSILONS)
    yield from itertools.product([name], ["descent from zero"], RADII, EPSILONS)
    yield from itertools.product([name], ["minimiser"], SMALL, EPSILONS)


CELLS = Study(
    "radius_accuracy.csv",
    KEY,
    measure,
    lambda run: (cell for name in run.have(DATASETS) for cell in cells_of(name)),
)
MORE = Study(
    "radius_noiseless.csv",
    KEY,
    measure_again,
    lambda run: itertools.product(run.have(DATASETS), ["logistic"], ["q50"], NEAR),
)
STUDIES = CELLS, MORE


def near(found, cells):
    """How far the default head is below each head without noise, in points."""
    without = cells.pivot_table(index="dataset", columns="head", values="mean").reindex(
        columns=NOISELESS
    )
    rows = []
    for epsilon, name in itertools.product(NEAR, DATASETS):
        own = found[(found["dataset"] == name) & (found["epsilon"] == epsilon)]
        # A comparison takes all of them.
        if not len(own) or name not in without.dropna().index:
            continue
        mean, error = 100 * own[["mean", "error"]].iloc[0]
        below, limit = 100 * without.loc[name] - mean, 100 * NEAR[epsilon]
        titles = ["logistic regression" if h == "no noise" else h.split(",")[0] for h in NOISELESS]
        rows.append(
            {
                "epsilon": f"{epsilon:g}",
                "data": DATASETS[name],
                "accuracy (%)": f"{mean:.2f} ± {error:.2f}",
                **{
                    f"below {title}": f"{own:.2f}" for title, own in zip(titles, below, strict=True)
                },
                "limit": f"{limit:g}",
                "kept": "yes" if below.max() <= limit else "no",
            }
        )
    return pd.DataFrame(rows)


def against_the_best(cells):
    """The default head less the best of the others, cell by cell, in points, and its error."""
    own = cells[cells["dataset"].isin(DATASETS) & ~cells["head"].isin(NOISELESS)].copy()
    own["head"] = own["head"].str.removesuffix(STANDARD)
    own = own.set_index(["dataset", "radius", "epsilon"])
    default = own[own["head"] == "logistic"]
    best = own[own["head"] != "logistic"].sort_values("mean").groupby(level=[0, 1, 2]).last()
    both = default[["mean", "error"]].join(best.add_prefix("best "), how="inner")
    gain = 100 * (both["mean"] - both["best mean"])
    error = 100 * np.hypot(both["error"], both["best error"])
    return pd.DataFrame({"best": both["best head"], "gain": gain, "error": error})


def claim(name, gains, noise=None, error=None):
    """A row of the claims: gains in points, and the worst of them; nothing without any."""
    if not len(gains):
        return []
    where = ", ".join(map(str, gains.idxmin()))
    if noise is not None:
        where += f"; standard error {noise[gains.idxmin()]:.2f}"
    row = {
        "claim": name,
        "cells": len(gains),
        "mean (points)": f"{gains.mean():+.2f}",
        "worst": f"{gains.min():+.2f} ({where})",
        "below -0.5": int((gains < -0.5).sum()),
        "within one error": "" if error is None else str((gains >= -error).sum()),
    }
    return [row]


def checks(cells):
    """The claims, each with its worst cell."""
    rows = []
    # The default head against the best of all others, cell by cell.
    zero = cells["head"].str.startswith(("logistic", "descent from zero"))
    for others, part in (("the best other head", cells), ("the descent from zero", cells[zero])):
        found = against_the_best(part)
        standard = found.index.get_level_values("radius") == "any"
        for promise, own in (("a ball", found[~standard]), ("standard DP", found[standard])):
            rows += claim(f"logistic over {others}, {promise}", own["gain"], error=own["error"])
    without = cells[cells["head"] == "discriminant, no noise"].set_index("dataset")["mean"]
    cells = cells[~cells["head"].str.contains("standard|no noise")]
    wide, error = (
        100 * cells.pivot_table(index=["dataset", "radius", "epsilon"], columns="head", values=name)
        for name in ("mean", "error")
    )
    wide = wide.reindex(columns=list(HEADS))
    small = wide[wide.index.get_level_values("radius").isin([str(r) for r in SMALL])]
    # The discriminant, with noise and without, against private logistic regression.
    both = small.dropna(subset=["logistic", "discriminant"])
    exact = 100 * without.reindex(both.index.get_level_values("dataset")).to_numpy()
    ways = {"discriminant": both["discriminant"], "discriminant without noise": exact}
    for name, own in ways.items():
        gains = (own - both["logistic"]).dropna()
        rows += claim(f"{name} over logistic, radius up to 0.1", gains)
    gain = wide["discriminant"] - wide["prototypes"]
    noise = np.hypot(error["discriminant"], error["prototypes"])
    rows += claim("discriminant over prototypes", gain.dropna(), noise)
    rivals = small[["prototypes", "descent from zero", "minimiser"]].max(axis=1)
    lead = (small["discriminant"] - rivals).dropna()
    # Without noise it is below logistic regression there: the one dataset of many classes.
    many = lead.index.get_level_values("dataset") == "banking77"
    many &= lead.index.get_level_values("epsilon") >= 8.0
    for where, part in (("", ~many), (" (BANKING77, epsilon 8)", many)):
        rows += claim(f"discriminant over the simpler heads, radius up to 0.1{where}", lead[part])
    return pd.DataFrame(rows)


def gains(cells):
    """Points that a ball gains over standard differential privacy, logistic regression both."""
    means = cells.pivot_table(
        index=["epsilon", "dataset"], columns=["head", "radius"], values="mean"
    )
    balls = [str(radius) for radius in SHOWN if ("logistic", str(radius)) in means]
    standard = "logistic" + STANDARD, "any"
    if standard not in means or not balls:
        return pd.DataFrame()
    gain = 100 * means["logistic"][balls].sub(means[standard], axis=0)
    rows = []
    for epsilon, part in gain.dropna(how="all").groupby(level="epsilon"):
        part = part.droplevel(0).reindex([*DATASETS])
        part.loc["mean"] = part.mean()
        for name, values in part.iterrows():
            row = {"epsilon": f"{epsilon:g}", "data": DATASETS.get(name, "**mean**")}
            for radius, value in values.items():
                share = "r = q50" if radius == "q50" else f"r/2B = {float(radius) / 2:g}"
                row[share] = "" if np.isnan(value) else f"{value:+.1f}"
            rows.append(row)
    return pd.DataFrame(rows)


def figure(cells):
    """Accuracy against the radius: a row for each epsilon, a column for each dataset."""
    names = [name for name in DATASETS if name in set(cells["dataset"])]
    fig, axes = plt.subplots(
        len(EPSILONS),
        len(names),
        figsize=(2.1 * len(names) + 0.6, 6.2),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="col",
    )
    numbers = [radius for radius in RADII if radius != "q50"]
    for (i, epsilon), (j, name) in itertools.product(enumerate(EPSILONS), enumerate(names)):
        ax, here = axes[i, j], cells[cells["dataset"] == name]
        own = here[here["epsilon"] == epsilon]
        for head, colour in COLOURS.items():
            found = own[own["head"] == head].set_index("radius")["mean"]
            points = [(r, found[str(r)]) for r in numbers if str(r) in found]
            if points:
                ax.plot(*zip(*points, strict=True), ".-", color=colour, label=head)
        standard = own[own["head"].str.contains("standard")]["mean"]
        if len(standard):
            ax.axhline(standard.max(), color="0.3", linestyle="--", label="standard DP")
        for ceiling in here[here["head"] == "no noise"]["mean"]:
            ax.axhline(ceiling, color="0.6", linestyle=":", label="no noise")
        ax.set_xscale("log")
        ax.set_xticks([0.02, 0.1, 0.5, 2.0], ["0.02", "0.1", "0.5", "2"])
        ax.minorticks_off()
        if i == 0:
            ax.set_title(DATASETS[name], fontsize=10)
        if j == 0:
            ax.set_ylabel(f"accuracy, epsilon {epsilon:g}")
    for ax in axes[-1]:
        ax.set_xlabel("radius")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=6)
    return fig


def figure_of_gains(found):
    """The points that a ball gains, as colours: a panel for each of three epsilons."""
    columns = [name for name in found if name.startswith("r")]
    found = found[found["data"].isin(DATASETS.values())]
    parts = [part for e in EPSILONS if len(part := found[found["epsilon"] == f"{e:g}"])]
    size = (2.0 + 3.2 * len(parts), 0.4 * len(DATASETS) + 1.6)
    fig, axes = plt.subplots(1, len(parts), figsize=size, layout="constrained", squeeze=False)
    for ax, part in zip(axes[0], parts, strict=True):
        values = part[columns].replace("", "nan").astype(float).to_numpy()
        ax.imshow(values, cmap="Blues", vmin=0.0, vmax=15.0, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if value > 9.0 else "black"
                ax.text(j, i, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=8)
        radii = [name.split("=")[1].strip() for name in columns]
        names = [radius if radius == "q50" else f"{2.0 * float(radius):g}" for radius in radii]
        ax.set_xticks(range(len(columns)), names, fontsize=8)
        ax.set_yticks(range(len(part)), part["data"] if ax is axes[0, 0] else [""] * len(part))
        ax.set_title(f"epsilon {part['epsilon'].iloc[0]}", fontsize=10)
        ax.set_xlabel("radius", fontsize=9)
        ax.tick_params(length=0)
    return fig


def report(out):
    """Tables, pictures, and the claims."""
    cells, more = CELLS.read(out), MORE.read(out)
    table_of_gains = gains(cells)
    if len(table_of_gains):
        table_of_gains.to_csv(out / "radius_gains.csv", index=False)
        draw(figure_of_gains(table_of_gains), out / "radius_gains.png")
    draw(figure(cells), out / "radius_accuracy.png")
    show(near(more, cells), out, "radius_noiseless", more)
    show(checks(cells), out, "radius_checks", cells)
