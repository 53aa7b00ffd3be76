"""``python -m sklearn_balldp``: what a Ball-DP head costs and protects, on real data.

With ``train``, ``plan``, ``predict``, ``verify`` or ``card`` it is the command ``balldp``.
"""

import argparse
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from . import BallDPLogisticRegression
from .command import COMMANDS
from .command import main as command
from .datasets import load_embeddings, unit_rows
from .distances import same_label_quantile
from .text import percent

CANDIDATES = 10
#: Epsilon of the release whose card is written.
SHOWN = 2.0
BALL, STANDARD = "ball", "standard DP"


def load(path: Path | None) -> Bunch:
    """The user's file, or scikit-learn's bundled digits split in two."""
    if path is not None:
        if path.is_file() and not zipfile.is_zipfile(path):
            raise SystemExit(f"--data {path} is no .npz file; write one with numpy.savez.")
        try:
            return load_embeddings(path)
        except (OSError, ValueError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise SystemExit(f"--data {path}: {error}") from None
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        unit_rows(X), y, test_size=0.3, stratify=y, random_state=0
    )
    return Bunch(X_train=X_train, y_train=y_train, X_test=X_test, y_test=y_test)


def compare(
    data: Bunch, epsilons: list[float], radius: float, n_releases: int, seed: int | None
) -> tuple[pd.DataFrame, Any]:
    """A row for each promise and epsilon; and a head that hides a ball, at epsilon 2 or near it.

    Certificates are for the same candidates in every row: within the ball, of one label. The list
    of classes is taken as public.
    """
    classes = np.unique(np.concatenate([data.y_train, data.y_test]))
    stream = np.random.default_rng(seed)
    promises: dict[str, dict[str, Any]] = {
        BALL: {"radius": radius},
        STANDARD: {"radius": None, "protect_labels": True, "classes": classes},
    }
    rows, shown = [], None
    near = min(epsilons, key=lambda epsilon: abs(epsilon - SHOWN))
    for epsilon in epsilons:
        for promise, params in promises.items():
            scores = []
            for _ in range(n_releases):
                draw = None if seed is None else int(stream.integers(2**31))
                head = BallDPLogisticRegression(epsilon, random_state=draw, **params)
                scores.append(head.fit(data.X_train, data.y_train).score(data.X_test, data.y_test))
            shown = head if (promise, epsilon) == (BALL, near) else shown
            release = head.release_
            rows.append(
                {
                    "epsilon": epsilon,
                    "promise": promise,
                    "accuracy": np.mean(scores),
                    "sd": np.std(scores, ddof=1) if n_releases > 1 else 0.0,
                    "certificate": release.certificate(1 / CANDIDATES, radius, "public"),
                    "at any distance": release.guarantee(2.0, "public").epsilon,
                }
            )
    return pd.DataFrame(rows), shown


def format_table(table: pd.DataFrame, ceiling: float) -> str:
    """One row for each epsilon, the promises side by side."""
    wide = table.pivot(index="epsilon", columns="promise")
    accuracy = wide["accuracy"].map("{:.3f}".format) + " +- " + wide["sd"].map("{:.3f}".format)
    # An upper bound is rounded up.
    certificate = (np.ceil(1000.0 * wide["certificate"]) / 1000.0).map("{:.3f}".format)
    shown = {("", "epsilon"): wide.index.map("{:g}".format)}
    shown |= {("test accuracy", promise): accuracy[promise] for promise in (BALL, STANDARD)}
    for promise in (BALL, STANDARD):
        shown["attacker succeeds at most", promise] = certificate[promise]
    shown["epsilon at any distance", BALL] = wide["at any distance", BALL].map("{:.3g}".format)
    text = pd.DataFrame(shown).to_string(index=False)
    return f"{text}\nno noise: {ceiling:.3f} (scikit-learn's logistic regression)"


def conclude(table: pd.DataFrame, radius: float, ceiling: float, seeded: bool) -> str:
    """What the table says, in three sentences, from its own numbers."""
    lowest = table["epsilon"].min()
    at = table[table["epsilon"] == lowest].set_index("promise")
    ball, standard = at.loc[BALL], at.loc[STANDARD]
    protection = (
        f"someone who knows every record but one, and {CANDIDATES} equally likely candidates for "
        f"it, of its label and within {radius:.2f} of one possible record, names the right one "
        f"with probability at most {percent(ball['certificate'])}; a blind guess succeeds in "
        f"{100 / CANDIDATES:g} %."
    )
    if seeded:
        protection = "none, because --seed makes noise that anyone can draw again."
    return (
        f"Accuracy: at epsilon {lowest:g} the head scores {ball['accuracy']:.3f} if it hides a "
        f"ball, {standard['accuracy']:.3f} under standard differential privacy; without noise "
        f"scikit-learn's scores {ceiling:.3f}.\n"
        f"Protection: {protection}\n"
        "Limits: a ball hides less of what lies further away (epsilon "
        f"{ball['at any distance']:.3g} at any distance), and neither labels nor class counts; "
        "standard differential privacy hides all of these at the same epsilon."
    )


def draw(table: pd.DataFrame, ceiling: float, path: Path) -> None:
    """Accuracy against epsilon, and against the certificate for the same candidates."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained", sharey=True)
    attacker = f"certified success of one attacker ({CANDIDATES} candidates in the ball)"
    panels = (
        ("epsilon", r"$\varepsilon$", r"At equal $\varepsilon$"),
        ("certificate", attacker, "Against the same attacker"),
    )
    for ax, (x, label, title) in zip(axes, panels, strict=True):
        for promise, style in ((BALL, "C0-o"), (STANDARD, "C1--s")):
            rows = table[table["promise"] == promise]
            ax.errorbar(rows[x], rows["accuracy"], rows["sd"], fmt=style, capsize=3, label=promise)
        ax.axhline(ceiling, color="0.5", linestyle=":", label="no noise")
        ax.set_xlabel(label)
        ax.set_title(title)
    axes[0].set_xscale("log", base=2)
    axes[0].set_xticks(sorted(set(table["epsilon"])))
    axes[0].xaxis.set_major_formatter("{x:g}")
    axes[0].set_ylabel("test accuracy")
    axes[1].axvline(1 / CANDIDATES, color="0.7", linewidth=1)
    beside = axes[1].get_xaxis_transform()
    axes[1].set_xlim(left=0.0)
    axes[1].text(
        0.9 / CANDIDATES,
        0.03,
        "blind guess",
        transform=beside,
        rotation=90,
        ha="right",
        color="0.4",
    )
    axes[0].legend(loc="lower right")
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _number(kind: type, most: float, words: str) -> Callable[[str], Any]:
    """A reader of an option's number above 0, whose error says what it must be."""

    def read(text: str) -> Any:
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(f"{text} is not {words}.")
        return value

    return read


def main(arguments: list[str] | None = None) -> None:
    """Run the comparison, or a command of ``balldp``."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] and arguments[0] in COMMANDS:
        raise SystemExit(command(arguments))
    parser = argparse.ArgumentParser(prog="python -m sklearn_balldp", description=__doc__)
    parser.add_argument(
        "--data",
        type=Path,
        metavar="FILE.npz",
        help="arrays X_train, y_train, X_test, y_test (default: scikit-learn's digits)",
    )
    positive = _number(float, 1e6, "a number above 0")
    parser.add_argument("--epsilon", type=positive, nargs="+", default=[0.5, 1.0, 2.0, 4.0, 8.0])
    parser.add_argument(
        "--quantile",
        type=_number(float, 1.0, "above 0 and at most 1"),
        default=0.5,
        help="radius: this quantile of same-label distances among the test rows (default 0.5)",
    )
    whole = _number(int, 1e6, "a whole number above 0")
    parser.add_argument("--releases", type=whole, default=5, help="releases averaged (default 5)")
    parser.add_argument("--seed", type=int, help="reproducible noise, which is not private")
    parser.add_argument("--out", type=Path, default=Path("balldp.png"), help="picture to write")
    options = parser.parse_args(arguments)

    data = load(options.data)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    epsilons = sorted(set(options.epsilon))
    try:
        radius = same_label_quantile(data.X_test, data.y_test, options.quantile)
        table, head = compare(data, epsilons, radius, options.releases, options.seed)
        exact = LogisticRegression(C=10.0, max_iter=1000).fit(data.X_train, data.y_train)
        ceiling = exact.score(data.X_test, data.y_test)
    except ValueError as error:
        raise SystemExit(f"--data {options.data}: {error}") from None
    print(
        f"{options.data or 'scikit-learn digits'}: {len(data.X_train)} private training rows of "
        f"unit norm, {data.X_train.shape[1]} features, {len(np.unique(data.y_train))} classes; "
        f"{len(data.X_test)} test rows, taken as public.\n"
        f"Ball: every other record of the same label within {radius:.3f} (the "
        f"{options.quantile:g} quantile of such distances among the public rows, in the widest "
        f"class). Logistic regression with its defaults, delta 1e-6, {options.releases} releases.\n"
    )
    print(format_table(table, ceiling))
    print(f"\n{conclude(table, radius, ceiling, options.seed is not None)}")
    card = options.out.with_suffix(".card.html")
    draw(table, ceiling, options.out)
    head.release_.card(head).save(card)
    print(
        f"\nPicture: {options.out}\nCard of the ball at epsilon {head.epsilon:g}, in plain words: "
        f"{card}"
    )


if __name__ == "__main__":
    main()
