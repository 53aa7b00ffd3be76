"""Measured cells on disk: one CSV a kind, a row a cell, appended as each is measured."""

import csv
import dataclasses

import joblib
import pandas as pd
from tqdm import tqdm

from .protocol import Accuracy, Identification, Radius

KINDS = {"accuracy": Accuracy, "identification": Identification, "radius": Radius}


def _file(folder, kind):
    return folder / f"{kind}_cells.csv"


def _key(kind):
    return [field.name for field in dataclasses.fields(KINDS[kind])]


def read(folder, kind, seed):
    """Measured cells of one base seed; a row that an interruption cut short does not count."""
    path = _file(folder, kind)
    if not path.exists():
        return pd.DataFrame(columns=[*_key(kind), "seed", "done"])
    table = pd.read_csv(path)
    return table[(table["done"] == 1) & (table["seed"] == seed)]


def seeds(folder):
    """Base seeds with measured cells."""
    tables = [pd.read_csv(_file(folder, kind)) for kind in KINDS if _file(folder, kind).exists()]
    return sorted({int(seed) for table in tables for seed in table["seed"].dropna()})


def _append(folder, kind, row):
    path = _file(folder, kind)
    new = not path.exists()
    # A row that was cut short ends without a newline.
    torn = not new and not path.read_bytes().endswith(b"\n")
    with path.open("a", newline="") as file:
        if torn:
            file.write("\n")
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if new:
            writer.writeheader()
        writer.writerow(row)


def _measure(cell, data, seed):
    return cell, cell.measure(data, seed)


def fill(cells, data, folder, seed, n_jobs):
    """Measure the cells that ``folder`` lacks; return how many there were."""
    names = {Kind: kind for kind, Kind in KINDS.items()}
    done = {
        kind: set(read(folder, kind, seed)[_key(kind)].itertuples(index=False, name=None))
        for kind in KINDS
    }
    # Each cell once, though several tables may ask for it.
    missing = [
        cell for cell in dict.fromkeys(cells) if cell.key() not in done[names[type(cell)]]
    ]  # fmt: skip
    jobs = (joblib.delayed(_measure)(cell, data, seed) for cell in missing)
    run = joblib.Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    for cell, found in tqdm(run(jobs), total=len(missing), unit="cell", disable=not missing):
        row = {**dataclasses.asdict(cell), "seed": seed, **found, "done": 1}
        _append(folder, names[type(cell)], row)
    return len(missing)
