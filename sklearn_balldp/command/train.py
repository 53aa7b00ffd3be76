"""``balldp train``: from a file of private records to a folder to publish."""

import argparse
import contextlib
import shlex
import tempfile
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..heads.plan import LOST
from ..publish.files import README
from ..publish.saving import write_model
from ..writing import new_folder
from .job import prepare
from .ledger import Account
from .options import InputError
from .outlook import baseline, describe, foretell, warning


def train(options: argparse.Namespace) -> None:
    """Plan, fit, and write the folder."""
    _check_places(options)
    out, steps = options.out, options.keep_transcript
    with (
        contextlib.nullcontext()
        if steps is None
        else new_folder(steps, "keep_transcript", private=True) as kept
    ):
        with new_folder(out) as new:
            account = Account(options)
            job = prepare(options)
            account.check(job.plan.release, None if job.hidden is None else job.hidden.reach)
            print(f"{describe(job)}{account.state}", flush=True)
            ratios = job.plan.class_signal_to_noise
            # What is public tells the classes apart without the records, too.
            told = options.anyway or job.named or job.examples
            if ratios and max(ratios) < LOST and not told:
                raise InputError(
                    "every class is likely lost in the noise: more records, a larger epsilon or a "
                    "smaller radius help; nothing was fitted or charged, and --anyway trains all "
                    "the same."
                )
            accountant = account.begun()
            options.begun = accountant, 0 if accountant is None else accountant.total().n_releases
            # Before any noise is drawn: what is wrong with public records ends the run here.
            foretell(job)
            job.head.set_params(accountant=accountant)
            job.head.fit(job.records.X, job.records.y, **job.records.groups, **job.examples)
            model = Pipeline([("rows", job.step), ("head", job.head)])
            named = {"column": job.column, "change": job.change}
            _write(model, new, out, named)
        options.written = True
        score = None
        if job.public is not None:
            score = float(np.mean(job.head.predict(job.public.X) == job.public.y))
            largest = baseline(job.public)
            print(
                f"Measured  accuracy {score:.3f} on {len(job.public.X):,} public records, of which "
                f"{largest:.3f} are of the largest class"
            )
        size = sum(path.stat().st_size for path in out.iterdir())
        print(f"Wrote     {out} ({size / 1e3:,.0f} kB)")
        if kept is not None:
            write_model(model, kept, transcript=True, **named)
    if kept is not None:
        given = [steps, "--private", options.file, "--label", options.label]
        given += [] if options.owner is None else ["--owner", options.owner]
        print(
            f"          {steps}, with the noisy steps, for you alone: balldp verify "
            f"{shlex.join(map(str, given))}"
        )
    further = f"Next      fill in {out / README}; balldp verify {out}; hf upload NAME {out}"
    odd = warning(job, score)
    print(f"{account}Warning   {odd}" if odd else f"{account}{further}")


def _write(model: Any, new: Path, out: Path, named: dict[str, Any]) -> None:
    """Write a model that was paid for; where its disk does not take it, elsewhere."""
    try:
        write_model(model, new, **named)
        return
    except OSError as error:
        reason = error.strerror or type(error).__name__
    other = Path(tempfile.mkdtemp(prefix="balldp-"))
    write_model(model, other, **named)
    raise InputError(f"--out {out} cannot be filled ({reason}): the model lies in {other}.")


def _check_places(options: argparse.Namespace) -> None:
    """An error, before a record is read, unless what is private lies apart from a new folder."""
    names = ("out", "keep_transcript", "ledger", "cache")
    given = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    for (name, other), (folder, own) in permutations(given.items(), 2):
        within = own.resolve() in (other.resolve(), *other.resolve().parents)
        if within and folder in ("out", "keep_transcript"):
            one, two = (f"--{n.replace('_', '-')} {given[n]}" for n in (name, folder))
            raise InputError(
                f"{one} and {two} must lie beside each other: whoever receives the model would "
                "get both."
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
