"""One way to run a study: cells that are measured once, the file that keeps them, and tables.

A cell is one measurement, named by its key. Its noise depends on the key and the base seed alone,
so that cells may be measured in any order, in any process, and again after an interruption.
"""

import argparse
import contextlib
import dataclasses
import functools
import hashlib
import math
import os
import sys
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import joblib
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize
from tqdm import tqdm

from sklearn_balldp.audit.supports import TooFewCandidates
from sklearn_balldp.datasets import unit_rows
from sklearn_balldp.distances import same_label_quantile
from sklearn_balldp.mechanisms import Minimiser, Sums

matplotlib.use("Agg")

RESULTS = Path(__file__).parent / "results"
#: The seven datasets of the paper, and how tables call them.
DATASETS = {
    "trec6": "TREC-6",
    "emotion": "Emotion",
    "banking77": "BANKING77",
    "agnews": "AG News",
    "imdb": "IMDb",
    "cifar10": "CIFAR-10",
    "mnist": "MNIST",
}
DIGITS = "digits"
#: What a row of a table hides, in words.
ADJACENCY = {
    "none": "nothing",
    "q50": "q50 ball",
    "q80": "q80 ball",
    "q95": "q95 ball",
    "full": "any distance",
    "diameter": "largest distance",
    "labels": "DP, replace one",
    "added": "DP, add or remove",
}
DELTA = 1e-6


# Rows and fits ------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=2)
def rows_of(folder, name, n_train=None, n_test=None):
    """Training rows, labels, test rows, labels; so many at random where there are more."""
    if name == DIGITS:
        X, y = load_digits(return_X_y=True)
        X, Xt, y, yt = train_test_split(normalize(X), y, test_size=0.25, random_state=0)
        return X, y, Xt, yt
    with np.load(Path(folder) / f"{name}.npz") as file:
        arrays, parts = dict(file), []
    for part, n in (("train", n_train), ("test", n_test)):
        X, y = unit_rows(arrays[f"X_{part}"]), arrays[f"y_{part}"]
        if n is not None:
            kept = np.random.default_rng(0).permutation(len(X))[:n]
            X, y = X[kept], y[kept]
        parts += [X, y]
    return tuple(parts)


@functools.lru_cache(maxsize=64)
def radius_of(folder, name, quantile):
    """The paper's radius: the largest class's quantile of same-label distances in training rows."""
    X, y, *_ = rows_of(folder, name)
    return same_label_quantile(X, y, quantile)


def seeds_of(run, n, *names):
    """Seeds of so many releases of a cell; two if the run is quick."""
    releases = range(2) if run.quick else n if isinstance(n, range) else range(n)
    return [zlib.crc32(" ".join(map(str, (*names, i))).encode(), run.seed) for i in releases]


def stream_of(run, *names):
    """The random stream of a cell."""
    return np.random.default_rng([run.seed, zlib.crc32(repr(names).encode())])


def fits(head, X, y, seeds, **options):
    """Releases on the same rows; what they compute before the noise is computed once."""
    kept = {}

    def once(values):
        def remembered(query, problem, records):
            scales = {"sigma": None, "moment": getattr(query, "moment", None) is not None}
            asked = type(query), tuple((vars(query) | scales).items())
            if asked not in kept:
                kept[asked] = values(query, problem, records)
            return kept[asked]

        return remembered

    with contextlib.ExitStack() as stack:
        # Of seeds, and of classes with few records.
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        for kind in (Sums, Minimiser):
            stack.enter_context(mock.patch.object(kind, "values", once(kind.values)))
        heads = [clone(head) for _ in seeds]
        releases = zip(heads, seeds, strict=True)
        return [own.set_params(random_state=seed).fit(X, y, **options) for own, seed in releases]


def accuracies(head, rows, radius, epsilon, seeds):
    """Test accuracy of releases: in a ball, at "full" (any distance), or "any" (standard DP)."""
    X, y, *test = rows
    params = {"epsilon": epsilon, "delta": DELTA, "radius": radius}
    if radius in ("full", "any"):
        params["radius"] = None
    if radius == "any":
        params |= {"protect_labels": True, "classes": np.unique(y)}
    return [own.score(*test) for own in fits(clone(head).set_params(**params), X, y, seeds)]


def mean_error(scores):
    """Mean over releases, and its standard error."""
    error = np.std(scores, ddof=1) / math.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return {"mean": np.mean(scores), "error": error, "releases": len(scores)}


# Cells --------------------------------------------------------------------------------------------


@functools.cache
def _checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.exists() else ""


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


@dataclasses.dataclass(frozen=True)
class Study:
    """Cells of one kind, and the CSV file that keeps them.

    Parameters
    ----------
    file : str
        Name of the file in the folder of results.
    key : tuple of str
        Columns that name a cell, the dataset first.
    measure : callable
        Numbers of a cell by column, given the run's options and the cell's key.
    """

    file: str
    key: tuple[str, ...]
    measure: Callable[..., dict]

    def read(self, folder, seed=None):
        """Measured cells, of one base seed or of all."""
        path, text = folder / self.file, [name for name in self.key if name == "radius"]
        table = pd.DataFrame(columns=self.key)
        if path.exists():
            types = dict.fromkeys([*text, "data"], str)
            # Python's engine reads the very numbers that were written.
            table = pd.read_csv(path, dtype=types, engine="python")
        for name, usual in {"seed": 0, "quick": False, "data": ""}.items():
            table[name] = usual if name not in table else table[name].fillna(usual)
        return table if seed is None else table[table["seed"] == seed]

    def fill(self, cells, run):
        """Measure the cells that the file lacks; return those of this seed."""
        with _alone(run.out):
            table = self.read(run.out)
            self._refuse_others(table, run)
            mine = table.loc[table["seed"] == run.seed, list(self.key)].astype(str)
            done = set(mine.itertuples(index=False, name=None))
            # Each once, though several tables may ask for it.
            missing = [c for c in dict.fromkeys(cells) if tuple(map(str, c)) not in done]
            jobs = (joblib.delayed(self._measured)(run, cell) for cell in missing)
            parallel = joblib.Parallel(n_jobs=run.jobs, return_as="generator")
            rows = table.to_dict("records")
            for cell, found in tqdm(parallel(jobs), total=len(missing), unit="cell", disable=None):
                named = dict(zip(self.key, cell, strict=True))
                if isinstance(found, str):
                    print(f"skipped {named}: {found}", file=sys.stderr)
                    continue
                data = _checksum(run.data / f"{cell[0]}.npz")
                rows.append({**named, "seed": run.seed, **found, "quick": run.quick, "data": data})
                self.write(pd.DataFrame(rows), run.out)
        print(f"{self.file}: {len(rows) - len(table)} cells measured")
        return self.read(run.out, run.seed)

    def write(self, table, folder):
        """Replace the file, in one step."""
        new = folder / f".{self.file}"
        table.to_csv(new, index=False)
        os.replace(new, folder / self.file)

    def _measured(self, run, cell):
        try:
            return cell, self.measure(run, *cell)
        except TooFewCandidates as error:
            return cell, str(error)

    def _refuse_others(self, table, run):
        """Cells of other data, or of a quick run among full ones, would pass for this run's."""
        if (table["quick"] != run.quick).any():
            kinds = ("full", "quick") if run.quick else ("quick", "full")
            raise SystemExit(
                f"--out {run.out} holds {kinds[0]} cells and this run is {kinds[1]}; choose "
                "another folder."
            )
        for name, sums in table[table["data"] != ""].groupby(self.key[0])["data"]:
            if set(sums) != {_checksum(run.data / f"{name}.npz") or sums.iloc[0]}:
                raise SystemExit(
                    f"--out {run.out} holds cells of another {name}.npz; choose another folder."
                )


def options(name, doc, argv, datasets, *, only=(), more=lambda parser: None, data=True, carried=()):
    """Options of a study's command; its datasets are ``carried`` by packages, or in its folder."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=doc)
    add = parser.add_argument
    if data:
        add("--data", type=Path, required=True, help="folder of NAME.npz")
    add("--datasets", choices=datasets, nargs="+", default=list(datasets))
    if only:
        add("--only", choices=only, nargs="+", default=list(only))
    place = Path(f"{name}-results")
    add("--out", type=Path, default=place, help="what lies there is not measured again")
    add("--seed", type=int, default=0, help="base seed of all noise")
    add("--jobs", type=int, default=2)
    add("--quick", action="store_true", help="few releases and cells: try the command with it")
    more(parser)
    run = parser.parse_args(argv)
    if not data:
        run.data = run.out
        run.out.mkdir(parents=True, exist_ok=True)
        return run
    files = {dataset: run.data / f"{dataset.split('/')[0]}.npz" for dataset in run.datasets}
    kept = {DIGITS, *carried}
    run.datasets = [name for name, file in files.items() if name in kept or file.exists()]
    if not run.datasets:
        names = ", ".join(file.name for file in files.values())
        raise SystemExit(f"--data {run.data} holds none of {names}.")
    run.out.mkdir(parents=True, exist_ok=True)
    return run


# Tables -------------------------------------------------------------------------------------------


def markdown(table):
    """A pipe table whose intervals and short names stay on one line; nothing for an empty one."""
    if table.empty:
        return ""
    rows = [list(table.columns), ["---"] * table.shape[1], *table.astype(str).to_numpy().tolist()]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    for whole in (" ± ", " [0", ", 0", *ADJACENCY.values()):
        text = text.replace(whole, whole.replace(" ", "\N{NO-BREAK SPACE}"))
    return text


def show(table, folder, name):
    """Write a table as Markdown, and print it."""
    (folder / f"{name}.md").write_text(markdown(table) + "\n")
    print(f"\n{name}\n{table.to_string(index=False)}")


def draw(figure, path, dpi=130):
    """Write a picture: without the software's version, so that equal cells give equal files."""
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    plt.close(figure)


def number(value, digits=3):
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"
