"""``balldp train``: from a file of private records to a folder to publish."""

import argparse

import numpy as np
from sklearn.pipeline import Pipeline

from ..progress import shown
from ..publish import save
from ..publish.saving import check_writable
from .job import prepare
from .ledger import Account
from .options import InputError, new_file
from .plan import all_at_risk, describe, foretell, warning


def train(options: argparse.Namespace) -> None:
    """Plan, fit, and write the folder."""
    check_writable(options.out, options.force)
    transcript = options.keep_transcript
    account = Account.opened(options)
    job = prepare(options, None if account is None else account.check)
    print(describe(job), flush=True)
    if all_at_risk(job) and not options.anyway:
        if account is not None:
            account.withdraw()
        raise InputError(
            "every class may be lost in the noise: more records, a larger epsilon or a smaller "
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
    folder = save(model, options.out, force=options.force, column=job.column)
    options.written = True
    score = None
    if job.public is not None and public is not None:
        score = float(np.mean(job.head.predict(public) == job.public.y))
        print(f"Measured  accuracy {score:.3f} on {len(job.public.X):,} public records")
    size = sum(path.stat().st_size for path in folder.iterdir())
    print(f"Wrote     {folder} ({size / 1e6:.1f} MB)")
    if account is not None:
        print(account)
    if transcript is not None:
        with new_file(transcript) as part, part.open("wb") as file:
            np.savez(file, **vars(job.head.transcript_))
        note = "the transcript, for you alone: balldp verify --kept-transcript"
        print(f"          {transcript}, {note}")
    odd = warning(job, score)
    print(
        f"Warning   {odd}" if odd else f"Next      balldp verify {folder}; hf upload NAME {folder}"
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
