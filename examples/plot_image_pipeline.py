"""
From images to a published head
===============================

Features of a ResNet-18, a policy for the radius, class prototypes with noise: one pipeline from
images to a release. It needs the extra ``vision``. Weights are random here, so that nothing is
downloaded; with ``weights="DEFAULT"`` they are torchvision's.
"""

# %%
# Handwritten digits as images of bytes: half of them private, a quarter public, the rest for tests.
import os
import tempfile

import matplotlib.pyplot as plt
import numpy as np
import sklearn
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.pipeline import Pipeline

from sklearn_balldp import BallDPRidgePrototype, RadiusPolicy
from sklearn_balldp.encoders import ImageEncoder

digits = load_digits(n_class=3)
images = np.kron(digits.images[:240] * 15.9, np.ones((4, 4))).astype(np.uint8)
labels, same = digits.target[:240], {"test_size": 0.5, "random_state": 0}
X, others, y, y_others = train_test_split(images, labels, stratify=labels, **same)
X_public, X_test, y_public, y_test = train_test_split(others, y_others, stratify=y_others, **same)

# %%
# The encoder treats every image on its own, so a substitution of one record moves one row. Public
# images pass through it too, and give the radius. Its cache embeds each image once. Three releases
# are averaged; the head without noise is the same with a huge epsilon.
sklearn.set_config(enable_metadata_routing=True)
weights = os.environ.get("IMAGE_WEIGHTS")
epsilons = [0.5, 1.0, 2.0, 4.0, 8.0]
scores = {q: [] for q in (0.25, 0.5, 0.95)}


def accuracy(pipeline, epsilon):
    """Mean accuracy of three releases on images that no fit has seen."""
    pipeline.set_params(head__epsilon=epsilon)
    fits = (pipeline.fit(X, y, X_public=X_public, y_public=y_public) for _ in range(3))
    return np.mean([fitted.score(X_test, y_test) for fitted in fits])


with tempfile.TemporaryDirectory() as cache:
    encoder = ImageEncoder("resnet18", weights=weights, cache_dir=cache)
    for quantile, values in scores.items():
        head = BallDPRidgePrototype(radius=RadiusPolicy(quantile))
        head.set_fit_request(X_public=True, y_public=True)
        pipeline = Pipeline([("resnet", encoder), ("head", head)], transform_input=["X_public"])
        values.extend(accuracy(pipeline, epsilon) for epsilon in epsilons)
    exact = accuracy(pipeline, 1e9)
sklearn.set_config(enable_metadata_routing=False)

# %%
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 3.8), layout="constrained", width_ratios=[1, 2]
)
tiles = np.pad(images[:4], ((0, 0), (2, 2), (2, 2)))
left.imshow(np.block([[tiles[0], tiles[1]], [tiles[2], tiles[3]]]), cmap="gray_r")
left.set_axis_off()
left.set_title("private images")
for quantile, values in scores.items():
    right.plot(epsilons, values, "o-", label=f"ball of the {quantile:g} quantile")
right.axhline(exact, color="0.5", linestyle=":", label="the same head without noise")
right.set_xscale("log", base=2)
right.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
right.set_xlabel(r"$\varepsilon$")
right.set_ylabel("accuracy on other images")
right.legend()
plt.show()
