/* What a promise means in numbers: Gaussian differential privacy of one release, in plain ES5. */
var balldp = (function () {
  "use strict";

  function density(x) {
    return Math.exp(-0.5 * x * x) / Math.sqrt(2 * Math.PI);
  }

  /* Density over upper tail of the normal distribution, from x >= 4: Laplace's continued fraction. */
  function ratio(x) {
    var fraction = x;
    for (var k = 80; k > 0; k--) fraction = x + k / fraction;
    return fraction;
  }

  function far(x) {
    return density(x) / ratio(x);
  }

  /* Normal distribution function: Marsaglia's series, and the fraction in the tails. */
  function cdf(x) {
    if (x < -4) return far(-x);
    if (x > 4) return 1 - far(x);
    var sum = x, term = x;
    for (var k = 3; Math.abs(term) > 1e-17 * Math.abs(sum) && k < 400; k += 2) {
      term *= x * x / k;
      sum += term;
    }
    return 0.5 + sum * density(x);
  }

  /* The x at which a nondecreasing function reaches a value. */
  function inverse(f, value, low, high) {
    for (var i = 0; i < 200; i++) {
      var middle = 0.5 * (low + high);
      if (f(middle) < value) low = middle; else high = middle;
    }
    return 0.5 * (low + high);
  }

  /* Delta of a mu-GDP release at an epsilon (Balle and Wang, 2018). */
  function delta(mu, epsilon) {
    var near = epsilon / mu - mu / 2, beyond = epsilon / mu + mu / 2;
    /* exp(epsilon) times the density at one is the density at the other, and overflows alone. */
    var second = beyond < 4 ? Math.exp(epsilon) * cdf(-beyond) : density(near) / ratio(beyond);
    return cdf(-near) - second;
  }

  function muOf(epsilon, allowed) {
    return inverse(function (mu) { return delta(mu, epsilon); }, allowed, 1e-6, 60);
  }

  function epsilonOf(mu, allowed) {
    return inverse(function (epsilon) { return -delta(mu, epsilon); }, -allowed, 0, mu * mu / 2 + 8 * mu + 1);
  }

  /* How often an attacker with so many equally likely candidates is right, at most. */
  function certificate(mu, candidates) {
    var guess = inverse(cdf, 1 / candidates, -12, 12);
    return cdf(guess + mu);
  }

  /* How much better than by guessing two records are told apart, at most. */
  function advantage(mu) {
    return 2 * cdf(mu / 2) - 1;
  }

  return {
    density: density, cdf: cdf, delta: delta, muOf: muOf, epsilonOf: epsilonOf,
    certificate: certificate, advantage: advantage
  };
})();

if (typeof document !== "undefined") document.addEventListener("DOMContentLoaded", function () {
  "use strict";
  var root = document.getElementById("balldp-play");
  if (!root) return;
  var DELTA = 1e-6, LARGEST = 2, FURTHEST = 7;

  function input(name) { return root.querySelector("[name=" + name + "]"); }
  function show(name, text) { root.querySelector("[data-show=" + name + "]").textContent = text; }
  function percent(share) { return (Math.ceil(share * 1000 - 1e-9) / 10).toFixed(1) + " %"; }

  /* Points of a curve as an SVG path: x from -3.5 to 7 on 600 pixels, height 0.42 on 150. */
  function path(mean) {
    var points = [];
    for (var i = 0; i <= 210; i++) {
      var x = -3.5 + i * 0.05;
      points.push((600 * (x + 3.5) / 10.5).toFixed(1) + " " +
        (155 - 150 * balldp.density(x - mean) / 0.42).toFixed(1));
    }
    return "M" + points.join("L");
  }

  function draw() {
    var epsilon = Math.pow(2, Number(input("epsilon").value));
    var radius = Number(input("radius").value), m = Number(input("candidates").value);
    var distance = Number(input("distance").value);
    var mu = balldp.muOf(epsilon, DELTA), there = mu * distance / radius, html = "";
    show("epsilon", epsilon.toPrecision(3));
    show("radius", radius.toFixed(2));
    show("distance", distance.toFixed(2));
    show("candidates", m);
    show("mu", there.toFixed(2) + (there > FURTHEST ? " (beyond the picture)" : ""));
    show("certificate", percent(balldp.certificate(mu, m)));
    show("guess", percent(1 / m));
    show("advantage", percent(balldp.advantage(there)));
    var shown = {};
    [0.5, 1, 2, LARGEST / radius].forEach(function (times) {
      var t = Math.min(times * radius, LARGEST), own = mu * t / radius;
      if (shown[t.toFixed(2)]) return;
      shown[t.toFixed(2)] = true;
      html += "<tr><td>" + t.toFixed(2) + "</td><td>" + balldp.epsilonOf(own, DELTA).toPrecision(3) +
        "</td><td>" + percent(balldp.certificate(own, m)) + "</td></tr>";
    });
    root.querySelector("tbody").innerHTML = html;
    root.querySelector("[data-curve=one]").setAttribute("d", path(0));
    root.querySelector("[data-curve=other]").setAttribute("d", path(there));
  }

  ["epsilon", "radius", "distance", "candidates"].forEach(function (name) {
    input(name).addEventListener("input", draw);
  });
  draw();
});
