"""``python -m benchmarks.faults [TESTS]``: whether tests fail on faults that they are there for.

A test names them, ``@pytest.mark.kills(file, text, other)``: a text that stands once in a module of
the package, and what takes its place, such as a sensitivity that is too small, or noise that is
missing. Each fault is put into a copy of the repository, and that test alone runs there until it
fails. The command fails if a test passes: the fault survives.
"""

import argparse
import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
COPIED = (
    "sklearn_balldp tests benchmarks docs examples conftest.py pyproject.toml setup.cfg README.md"
)


class Fault(NamedTuple):
    """A text that occurs once in a module of the package, what takes its place, and who attacks it.

    ``attack`` is the name of one of ``benchmarks.falsify``, which must find the fault too.
    """

    file: str
    text: str
    other: str
    attack: str = ""

    def module(self) -> str:
        """The module with the fault; a ValueError if its place is not found once."""
        sound = (ROOT / "sklearn_balldp" / self.file).read_text()
        if sound.count(self.text) != 1:
            raise ValueError(f"{self.file}: {self.text!r} occurs {sound.count(self.text)} times.")
        return sound.replace(self.text, self.other)

    @contextlib.contextmanager
    def copy(self) -> Iterator[tuple[Path, dict[str, str]]]:
        """A copy of the repository with the fault, and the environment that imports it."""
        with tempfile.TemporaryDirectory() as folder:
            for name in COPIED.split():
                own = ROOT / name
                (shutil.copytree if own.is_dir() else shutil.copy)(own, Path(folder, name))
            Path(folder, "sklearn_balldp", self.file).write_text(self.module())
            yield Path(folder), {**os.environ, "PYTHONPATH": folder}

    def survives(self, test: str) -> bool:
        """Whether a test passes in spite of the fault."""
        with self.copy() as (root, environment):
            words = [sys.executable, "-m", "pytest", "-xq", "-p", "no:cacheprovider", test]
            done = subprocess.run(words, cwd=root, env=environment, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{test} did not run on {self}.\n{done.stdout[-2000:]}")
        return done.returncode == 0


def named_by(items: list[pytest.Item]) -> dict[tuple[str, Fault], None]:
    """Tests, and the faults that they name; a case of a test stands alone if its own mark does."""
    named = {}
    for item in items:
        for mark in item.iter_markers("kills"):
            whole = mark in getattr(item.function, "pytestmark", [])
            test = item.nodeid.partition("[")[0] if whole else item.nodeid
            named[test, Fault(*mark.args, **mark.kwargs)] = None
    return named


class _Collection:
    """The faults that the tests of a run name."""

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.named = named_by(session.items)


def collected(*words: str) -> dict[tuple[str, Fault], None]:
    """Tests that pytest finds by these words, and the faults that they name."""
    collection = _Collection()
    with contextlib.redirect_stdout(io.StringIO()) as said:
        status = pytest.main([*words, "--collect-only", "-qq"], [collection])
    if status:
        raise RuntimeError(said.getvalue()[-2000:])
    return collection.named


def main(argv: list[str] | None = None) -> int:
    """Put in every fault, print a line for each, and count those that survive."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("tests", nargs="*", default=["tests"], help="files of tests, or tests")
    parser.add_argument("-k", default="", help="tests whose names hold this, as pytest reads it")
    parser.add_argument("--by", help="another test, or file, to run in place of those that name it")
    parser.add_argument("--jobs", type=int, default=1, help="how many run at a time")
    options = parser.parse_args(argv)
    named, alive = collected(*options.tests, "-k", options.k), 0
    with ThreadPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(fault.survives, options.by or test) for test, fault in named]
        for (test, fault), run in zip(named, runs, strict=True):
            alive += run.result()
            verdict = "SURVIVES" if run.result() else "killed"
            print(f"{verdict}: {test}: {fault.text!r} -> {fault.other!r}", flush=True)
    print(f"{alive} of {len(named)} faults survive")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
