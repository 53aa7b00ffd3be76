"""The attacks of ``benchmarks.falsify``: sound code withstands them, and planted faults do not."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from benchmarks.falsify import __main__ as command
from benchmarks.falsify import gaps, grid, plain, search, settings
from benchmarks.falsify.attacks import ATTACKS
from benchmarks.falsify.replay import Replay, Violation, fit
from benchmarks.faults import named_by
from benchmarks.study import RESULTS, Run, markdown
from sklearn_balldp.heads import weighing
from sklearn_balldp.losses import Softmax
from sklearn_balldp.mechanisms import DescentBound, PrivacyFilter, Sums
from sklearn_balldp.mechanisms.whitening import PublicMap
from sklearn_balldp.privacy import Noise, Release
from sklearn_balldp.privacy.exact_normal import rounded_normal
from sklearn_balldp.publish.checks import replay_check


def attacks(name, seeds, tries=40):
    for seed in reversed(range(seeds)):
        yield ATTACKS[name](np.random.default_rng([5, seed]), tries)


def largest(name, seeds, tries=40):
    """The pair that one of so many attacks tells apart best."""
    return max(attacks(name, seeds, tries), key=lambda own: own.ratio)


def reaches(ratio, name, seeds, tries=40):
    """Whether one of so many attacks gets further; those after it are not tried."""
    return any(own.ratio > ratio for own in attacks(name, seeds, tries))


@pytest.mark.parametrize("name", ATTACKS)
def test_sound_code_withstands(name):
    found = largest(name, 1, tries=8)
    assert 0.0 <= found.ratio <= 1.0 + search.ROUNDING
    assert found.mechanism == name


def smaller(value, factor):
    """A function whose values are so many times smaller."""
    return lambda *given, **named: value(*given, **named) / factor


def test_a_sensitivity_that_is_too_small(monkeypatch):
    monkeypatch.setattr(Sums, "ratio", smaller(Sums.ratio, 1.05))
    assert largest("ridge prototypes", 3).ratio == pytest.approx(1.05, abs=1e-3)
    assert reaches(1.04, "what the filter lets pass", 12)


def with_given(value, **fixed):
    """A function some of whose arguments are always these."""
    return lambda *given, **named: value(*given, **named | fixed)


def forgetful(self, query, charge=PrivacyFilter.charge):
    spent = self._spent
    charge(self, query)
    self._spent = spent


def shorter(self, radius=None, labels=None, records=1, stated=Release.guarantee):
    return stated(self, radius, labels, max(records - 1, 1))


def kept(self, size):
    stock = vars(self).setdefault("_stock", rounded_normal(50 + size))
    self._stock = stock[size:] if len(stock) >= size else rounded_normal(50)
    return stock[:size] if len(stock) >= size else rounded_normal(size)


STEPS_ALONE = DescentBound.mu_of_steps
LONGER = smaller(PublicMap.shortened, 1.0 / 1.05)
#: A fault in its place, and an attack that gets further than a ratio in so many seeds and tries.
PLANTED = {
    "share forgotten": (DescentBound, "mu_at", STEPS_ALONE, "descent from sums", 1.05, 6),
    "filter forgets": (PrivacyFilter, "charge", forgetful, "what the filter lets pass", 1.4, 4),
    "map lengthens": (PublicMap, "shortened", LONGER, "descent from sums", 1e300, 24, 1),
    "persons as of one class": (
        *(weighing, "Weights", with_given(weighing.Weights, block_factor=1.0)),
        *("ridge prototypes", 1.05, 24, 20),
    ),
    "versine halved": (Softmax, "versine", 0.25, "gap at any parameters, softmax", 1.02, 20),
    "chain one short": (Release, "guarantee", shorter, "discriminant", 1.05, 12),
    "noise from a stock": (Noise, "_deviates", kept, "noise that repeats", 1e300, 4),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_faults_are_found(name, monkeypatch):
    place, attribute, fault, attack, ratio, *effort = PLANTED[name]
    monkeypatch.setattr(place, attribute, fault)
    assert reaches(ratio, attack, *effort)


@pytest.mark.kills(
    "publish/checks.py",
    "    if unasked:\n        raise _Refused",
    "    if False:\n        raise _Refused",
)
def test_an_answer_that_is_never_asked_for_is_refused():
    """A record that lies behind the answers would be published with them."""
    drawn = settings.draw("descent from zero", np.random.default_rng(0))
    one, _, deviate = drawn.pair(search.start_of(drawn, np.random.default_rng(0)))
    mechanism = {"mechanism": drawn.make().mechanism.set_params(keep_transcript=True)}
    released = fit(drawn.make().set_params(**mechanism), one, Replay(deviate)).released_
    assert replay_check(released).verdict == "PASS"
    more = replace(released, answers=(*released.answers, released.answers[-1]))
    assert "never asked for" in replay_check(more).found


def test_values_that_are_not_those_of_the_records(monkeypatch):
    drawn = settings.draw("ridge prototypes", np.random.default_rng(0))
    placed = plain.placed
    monkeypatch.setattr(plain, "placed", lambda *given: 1.01 * placed(*given))
    genome = search.start_of(drawn, np.random.default_rng(0))
    with pytest.raises(Violation, match="values of Sums that were hidden are not those"):
        search.ratio(drawn, genome)


def test_every_fault_has_its_place(request):
    """Of the tests that run along: in a run of all, all faults."""
    lost = []
    for fault in {fault: None for _, fault in named_by(request.session.items)}:
        assert fault.attack in {"", *ATTACKS}
        try:
            fault.module()
        except (OSError, ValueError) as error:
            lost.append(str(error))
    assert not lost


def test_a_script_finds_a_pair_again(capsys):
    found = largest("ridge prototypes", 1)
    script = command.script_of("ridge prototypes", (5, 0), 40, found)
    assert len(script.strip().splitlines()) <= 10
    exec(compile(script, "refuted.py", "exec"), {})
    assert float(capsys.readouterr().out.split()[-1]) == found.ratio
    by_seed = command.script_of("norm of minimisers", (5, 0), 40, largest("norm of minimisers", 1))
    exec(compile(by_seed, "refuted.py", "exec"), {})
    assert f"ratio={largest('norm of minimisers', 1).ratio!r}" in capsys.readouterr().out


def test_the_plain_minimiser_is_one_beyond_kinks():
    """Where it stops short of one, a sound fit would look refuted."""
    for seed in range(30):
        rng = np.random.default_rng(seed)
        rows, codes = 7.0 * rng.standard_normal((6, 2)), np.arange(6) % 3
        theta = plain.minimiser("squared_hinge", rows, codes, 3, 1e-3)
        slopes = plain.gradient("squared_hinge", theta, rows, codes, 3)
        assert np.linalg.norm(slopes.mean(axis=0) + 1e-3 * theta) < 1e-9


def test_table_and_picture(tmp_path, monkeypatch):
    pairs = [gaps.attack_norm(np.random.default_rng(seed), 1) for seed in range(3)]
    # A number below one is not rounded up to it.
    found = {"norm of minimisers": pairs, "none": [], "a name": [search.Found("", 1 - 1e-8, 1, "")]}
    other = {"norm of minimisers": pairs[:2]}
    # Runs with two seeds are one table.
    monkeypatch.setattr(command, "run", lambda _, seed, *__: ([found, other][seed], "", []))
    command.CELLS.fill(Run(out=tmp_path))
    shutil.copy(RESULTS / "gaps.csv", tmp_path)
    assert command.report(tmp_path) == []
    names = {"falsify.csv", "falsify.md", "falsify.png", "gaps.csv", "gaps.md"}
    assert {path.name for path in tmp_path.glob("[!.]*")} == names
    lines = (tmp_path / "falsify.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in lines[2:4]] == ["| norm of minimisers", "| a name"]
    assert "| norm of minimisers | 5 |" in lines[2]
    assert "| 0.999999 |" in lines[3]
    rows = command.CELLS.read(tmp_path).to_dict("records")
    sound, refuted = ([{"attacked": "a", command.MOVE: move}] for move in (0.5, 1.1))
    for anew, holds in ((sound, True), (refuted, False)):
        (own,) = command.CELLS.compare(rows, anew)
        assert (own["away"] <= own["allowed"]) == holds


def test_the_committed_grid_is_what_its_page_shows():
    cells = pd.read_csv(RESULTS / "gaps.csv")
    rows = [line.replace(" ", "") for line in (RESULTS / "gaps.md").read_text().split("\n")]
    shown = markdown(grid.summary(cells)).replace(" ", "").split("\n")
    assert shown[2:] == rows[2 : len(shown)]
    assert cells["found over stated"].between(0.0, 1.0).all()


def test_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--minutes", "0.03", "--processes", "1", "--only", "law of the noise"]
    assert command.main(options) == 0
    assert "Nothing was refuted." in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        command.main(["--only", "no such attack"])
