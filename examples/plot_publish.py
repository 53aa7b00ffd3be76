"""
Publish a model, and check it on the other side
===============================================

A folder of plain data leaves the house: the model, its record, and a card. The receiver checks that
they belong together. The owner of the records also checks that the weights carry the noise that was
promised.
"""

# %%
# A head, and what may be published of it.
import copy
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from sklearn_balldp import BallDPRidgePrototype, verify
from sklearn_balldp.publish import save

X, y = load_digits(return_X_y=True)
X = normalize(X)
head = BallDPRidgePrototype(epsilon=4.0, radius=0.5).fit(X, y)
folder = save(head, tempfile.mkdtemp() + "/model")

# %%
# On the other side nobody has the records. These lines can be checked without them:
verdict = verify(folder)
for check in verdict.checks:
    print(f"{check.verdict:<12}  {check.name}")

# %%
# A record that promises more than its noise gives does not agree with itself.
forged = shutil.copytree(folder, tempfile.mkdtemp() + "/forged")
record = (folder / "release.json").read_text()
Path(forged, "release.json").write_text(record.replace('"epsilon": 4.0', '"epsilon": 0.1'))
print(verify(forged).checks[0].found)

# %%
# The owner of the records sees more: the noise itself. ``centre`` is the class sums before noise,
# which only the owner can compute. One more model gets half of the noise, and another gets none.
# Their digests are made anew, as a forger would, so that nothing else gives them away: the noise
# alone tells, and one release is enough.
centre = np.array([X[y == c].sum(axis=0) for c in range(10)])
sums, sigma = head.statistics_.class_sums, head.statistics_.sigma_sums[:, None]
models = {"as released": head}
for name, share in {"half of the noise": 0.5, "no noise": 0.0}.items():
    models[name] = copy.deepcopy(head)
    values = (centre + share * (sums - centre)).ravel()
    released = replace(head.released_, values=values, answers=(values,))
    models[name].released_ = released.with_digest()

grid = np.linspace(-4, 4, 200)
figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    found = verify(save(model, tempfile.mkdtemp()), private=(X, y))
    noise = [check for check in found.checks if check.name == "scale of the noise"]
    print(f"{name:<18} {noise[0].verdict}  {noise[0].found}")
    deviates = (model.statistics_.class_sums - centre) / sigma
    ax.hist(deviates.ravel(), np.linspace(-4, 4, 41), density=True)
    ax.plot(grid, norm.pdf(grid), color="black")
    ax.set(title=f"{name}: {noise[0].verdict}", xlabel="sum minus its value, over noise scale")
axes[0].set(ylabel="density", ylim=(0, 1.0))
