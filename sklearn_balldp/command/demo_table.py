"""``balldp demo --table``: the main job on a table of columns, which scikit-learn brings."""

import argparse
import shlex
from pathlib import Path
from typing import Any

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from ..datasets import BREAST_CANCER
from ..encoders import TableEncoder
from ..heads import BallDPLogisticRegression
from ..publish import save, verify
from ..publish.card import candidates_of
from ..publish.columns import HiddenColumns
from ..text import percent
from ..writing import new_folder, write_new
from .demo import CHOSEN, MODEL, NEW, README, compared, print_scores
from .options import report

RECORDS, COLUMNS, CLASSES = "patients.csv", "columns.toml", "classes.txt"
_MEASURES = ("radius", "texture", "smoothness", "concavity", "concave points")
_CONTENT = f"""\
Written by `balldp demo --table`:

{RECORDS}  measurements of cells of tumours (Breast Cancer Wisconsin, Wolberg and others, 1995;
              CC BY 4.0); they are public, and stand for private ones
{COLUMNS}  what each column may hold
{CLASSES}   the labels, which are public
{NEW}       other records, whose labels a model can predict
{MODEL}/        a model of the records, as it would be published
"""


def demo_table(options: argparse.Namespace) -> None:
    """Compare two promises, write a model as it would be published, and check it."""
    place = options.out or Path("balldp-demo-table")
    with new_folder(place) as folder:
        _demo(place, folder)


def _demo(place: Path, folder: Path) -> None:
    data = load_breast_cancer(as_frame=True)
    names = [f"{of} {measure}" for of in ("mean", "worst") for measure in _MEASURES]
    encoder = TableEncoder({name: BREAST_CANCER[name] for name in names})
    X, new, y, y_new = train_test_split(
        data.data[names], data.target_names[data.target], test_size=142, random_state=0
    )
    print(
        f"Records   {len(X)} tumours of which {len(names)} columns are declared (Breast Cancer "
        f"Wisconsin); {len(new)} others are the test\n"
        "Hide      a ball hides any one cell, with public labels; standard differential privacy "
        "(DP) hides\n          any other record and its label",
        flush=True,
    )
    classes = sorted(data.target_names.tolist())
    sphere: dict[str, Any] = {"domain": "sphere", "encoder": encoder.identity}
    standard = {"radius": encoder.radius(len(names)), "protect_labels": True, "classes": classes}
    promises = {"ball": sphere | {"radius": encoder.radius(1)}, "standard DP": sphere | standard}
    rows, rows_new = encoder.transform(X), encoder.transform(new)
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(rows, y)
    scores = compared((rows, y, rows_new, y_new), promises)
    print_scores(scores, float(plain.score(rows_new, y_new)))
    head = BallDPLogisticRegression(CHOSEN, **promises["standard DP"])
    model = make_pipeline(encoder, head).fit(X, y)
    release = head.release_
    hidden = HiddenColumns(release, encoder)
    print(
        f"Promise   epsilon {release.epsilon:g}, delta {release.delta:g}: it hides {hidden}.\n"
        "          Who knows every other record, and holds ten equally likely "
        f"{candidates_of(release, table=hidden)},\n"
        f"          names the right one with probability {percent(release.certificate(0.1))} at "
        "most; a blind guess succeeds in 10 %\n"
        "Limits    bounds and labels are published; several records of one person are hidden less",
        flush=True,
    )
    write_new(folder / README, _CONTENT.encode())
    write_new(folder / CLASSES, ("\n".join(classes) + "\n").encode())
    declared = "".join(f'"{name}" = {ends}\n' for name, ends in encoder.columns.items())
    write_new(folder / COLUMNS, declared.encode())
    for name, table in ((RECORDS, X.assign(outcome=y)), (NEW, new)):
        write_new(folder / name, table.to_csv(index=False).encode())
    save(model, folder / MODEL)
    published, records, columns, labels, others = (
        shlex.quote(str(place / name)) for name in (MODEL, RECORDS, COLUMNS, CLASSES, NEW)
    )
    given = f"{records} --columns {columns} --label outcome --epsilon {CHOSEN:g}"
    print(
        f"Wrote     {records}, {columns}, {labels}, {others},\n"
        f"          {shlex.quote(str(place / README))} and the folder {published} (standard DP at "
        f"epsilon {CHOSEN:g})\n"
        f"Checked   balldp verify {published}\n\n{report(verify(folder / MODEL))}\n\n"
        f"Next      balldp predict {published} {others} --out labelled.csv\n"
        f"          balldp columns {records}  # a draft, as for a table of your own\n"
        f"          balldp train {given} --classes {labels} --out model\n"
        f"          balldp train {given} --hide 'any 1' --out ball"
    )
