"""
Quickstart: publish a head, and say what it hides
=================================================

Digits stand in for embeddings of private records. We train one head. Its noise hides the
replacement of one record by another of the same label within a radius, the ball. Its release says
in public numbers what is promised.
"""

# %%
# Rows have unit norm. A fifth of the records is public: it gives the radius, the
# median distance between records of one class, in the class where that is largest; and it shows
# the fit where the classes lie. Another fifth tests the head.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPLogisticRegression, RadiusPolicy

X, y = load_digits(return_X_y=True)
X, X_test, y, y_test = train_test_split(normalize(X), y, test_size=0.2, random_state=0)
X, X_public, y, y_public = train_test_split(X, y, test_size=0.25, random_state=0)
head = BallDPLogisticRegression(epsilon=4.0, radius=RadiusPolicy(0.5))
head.fit(X, y, X_public=X_public, y_public=y_public)
print(f"accuracy on other records: {head.score(X_test, y_test):.3f}")

# %%
# The release is a record of public numbers, to be published beside the parameters.
head.release_

# %%
# Left: epsilon at other distances. Right: the certificate. An attacker knows every other record,
# and ten candidates for the last one, all within that distance of one possible record. This is how
# often the attacker can at most be right.
#
# Beyond the declared radius epsilon grows with the distance: what the sums cost about in
# proportion, what the steps of the descent cost more slowly. No row is further than 1 from the zero
# record, so the right line stays as it is from there on.
release = head.release_
radii = np.linspace(0.05, 2.0, 40)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
left.plot(radii, [release.guarantee(radius).epsilon for radius in radii])
left.set_ylabel(r"guaranteed $\varepsilon$ at $\delta = 10^{-6}$")
right.plot(radii, [release.certificate(0.1, radius) for radius in radii])
right.axhline(0.1, color="0.5", linestyle=":", label="blind guess")
right.set_ylabel("certificate, ten candidates")
right.set_ylim(0, 1)
for ax in (left, right):
    ax.axvline(release.radius, color="C3", linestyle="--", label="declared radius")
left.set_xlabel("distance of the two records")
right.set_xlabel("distance from one possible record")
right.legend()
figure.suptitle("What one release promises")
plt.show()
