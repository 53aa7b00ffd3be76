"""``balldp demo``: what a ball saves on public records, and the commands that a user would type."""

import argparse
import io
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from ..datasets import BREAST_CANCER, load_messages
from ..encoders import TableEncoder
from ..heads import BallDPLogisticRegression
from ..writing import new_folder, write_new
from .options import in_options, parsed, settle
from .train import train
from .verify import verify

#: The smallest shows what a ball saves, the largest that little is left to save.
EPSILONS = (0.25, 1.0, 4.0)
#: Radius of the messages, and fits of which a mean is shown.
RADIUS, RELEASES = 0.6, 5
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
        compared(sides, promises)
    names = ", ".join(sorted(path.name for path in place.iterdir()))
    print(f"Wrote     {place} with {names}", flush=True)
    train(_typed(run[0], place))
    print(f"\n{in_options(str(verify(_typed(run[1], place))))}\n")
    print(
        "Next      " + f"\n{'':10}".join(f"balldp {shlex.join(_words(c, place))}" for c in further)
    )


def _words(command: str, place: Path) -> list[str]:
    """Words of a command, with its files where they lie."""
    return [str(place / w[2:]) if w.startswith("@/") else w for w in shlex.split(command)]


def _typed(command: str, place: Path) -> argparse.Namespace:
    """Options of a command, which is shown as a user types it."""
    words = _words(command, place)
    print(f"\n$ balldp {shlex.join(words)}", flush=True)
    options = parsed(words)
    settle(options)
    return options


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
    hidden = f"the swap of a record for one of the same label within {RADIUS:g}"
    # Labels that are hidden need a public list of them.
    standard = {"protect_labels": True, "classes": np.unique(data.y_train)}
    promises = {"ball": {"radius": RADIUS}, "standard DP": standard}
    return what, hidden, (data.X_train, data.y_train, data.X_test, data.y_test), promises


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


def compared(sides: tuple[Any, ...], promises: dict[str, dict[str, Any]]) -> None:
    """Print test accuracies of the releases, by epsilon and promise; and that without noise."""
    X, y, X_test, y_test = sides
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(X, y).score(X_test, y_test)
    print(
        f"Accuracy  of logistic regression on the test, mean of {RELEASES} releases (standard "
        f"deviation)\n          {'epsilon':<10}"
        + "".join(f"{name:<16}" for name in promises)
        + "no noise"
    )
    for epsilon in EPSILONS:
        cells = ""
        for params in promises.values():
            head = BallDPLogisticRegression(epsilon, **params)
            scores = [clone(head).fit(X, y).score(X_test, y_test) for _ in range(RELEASES)]
            cells += f"{f'{np.mean(scores):.3f} ({np.std(scores, ddof=1):.3f})':<16}"
        print(f"          {epsilon:<10g}{cells}{plain:.3f}", flush=True)
