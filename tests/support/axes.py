"""Rows around the axes, as a table."""

import numpy as np
import pandas as pd


def frame(n=400, d=5, seed=0):
    """Rows around three means, their labels and owners."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    X = rng.standard_normal((n, d)) * 0.3 + 2.0 * np.eye(3, d)[y]
    columns = {f"e{i}": X[:, i] for i in range(d)}
    labels = np.array(["red", "green", "blue"])[y]
    return pd.DataFrame({**columns, "label": labels, "owner": rng.integers(n // 2, size=n)})
