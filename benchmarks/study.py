"""One way to run a study: cells that are measured once, the file that keeps them, and tables.

A cell is one measurement, named by its key. Its noise depends on the key and the base seed alone,
so that cells may be measured in any order, in any process, and again after an interruption. Beside
its numbers stand the commit of the code that measured it, and the date.
"""

import contextlib
import dataclasses
import datetime
import functools
import hashlib
import math
import os
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from unittest import mock

import joblib
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize
from tqdm import tqdm

from sklearn_balldp.audit.supports import TooFewCandidates
from sklearn_balldp.datasets import unit_rows
from sklearn_balldp.distances import same_label_quantile
from sklearn_balldp.mechanisms import Minimiser, Sums

matplotlib.use("Agg")

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
#: Columns of every file of cells that no table shows.
ORIGIN = ("data", "commit", "date")
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
#: No noise, and the minimiser itself: in single precision scikit-learn's tolerance stops early, on
#: MNIST half a point below it.
EXACT = LogisticRegression(C=10.0, max_iter=2000, tol=1e-6)
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


@dataclasses.dataclass(frozen=True)
class Run:
    """What every cell is told."""

    out: Path
    data: Path | None = None
    seed: int = 0
    jobs: int = 1
    #: Releases that a cell averages at most.
    most: int | None = None
    #: Python of the environment of other libraries.
    peers: str | None = None
    #: Cells of this commit, or of a later one, are not measured again; "" keeps all.
    since: str = ""

    def have(self, names):
        """The datasets at hand; others are said."""
        found = [name for name in names if name == DIGITS or self._file(name).exists()]
        if lacking := [name for name in names if name not in found]:
            say(f"left as they are, for --data has no such file: {', '.join(lacking)}")
        return found

    def _file(self, name):
        return Path(self.data or os.devnull) / f"{name.split('/')[0]}.npz"

    def checksum(self, name):
        """Of a dataset's file; empty where a package carries it."""
        return _checksum(self._file(str(name)))


@functools.cache
def say(text):
    """Tell on the screen, once."""
    print(text, file=sys.stderr)


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
    """Seeds of so many releases of a cell."""
    releases = (n if isinstance(n, range) else range(n))[: run.most]
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


def scores(predicted, y, rarest):
    """Accuracy, its mean over classes, recall of the rarest, and of every class."""
    right = predicted == y
    recalls = {code: np.mean(right[y == code]) for code in np.unique(y)}
    every = [*recalls.values()]
    return np.mean(right), np.mean(every), recalls.get(rarest, 0.0), every


def mean_error(scores):
    """Mean over releases, and its standard error."""
    error = np.std(scores, ddof=1) / math.sqrt(len(scores)) if len(scores) > 1 else 0.0
    return {"mean": np.mean(scores), "error": error, "releases": len(scores)}


def means(found):
    """The same of several numbers by name: columns ``NAME`` and ``NAME error``."""
    cell = {}
    for name, scores in pd.DataFrame(found).items():
        cell[name], cell[f"{name} error"], cell["releases"] = mean_error(scores).values()
    return cell


# Cells --------------------------------------------------------------------------------------------


@functools.cache
def _checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path.is_file() else ""


#: What the numbers depend on.
CODE = ("sklearn_balldp", "benchmarks/*.py", ":!benchmarks/claims.py")


@functools.cache
def git(*words):
    """What Git says, or nothing where there is no repository."""
    with contextlib.suppress(FileNotFoundError):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""
    return ""


def last_change():
    """The commit that last changed what the numbers depend on."""
    return git("log", "-1", "--abbrev=7", "--format=%h", "--", *CODE)


def code_now():
    """The commit whose code runs; with a plus, that code and changes that no commit has."""
    return git("rev-parse", "--short=7", "HEAD") + "+" * bool(git("status", "--short", *CODE))


@functools.cache
def _is_since(commit, since):
    """Whether a commit is this one, or a later one."""
    if not since or commit == code_now():
        return True
    shared = git("merge-base", since, commit) if commit and not commit.endswith("+") else ""
    return bool(shared) and shared == git("rev-parse", since)


def made(cells):
    """What commits measured some cells, in a sentence."""
    pairs = cells[["date", "commit"]].drop_duplicates().sort_values("date").to_numpy().tolist()
    if not pairs:
        return "Not measured."
    first, last = (f"{date} (commit {commit})" for date, commit in (pairs[0], pairs[-1]))
    return f"Measured on {first}." if len(pairs) == 1 else f"Measured from {first} to {last}."


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
        Columns that name a cell, the dataset first where there is one.
    measure : callable
        Numbers of a cell by column, or a list of several rows, given the run and the cell's key.
    cells : callable
        Keys of all cells, given the run.
    compared : dict or callable
        What ``--quick`` compares: a column, and that of its standard error (or a function of a
        row); a number is the largest difference, or from 1 on the largest ratio.
    alone : bool
        Whether a cell has the machine to itself, as one that is timed must have.
    """

    file: str
    key: tuple[str, ...]
    measure: Callable[..., dict | list[dict]]
    cells: Callable[[Run], Iterable[tuple]]
    compared: dict | Callable = dataclasses.field(default_factory=lambda: {"mean": "error"})
    alone: bool = False

    def read(self, folder):
        """Measured cells."""
        path, text = folder / self.file, ["data", "commit", "date"]
        table = pd.DataFrame(columns=self.key)
        if path.exists():
            text += [name for name in self.key if name == "radius"]
            # Python's engine reads the very numbers that were written.
            table = pd.read_csv(path, dtype=dict.fromkeys(text, str), engine="python")
        for name in text[:3]:
            table[name] = "" if name not in table else table[name].fillna("")
        return table

    def name_of(self, row):
        """A cell's key, as text."""
        return tuple(str(row[name]) for name in self.key)

    def fill(self, run):
        """Measure the cells that the file lacks, or that older code measured; how many."""
        with _alone(run.out):
            kept = {}
            for row in self.read(run.out).to_dict("records"):
                kept.setdefault(self.name_of(row), []).append(row)
            missing = [
                cell
                # Each once, though several tables may ask for it.
                for cell in dict.fromkeys(self.cells(run))
                if not self._is_kept(run, cell, kept.get(tuple(map(str, cell))))
            ]
            jobs = (joblib.delayed(self.row)(run, cell) for cell in missing)
            parallel = joblib.Parallel(1 if self.alone else run.jobs, return_as="generator")
            shown = tqdm(parallel(jobs), total=len(missing), unit="cell", disable=None)
            for cell, found in zip(missing, shown, strict=True):
                if isinstance(found, str):
                    print(f"skipped {cell}: {found}", file=sys.stderr)
                    continue
                kept[tuple(map(str, cell))] = found
                self.write(pd.DataFrame([row for rows in kept.values() for row in rows]), run.out)
        print(f"{self.file}: {len(missing)} cells measured")
        return len(missing)

    def _is_kept(self, run, cell, rows):
        """Whether rows are those of this cell, of code that is new enough and of this data."""
        if not rows or not _is_since(rows[0]["commit"], run.since):
            return False
        return rows[0]["data"] in ("", run.checksum(cell[0]))

    def row(self, run, cell):
        """Rows of a cell as the file has them, or why there are none."""
        try:
            found = self.measure(run, *cell)
        except TooFewCandidates as error:
            return str(error)
        named = dict(zip(self.key, cell, strict=True))
        origin = {"data": run.checksum(cell[0]), "commit": code_now()}
        origin["date"] = datetime.date.today().isoformat()
        return [
            {**named, **own, **origin} for own in ([found] if isinstance(found, dict) else found)
        ]

    def write(self, table, folder):
        """Replace the file, in one step."""
        new = folder / f".{self.file}"
        table.to_csv(new, index=False)
        os.replace(new, folder / self.file)

    def compare(self, rows, anew):
        """What the file says and what was measured anew, number by number."""
        if callable(self.compared):
            yield from self.compared(rows, anew)
            return
        for old, new in zip(rows, anew, strict=False):
            for column, error in self.compared.items():
                # A row of a file has columns that rows of its own kind lack.
                values = float(old[column]), float(new.get(column, math.nan))
                if np.isfinite(values).all():
                    allowed = _allowed(error, old, new)
                    away = abs(values[0] - values[1])
                    if isinstance(error, float) and error >= 1.0:
                        away = max(values) / max(min(values), 1e-300)
                    where = ", ".join(self.name_of(old))
                    yield {"cell": f"{self.file}: {where}", "number": column, "file": values[0],
                           "anew": values[1], "away": away, "allowed": allowed}  # fmt: skip


#: Share of sound comparisons that differ by more than is allowed, and what processors, versions of
#: libraries and few test records change.
CHANCE, ROUNDING = 0.01, 0.006


def _allowed(error, old, new):
    """Largest difference of two means of releases that chance explains, but for CHANCE."""
    if isinstance(error, float):
        return error
    n, few = (int(row.get("releases", row.get("repeats", 1))) for row in (old, new))
    for row, size in ((old, n), (new, few)):
        one = error(row) if callable(error) else row.get(error, np.nan)
        if np.isfinite(one) and (size > 1 or callable(error)):
            spread = one * math.sqrt(size) * math.sqrt(1.0 / n + 1.0 / few)
            # Of one that is known without others, by arithmetic, there is no spread to estimate.
            return student.ppf(1.0 - CHANCE / 2.0, (size - 1) or math.inf) * spread + ROUNDING
    return ROUNDING


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


def show(table, folder, name, cells, more=""):
    """Write a table as Markdown, below it what measured its cells; and print it."""
    (folder / f"{name}.md").write_text(f"{markdown(table)}\n\n{more}{made(cells)}\n")
    print(f"\n{name}\n{table.to_string(index=False)}")


def draw(figure, path, dpi=130):
    """Write a picture: without the software's version, so that equal cells give equal files."""
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    plt.close(figure)


def number(value, digits=3):
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"
