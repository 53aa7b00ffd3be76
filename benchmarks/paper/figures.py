"""The paper's figures, from measured cells."""

import itertools
import math

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.ticker import ScalarFormatter

from benchmarks.study import DATASETS
from sklearn_balldp import ReconstructionDisplay

from . import published
from .cells import AUDIT_EPSILONS, N_CANDIDATES
from .tables import against_one_attacker, certificate, published_audit


def _panels(names):
    columns = min(2, len(names)) if len(names) <= 4 else 4
    n_rows = math.ceil(len(names) / columns)
    # A legend of three columns needs the width of two panels.
    width = max(4.6 * columns, 8.0)
    figure, axes = plt.subplots(
        n_rows, columns, figsize=(width, 3.5 * n_rows), layout="constrained", squeeze=False
    )
    for ax in axes.flat[len(names) :]:
        ax.set_visible(False)
    return figure, list(axes.flat[: len(names)])


def _legend(figure, axes, n_columns):
    """One legend for all panels, with what any of them shows."""
    handles = {}
    for ax in axes:
        found, labels = ax.get_legend_handles_labels()
        handles = dict(zip(labels, found, strict=True)) | handles
    if handles:
        figure.legend(
            handles.values(), handles, loc="outside lower center", ncols=n_columns, fontsize=9
        )


def _line(ax, x, cells, label, **style):
    points = [(a, cell) for a, cell in zip(x, cells, strict=True) if cell is not None]
    if not points:
        return
    middle = [cell["mean"] for _, cell in points]
    errors = [
        [cell["mean"] - cell["low"] for _, cell in points],
        [cell["high"] - cell["mean"] for _, cell in points],
    ]
    ax.errorbar([a for a, _ in points], middle, yerr=errors, label=label, capsize=2, **style)


def convex(results):
    """IMDb: three heads, the paper's calibration against this package's."""
    titles = {"ridge": "prototypes", "logistic": "logistic regression", "svc": "SVM"}
    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained", sharey=True)
    epsilons = published.CONVEX_EPSILONS
    promises = ("q50", "-", "q50", "k"), ("full", "--", "every distance", "0.55")
    for (head, ax), promise in itertools.product(zip(titles, axes, strict=True), promises):
        policy, dashes, label, colour = promise
        printed = [published.CONVEX[head, policy, epsilon][0] for epsilon in epsilons]
        ax.plot(epsilons, printed, "x", color=colour, ms=8, label=f"paper's table, {label}")
        lines = {"paper's calibration": (f"{head} paper", "C0")}
        lines["noise on parameters"] = (head if head == "ridge" else f"{head} output", "C2")
        if head != "ridge":
            lines["noise on gradients"] = (head, "C3")
        for name, (method, colour) in lines.items():
            cells = [results.of("imdb", method, policy, epsilon) for epsilon in epsilons]
            style = {"color": colour, "linestyle": dashes, "marker": "o", "markersize": 4}
            _line(ax, epsilons, cells, f"{name}, {label}", **style)
        ax.set_title(titles[head])
        ax.set_xscale("log", base=2)
        ax.set_xticks(epsilons)
        ax.xaxis.set_major_formatter(ScalarFormatter())
        ax.minorticks_off()
        ax.set_xlabel(r"$\varepsilon$")
    axes[0].set_ylabel("test accuracy, IMDb")
    _legend(figure, axes[1:2], 4)
    return figure


def identification(results):
    """Exact identification against epsilon, with chance, certificates and the paper's values."""
    names = [d for d in results.datasets if results.audit(d, "min", "q50", 8.0) is not None]
    figure, axes = _panels(names)
    series = {
        "q50": ("min", "q50"),
        "largest distance": ("min", "diameter"),
        "q50, noise for each class": ("per_class", "q50"),
    }
    columns = ["name", "epsilon", "success", "low", "high", "certificate"]
    for ax, dataset in zip(axes, names, strict=True):
        rows = []
        # Missing values too, so that a series has one colour in all panels.
        for epsilon in AUDIT_EPSILONS:
            value, half = published_audit(dataset, epsilon, "q50") or (np.nan, np.nan)
            certified = np.nan if np.isnan(value) else certificate(epsilon)
            rows.append(["paper, q50", epsilon, value, value - half, value + half, certified])
        for (label, way), epsilon in itertools.product(series.items(), AUDIT_EPSILONS):
            cell = results.audit(dataset, *way, epsilon)
            if cell is not None:
                rows.append([label, epsilon, *cell[["rate", "low", "high", "certificate"]]])
        table = pd.DataFrame(rows, columns=columns).assign(baseline=1 / N_CANDIDATES)
        ReconstructionDisplay(table).plot(ax)
        ax.get_legend().remove()
        ax.set_ylim(0, 1.05 * np.nanmax(table[["high", "certificate"]]))
        ax.set_title(DATASETS[dataset])
    _legend(figure, axes, 4)
    return figure


def worth(results):
    """Accuracy against the certificate for one and the same candidates."""
    lines = {
        "a ball of the median distance": ("logistic", "q50", "C3", "-", "o"),
        "any distance, labels public": ("logistic", "full", "C0", "-", "s"),
        "standard DP": ("logistic", "labels", "0.3", "--", "D"),
    }
    names = [d for d in results.datasets if results.of(d, "logistic", "full", 1.0) is not None]
    figure, axes = _panels(names)
    for ax, dataset in zip(axes, names, strict=True):
        for label, (method, policy, colour, dashes, marker) in lines.items():
            x, cells = against_one_attacker(results, dataset, method, policy)
            style = {"color": colour, "linestyle": dashes, "marker": marker, "markersize": 4}
            _line(ax, x, cells, label, **style)
        best = results.noiseless(dataset, "LogisticRegression")["mean"]
        ax.axhline(best, color="0.6", linestyle=":", label="no noise")
        ax.set_title(DATASETS[dataset])
        ax.set_xlim(0.1, 1.0)
        ax.set_xlabel("certified success of one attacker")
    for ax in axes[:: max(1, min(4, len(names)))]:
        ax.set_ylabel("test accuracy")
    _legend(figure, axes, 4)
    return figure


FIGURES = {"worth": worth, "convex": convex, "identification": identification}
