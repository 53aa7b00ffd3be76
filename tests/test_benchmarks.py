"""The benchmark commands on small data, and the committed results behind the docs page."""

import dataclasses
import shutil

import numpy as np
import pandas as pd
import pytest

from benchmarks.paper import checks, errata, protocol, published, report, store, tables
from benchmarks.paper.__main__ import main as paper
from benchmarks.paper.plan import TABLES
from benchmarks.speed import timing
from benchmarks.speed.__main__ import main as speed


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two small datasets under names of the paper's, and a file of another name."""
    folder = tmp_path_factory.mktemp("data")
    for name, n_classes in (("trec6", 3), ("imdb", 2), ("another", 2)):
        rng = np.random.default_rng(n_classes)
        y = np.arange(600) % n_classes
        X = rng.standard_normal((600, 6)) + 2.0 * rng.standard_normal((n_classes, 6))[y]
        np.savez(folder / f"{name}.npz", X_train=X[:240], y_train=y[:240], X_test=X[240:],
                 y_test=y[240:])  # fmt: skip
    return folder


def run(folder, out, *options):
    paper(["--data", str(folder), "--out", str(out), "--quick", "--jobs", "1", *options])


@pytest.fixture(scope="module")
def measured(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("out")
    run(folder, out)
    return out


def test_every_table_and_figure_is_written(measured):
    names = {"table1", "table1_small_epsilon", "calibration", "checks", "radii", "noise"}
    for name in names | set(TABLES):
        assert (measured / f"{name}.csv").stat().st_size > 0
        assert (measured / f"{name}.md").read_text().startswith("| ")
    for name in ("tradeoff", "convex", "identification"):
        assert (measured / f"{name}.png").stat().st_size > 10_000
    table = pd.read_csv(measured / "table1.csv")
    assert set(table["data"]) == {"TREC-6", "IMDb"}
    hidden = set(tables.ADJACENCY.values()) - {
        tables.ADJACENCY[name] for name in ("added", "diameter")
    }  # fmt: skip
    assert set(table["hides"]) == hidden


def test_what_was_measured_is_not_measured_again(folder, measured, capsys):
    run(folder, measured)
    assert "\n0 cells measured" in capsys.readouterr().out


def test_an_interrupted_run_goes_on_to_the_same_numbers(folder, measured, tmp_path):
    run(folder, tmp_path, "--only", "heads")
    whole = store.read(measured, "accuracy", 0)
    lines = (tmp_path / "accuracy_cells.csv").read_text().splitlines()
    # Three rows are left, the last one cut short.
    (tmp_path / "accuracy_cells.csv").write_text("\n".join(lines[:4])[:-9])
    run(folder, tmp_path, "--only", "heads")
    again = store.read(tmp_path, "accuracy", 0)
    key = ["dataset", "method", "policy", "epsilon", "releases"]
    assert len(again) == len(lines) - 1
    assert not again.duplicated(key).any()
    both = again.merge(whole, on=key)
    assert len(both) == len(again)
    np.testing.assert_array_equal(both["mean_x"], both["mean_y"])


def test_noise_depends_on_the_cell_and_the_base_seed():
    cell = protocol.Accuracy("trec6", "ridge", "q50", 2.0, 5)
    others = [dataclasses.replace(cell, policy="q80"), dataclasses.replace(cell, dataset="imdb")]
    draws = [cell.stream(seed).random() for seed in (0, 1)]
    draws += [other.stream(0).random() for other in others]
    draws.append(protocol.Identification("trec6", "min", "q50", 2.0, 5).stream(0).random())
    assert len(set(draws)) == 5
    assert cell.stream(0).random() == draws[0]


def test_a_folder_without_data_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match=r"holds none of trec6\.npz"):
        run(tmp_path, tmp_path)


def test_a_failed_check_ends_the_command_with_an_error(folder, tmp_path):
    shown = ["--data", str(folder), "--out", str(tmp_path), "--jobs", "1", "--only", "convex"]
    with pytest.raises(SystemExit, match="a check failed"):
        paper(shown)


SEEDS = store.seeds(report.RESULTS)


def test_results_of_two_base_seeds_are_kept():
    assert len(SEEDS) >= 2


@pytest.mark.parametrize("seed", SEEDS)
def test_claims_hold_on_the_committed_results(seed):
    table = checks.check(tables.Results.read(report.RESULTS, seed))
    assert len(table) == 8
    assert table["holds"].all(), table.to_string()


def test_the_docs_pages_are_made_of_the_committed_results(tmp_path):
    # Beside the docs, since the pages name their pictures by relative paths.
    docs = report.DOCS.parent / f".docs-{tmp_path.name}"
    docs.mkdir()
    try:
        report.pages(report.RESULTS, docs)
        for name in ("reproduction.md", "errata.md"):
            assert (docs / name).read_text() == (report.DOCS / name).read_text()
    finally:
        shutil.rmtree(docs)


def spoiled(field, change):
    results = tables.Results.read(report.RESULTS, 0)
    return dataclasses.replace(results, **{field: change(getattr(results, field))})


@pytest.mark.parametrize(
    ("claim", "field", "change"),
    [
        ("Table 1 in paper mode", "accuracy", lambda t: t.assign(mean=t["mean"] + 0.05)),
        ("at least the paper's accuracy", "accuracy", lambda t: t.assign(mean=t["mean"] * 0.5)),
        ("IMDb in paper mode", "accuracy", lambda t: t.assign(mean=t["mean"] - 0.1)),
        ("IMDb: each head", "accuracy", lambda t: t.assign(mean=t["mean"] - 0.08)),
        (
            "epsilon 2, q50",
            "accuracy",
            lambda t: t.assign(mean=t["mean"] - 0.1 * (t["policy"] == "q50")),
        ),
        (
            "logistic on gradients",
            "accuracy",
            lambda t: t.assign(mean=t["mean"] - 0.2 * (t["policy"] == "q50")),
        ),
        (
            "every audit's",
            "identification",
            lambda t: t.assign(certificate=t["certificate"] * 0.3),
        ),
        ("audits meet", "identification", lambda t: t.assign(low=0.7, high=0.8)),
    ],
)  # fmt: skip
def test_each_check_can_fail(claim, field, change):
    table = checks.check(spoiled(field, change))
    failed = table.loc[~table["holds"].astype(bool), "claim"]
    assert any(text.startswith(claim) for text in failed)


def test_another_library_that_is_better_is_named():
    better = spoiled("comparators", lambda t: t.assign(accuracy=1.0))
    assert all("Emotion at epsilon 2 (1.000 against" in line for line in checks.beaten(better))
    worse = spoiled("comparators", lambda t: t.assign(accuracy=0.0))
    assert all("in none of" in line for line in checks.beaten(worse))
    assert len(checks.beaten(worse)) == 3


def test_errata_are_computed():
    text = errata.errata(tables.Results.read(report.RESULTS, 0))
    assert text.count("## ") == 7
    # The values that the specification of this package states.
    for value in ("3.2e-05", "102.0", "2.83", "36.47", "0.9996", "14.00"):
        assert value in text
    assert published.CERTIFICATES[32.0] == 0.9995


def test_speed_keeps_the_topics_it_was_not_asked_for(tmp_path, monkeypatch, capsys):
    from benchmarks.speed import audit, ridge

    slow, fast = np.array([4.0, 6.0]), np.array([1.0, 2.0])
    monkeypatch.setattr(
        ridge, "measure", lambda _: iter([timing.row("ridge", "fit", slow, "pass", fast, 4)])
    )
    monkeypatch.setattr(
        audit, "measure", lambda _: iter([timing.Memory("audit", "trials", 0.05, 0.1)])
    )
    speed(["--out", str(tmp_path), "--only", "ridge"])
    speed(["--out", str(tmp_path), "--only", "audit"])
    text = (tmp_path / "speed.md").read_text()
    assert "| fit | 5 | pass | 1.5 | 3.33 (3 to 4) | at most 4 |" in text
    assert "| trials | 5.0% | at most 10% |" in text


def test_rounds_are_timed_in_turn():
    called = []
    timing.interleaved({"a": lambda: called.append("a"), "b": lambda: called.append("b")}, 2)
    assert called == ["a", "b", "a", "b"]
