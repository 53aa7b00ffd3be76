"""
From texts to a published head, and what it gives away
======================================================

"Nobody may tell which name or number stood in a customer's message." That sentence becomes a
radius: the distance that covers 95 % of such edits of public texts. A frozen sentence encoder and a
head are then fitted in one pipeline, published, and attacked. It needs the extra ``text``.
"""

# %%
# A few hundred short generated texts on two topics, and half as many public ones.
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    RadiusPolicy,
    ReconstructionAuditor,
    ReconstructionDisplay,
)
from sklearn_balldp.edits import NAMES, EditDistanceDisplay, edit_pairs
from sklearn_balldp.encoders import SentenceEncoder

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
    texts = [
        f"{rng.choice(openings[c])} {rng.choice(places)}, says {rng.choice(NAMES)}, "
        f"day {rng.integers(10, 99)}."
        for c in y
    ]
    return texts, y


X, y = write(400, seed=0)
X_public, y_public = write(200, seed=1)

# %%
# The radius is read off public texts before and after an edit. Record and card then say what it
# hides. An auditor takes the whole pipeline; its encoder treats each text on its own, so nothing
# but the head has to be audited. The cache embeds each text once, whatever is fitted on it.
pairs = edit_pairs(X_public, kinds=("name", "number"))
auditors, accuracies = [], []
with tempfile.TemporaryDirectory() as cache:
    encoder = SentenceEncoder(model, cache_dir=cache)
    before, after = encoder.transform(pairs.before), encoder.transform(pairs.after)
    policy = RadiusPolicy(0.95, source="edits").fit(before, after)
    rows = encoder.transform(X_public)
    distances = EditDistanceDisplay.from_rows(
        before, after, pairs.kind, X=rows, y=y_public, radius=policy.radius_
    )
    for epsilon in (0.5, 2.0, 8.0):
        head = BallDPLinearDiscriminant(
            epsilon, delta=1e-4, radius=FrozenEstimator(policy), domain="sphere"
        )
        auditor = ReconstructionAuditor(make_pipeline(encoder, head), n_draws=50, random_state=0)
        auditors.append(auditor.fit(X, y, X_public, y_public))
        accuracies.append(auditor.score(X_public, y_public))
print(f"hides one text's change within {policy.radius_:.2f}: ", end="")
print(auditors[0].estimator_[-1].release_.hidden_edits)

# %%
# The names of the classes are public. Their embeddings are a start for the noisy class means, which
# is worth most where the noise is large.
names = ["a problem with a bank card", "the weather"]
given = {"delta": 1e-4, "radius": policy.radius_}
embedded, vectors = encoder.transform(X), encoder.transform(names)
for epsilon in (0.05, 0.2):
    for title, prior in (("without", None), ("with", vectors)):
        head = BallDPLogisticRegression(epsilon, prior=prior, **given)
        scores = [head.fit(embedded, y).score(rows, y_public) for _ in range(10)]
        print(f"epsilon {epsilon}, {title} class names: {np.mean(scores):.2f}")

# %%
# How far edits move a text; accuracy of the head that would be published; and how often an
# adversary who knows every other text names the right one of ten.
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
distances.plot(left)
middle.bar([f"{a.estimator_[-1].release_.epsilon:g}" for a in auditors], accuracies, width=0.5)
middle.set_ylim(0, 1.05)
middle.axhline(0.5, color="0.5", linestyle=":", label="the larger class")
middle.legend(loc="lower right")
middle.set_xlabel(r"$\varepsilon$")
middle.set_ylabel("accuracy on public texts")
ReconstructionDisplay.from_estimators({"the released head": auditors}).plot(right)
plt.show()
