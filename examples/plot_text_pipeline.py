"""
From texts to a published head, and what it gives away
======================================================

A frozen sentence encoder, a radius from public texts, a logistic head with noise, and an audit of
it, in one pipeline. It needs the extra ``text``.
"""

# %%
# A few hundred short generated texts on two topics, and as many public ones.
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.pipeline import make_pipeline

from sklearn_balldp import BallDPLogisticRegression, ReconstructionAuditor
from sklearn_balldp.encoders import SentenceEncoder
from sklearn_balldp.policy.radius import same_label_quantile

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
# The cache embeds each text once. The radius is the median distance of public texts of one class.
with tempfile.TemporaryDirectory() as cache:
    encoder = SentenceEncoder(model, cache_dir=cache)
    radius = same_label_quantile(encoder.transform(X_public), y_public)
    head = BallDPLogisticRegression(epsilon=8.0, delta=1e-4, radius=radius, alpha=0.1)
    auditor = ReconstructionAuditor(make_pipeline(encoder, head), n_draws=50, random_state=0)
    auditor.fit(X, y, X_public, y_public)
    print(f"radius {radius:.2f}, accuracy on the public texts "
          f"{auditor.score(X_public, y_public):.3f}")  # fmt: skip

# %%
# How often an adversary who knows every other text names the right one of ten.
auditor.plot()
plt.show()
