"""``python -m benchmarks.radius --data DIR``: what a smaller ball buys, head by head.

Test accuracy of the linear discriminant, prototypes, noisy descent and the noisy minimiser over
radii and epsilons, with standard differential privacy (every substitution and label changes) and no
noise beside them. Cells are appended to ``radius_accuracy_cells.csv`` as they are measured, and a
run goes on where it was interrupted. Tables, checks and ``radius_accuracy.png`` follow from them.

``--part confirm`` measures anew the cells in which another head is ahead of the default head by
more than a standard error: both heads, with 40 other releases each. The best of several is ahead by
chance in some of hundreds of cells; what is more than chance shows again.

``--part noiseless`` sets the default head, at the median distance, against the best of the heads
without noise: 40 releases each, other ones than the ten of the cells.
"""

import argparse
import functools
import itertools
import warnings
import zlib
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC
from tqdm import tqdm

from benchmarks import noiseless
from benchmarks.paper.protocol import DATASETS
from benchmarks.paper.tables import markdown
from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    GradientPerturbation,
)
from sklearn_balldp.datasets import load_embeddings
from sklearn_balldp.distances import same_label_quantile

DELTA = 1e-6
RADII = (0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6, 0.75, "q50", 1.0, 1.3, 2.0)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
#: Radii of the default head, which takes longest.
SHOWN = (0.02, 0.1, 0.3, 0.6, "q50", 1.3)
#: Small balls: here sums are nearly exact, and steps would only add noise.
SMALL = (0.02, 0.05, 0.1)
DRAWN = (0.5, 1.0, 2.0)
#: Classes and rows of the subsets that the discriminant is compared with prototypes on.
SUBSETS = ((None, 1000), (None, 3000), (2, 1000), (2, 3000), (5, 2000), (40, 3000))
SUBSET_RADII = (0.05, 0.3, 1.0, 2.0)

RELEASES, CONFIRMING = 10, 40
PROTECTED = {"protect_labels": True}
#: Noise on gradients from zero: clipping, steps and averaging fixed.
FROM_ZERO = {
    "mechanism": GradientPerturbation(n_steps=100, clip=0.2, start="zero"),
}
HEADS = {
    "logistic": BallDPLogisticRegression(domain="sphere"),
    "discriminant": BallDPLinearDiscriminant(domain="sphere"),
    "prototypes": BallDPRidgePrototype(),
    "descent from zero": BallDPLogisticRegression(**FROM_ZERO),
    "minimiser": BallDPLogisticRegression(mechanism="output", alpha=0.01),
    "logistic, standard DP": BallDPLogisticRegression(domain="sphere", **PROTECTED),
    "discriminant, standard DP": BallDPLinearDiscriminant(domain="sphere", **PROTECTED),
    "descent from zero, standard DP": BallDPLogisticRegression(**FROM_ZERO, **PROTECTED),
}
#: Heads without noise, for reference, and the settings of which the best on the test rows counts.
NOISELESS = {
    "no noise": (LogisticRegression(C=10.0, max_iter=300), {}),
    "discriminant, no noise": (
        LinearDiscriminantAnalysis(solver="lsqr"),
        {"shrinkage": [0.0, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, "auto"]},
    ),
    "SVM, no noise": (LinearSVC(), {}),
}
#: Epsilons, and how far below the best of these the default head is meant to be at most.
NEAR = {0.5: 0.05, 2.0: 0.02}
KINDS = (*HEADS, *NOISELESS)
KEY = ["dataset", "head", "radius", "epsilon"]
COLOURS = {"logistic": "C3", "discriminant": "C0", "prototypes": "C2", "descent from zero": "C1"}


@functools.lru_cache(maxsize=1)
def rows_of(folder, name):
    """Training and test rows of a dataset, or of a subset as "trec6/2/1000"."""
    dataset, *subset = name.split("/")
    if dataset == "digits":
        X, y = load_digits(return_X_y=True)
        X = normalize(X).astype(np.float32)
        return X[:1200], y[:1200], X[1200:], y[1200:]
    file = load_embeddings(Path(folder) / f"{dataset}.npz")
    X, y, Xt, yt = (file[part] for part in ("X_train", "y_train", "X_test", "y_test"))
    if not subset:
        return X, y, Xt, yt
    n_classes, n_rows = subset
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    classes = np.unique(y)
    if n_classes != "all":
        classes = rng.permutation(classes)[: int(n_classes)]
    keep = np.flatnonzero(np.isin(y, classes))
    keep = rng.permutation(keep)[: int(n_rows)]
    known = np.isin(yt, np.unique(y[keep]))
    return X[keep], y[keep], Xt[known], yt[known]


def cells_of(name, folder):
    """Cells to measure on a dataset: head, radius, epsilon."""
    whole = "/" not in name and name != "digits"
    radii = RADII if whole else SUBSET_RADII
    for head in ("discriminant", "prototypes"):
        yield from ((head, radius, epsilon) for radius in radii for epsilon in EPSILONS)
    if not whole:
        return
    yield from ((head, "none", 0.0) for head in NOISELESS)
    for head in ("logistic", "discriminant", "descent from zero"):
        yield from ((f"{head}, standard DP", "any", epsilon) for epsilon in EPSILONS)
    yield from (("logistic", *cell) for cell in itertools.product(SHOWN, EPSILONS))
    for radius, epsilon in itertools.product(RADII, EPSILONS):
        if epsilon in DRAWN or radius in SMALL:
            yield "descent from zero", radius, epsilon
        if radius in SMALL:
            yield "minimiser", radius, epsilon


@functools.lru_cache(maxsize=8)
def median_of(folder, name):
    """Median distance of records of one label, the largest over classes: the paper's q50."""
    X, y, *_ = rows_of(folder, name)
    return same_label_quantile(X, y, 0.5)


def measure(folder, name, head, radius, epsilon, releases=range(RELEASES)):
    """Mean test accuracy over releases, its standard error, and how many there were."""
    X, y, Xt, yt = rows_of(folder, name)
    if head in NOISELESS:
        estimator, grid = NOISELESS[head]
        heads = (clone(estimator).set_params(**own) for own in ParameterGrid(grid))
        return max(fitted.fit(X, y).score(Xt, yt) for fitted in heads), 0.0, 1
    value = {"any": None, "q50": None}.get(radius, radius)
    if radius == "q50":
        value = median_of(folder, name)
    params = {"epsilon": epsilon, "delta": DELTA, "radius": value}
    if "standard DP" in head:
        params["classes"] = np.unique(y)
    scores = []
    for release in releases:
        # One stream for each cell, the same for every head.
        seed = zlib.crc32(f"{name} {radius} {epsilon} {release}".encode())
        with noiseless.shared(X):
            fitted = clone(HEADS[head]).set_params(**params, random_state=seed).fit(X, y)
        scores.append(fitted.score(Xt, yt))
    return np.mean(scores), np.std(scores, ddof=1) / np.sqrt(len(scores)), len(scores)


def run(folder, out, names, heads, quick):
    """Measure every cell that is not in the file."""
    path, asked = out / "radius_accuracy_cells.csv", []
    for name in names:
        cells = [cell for cell in cells_of(name, folder) if cell[0] in heads]
        if quick:
            cells = [c for c in cells if c[1] in (0.02, 2.0, "any", "none") and c[2] in (0.0, 1.0)]
        asked += [(name, *cell) for cell in cells]
    return _measured(path, folder, asked, range(RELEASES))


def _measured(path, folder, asked, releases):
    """All cells of a file, after those that are asked for and not in it were measured."""
    if not path.exists():
        path.write_text(",".join([*KEY, "mean", "error", "releases"]) + "\n")
    known = pd.read_csv(path, dtype={"radius": str})
    done = set(zip(*(known[c] for c in KEY), strict=True))
    left = [(name, head, r, e) for name, head, r, e in asked if (name, head, str(r), e) not in done]
    for cell in (shown := tqdm(left, disable=None)):
        shown.set_description(cell[0])
        _measure_into(path, folder, cell, releases)
    return pd.read_csv(path, dtype={"radius": str})


def _measure_into(path, folder, cell, releases):
    """Measure a cell, and append it to the file."""
    with warnings.catch_warnings():
        # Seeds, and classes with few records.
        warnings.simplefilter("ignore")
        mean, error, n = measure(str(folder), *cell, releases)
    row = [*cell, f"{mean:.5f}", f"{error:.5f}", n]
    with path.open("a") as file:
        file.write(",".join(f'"{v}"' if "," in str(v) else str(v) for v in row) + "\n")


def confirm(folder, out, names):
    """Measure with other releases where the default head is behind; each cell once."""
    path = out / "radius_accuracy_cells.csv"
    cells = pd.read_csv(path, dtype={"radius": str})
    for (name, radius, epsilon), row in tqdm(list(behind(cells).iterrows()), disable=None):
        standard = ", standard DP" if radius == "any" else ""
        for head in ("logistic" + standard, row["best"] + standard):
            known = pd.read_csv(path, dtype={"radius": str})
            own = (known[KEY] == [name, head, radius, epsilon]).all(axis=1)
            if name not in names or (known[own]["releases"] != RELEASES).all():
                continue
            value = float(radius) if radius[0].isdigit() else radius
            others = range(RELEASES, RELEASES + CONFIRMING)
            _measure_into(path, folder, (name, head, value, epsilon), others)
            known = pd.read_csv(path, dtype={"radius": str})
            known.drop(index=own[own].index).to_csv(path, index=False)
    return pd.read_csv(path, dtype={"radius": str})


def run_near(folder, out, names, quick):
    """Measure the default head at the median distance, with other releases than the cells'."""
    asked = [(name, "logistic", "q50", epsilon) for name in names for epsilon in NEAR]
    releases = range(RELEASES, RELEASES + (2 if quick else CONFIRMING))
    found = _measured(out / "radius_noiseless_cells.csv", folder, asked, releases)
    found.to_csv(out / "radius_noiseless.csv", index=False)


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
        row = {
            "epsilon": f"{epsilon:g}",
            "data": DATASETS[name],
            "accuracy (%)": f"{mean:.2f} ± {error:.2f}",
        }
        for head, value in below.items():
            title = "logistic regression" if head == "no noise" else head.split(",")[0]
            row[f"below {title}"] = f"{value:.2f}"
        rows.append(row | {"limit": f"{limit:g}", "kept": "yes" if below.max() <= limit else "no"})
    return pd.DataFrame(rows)


def against_the_best(cells):
    """The default head less the best of the others, cell by cell, in points, and its error."""
    own = cells[cells["dataset"].isin(DATASETS) & ~cells["head"].isin(NOISELESS)].copy()
    own["head"] = own["head"].str.removesuffix(", standard DP")
    own = own.set_index(["dataset", "radius", "epsilon"])
    default = own[own["head"] == "logistic"]
    best = own[own["head"] != "logistic"].sort_values("mean").groupby(level=[0, 1, 2]).last()
    both = default[["mean", "error"]].join(best.add_prefix("best "), how="inner")
    gain = 100 * (both["mean"] - both["best mean"])
    error = 100 * np.hypot(both["error"], both["best error"])
    return pd.DataFrame({"best": both["best head"], "gain": gain, "error": error})


def behind(cells):
    """Cells in which another head is ahead of the default by more than a standard error."""
    found = against_the_best(cells)
    return found[found["gain"] < -found["error"]]


def names_of(folder, only):
    """Datasets at hand, then digits and the subsets."""
    whole = [name for name in DATASETS if (folder / f"{name}.npz").exists()]
    whole = [name for name in whole if only is None or name in only]
    subsets = [
        f"{name}/{'all' if k is None else k}/{n}"
        for name in whole
        for k, n in SUBSETS
        if (k or 0) <= {"banking77": 77, "cifar10": 10, "mnist": 10}.get(name, 4) or k == 2
    ]
    return whole, ["digits", *subsets]


def claim(name, found):
    """A row of the claims: gains in points, and the worst of them."""
    return {
        "claim": name,
        "cells": len(found),
        "mean (points)": f"{found.mean():+.2f}",
        "worst": f"{found.min():+.2f} ({', '.join(map(str, found.idxmin()))})",
        "below -0.5": int((found < -0.5).sum()),
    }


def default_checks(cells):
    """The default head against the best of all others, cell by cell."""
    zero = cells["head"].str.startswith(("logistic", "descent from zero"))
    rows = []
    for others, part in (("the best other head", cells), ("the descent from zero", cells[zero])):
        found = against_the_best(part)
        standard = found.index.get_level_values("radius") == "any"
        for promise, own in (("a ball", found[~standard]), ("standard DP", found[standard])):
            if len(own):
                row = claim(f"logistic over {others}, {promise}", own["gain"])
                row["within one error"] = str((own["gain"] >= -own["error"]).sum())
                rows.append(row)
    return rows


def small_checks(cells):
    """The discriminant, with noise and without, against private logistic regression."""
    small = cells[cells["dataset"].isin(DATASETS) & cells["radius"].isin([str(r) for r in SMALL])]
    wide = small.pivot_table(index=["dataset", "radius", "epsilon"], columns="head", values="mean")
    without = cells[cells["head"] == "discriminant, no noise"].set_index("dataset")["mean"]
    if "logistic" not in wide or "discriminant" not in wide:
        return []
    wide = wide.dropna(subset=["logistic", "discriminant"])
    without = without.reindex(wide.index.get_level_values("dataset")).to_numpy()
    gains = {
        "discriminant over logistic, radius up to 0.1": wide["discriminant"] - wide["logistic"],
        "discriminant without noise over logistic, radius up to 0.1": without - wide["logistic"],
    }
    return [claim(name, 100 * gain.dropna()) for name, gain in gains.items() if gain.notna().any()]


def checks(cells):
    """The claims, each with its worst cell."""
    own = default_checks(cells) + small_checks(cells)
    cells = cells[~cells["head"].str.contains("standard|no noise")]
    wide = cells.pivot_table(index=["dataset", "radius", "epsilon"], columns="head", values="mean")
    wide = wide.dropna(subset=["discriminant", "prototypes"])
    error = cells.pivot_table(index=wide.index.names, columns="head", values="error").loc[
        wide.index
    ]
    whole = wide.index.get_level_values("dataset").isin(DATASETS)
    gain = (wide["discriminant"] - wide["prototypes"]) * 100
    noise = 100 * np.hypot(error["discriminant"], error["prototypes"])
    rows = []
    for where, part in (("seven datasets", whole), ("digits and subsets", ~whole)):
        if part.any():
            worst = gain[part].idxmin()
            rows.append(
                {
                    "claim": f"discriminant over prototypes, {where}",
                    "cells": int(part.sum()),
                    "mean (points)": f"{gain[part].mean():+.2f}",
                    "worst": f"{gain[worst]:+.2f} ({', '.join(map(str, worst))}; "
                    f"standard error {noise[worst]:.2f})",
                    "below -0.5": int((gain[part] < -0.5).sum()),
                }
            )
    small = wide[whole & wide.index.get_level_values("radius").isin([str(r) for r in SMALL])]
    rivals = ("prototypes", "descent from zero", "minimiser")
    rivals = [head for head in rivals if head in small]
    if len(small) and rivals:
        lead = 100 * (small["discriminant"] - small[rivals].max(axis=1))
        # Without noise it is below logistic regression there: the one dataset of many classes.
        many = lead.index.get_level_values("dataset") == "banking77"
        many &= lead.index.get_level_values("epsilon") >= 4.0
        for where, part in (("", ~many), (" (BANKING77, epsilon 4 and 8)", many)):
            found = lead[part]
            if len(found):
                title = f"discriminant over the simpler heads, radius up to 0.1{where}"
                rows.append(claim(title, found))
    return pd.DataFrame(own + rows).fillna({"within one error": ""})


def table(cells, epsilon):
    """Accuracy by radius at one epsilon, a row for each dataset and head."""
    part = cells[(cells["epsilon"] == epsilon) & cells["dataset"].isin(DATASETS)]
    rows = []
    for name, title in DATASETS.items():
        own = part[part["dataset"] == name]
        for head in ("logistic", "discriminant", "prototypes", "descent from zero"):
            found = own[own["head"] == head].set_index("radius")["mean"]
            if len(found):
                row = {"data": title, "head": head}
                measured = {r: found.get(str(r), np.nan) for r in RADII}
                row |= {
                    f"r = {r}": "" if np.isnan(mean) else f"{100 * mean:.1f}"
                    for r, mean in measured.items()
                }
                rows.append(row)
        standard = own[own["head"].str.contains("standard")].set_index("head")["mean"]
        if len(standard):
            every = {f"r = {r}": "" for r in RADII}
            for head, mean in standard.items():
                rows.append(
                    {"data": title, "head": head} | every | {"r = 2.0": f"{100 * mean:.1f}"}
                )
    return pd.DataFrame(rows)


def gains(cells):
    """Points that a ball gains over standard differential privacy, logistic regression both."""
    own = cells[cells["dataset"].isin(DATASETS)].set_index(["dataset", "epsilon"])
    standard = own[own["head"] == "logistic, standard DP"]["mean"]
    rows = []
    for epsilon in [e for e in EPSILONS if e in own.index.get_level_values("epsilon")]:
        for name in (*DATASETS, "mean"):
            row = {"epsilon": f"{epsilon:g}", "data": DATASETS.get(name, "**mean**")}
            for radius in SHOWN:
                ball = own[(own["head"] == "logistic") & (own["radius"] == str(radius))]["mean"]
                found = (100 * (ball - standard)).dropna()
                found = found[found.index.get_level_values("epsilon") == epsilon].droplevel(1)
                value = found.mean() if name == "mean" else found.get(name, np.nan)
                share = "r = q50" if radius == "q50" else f"r/2B = {radius / 2:g}"
                row[share] = "" if np.isnan(value) else f"{value:+.1f}"
            rows.append(row)
    return pd.DataFrame(rows)


def figure(cells, path):
    """Accuracy against the radius: a row for each epsilon, a column for each dataset."""
    names = [name for name in DATASETS if name in set(cells["dataset"])]
    fig, axes = plt.subplots(
        len(DRAWN),
        len(names),
        figsize=(2.1 * len(names) + 0.6, 6.2),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey="col",
    )
    numbers = [radius for radius in RADII if radius != "q50"]
    for row, epsilon in zip(axes, DRAWN, strict=True):
        for ax, name in zip(row, names, strict=True):
            own = cells[(cells["dataset"] == name) & (cells["epsilon"] == epsilon)]
            for head, colour in COLOURS.items():
                found = own[own["head"] == head].set_index("radius")["mean"]
                points = [(r, found[str(r)]) for r in numbers if str(r) in found]
                if points:
                    ax.plot(*zip(*points, strict=True), ".-", color=colour, label=head)
            standard = own[own["head"].str.contains("standard")]["mean"]
            if len(standard):
                ax.axhline(standard.max(), color="0.3", linestyle="--", label="standard DP")
            ceiling = cells[(cells["dataset"] == name) & (cells["head"] == "no noise")]["mean"]
            if len(ceiling):
                ax.axhline(ceiling.iloc[0], color="0.6", linestyle=":", label="no noise")
            ax.set_xscale("log")
            ax.set_xticks([0.02, 0.1, 0.5, 2.0], ["0.02", "0.1", "0.5", "2"])
            ax.minorticks_off()
    for ax, name in zip(axes[0], names, strict=True):
        ax.set_title(DATASETS[name], fontsize=10)
    for ax, epsilon in zip(axes[:, 0], DRAWN, strict=True):
        ax.set_ylabel(f"accuracy, epsilon {epsilon:g}")
    for ax in axes[-1]:
        ax.set_xlabel("radius")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    fig.legend(handles, labels, loc="outside lower center", ncols=6)
    fig.savefig(path, dpi=130)
    plt.close(fig)


def figure_of_gains(found, path):
    """The points that a ball gains, as colours: a panel for each of three epsilons."""
    columns = [name for name in found if name.startswith("r")]
    parts = [found[found["epsilon"] == f"{epsilon:g}"] for epsilon in DRAWN]
    parts = [part[~part["data"].str.contains("mean")] for part in parts]
    parts = [part for part in parts if len(part)]
    if not parts:
        return
    size = (2.0 + 3.2 * len(parts), 0.4 * len(parts[0]) + 1.6)
    fig, axes = plt.subplots(1, len(parts), figsize=size, layout="constrained", squeeze=False)
    for ax, part in zip(axes[0], parts, strict=True):
        values = part[columns].replace("", "nan").astype(float).to_numpy()
        ax.imshow(values, cmap="Blues", vmin=0.0, vmax=15.0, aspect="auto")
        for (i, j), value in np.ndenumerate(values):
            if np.isfinite(value):
                colour = "white" if value > 9.0 else "black"
                ax.text(j, i, f"{value:.1f}", ha="center", va="center", color=colour, fontsize=8)
        names = [
            "q50" if name == "r = q50" else f"{2.0 * float(name.removeprefix('r/2B = ')):g}"
            for name in columns
        ]
        ax.set_xticks(range(len(columns)), names, fontsize=8)
        ax.set_yticks(range(len(part)), part["data"] if ax is axes[0, 0] else [""] * len(part))
        ax.set_title(f"epsilon {part['epsilon'].iloc[0]}", fontsize=10)
        ax.set_xlabel("radius", fontsize=9)
        ax.tick_params(length=0)
    fig.savefig(path, dpi=130, metadata={"Software": None})
    plt.close(fig)


def report(cells, out):
    """Tables, the picture, and the claims."""
    cells.to_csv(out / "radius_accuracy.csv", index=False)
    for epsilon in DRAWN:
        (out / f"radius_accuracy_{epsilon:g}.md").write_text(markdown(table(cells, epsilon)))
    table_of_gains = gains(cells)
    table_of_gains.to_csv(out / "radius_gains.csv", index=False)
    figure_of_gains(table_of_gains, out / "radius_gains.png")
    found = checks(cells)
    (out / "radius_checks.md").write_text(markdown(found))
    if (out / "radius_noiseless.csv").exists():
        own = pd.read_csv(out / "radius_noiseless.csv", dtype={"radius": str})
        (out / "radius_noiseless.md").write_text(markdown(near(own, cells)))
    figure(cells, out / "radius_accuracy.png")
    return found


def main(argv=None):
    """Measure, write, and print the claims."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.radius", description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("radius-results"))
    parser.add_argument("--datasets", nargs="+", choices=list(DATASETS))
    parts = ("all", "whole", "subsets", "confirm", "noiseless", "report")
    parser.add_argument("--part", choices=parts, default="all")
    parser.add_argument("--heads", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--quick", action="store_true", help="a few cells of each dataset")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    whole, subsets = names_of(options.data, options.datasets)
    names = {"all": whole + subsets, "whole": whole, "subsets": subsets}.get(options.part, [])
    cells = run(options.data, options.out, names, options.heads, options.quick)
    if options.part == "confirm":
        cells = confirm(options.data, options.out, whole)
    if options.part in ("all", "noiseless"):
        run_near(options.data, options.out, whole, options.quick)
    print(report(cells, options.out).to_string(index=False))


if __name__ == "__main__":
    main()
