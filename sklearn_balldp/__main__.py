"""``python -m sklearn_balldp``: what a Ball-DP head costs and protects, on real data.

``python -m sklearn_balldp verify MODEL [RELEASE.json]`` checks a published model.
"""

import argparse
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from . import BallDPLogisticRegression
from .datasets import load_embeddings, unit_rows
from .publish.command import verify_command
from .radius import same_label_quantile

CANDIDATES = 10
NOISELESS = "noiseless"
POLICIES = {
    "full radius, labels public": {"radius": None},
    "labels protected (standard DP)": {"radius": None, "protect_labels": True},
    "Ball-DP, labels public": {},
}


class Data(NamedTuple):
    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load(path: Path | None) -> Data:
    """The user's file, or scikit-learn's bundled digits split in two."""
    if path is not None:
        try:
            file = load_embeddings(path)
        except (OSError, ValueError) as error:
            raise SystemExit(f"--data: {error}") from None
        return Data(*(file[name] for name in Data._fields))
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        unit_rows(X), y, test_size=0.3, stratify=y, random_state=0
    )
    return Data(X_train, y_train, X_test, y_test)


def compare(
    data: Data, epsilons: list[float], radius: float, n_releases: int, seed: int | None
) -> pd.DataFrame:
    """One row per head and epsilon: accuracy over releases, guarantees, certificate."""
    classes = np.unique(np.concatenate([data.y_train, data.y_test]))
    streams = None if seed is None else np.random.default_rng(seed)
    # The same descent without noise; by default so large an epsilon would mean another mechanism.
    exact = {"radius": radius, "epsilon": 1e9, "mechanism": "gradient"}
    runs: list[tuple[str, float | None, dict[str, Any]]] = [(NOISELESS, None, exact)]
    for epsilon in epsilons:
        for name, params in POLICIES.items():
            runs.append((name, epsilon, {"radius": radius, "epsilon": epsilon, **params}))
    rows = []
    for name, epsilon, params in runs:
        if params.get("protect_labels"):
            params["classes"] = classes
        head = BallDPLogisticRegression(random_state=streams, **params)
        n_fits = 1 if epsilon is None else n_releases
        scores = []
        for _ in range(n_fits):
            head.fit(data.X_train, data.y_train)
            scores.append(head.score(data.X_test, data.y_test))
        release = head.release_
        rows.append(
            {
                "head": name,
                "epsilon": epsilon,
                "accuracy": np.mean(scores),
                "sd": np.std(scores, ddof=1) if n_fits > 1 else 0.0,
                "epsilon at the ball": release.guarantee(radius, "public").epsilon,
                "epsilon at full radius": release.epsilon_full_radius,
                "certificate": release.certificate(1 / CANDIDATES, radius, "public"),
            }
        )
        if epsilon is None:
            rows[-1].update({"epsilon at the ball": np.inf, "epsilon at full radius": np.inf})
    return pd.DataFrame(rows)


def format_table(table: pd.DataFrame) -> str:
    """The comparison as one aligned table."""
    shown = pd.DataFrame(
        {
            "head": table["head"],
            "epsilon": table["epsilon"].map(lambda e: "none" if np.isnan(e) else f"{e:g}"),
            "accuracy": [
                f"{a:.3f} +- {s:.3f}" for a, s in zip(table["accuracy"], table["sd"], strict=True)
            ],
            "epsilon at the ball": table["epsilon at the ball"].map("{:.3g}".format),
            "epsilon at full radius": table["epsilon at full radius"].map("{:.3g}".format),
            "certificate": table["certificate"].map("{:.3f}".format),
        }
    )
    width = shown["head"].str.len().max()
    shown["head"] = shown["head"].str.ljust(width)
    return shown.to_string(index=False, justify="right").replace(
        "head".rjust(width), "head".ljust(width), 1
    )


def conclude(table: pd.DataFrame, radius: float) -> str:
    """What the table says, in words, from its own numbers."""
    lowest = table["epsilon"].min()
    at = table[table["epsilon"] == lowest].set_index("head")
    ball, standard = at.loc["Ball-DP, labels public"], at.loc["labels protected (standard DP)"]
    exact = table.set_index("head").loc[NOISELESS, "accuracy"]
    return (
        f"At epsilon={lowest:g} the Ball-DP head scores {ball['accuracy']:.3f} (noiseless "
        f"{exact:.3f}, the same head under standard DP {standard['accuracy']:.3f}). "
        f"It hides which record within {radius:.2f} of the true one (same label) was used: an "
        f"attacker who knows every other record and {CANDIDATES} equally likely candidates names "
        f"the right one with probability at most {ball['certificate']:.3f} (blind guess "
        f"{1 / CANDIDATES:.3f}). Substitutions further away are hidden less: "
        f"epsilon={ball['epsilon at full radius']:.3g} at full radius; labels and class counts "
        "are public."
    )


def draw(table: pd.DataFrame, path: Path) -> None:
    """Accuracy against the certificate, one line a policy."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(7, 4.5), layout="constrained")
    exact = table.loc[table["head"] == NOISELESS, "accuracy"].item()
    ax.axhline(exact, color="0.4", linestyle="--", linewidth=1)
    ax.annotate(
        "noiseless",
        (1, exact),
        xytext=(-4, 3),
        textcoords="offset points",
        xycoords=("axes fraction", "data"),
        ha="right",
        color="0.3",
    )
    ax.axvline(1 / CANDIDATES, color="0.7", linestyle=":", linewidth=1)
    ax.annotate(
        "blind guess",
        (1 / CANDIDATES, 0),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 4),
        textcoords="offset points",
        rotation=90,
        ha="right",
        color="0.4",
    )
    markers = dict(zip(POLICIES, "sDo", strict=True))
    for name, group in table[table["head"] != NOISELESS].groupby("head", sort=False):
        ax.errorbar(
            group["certificate"],
            group["accuracy"],
            yerr=group["sd"],
            label=name,
            marker=markers[name],
            capsize=3,
            linewidth=1.5,
        )
    ball = table[table["head"] == "Ball-DP, labels public"]
    for _, row in ball.iterrows():
        ax.annotate(
            f"$\\varepsilon$={row['epsilon']:g}",
            (row["certificate"], row["accuracy"]),
            xytext=(6, -14),
            textcoords="offset points",
            fontsize=9,
        )
    ax.set_xlabel(
        f"certificate: largest success of an informed attacker, {CANDIDATES} candidates in the ball"
    )
    ax.set_ylabel("test accuracy")
    ax.set_xlim(0, 1)
    ax.legend(loc="lower right")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison, or ``verify``, from the command line."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["verify"]:
        raise SystemExit(verify_command(arguments[1:]))
    parser = argparse.ArgumentParser(prog="python -m sklearn_balldp", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE.npz",
        help="arrays X_train, y_train, X_test, y_test (default: scikit-learn's digits)",
    )
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument(
        "--quantile",
        type=float,
        default=0.5,
        help="radius: this quantile of same-label distances among the test rows (default 0.5)",
    )
    parser.add_argument("--releases", type=int, default=10, help="releases averaged (default 10)")
    parser.add_argument("--seed", type=int, help="reproducible noise, which is not private")
    parser.add_argument("--out", type=Path, default=Path("balldp.png"), help="picture to write")
    options = parser.parse_args(arguments)

    data = load(options.data)
    radius = same_label_quantile(data.X_test, data.y_test, options.quantile)
    table = compare(data, sorted(options.epsilon), radius, options.releases, options.seed)
    source = options.data or "scikit-learn digits"
    print(
        f"{source}: {len(data.X_train)} private training rows of unit norm, "
        f"{data.X_train.shape[1]} features, {len(np.unique(data.y_train))} classes; "
        f"{len(data.X_test)} test rows, taken as public.\n"
        f"Ball: Euclidean radius {radius:.3f}, the {options.quantile:g} quantile of same-label "
        f"distances among the public rows; delta=1e-6, logistic regression, "
        f"{options.releases} releases.\n"
    )
    print(format_table(table))
    print("\nThe column 'epsilon at the ball' counts the same substitutions in every row:")
    print("compare rows by it.")
    print(conclude(table, radius))
    draw(table, options.out)
    print(f"\nAccuracy against certificate: {options.out}")


if __name__ == "__main__":
    main()
