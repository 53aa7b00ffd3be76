"""
How the certificates compare
============================

A certificate bounds the success of every attack whose candidates lie within the radius of one
possible record, from public numbers: the larger epsilon, the larger the bound. Three ways to state
it, from the same noise, beside the best attack itself.
"""

# %%
# With ten equally likely candidates, a blind guess is right once in ten. The bound from (epsilon,
# delta) alone ignores that the noise is Gaussian. Rényi's bound uses a part of that fact, and the
# direct bound uses all of it.
import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm

from sklearn_balldp.audit.certificates import (
    epsilon_from_certificate,
    rero_bound,
    rero_bound_dp,
)
from sklearn_balldp.privacy.gaussian import mu_from_budget

kappa, delta = 0.1, 1e-6
epsilons = np.geomspace(0.25, 32.0, 60)
mus = np.array([mu_from_budget(epsilon, delta) for epsilon in epsilons])
bounds = {
    r"from $(\varepsilon, \delta)$": [rero_bound_dp(kappa, epsilon, delta) for epsilon in epsilons],
    "Rényi": [rero_bound(kappa, mu, method="rdp") for mu in mus],
    "direct": [rero_bound(kappa, mu) for mu in mus],
}

# %%
# The best attack itself, where the ten candidate models lie at the edge of the ball, each in a
# direction of its own: it names the direction in which the noisy model lies furthest.
points, at = epsilons[::6], np.linspace(-9.0, 15.0, 2401)
attack = [
    np.trapezoid(norm.pdf(at - mu_from_budget(epsilon, delta)) * norm.cdf(at) ** 9, at)
    for epsilon in points
]

# %%
# The user's question runs the other way: which epsilon keeps every attack below one in four?
limit = 0.25
affordable = epsilon_from_certificate(limit, kappa, delta)
print(f"epsilon {affordable:.2f} certifies a success of at most {limit:g}")

figure, ax = plt.subplots(figsize=(7.5, 4.6), layout="constrained")
for name, values in bounds.items():
    ax.plot(epsilons, values, label=name)
ax.plot(points, attack, "o", color="0.3", label="best attack there is, ten directions")
ax.axhline(kappa, color="0.5", linestyle=":", label="blind guess")
ax.plot([affordable, affordable, epsilons[0]], [0, limit, limit], color="C2", linewidth=0.8)
ax.annotate(
    f"$\\varepsilon = {affordable:.1f}$",
    (affordable, 0.02),
    xytext=(4, 0),
    textcoords="offset points",
    color="C2",
)
ax.set_xscale("log", base=2)
ax.set_xlim(epsilons[0], epsilons[-1])
ax.set_xticks([0.25, 1, 4, 16], ["0.25", "1", "4", "16"])
ax.set_ylim(0, 1.02)
ax.set_xlabel(r"$\varepsilon$ at $\delta = 10^{-6}$")
ax.set_ylabel("success of an attack, ten candidates")
ax.legend(fontsize=9)
plt.show()
