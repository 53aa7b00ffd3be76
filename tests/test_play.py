"""The page to play with computes what the package computes."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.privacy.gaussian import epsilon_from_mu, mu_from_budget

pytestmark = pytest.mark.needs("dukpy")
SCRIPT = (Path(__file__).parents[1] / "docs" / "static" / "play.js").read_text()


def run(expression):
    import dukpy

    return json.loads(dukpy.evaljs(f"{SCRIPT}; JSON.stringify({expression});"))


#: A page in a few lines: sliders, what is shown, and the picture.
PAGE = """
var made = {}, start = [];
function part(selector) {
  made[selector] = made[selector] || {
    value: null, textContent: "", innerHTML: "", heard: [],
    addEventListener: function (name, then) { this.heard.push(then); },
    setAttribute: function (name, value) { this[name] = value; }
  };
  return made[selector];
}
var document = {
  addEventListener: function (name, then) { start.push(then); },
  getElementById: function () { return {querySelector: part}; }
};
function move(name, value) {
  var slider = part("[name=" + name + "]");
  slider.value = value;
  slider.heard.forEach(function (then) { then(); });
}
function seen(name) { return part("[data-show=" + name + "]").textContent; }
var sliders = {epsilon: 1, radius: 0.6, distance: 0.6, candidates: 10};
for (var name in sliders) move(name, sliders[name]);
"""


def test_every_slider_moves_what_the_page_says():
    import dukpy

    moves = {"epsilon": 2, "radius": 1.2, "distance": 0.3, "candidates": 20}
    shown = """
    start[0]();
    function all() {
      return [part("[data-curve=other]").d, part("tbody").innerHTML, seen("mu"),
              seen("advantage"), seen("certificate")];
    }
    var before = all(), after = {};
    for (var name in moves) {
      move(name, moves[name]);
      after[name] = all();
      move(name, sliders[name]);
    }
    JSON.stringify([before, after]);
    """
    code = f"{PAGE}; {SCRIPT}; var moves = {json.dumps(moves)}; {shown}"
    before, after = json.loads(dukpy.evaljs(code))
    changed = {
        name: [a != b for a, b in zip(before, now, strict=True)] for name, now in after.items()
    }
    assert changed == {
        "epsilon": [True] * 5,
        "radius": [True, True, True, True, False],
        "distance": [True, False, True, True, False],
        "candidates": [False, True, False, False, True],
    }
    # Twice the radius hides a change as well as half of the distance does.
    assert after["radius"][0] == after["distance"][0]
    mu = mu_from_budget(2.0, 1e-6)
    assert (before[2], after["radius"][2]) == (f"{mu:.2f}", f"{mu / 2:.2f}")


def test_normal_distribution():
    x = np.linspace(-30.0, 8.0, 400)
    found = run(f"{x.tolist()}.map(balldp.cdf)")
    np.testing.assert_allclose(found, norm.cdf(x), rtol=1e-11)


@pytest.mark.parametrize("epsilon", [0.125, 0.5, 2.0, 16.0])
def test_promises(epsilon):
    mu = mu_from_budget(epsilon, 1e-6)
    assert run(f"balldp.muOf({epsilon}, 1e-6)") == pytest.approx(mu, rel=1e-7)
    for times in (0.5, 1.0, 4.0, 40.0):
        own = epsilon_from_mu(times * mu, 1e-6)
        assert run(f"balldp.epsilonOf({times * mu!r}, 1e-6)") == pytest.approx(own, rel=1e-6)


def test_what_an_attacker_gains():
    X, y = np.random.default_rng(0).standard_normal((60, 4)), np.arange(60) % 2
    release = BallDPRidgePrototype(2.0, radius=0.3, norm_bound=1.0).fit(X, y).release_
    guarantee = release.guarantee()
    for m in (2, 10, 100):
        found = run(f"balldp.certificate({guarantee.mu!r}, {m})")
        assert found == pytest.approx(release.certificate(1 / m), rel=1e-8)
    assert run(f"balldp.advantage({guarantee.mu!r})") == pytest.approx(
        guarantee.advantage, rel=1e-8
    )
    # The table's other distances.
    for times in (0.5, 2.0):
        own = release.guarantee(0.3 * times)
        assert run(f"balldp.epsilonOf({guarantee.mu * times!r}, 1e-6)") == pytest.approx(
            own.epsilon, rel=1e-6
        )
