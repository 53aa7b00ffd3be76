"""Measured cells on disk: one CSV a kind, a row a cell, appended as each is measured."""

import contextlib
import csv
import dataclasses
import os

import joblib
import pandas as pd
from tqdm import tqdm

from sklearn_balldp.audit.supports import TooFewCandidates

from .protocol import Accuracy, Identification, Radius

KINDS = {"accuracy": Accuracy, "identification": Identification, "radius": Radius}


def _columns(kind):
    Kind = KINDS[kind]
    key = [field.name for field in dataclasses.fields(Kind)]
    return [*key, "seed", *Kind.RESULTS, "quick", "data", "done"]


def _file(folder, kind):
    return folder / f"{kind}_cells.csv"


def _whole_rows(folder, kind):
    """Rows of a file that were written to their end; none if it has no header of ours."""
    path, columns = _file(folder, kind), _columns(kind)
    try:
        table = pd.read_csv(path, on_bad_lines="skip", dtype={"data": str})
    except (FileNotFoundError, pd.errors.EmptyDataError):
        table = pd.DataFrame()
    if list(table.columns) != columns:
        return pd.DataFrame(columns=columns)
    table["done"] = pd.to_numeric(table["done"], errors="coerce")
    return table[table["done"] == 1].astype({"seed": int, "quick": bool})


def read(folder, kind, seed):
    """Measured cells of one base seed; a row that an interruption cut short does not count."""
    table = _whole_rows(folder, kind)
    return table[table["seed"] == seed]


def seeds(folder):
    """Base seeds with measured cells."""
    return sorted({int(seed) for kind in KINDS for seed in _whole_rows(folder, kind)["seed"]})


def is_quick(folder):
    """Whether its cells are of a quick run, whose releases are too few to judge by."""
    return any(_whole_rows(folder, kind)["quick"].any() for kind in KINDS)


@contextlib.contextmanager
def _alone(folder):
    """Hold the folder; the system lets go of it when this process ends, however it ends."""
    with (folder / ".lock").open("w") as file:
        with contextlib.suppress(ImportError):  # not on Windows
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise SystemExit(f"--out {folder} is in use by another run.") from None
        yield


def _mend(folder, kind):
    """Rewrite a file with its whole rows, in one step."""
    path, new = _file(folder, kind), folder / f".{kind}"
    _whole_rows(folder, kind).to_csv(new, index=False)
    os.replace(new, path)


def _refuse_other_cells(folder, fingerprints, quick):
    """Cells of other data, or of a quick run among full ones, would pass for this run's."""
    for kind in KINDS:
        table = _whole_rows(folder, kind)
        if (table["quick"] != quick).any():
            kinds = ("quick", "full") if quick else ("full", "quick")
            raise SystemExit(
                f"--out {folder} holds {kinds[1]} cells and this run is {kinds[0]}; "
                "choose another folder."
            )
        for name, found in table.groupby("dataset")["data"]:
            if name in fingerprints and set(found) != {fingerprints[name]}:
                raise SystemExit(
                    f"--out {folder} holds cells of another {name}.npz; choose another folder."
                )


def _measure(cell, data, seed):
    try:
        return cell, cell.measure(data, seed)
    except TooFewCandidates as error:
        return cell, str(error)


def fill(cells, data, folder, seed, n_jobs, quick=False):
    """Measure the cells that ``folder`` lacks; return how many, and what could not be measured."""
    cells = list(dict.fromkeys(cells))  # each once, though several tables may ask for it
    names = {Kind: kind for kind, Kind in KINDS.items()}
    fingerprints = {cell.dataset: cell.fingerprint(data) for cell in cells}
    skipped = {}
    with _alone(folder):
        _refuse_other_cells(folder, fingerprints, quick)
        done = {}
        for kind, Kind in KINDS.items():
            _mend(folder, kind)
            key = [field.name for field in dataclasses.fields(Kind)]
            done[kind] = set(read(folder, kind, seed)[key].itertuples(index=False, name=None))
        missing = [cell for cell in cells if cell.key() not in done[names[type(cell)]]]
        jobs = (joblib.delayed(_measure)(cell, data, seed) for cell in missing)
        run = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
        for cell, found in tqdm(run(jobs), total=len(missing), unit="cell", disable=not missing):
            if isinstance(found, str):
                skipped[cell] = found
                continue
            kind = names[type(cell)]
            row = {
                **dataclasses.asdict(cell),
                "seed": seed,
                **found,
                "quick": quick,
                "data": fingerprints[cell.dataset],
                "done": 1,
            }
            with _file(folder, kind).open("a", newline="") as file:
                csv.DictWriter(file, _columns(kind), lineterminator="\n").writerow(row)
    return len(missing) - len(skipped), skipped
