"""The attacks of ``benchmarks.falsify``: sound code withstands them, and planted faults do not."""

import math
import os
import types

import numpy as np
import pytest

from benchmarks.falsify import __main__ as command
from benchmarks.falsify import gaps, plain, search, settings
from benchmarks.falsify.attacks import ATTACKS
from benchmarks.falsify.planted import FAULTS
from benchmarks.falsify.replay import Violation
from benchmarks.mutants import MUTANTS
from sklearn_balldp.losses import Softmax
from sklearn_balldp.privacy import Release, bounds, noise
from sklearn_balldp.privacy.transcript import TranscriptBound


def largest(name, seeds, tries=40):
    """The largest ratio of so many attacks."""
    found = [ATTACKS[name](np.random.default_rng([5, seed]), tries) for seed in range(seeds)]
    return max(found, key=lambda own: own.ratio)


@pytest.mark.parametrize("name", ATTACKS)
def test_sound_code_withstands(name):
    found = largest(name, 2, tries=15)
    assert 0.0 <= found.ratio <= 1.0 + search.ROUNDING
    assert found.mechanism == name


def smaller(value, factor):
    """A function whose values are so many times smaller."""
    return lambda *given, **named: value(*given, **named) / factor


def test_a_sensitivity_that_is_too_small(monkeypatch):
    monkeypatch.setattr(
        bounds, "prototype_sensitivity", smaller(bounds.prototype_sensitivity, 1.05)
    )
    assert largest("ridge prototypes", 3).ratio == pytest.approx(1.05, abs=1e-3)


def test_a_share_that_was_forgotten(monkeypatch):
    stated = TranscriptBound.mu_at

    def steps_alone(self, radius, labels):
        start = 0.0 if self.start is None else self.start.mu(radius, labels)
        return math.sqrt(max(stated(self, radius, labels) ** 2 - start**2, 1e-12))

    monkeypatch.setattr(TranscriptBound, "mu_at", steps_alone)
    assert largest("descent from sums", 4).ratio > 1.05


def test_a_lipschitz_factor_that_was_dropped(monkeypatch):
    rate = Softmax.residual_rate
    monkeypatch.setattr(Softmax, "residual_rate", smaller(rate, 4.0))
    assert largest("gap at an iterate, softmax", 20).ratio > 1.02


def test_a_chain_of_persons_one_short(monkeypatch):
    stated = Release.guarantee

    def shorter(self, radius=None, labels=None, records=1):
        return stated(self, radius, labels, max(records - 1, 1))

    monkeypatch.setattr(Release, "guarantee", shorter)
    assert largest("discriminant", 12).ratio > 1.05


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_noise_that_a_fork_repeats(monkeypatch):
    parent = types.SimpleNamespace(getpid=lambda: 1, urandom=os.urandom)
    monkeypatch.setattr(noise, "os", parent)
    assert largest("noise that repeats", 4).ratio == math.inf


def test_sums_that_are_not_those_of_the_records(monkeypatch):
    drawn = settings.draw("ridge prototypes", np.random.default_rng(0))
    placed = plain.placed
    monkeypatch.setattr(plain, "placed", lambda *given: 1.01 * placed(*given))
    genome = search.start_of(drawn, np.random.default_rng(0))
    with pytest.raises(Violation, match="prototypes that were released are not those"):
        search.ratio(drawn, genome)


def test_every_planted_fault_has_an_attack():
    assert set(FAULTS) <= set(ATTACKS)


@pytest.mark.parametrize("mutant", [*MUTANTS, *FAULTS.values()], ids=lambda own: own.name)
def test_every_mutant_has_its_place(mutant, tmp_path):
    path = tmp_path / "sklearn_balldp" / mutant.file
    path.parent.mkdir(parents=True)
    path.write_text((command.Path(bounds.__file__).parents[1] / mutant.file).read_text())
    mutant.apply(tmp_path)


def test_a_script_finds_a_pair_again(capsys):
    found = largest("ridge prototypes", 1)
    script = command.script_of("ridge prototypes", (5, 0), 40, found)
    assert len(script.strip().splitlines()) <= 10
    exec(compile(script, "refuted.py", "exec"), {})
    assert float(capsys.readouterr().out.split()[-1]) == found.ratio
    by_seed = command.script_of("norm of minimisers", (5, 0), 40, largest("norm of minimisers", 1))
    exec(compile(by_seed, "refuted.py", "exec"), {})
    assert f"ratio={largest('norm of minimisers', 1).ratio!r}" in capsys.readouterr().out


def test_table_and_picture(tmp_path):
    tallies = {"norm of minimisers": command.Tally(), "a name": command.Tally()}
    for seed in range(3):
        tallies["norm of minimisers"].add(gaps.attack_norm(np.random.default_rng(seed), 1))
    command.save(tallies, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "falsify.md",
        "falsify.csv",
        "falsify.png",
    }
    assert command.table(tallies).count("\n") == 3
    # A number below one is not rounded up to it.
    tallies["a name"].add(search.Found("a name", 0.9999999, 1, "here"))
    assert "| 0.999999 |" in command.table(tallies)


def test_the_command(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = ["--minutes", "0.15", "--processes", "1", "--only", "law of the noise"]
    assert command.main(options) == 0
    assert "Nothing was refuted." in capsys.readouterr().out
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit):
        command.main(["--only", "no such attack"])
