"""Numbers printed in the paper (Margaryan & Gupta) that were at hand; everything else is measured.

Policies: a quantile of same-label distances, or "full", every same-label substitution (the paper
calls it "standard DP").
"""

#: Table 1, ridge prototypes, epsilon 2: test accuracy.
TABLE1 = {
    "trec6": {"q50": 0.2496, "q80": 0.2460, "q95": 0.2412, "full": 0.2036},
    "emotion": {"q50": 0.3010, "q80": 0.2932, "q95": 0.2887, "full": 0.2458},
    "banking77": {"q50": 0.6358, "q80": 0.5697, "q95": 0.5218, "full": 0.2711},
    "imdb": {"q50": 0.621},
}
#: IMDb, three heads: test accuracy at epsilon 8, 16, 32.
CONVEX_EPSILONS = (8.0, 16.0, 32.0)
CONVEX = {
    ("ridge", "q50"): (0.728, 0.743, 0.748),
    ("ridge", "full"): (0.702, 0.731, 0.743),
    ("logistic", "q50"): (0.720, 0.747, 0.757),
    ("logistic", "full"): (0.679, 0.725, 0.748),
    ("svc", "q50"): (0.721, 0.759, 0.776),
    ("svc", "full"): (0.673, 0.729, 0.761),
}
#: Releases behind a cell of it.
CONVEX_RELEASES = 5
#: Exact identification at q50: success rate, and half of its interval where printed.
IDENTIFICATION = {
    ("trec6", 8.0): (0.123, 0.035),
    ("emotion", 8.0): (0.153, 0.032),
    ("banking77", 8.0): (0.165, 0.018),
    ("imdb", 8.0): (0.408, 0.050),
    ("imdb", 4.0): (0.233, 0.0),
    ("imdb", 2.0): (0.178, 0.0),
}
#: Certificate of ten candidates at delta 1e-6, by epsilon.
CERTIFICATES = {2.0: 0.2024, 4.0: 0.3286, 8.0: 0.5987, 16.0: 0.9238, 32.0: 0.9995}
#: Range of q50's gain over "full" that the text states, and what its table spans, in points.
GAINS_IN_TEXT = (0.03, 14.00)
GAINS_IN_TABLE = (0.57, 36.47)
