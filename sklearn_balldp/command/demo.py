"""``balldp demo``: what a ball saves on public records, and the commands that a user would type."""

import argparse
import io
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from ..datasets import BREAST_CANCER, load_messages
from ..encoders import TableEncoder
from ..heads import BallDPLogisticRegression
from ..writing import new_folder, write_new
from .options import parsed, report
from .train import train
from .verify import verify

#: The smallest shows what a ball saves, the largest that little is left to save.
EPSILONS = (0.25, 1.0, 4.0)
#: Radius of the messages, and fits of which a mean is shown.
RADIUS, RELEASES = 0.6, 5
_README = """\
Written by `balldp demo`, of {}. They are public, and stand for private ones.

accuracy.png  test accuracy of a ball, of standard DP and without noise
model         a model of the records, as it would be published
"""
_STANDARD = "standard differential privacy (DP) hides its swap for any record of any label"
# Commands about messages and about a table: those that are run, and those that are next.
_MESSAGES = (
    (
        f"train @/messages.npz --embedding embedding --label topic --radius {RADIUS:g} --epsilon 1 "
        "--encoder 'sentence-transformers/all-MiniLM-L6-v2, rounded to eight bits' --out @/model",
        "verify @/model",
    ),
    (
        "predict @/model @/new.npz --out labelled.csv",
        f"train @/messages.csv --text message --label topic --radius {RADIUS:g} --epsilon 2 "
        "--out model",
    ),
)
_TABLE = (
    (
        "train @/patients.csv --columns @/columns.toml --label outcome --classes @/classes.txt "
        "--epsilon 1 --out @/model",
        "verify @/model",
    ),
    (
        "predict @/model @/new.csv --out labelled.csv",
        "columns @/patients.csv",
        "train @/patients.csv --columns @/columns.toml --label outcome --hide 'any 1' --epsilon 1 "
        "--out ball",
    ),
)


def demo(options: argparse.Namespace) -> None:
    """Compare a ball with standard DP, then train and check a model by the other commands."""
    example, (run, further) = (_tumours, _TABLE) if options.table else (_messages, _MESSAGES)
    place = options.out or Path("balldp-demo-table" if options.table else "balldp-demo")
    with new_folder(place) as folder:
        what, hidden, sides, promises = example(folder)
        print(f"Records   {len(sides[1])} {what}\n{'':10}{len(sides[3])} others are the test")
        print(f"Promises  a ball hides {hidden};\n{'':10}{_STANDARD}")
        scores, ceiling = compared(sides, promises)
        _print_scores(scores, ceiling)
        write_new(folder / "accuracy.png", _drawn(scores, ceiling, what.partition(" (")[0]))
        write_new(folder / "README.txt", _README.format(what).encode())
    names = ", ".join(sorted(path.name for path in place.iterdir()))
    print(f"Wrote     {place} with {names}", flush=True)
    train(_typed(run[0], place))
    print(f"\n{report(verify(_typed(run[1], place)))}\n")
    print(
        "Next      " + f"\n{'':10}".join(f"balldp {shlex.join(_words(c, place))}" for c in further)
    )


def interrupted(options: argparse.Namespace) -> str:
    """What a run has done that was interrupted, in words."""
    return "what it had written by then stays"


def _words(command: str, place: Path) -> list[str]:
    """Words of a command, with its files where they lie."""
    return [str(place / w[2:]) if w.startswith("@/") else w for w in shlex.split(command)]


def _typed(command: str, place: Path) -> argparse.Namespace:
    """Options of a command, which is shown as a user types it."""
    words = _words(command, place)
    print(f"\n$ balldp {shlex.join(words)}", flush=True)
    return parsed(words)


def _messages(folder: Path) -> tuple[Any, ...]:
    """Messages with embeddings, for whoever has no encoder."""
    data = load_messages()
    for name, split in (("messages", "train"), ("new", "test")):
        columns = {"message": data[f"texts_{split}"], "topic": data[f"y_{split}"]}
        if split == "test":
            del columns["topic"]
        write_new(folder / f"{name}.csv", pd.DataFrame(columns).to_csv(index=False).encode())
        body = io.BytesIO()
        np.savez_compressed(body, embedding=data[f"X_{split}"], **columns)
        write_new(folder / f"{name}.npz", body.getvalue())
    what = "messages of a bank's customers, on four topics (BANKING77 by PolyAI, CC BY 4.0)"
    # Labels that are hidden need a public list of them.
    standard = {"protect_labels": True, "classes": np.unique(data.y_train)}
    sides = data.X_train, data.y_train, data.X_test, data.y_test
    promises = {"ball": {"radius": RADIUS}, "standard DP": standard}
    return (
        what,
        f"the swap of a record for one of the same label within {RADIUS:g}",
        sides,
        promises,
    )


def _tumours(folder: Path) -> tuple[Any, ...]:
    """A table of declared columns, which scikit-learn brings."""
    data = load_breast_cancer(as_frame=True)
    measures = "radius", "texture", "smoothness", "concavity", "concave points"
    names = [f"{of} {measure}" for of in ("mean", "worst") for measure in measures]
    encoder = TableEncoder({name: BREAST_CANCER[name] for name in names})
    X, new, y, y_new = train_test_split(
        data.data[names], data.target_names[data.target], test_size=142, random_state=0
    )
    classes = sorted(data.target_names.tolist())
    declared = "".join(f'"{name}" = {ends}\n' for name, ends in encoder.columns.items())
    texts = {
        "patients.csv": X.assign(outcome=y).to_csv(index=False),
        "new.csv": new.to_csv(index=False),
        "columns.toml": declared,
        "classes.txt": "\n".join(classes) + "\n",
    }
    for name, text in texts.items():
        write_new(folder / name, text.encode())
    what = "tumours, by ten measures of their cells (Breast Cancer Wisconsin, CC BY 4.0)"
    sphere: dict[str, Any] = {"domain": "sphere"}
    standard = {"radius": encoder.radius(len(names)), "protect_labels": True, "classes": classes}
    promises = {"ball": sphere | {"radius": encoder.radius(1)}, "standard DP": sphere | standard}
    sides = encoder.transform(X), y, encoder.transform(new), y_new
    return what, "the change of any one column of a record, not of its label", sides, promises


def compared(
    sides: tuple[Any, ...], promises: dict[str, dict[str, Any]]
) -> tuple[dict[str, dict[float, list[float]]], float]:
    """Test accuracies of the releases, by promise and epsilon; and that without noise."""
    X, y, X_test, y_test = sides
    scores = {
        promise: {
            epsilon: [
                BallDPLogisticRegression(epsilon, **params).fit(X, y).score(X_test, y_test)
                for _ in range(RELEASES)
            ]
            for epsilon in EPSILONS
        }
        for promise, params in promises.items()
    }
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(X, y)
    return scores, float(plain.score(X_test, y_test))


def _print_scores(scores: dict[str, dict[float, list[float]]], ceiling: float) -> None:
    print(
        f"Accuracy  of logistic regression on the test, mean of {RELEASES} releases (standard "
        f"deviation)\n          {'epsilon':<10}{'ball':<16}{'standard DP':<16}no noise"
    )
    for epsilon in EPSILONS:
        of_promises = [by_epsilon[epsilon] for by_epsilon in scores.values()]
        cells = [f"{np.mean(s):.3f} ({np.std(s, ddof=1):.3f})" for s in of_promises]
        shown = "".join(f"{cell:<16}" for cell in cells)
        print(f"          {epsilon:<10g}{shown}{ceiling:.3f}", flush=True)


def _drawn(scores: dict[str, dict[float, list[float]]], ceiling: float, title: str) -> bytes:
    """A picture of accuracy over epsilon."""
    from matplotlib.figure import Figure

    # No backend, and no window.
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    ax = figure.subplots()
    for (promise, by_epsilon), style in zip(scores.items(), ("C0-o", "C1--s"), strict=True):
        means, sds = ([of(values) for values in by_epsilon.values()] for of in (np.mean, np.std))
        ax.errorbar(list(by_epsilon), means, sds, fmt=style, capsize=3, label=promise)
    ax.axhline(ceiling, color="0.5", linestyle=":", label="no noise")
    ax.set_xscale("log", base=2)
    ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    ax.set(xlabel=r"$\varepsilon$", ylabel="test accuracy", title=title.capitalize())
    ax.legend(loc="lower right")
    body = io.BytesIO()
    figure.savefig(body, dpi=130)
    return body.getvalue()
