"""The main job, ``python -m sklearn_balldp``, as a user would run it."""

import re

import numpy as np
import pandas as pd
import pytest

from sklearn_balldp.__main__ import BALL, STANDARD, conclude, format_table, main


def test_the_main_job_prints_draws_and_writes_a_card(tmp_path, capsys):
    out = tmp_path / "new" / "balldp.png"
    main(["--epsilon", "4", "1", "--releases", "2", "--seed", "0", "--out", str(out)])
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines() if "+-" in line]
    assert [row[0] for row in rows] == ["1", "4"]
    # Every release has noise of its own, also from a seed.
    assert max(float(row[3]) for row in rows) > 0.0
    ball, standard = ([float(row[place]) for row in rows] for place in (1, 4))
    assert all(b > s for b, s in zip(ball, standard, strict=True))
    ceiling = float(re.search(r"no noise: (0\.\d+)", text).group(1))
    assert max(ball) < ceiling
    for word in ("Accuracy:", "Protection:", "Limits:"):
        assert text.count(word) == 1
    assert "Protection: none, because --seed" in text
    # The same candidates: a release that hides more certifies less of an attacker's success, but
    # where its steps get all but a hundredth of the budget: no gap at a distance is known there.
    few_records, enough = ([float(value) for value in row[7:9]] for row in rows)
    # Both are rounded up.
    assert 0.1 < few_records[1] <= few_records[0] <= few_records[1] + 0.0011
    assert 0.1 < enough[1] < enough[0]
    assert out.stat().st_size > 10_000
    card = (tmp_path / "new" / "balldp.card.html").read_text()
    assert "epsilon" in card.lower()
    assert "seed" in card.lower()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", "-1"], "-1 is not a number above 0"),
        (["--epsilon", "much"], "much is not a number above 0"),
        (["--quantile", "2"], "above 0 and at most 1"),
        (["--releases", "0"], "a whole number above 0"),
        (["--data", "absent.npz"], "absent.npz"),
    ],
)
def test_errors_are_one_line(options, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as caught:
        main(options)
    last = str(caught.value) if isinstance(caught.value.code, str) else capsys.readouterr().err
    assert said in last.splitlines()[-1]
    assert "Traceback" not in last


@pytest.mark.parametrize("kind", ["text", "arrays", "values"])
def test_a_file_that_cannot_be_used_is_told_in_one_line(kind, tmp_path):
    path = tmp_path / "rows.npz"
    if kind == "text":
        path.write_text("no arrays")
    elif kind == "arrays":
        np.savez(path, X_train=np.eye(3))
    else:
        X, y = np.eye(40, 5), np.arange(40) % 2
        X[3, 3] = np.nan
        np.savez(path, X_train=X, y_train=y, X_test=X, y_test=y)
    with pytest.raises(SystemExit, match=r"--data .*rows\.npz") as caught:
        main(["--data", str(path), "--out", str(tmp_path / "picture.png")])
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "picture.png").exists()


def test_certificates_are_rounded_up():
    own = {"accuracy": 0.5, "sd": 0.0, "at any distance": 1.0}
    rows = [
        {"epsilon": 2.0, "promise": promise, "certificate": 0.2020001, **own}
        for promise in (BALL, STANDARD)
    ]
    assert format_table(pd.DataFrame(rows), 0.9).count("0.203") == 2
    assert "at most 20.3 %" in conclude(pd.DataFrame(rows), 0.6, 0.9, seeded=False)
