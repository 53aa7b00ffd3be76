"""Numbers printed in the paper (Margaryan & Gupta); everything else is measured.

Policies: a quantile of same-label distances, or "full", every same-label substitution (the paper
calls it "standard DP").
"""

from pathlib import Path

import pandas as pd

_HERE = Path(__file__).parent

_table1 = pd.read_csv(_HERE / "table1.csv", index_col="dataset")
#: Table 1, ridge prototypes, epsilon 2: test accuracy by dataset and policy.
TABLE1 = {name: dict(row) for name, row in _table1.iterrows()}

_heads = pd.read_csv(_HERE / "imdb_heads.csv")
#: IMDb, three heads: (test accuracy, half of its interval) by head, policy and epsilon.
CONVEX = {
    (row.head, row.policy, float(row.epsilon)): (row.accuracy, row.half_width)
    for row in _heads.itertuples()
}
CONVEX_EPSILONS = tuple(sorted(_heads["epsilon"].astype(float).unique()))

_audits = pd.read_csv(_HERE / "identification.csv")
#: Exact identification: (success rate, half of its interval) by dataset, epsilon and policy.
IDENTIFICATION = {
    (row.dataset, row.epsilon, row.policy): (row.success, row.half_width)
    for row in _audits.itertuples()
}

#: Datasets whose rows here are the paper's.
SAME_ROWS = ("trec6", "emotion", "banking77", "imdb")
#: What is not the paper's in the others.
OTHER_ROWS = {
    "agnews": "a balanced third of the training rows",
    "cifar10": "features of another ResNet-18",
    "mnist": "features of another ResNet-18",
}
#: Training rows in the paper, where there are fewer here.
N_SAMPLES = {"agnews": 120_000}

#: Certificate of ten candidates at delta 1e-6, by epsilon.
CERTIFICATES = {2.0: 0.2024, 4.0: 0.3286, 8.0: 0.5987, 16.0: 0.9238, 32.0: 0.9995}
#: Range of q50's gain over "full" that the text states, in points.
GAINS_IN_TEXT = (0.03, 14.00)

#: A later table of the authors: certificate and accuracy at q80 and epsilon 8.
LATER = pd.read_csv(_HERE / "later.csv")
