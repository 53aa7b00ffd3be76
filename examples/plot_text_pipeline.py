"""
From texts to a published head, and what it gives away
======================================================

A frozen sentence encoder and a logistic head with noise in one pipeline, with a radius from public
texts, and an audit of the whole. It needs the extra ``text``.
"""

# %%
# A few hundred short generated texts on two topics, and half as many public ones.
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from sklearn_balldp import (
    BallDPLogisticRegression,
    ReconstructionAuditor,
    ReconstructionDisplay,
)
from sklearn_balldp.encoders import SentenceEncoder
from sklearn_balldp.radius import same_label_quantile

# The model's name on the hub, or a local copy of it.
model = os.environ.get("SENTENCE_MODEL", "sentence-transformers/all-MiniLM-L6-v2")
openings = {
    0: ["My card was declined at", "I lost my bank card near", "The payment failed at"],
    1: ["It rained all day over", "The sun set slowly behind", "Snow fell softly on"],
}
places = ["the station", "a quiet beach", "our office", "the old town", "my kitchen"]


def write(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(2, size=n)
    texts = [f"{rng.choice(openings[c])} {rng.choice(places)}, day {rng.integers(99)}." for c in y]
    return texts, y


X, y = write(400, seed=0)
X_public, y_public = write(200, seed=1)

# %%
# The cache embeds each text once, whatever is fitted on it. The radius is the median distance of
# public texts of one class. An auditor takes the whole pipeline; its encoder treats each text on
# its own, so nothing but the head has to be audited.
auditors, accuracies = [], []
with tempfile.TemporaryDirectory() as cache:
    encoder = SentenceEncoder(model, cache_dir=cache)
    radius = same_label_quantile(encoder.transform(X_public), y_public)
    for epsilon in (0.1, 0.5, 2.0, 8.0):
        head = BallDPLogisticRegression(
            epsilon, delta=1e-4, radius=radius, alpha=0.1, fit_intercept=False
        )
        auditor = ReconstructionAuditor(make_pipeline(encoder, head), n_draws=50, random_state=0)
        auditors.append(auditor.fit(X, y, X_public, y_public))
        accuracies.append(auditor.score(X_public, y_public))
print(f"radius {radius:.2f}")

# %%
# Accuracy of the head that would be published, and how often an adversary who knows every other
# text names the right one of ten.
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 4), layout="constrained")
left.bar([f"{a.estimator_[-1].release_.epsilon:g}" for a in auditors], accuracies, width=0.5)
left.set_ylim(0, 1.05)
left.axhline(0.5, color="0.5", linestyle=":", label="the larger class")
left.legend(loc="lower right")
left.set_xlabel(r"$\varepsilon$")
left.set_ylabel("accuracy on public texts")
ReconstructionDisplay.from_estimators({"the released head": auditors}).plot(right)
plt.show()
