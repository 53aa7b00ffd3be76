"""
From texts to a published head, and what it gives away
======================================================

"Nobody may tell which name or number stood in a customer's message." That sentence becomes a
radius: the distance that covers 95 % of such edits of public texts. A frozen sentence encoder and a
head are then fitted in one pipeline, published, and attacked. It needs the extra ``text``.
"""

# %%
# Two hundred short generated texts on two topics, and a hundred public ones.
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline

from sklearn_balldp import (
    BallDPLogisticRegression,
    RadiusPolicy,
    ReconstructionAuditor,
    ReconstructionDisplay,
)
from sklearn_balldp.edits import NAMES, edit_pairs
from sklearn_balldp.encoders import SentenceEncoder

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


X, y = write(200, seed=0)
X_public, y_public = write(100, seed=1)

# %%
# Public texts before and after an edit give the radius. Record and card then say what it hides. The
# head is the recommended one, with its defaults. An auditor takes the whole pipeline. Its encoder
# treats each text on its own, so nothing but the head has to be audited. The cache embeds each text
# once, whatever is fitted on it. Five candidates, one support and three draws keep this page quick;
# an audit in earnest takes more, and minutes.
pairs = edit_pairs(X_public[:40], kinds=("name", "number"))
auditors, accuracies = [], []
with tempfile.TemporaryDirectory() as cache:
    encoder = SentenceEncoder(cache_dir=cache)
    before, after = encoder.transform(pairs.before), encoder.transform(pairs.after)
    policy = RadiusPolicy(0.95, source="edits").fit(before, after, record=pairs.record)
    rows = encoder.transform(X_public)
    moved = pd.Series(np.linalg.norm(before - after, axis=1)).groupby(pairs.kind)
    for epsilon in (2.0, 8.0):
        head = BallDPLogisticRegression(epsilon, delta=1e-4, radius=FrozenEstimator(policy))
        auditor = ReconstructionAuditor(
            make_pipeline(encoder, head), n_candidates=5, n_supports=1, n_draws=3, random_state=0
        )
        auditors.append(auditor.fit(X, y, X_public, y_public))
        accuracies.append(auditor.score(X_public, y_public))
    names = ["a problem with a bank card", "the weather"]
    embedded, vectors = encoder.transform(X), encoder.transform(names)
print(f"hides one text's change within {policy.radius_:.2f}: ", end="")
print(auditors[0].estimator_[-1].release_.radius_from)

# %%
# The names of the classes are public. The fit starts from their embeddings too, which is worth most
# where the noise is large.
given = {"delta": 1e-4, "radius": policy.radius_}
for title, embeddings in (("without", None), ("with", vectors)):
    head = BallDPLogisticRegression(epsilon=0.05, class_embeddings=embeddings, **given)
    scores = [head.fit(embedded, y).score(rows, y_public) for _ in range(2)]
    print(f"epsilon 0.05, {title} class names: {np.mean(scores):.2f}")

# %%
# How far edits move a text; accuracy of the head that would be published; and how often an
# attacker who knows every other text names the right one of five.
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
for kind, (low, median, high) in moved.quantile([0.1, 0.5, 0.9]).unstack().iterrows():
    left.plot([low, high], [kind, kind], color="tab:blue", linewidth=5, alpha=0.4)
    left.plot(median, kind, "o", color="tab:blue")
left.axvline(policy.radius_, color="tab:red", label=f"radius {policy.radius_:.2f}")
left.set_xlabel("distance between the rows (median, 10 % to 90 %)")
left.legend()
middle.bar([f"{a.estimator_[-1].release_.epsilon:g}" for a in auditors], accuracies, width=0.5)
middle.set_ylim(0, 1.05)
middle.axhline(0.5, color="0.5", linestyle=":", label="the larger class")
middle.legend(loc="lower right")
middle.set_xlabel(r"$\varepsilon$")
middle.set_ylabel("accuracy on public texts")
ReconstructionDisplay.from_estimators({"the released head": auditors}).plot(right)
plt.show()
