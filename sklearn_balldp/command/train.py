"""``balldp train``: from a file of private records to a folder to publish."""

import argparse
import shlex
from pathlib import Path

import numpy as np
from sklearn.pipeline import Pipeline

from ..progress import shown
from ..publish import save
from ..publish.files import check_new
from .job import prepare
from .ledger import Account
from .options import InputError
from .outlook import all_lost, baseline, describe, foretell, warning


def train(options: argparse.Namespace) -> None:
    """Plan, fit, and write the folder."""
    _check_places(options.out, options.keep_transcript)
    account = Account.opened(options)
    job = prepare(options, None if account is None else account.check)
    print(describe(job), flush=True)
    if all_lost(job) and not options.anyway:
        if account is not None:
            account.withdraw()
        raise InputError(
            "every class is likely lost in the noise: more records, a larger epsilon or a smaller "
            "radius help; nothing was fitted or charged, and --anyway trains all the same."
        )
    accountant = None if account is None else account.accountant
    options.begun = accountant, 0 if accountant is None else accountant.total().n_releases
    with shown(True):
        # Before any noise is drawn: what is wrong with public records ends the run here.
        public = foretell(job)
        rows = job.rows(job.records.X)
    job.head.set_params(accountant=accountant)
    job.head.fit(rows, job.records.y, **job.records.groups)
    model = Pipeline([("rows", job.step), ("head", job.head)])
    folder = save(model, options.out, column=job.column, change=job.change)
    options.written = True
    score = None
    if job.public is not None and public is not None:
        score = float(np.mean(job.head.predict(public) == job.public.y))
        largest = baseline(job.public)
        print(
            f"Measured  accuracy {score:.3f} on {len(job.public.X):,} public records, of which "
            f"{largest:.3f} are of the largest class"
        )
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"Wrote     {folder} ({size / 1e6:.1f} MB)")
    if account is not None:
        print(account)
    if options.keep_transcript is not None:
        kept = {"transcript": True, "column": job.column, "change": job.change}
        place = save(model, options.keep_transcript, **kept)
        given = ["--private", str(options.file), "--label", options.label]
        given += [] if options.owner is None else ["--owner", options.owner]
        print(
            f"          {place}, with the noisy steps, for you alone: balldp verify {place} "
            f"{shlex.join(given)}"
        )
    odd = warning(job, score)
    print(
        f"Warning   {odd}" if odd else f"Next      balldp verify {folder}; hf upload NAME {folder}"
    )


def _check_places(out: Path, transcript: Path | None) -> None:
    """An error unless both folders can be made, before a record is read."""
    check_new(out)
    if transcript is None:
        return
    check_new(transcript, "keep_transcript")
    one, other = out.absolute(), transcript.absolute()
    if one == other or one in other.parents or other in one.parents:
        raise InputError(
            f"--keep-transcript {transcript} and --out {out} must lie beside each other: whoever "
            "receives the model would get both."
        )


def interrupted(options: argparse.Namespace) -> str:
    """What a run has done that was interrupted, in words."""
    accountant, before = getattr(options, "begun", (None, 0))
    if getattr(options, "written", False):
        return f"the model is in {options.out}"
    if accountant is None or accountant.total().n_releases == before:
        return "nothing was charged or written"
    return (
        f"{options.ledger} counts this fit, whose model was not written: the next one is charged "
        "again"
    )
