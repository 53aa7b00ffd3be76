"""``balldp train``: from a file of private records to a folder to publish."""

import argparse
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from ..progress import shown
from ..publish import save
from ..publish.saving import check_writable
from .job import CANDIDATES, HEADS, HIDDEN_EDITS, prepare
from .ledger import Account
from .plan import describe, foretell, warning
from .predict import check_new


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of train and plan."""
    add = parser.add_argument
    add("file", type=Path, metavar="FILE", help="the private records")
    kinds = parser.add_mutually_exclusive_group(required=True)
    kinds.add_argument("--text", metavar="COLUMN", help="column of texts")
    of_images = "column of image files (any name for a folder)"
    kinds.add_argument("--image", metavar="COLUMN", help=of_images)
    of_rows = "column of lists, or prefix of columns"
    kinds.add_argument("--embedding", metavar="COLUMN", help=of_rows)
    add("--label", metavar="COLUMN", required=True, help="column of labels")
    add("--owner", metavar="COLUMN", help="hide all records of one owner together")
    public = "public records in the same columns: for --radius edits, and to test the model on"
    add("--public", type=Path, metavar="FILE", help=public)
    radius = f"""distance between unit rows within which a replaced record is hidden; edits takes it
        from public texts, so that a share of {HIDDEN_EDITS:g} of small edits is hidden; none hides
        replacements at any distance"""
    add("--radius", required=True, metavar="R|edits|none", help=radius)
    weights = """weights that embed the records: a folder, an installed package or hf://OWNER/NAME;
        of embeddings, what made them"""
    add("--encoder", metavar="NAME|FOLDER", help=weights)
    cache = "keep embeddings there: as private as the records"
    add("--cache", type=Path, metavar="DIR", help=cache)
    add("--missing", choices=("error", "drop"), default="error")
    add("--classes", type=Path, help="with protected labels: one label a line")
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--epsilon", type=float, help="privacy loss: smaller hides more")
    risk = f"""in place of epsilon: how often an attacker may name the right one of {CANDIDATES}
        candidates within the radius of one possible record"""
    goal.add_argument("--risk", type=float, metavar="P", help=risk)
    add("--delta", type=float, default=1e-6, help="default 1e-6")
    add("--labels", choices=("public", "protected"), default="public")
    add("--head", choices=tuple(HEADS), default="logistic")
    rare = parser.add_mutually_exclusive_group()
    equal = "rare classes count as much as others, "
    rare.add_argument("--rare", action="store_true", help=f"{equal}when predicting")
    in_loss = f"{equal}in the loss (logistic and svc)"
    rare.add_argument("--class-weight", choices=("balanced",), help=in_loss)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Options of train alone, beside those of plan."""
    add_options(parser)
    add = parser.add_argument
    add("--out", type=Path, required=True, metavar="DIR", help="folder to make")
    add("--force", action="store_true", help="replace a model in that folder")
    ledger = "count the fit in this file, which is made if it is missing, and keep its limit"
    add("--ledger", type=Path, metavar="FILE", help=ledger)
    limit = "the largest total epsilon of a new ledger, at the radius of this fit"
    add("--limit", type=float, metavar="EPSILON", help=limit)
    steps = "keep the noisy steps beside the folder, to test the noise later"
    add("--keep-transcript", type=Path, metavar="FILE.npz", help=steps)


def train(options: argparse.Namespace) -> None:
    """Plan, fit, and write the folder."""
    check_writable(options.out, options.force)
    transcript = options.keep_transcript
    if transcript is not None:
        check_new(transcript, "--keep-transcript")
    account = Account.opened(options)
    job = prepare(options, None if account is None else account.check)
    print(describe(job), flush=True)
    with shown(True):
        # Before any noise is drawn: what is wrong with public records ends the run here.
        public = foretell(job)
        rows = job.rows(job.records.X)
    if account is not None:
        job.head.set_params(accountant=account.accountant)
    job.head.fit(rows, job.records.y, **job.records.groups)
    model = Pipeline([("rows", job.step), ("head", job.head)])
    folder = save(model, options.out, force=options.force, column=job.column)
    score = None
    if job.public is not None and public is not None:
        score = float(np.mean(job.head.predict(public) == job.public.y))
        print(f"Measured  accuracy {score:.3f} on {len(job.public.X):,} public records")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"Wrote     {folder} ({size / 1e6:.1f} MB)")
    if account is not None:
        print(account)
    if transcript is not None:
        with transcript.open("xb") as file:
            np.savez(file, **vars(job.head.transcript_))
        note = "the transcript, for you alone: balldp verify --kept-transcript"
        print(f"          {transcript}, {note}")
    odd = warning(job, score)
    print(
        f"Warning   {odd}" if odd else f"Next      balldp verify {folder}; hf upload NAME {folder}"
    )
