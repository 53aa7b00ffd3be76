"""``balldp demo``: the main job on bundled messages, which needs no network and no encoder."""

import argparse
import csv
import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.utils import Bunch

from ..datasets import load_messages
from ..heads import BallDPLogisticRegression
from ..publish import save, verify
from ..publish.files import written_as_a_whole
from ..text import percent
from .records import InputError

#: The smallest shows what a ball saves, the largest that little is left to save.
EPSILONS = (0.25, 1.0, 4.0)
#: Epsilon of the model that is written.
CHOSEN = 1.0
RADIUS = 0.6
RELEASES = 5
CANDIDATES = 10
README, PICTURE, MODEL = "README.txt", "accuracy.png", "model"
MESSAGES, NEW = "messages.csv", "new.csv"
FILES = {README, PICTURE, MODEL, MESSAGES, NEW}
_MARK = "Written by `balldp demo`, which replaces this folder when it runs again.\n"
_CONTENT = f"""\
{_MARK}
{PICTURE}  test accuracy of a ball, of standard DP and without noise
{MESSAGES}  real messages of a bank's customers, their topics and embeddings (BANKING77 by PolyAI,
              CC BY 4.0); they are public, and stand for private ones
{NEW}       other messages, whose topics a model can predict
{MODEL}/        a model of the messages, as it would be published
"""
_ENCODER = "sentence-transformers/all-MiniLM-L6-v2, rounded to eight bits"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of demo."""
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("balldp-demo"),
        metavar="DIR",
        help="folder to make, or to make again (default: balldp-demo)",
    )


def demo(options: argparse.Namespace) -> None:
    """Compare the promises, write a model as it would be published, and check it."""
    _check_replaceable(options.out)
    data = load_messages()
    print(
        f"Records   {len(data.X_train)} messages of a bank's customers (BANKING77), on "
        f"{len(np.unique(data.y_train))} topics, with embeddings; {len(data.X_test)} others are "
        "the test\n"
        f"Radius    {RADIUS:g} between unit rows: a ball hides any other record of the same label "
        "that is as close,\n"
        "          standard differential privacy (DP) hides any other record and its label",
        flush=True,
    )
    scores, chosen = _compared(data)
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(data.X_train, data.y_train)
    ceiling = float(plain.score(data.X_test, data.y_test))
    print(_table(scores, ceiling))
    print(_promise(chosen), flush=True)
    with written_as_a_whole(options.out, FILES) as folder:
        (folder / README).write_text(_CONTENT, encoding="utf-8")
        _draw(scores, ceiling, folder / PICTURE)
        _write_messages(data, folder)
        save(chosen, folder / MODEL)
    place = options.out
    print(
        f"Wrote     {place / PICTURE} (the picture of this table), {place / MESSAGES}, "
        f"{place / NEW},\n"
        f"          {place / README} and the folder {place / MODEL} (the ball at epsilon "
        f"{CHOSEN:g})"
    )
    print(f"Checked   balldp verify {shlex.quote(str(place / MODEL))}\n\n{verify(place / MODEL)}\n")
    print(_next(place))


def _check_replaceable(folder: Path) -> None:
    """Only a folder that a demo wrote may be replaced."""
    if not folder.exists() and not folder.is_symlink():
        return
    held = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    ours = held == FILES and (folder / README).read_text("utf-8", "replace").startswith(_MARK)
    if folder.is_symlink() or not ours:
        raise InputError(f"--out {folder} exists, and is no demo's alone; name another folder.")


def _compared(data: Bunch) -> tuple[dict[str, dict[float, Any]], BallDPLogisticRegression]:
    """Test accuracies of the releases, by promise and epsilon; and a head that hides a ball."""
    promises: dict[str, dict[str, Any]] = {
        "ball": {"radius": RADIUS},
        # Its labels are hidden, so that the list of them must be public.
        "standard DP": {"protect_labels": True, "classes": np.unique(data.y_train)},
    }
    scores: dict[str, dict[float, Any]] = {promise: {} for promise in promises}
    chosen = BallDPLogisticRegression(CHOSEN, encoder=_ENCODER, **promises["ball"])
    for promise, params in promises.items():
        for epsilon in EPSILONS:
            head = BallDPLogisticRegression(epsilon, **params)
            scores[promise][epsilon] = [
                head.fit(data.X_train, data.y_train).score(data.X_test, data.y_test)
                for _ in range(RELEASES)
            ]
    return scores, chosen.fit(data.X_train, data.y_train)


def _table(scores: dict[str, dict[float, Any]], ceiling: float) -> str:
    lines = [
        f"Accuracy  of logistic regression on the test, mean of {RELEASES} releases (standard "
        "deviation)",
        f"          {'epsilon':<10}{'ball':<16}{'standard DP':<16}no noise",
    ]
    for epsilon in EPSILONS:
        cells = [
            f"{np.mean(own[epsilon]):.3f} ({np.std(own[epsilon], ddof=1):.3f})"
            for own in scores.values()
        ]
        shown = "".join(f"{cell:<16}" for cell in cells)
        lines.append(f"          {epsilon:<10g}{shown}{ceiling:.3f}")
    return "\n".join(lines)


def _promise(head: BallDPLogisticRegression) -> str:
    """What the release that is written hides, and what it does not."""
    release = head.release_
    certificate = release.certificate(1.0 / CANDIDATES, RADIUS, "public")
    # An upper bound is rounded up.
    anywhere = math.ceil(100.0 * release.guarantee(2.0, "public").epsilon) / 100.0
    return (
        f"Promise   epsilon {release.epsilon:g}, delta {release.delta:g}, ball of {RADIUS:g}: "
        "who knows every other record, and holds\n"
        f"          {CANDIDATES} equally likely candidates for the last one, of its label and in "
        "the ball, names the right one with\n"
        f"          probability {percent(certificate)} at most; a blind guess succeeds in "
        f"{100 / CANDIDATES:g} %\n"
        f"Limits    what lies further away is hidden less (epsilon {anywhere:g} at any distance), "
        "and labels and class\n"
        "          counts not at all; standard DP hides these too, at its epsilon"
    )


def _draw(scores: dict[str, dict[float, Any]], ceiling: float, path: Path) -> None:
    """Accuracy over epsilon."""
    from matplotlib.figure import Figure

    # No backend, and no window.
    figure = Figure(figsize=(6.0, 4.0), layout="constrained")
    ax = figure.subplots()
    for (promise, own), style in zip(scores.items(), ("C0-o", "C1--s"), strict=True):
        means, sds = ([of(values) for values in own.values()] for of in (np.mean, np.std))
        ax.errorbar(list(own), means, sds, fmt=style, capsize=3, label=promise)
    ax.axhline(ceiling, color="0.5", linestyle=":", label="no noise")
    ax.set_xscale("log", base=2)
    ax.set_xticks(EPSILONS, [f"{epsilon:g}" for epsilon in EPSILONS])
    ax.set_xlabel(r"$\varepsilon$")
    ax.set_ylabel("test accuracy")
    ax.set_title(f"Messages of a bank's customers, ball of {RADIUS:g}")
    ax.legend(loc="lower right")
    figure.savefig(path, dpi=130)


def _write_messages(data: Bunch, folder: Path) -> None:
    """The messages as a user has his own, with embeddings for whoever has no encoder."""
    for name, split in ((MESSAGES, "train"), (NEW, "test")):
        rows = np.round(data[f"X_{split}"].astype(float), 5).tolist()
        columns = {"message": data[f"texts_{split}"].tolist(), "topic": data[f"y_{split}"].tolist()}
        columns["embedding"] = [json.dumps(row) for row in rows]
        if name == NEW:
            del columns["topic"]
        with (folder / name).open("w", newline="", encoding="utf-8") as file:
            lines = csv.writer(file)
            lines.writerow(columns)
            lines.writerows(zip(*columns.values(), strict=True))


def _next(folder: Path) -> str:
    """What to do with the files."""
    messages, new, model = (shlex.quote(str(folder / name)) for name in (MESSAGES, NEW, MODEL))
    options = f"--label topic --radius {RADIUS:g} --epsilon 2 --out model"
    return (
        f"Next      balldp predict {model} {new} --out labelled.csv\n"
        f"          balldp train {messages} --embedding embedding {options}\n"
        "          balldp verify model\n"
        "          with an encoder (the extra text), --text message in place of --embedding "
        "embedding"
    )
