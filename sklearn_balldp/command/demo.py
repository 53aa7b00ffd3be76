"""``balldp demo``: the main job on bundled messages, which needs no network and no encoder."""

import argparse
import csv
import io
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
from ..publish.card import candidates_of
from ..text import percent
from ..writing import new_folder, write_new
from .options import report

#: The smallest shows what a ball saves, the largest that little is left to save.
EPSILONS = (0.25, 1.0, 4.0)
#: Epsilon of the model that is written.
CHOSEN = 1.0
RADIUS = 0.6
RELEASES = 5
CANDIDATES = 10
README, PICTURE, MODEL = "README.txt", "accuracy.png", "model"
MESSAGES, NEW = "messages.csv", "new.csv"
_CONTENT = f"""\
Written by `balldp demo`:

{PICTURE}  test accuracy of a ball, of standard DP and without noise
{MESSAGES}  real messages of a bank's customers, their topics and embeddings (BANKING77 by PolyAI,
              CC BY 4.0); they are public, and stand for private ones
{NEW}       other messages, whose topics a model can predict
{MODEL}/        a model of the messages, as it would be published
"""
_ENCODER = "sentence-transformers/all-MiniLM-L6-v2, rounded to eight bits"


def demo(options: argparse.Namespace) -> None:
    """Compare the promises, write a model as it would be published, and check it."""
    if options.table:
        # It shows the same things, and takes them from here.
        from .demo_table import demo_table

        demo_table(options)
        return
    place = options.out or Path("balldp-demo")
    with new_folder(place) as folder:
        _demo(place, folder)


def _demo(place: Path, folder: Path) -> None:
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
    ball: dict[str, Any] = {"radius": RADIUS}
    # Its labels are hidden, so that the list of them must be public.
    standard = {"protect_labels": True, "classes": np.unique(data.y_train)}
    sides = (data.X_train, data.y_train, data.X_test, data.y_test)
    scores = compared(sides, {"ball": ball, "standard DP": standard})
    chosen = BallDPLogisticRegression(CHOSEN, encoder=_ENCODER, **ball)
    chosen.fit(data.X_train, data.y_train)
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(data.X_train, data.y_train)
    ceiling = float(plain.score(data.X_test, data.y_test))
    print_scores(scores, ceiling)
    _print_promise(chosen)
    write_new(folder / README, _CONTENT.encode())
    write_new(folder / PICTURE, _drawn(scores, ceiling))
    _write_messages(data, folder)
    save(chosen, folder / MODEL)
    model, messages, new = (shlex.quote(str(place / name)) for name in (MODEL, MESSAGES, NEW))
    print(
        f"Wrote     {place / PICTURE} (the picture of this table), {place / MESSAGES}, "
        f"{place / NEW},\n"
        f"          {place / README} and the folder {place / MODEL} (the ball at epsilon "
        f"{CHOSEN:g})\n"
        f"Checked   balldp verify {model}\n\n{report(verify(folder / MODEL))}\n\n"
        f"Next      balldp predict {model} {new} --out labelled.csv\n"
        f"          balldp train {messages} --embedding embedding --label topic "
        f"--radius {RADIUS:g} --epsilon 2 --out model\n"
        "          balldp verify model\n"
        "          with an encoder (the extra text), --text message in place of --embedding "
        "embedding"
    )


def compared(
    sides: tuple[Any, ...], promises: dict[str, dict[str, Any]]
) -> dict[str, dict[float, Any]]:
    """Test accuracies of the releases, by promise and epsilon."""
    X, y, X_test, y_test = sides
    return {
        promise: {
            epsilon: [
                BallDPLogisticRegression(epsilon, **params).fit(X, y).score(X_test, y_test)
                for _ in range(RELEASES)
            ]
            for epsilon in EPSILONS
        }
        for promise, params in promises.items()
    }


def print_scores(scores: dict[str, dict[float, Any]], ceiling: float) -> None:
    """A table of them."""
    print(
        f"Accuracy  of logistic regression on the test, mean of {RELEASES} releases (standard "
        f"deviation)\n          {'epsilon':<10}{'ball':<16}{'standard DP':<16}no noise"
    )
    for epsilon in EPSILONS:
        of_promises = [by_epsilon[epsilon] for by_epsilon in scores.values()]
        cells = [f"{np.mean(s):.3f} ({np.std(s, ddof=1):.3f})" for s in of_promises]
        shown = "".join(f"{cell:<16}" for cell in cells)
        print(f"          {epsilon:<10g}{shown}{ceiling:.3f}")


def _print_promise(head: BallDPLogisticRegression) -> None:
    """What the release that is written hides, and what it does not."""
    release = head.release_
    certificate = release.certificate(1.0 / CANDIDATES, RADIUS, "public")
    # An upper bound is rounded up.
    anywhere = math.ceil(100.0 * release.guarantee(2.0, "public").epsilon) / 100.0
    print(
        f"Promise   epsilon {release.epsilon:g}, delta {release.delta:g}, ball of {RADIUS:g}: "
        "who knows every other record, and holds\n"
        f"          {CANDIDATES} equally likely {candidates_of(release)},\n"
        f"          names the right one with probability {percent(certificate)} at most; a blind "
        f"guess succeeds in {100 / CANDIDATES:g} %\n"
        f"Limits    what lies further away is hidden less (epsilon {anywhere:g} at any distance), "
        "and labels and class\n"
        "          counts not at all; standard DP hides these too, at its epsilon",
        flush=True,
    )


def _drawn(scores: dict[str, dict[float, Any]], ceiling: float) -> bytes:
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
    ax.set(
        xlabel=r"$\varepsilon$",
        ylabel="test accuracy",
        title=f"Messages of a bank's customers, ball of {RADIUS:g}",
    )
    ax.legend(loc="lower right")
    body = io.BytesIO()
    figure.savefig(body, dpi=130)
    return body.getvalue()


def _write_messages(data: Bunch, folder: Path) -> None:
    """The messages as a user has them, with embeddings for whoever has no encoder."""
    for name, split in ((MESSAGES, "train"), (NEW, "test")):
        rows = np.round(data[f"X_{split}"].astype(float), 5).tolist()
        columns = {"message": data[f"texts_{split}"].tolist(), "topic": data[f"y_{split}"].tolist()}
        columns["embedding"] = [json.dumps(row) for row in rows]
        if name == NEW:
            del columns["topic"]
        body = io.StringIO()
        csv.writer(body).writerows([columns, *zip(*columns.values(), strict=True)])
        write_new(folder / name, body.getvalue().encode())
