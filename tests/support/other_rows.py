"""One row is replaced by any other: what must stay the same, bit for bit, of all other rows."""

import numpy as np

#: Layouts of one array in memory.
LAYOUTS = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "strided": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "reversed": lambda a: np.ascontiguousarray(a[:, ::-1])[:, ::-1],
}
# Powers of ten, within what a domain admits in each precision.
_SIZES = {
    np.float16: (-7, -4, 4),
    np.float32: (-45, -40, -25, -18, -15, 5, 14, 17, 19, 30, 38),
    np.float64: (-99, -80, -30, 5, 30, 100, 120, 139),
}


def strangers(row):
    """Rows in the place of this one: zeros, and rows of all sizes that its precision holds."""
    dtype, one = row.dtype.type, np.zeros(len(row), dtype=row.dtype)
    one[len(row) // 2] = -1.0
    found = [0.0 * row, -0.0 * row, -row, 3 * row, 0.2 * row, one]
    with np.errstate(all="ignore"):
        for power in _SIZES[dtype]:
            # In double precision first: a power alone may lie outside of a lower one.
            found += [
                (values.astype(np.float64) * 10.0**power).astype(dtype) for values in (row, one)
            ]
    peaks = [float(np.abs(other).max()) for other in found]
    return [
        other
        for other, peak in zip(found, peaks, strict=True)
        if peak == 0.0 or 1e-100 <= peak <= 1e140
    ]


def of_many_sizes(X, seed=0):
    """The same rows, one in four of which is any of its strangers."""
    rng, X = np.random.default_rng(seed), X.copy()
    for place in rng.choice(len(X), len(X) // 4, replace=False):
        X[place] = rng.choice(strangers(X[place]))
    return X


def assert_others_stay(function, X, places, layout="C"):
    """Whatever stands at these places, the others' results are equal: arrays, one row for each."""
    made = LAYOUTS[layout]
    expected = function(made(X))
    for place in places:
        for other in strangers(X[place]):
            changed = X.copy()
            changed[place] = other
            for name, values in function(made(changed)).items():
                found, before = (np.delete(v, place, axis=0) for v in (values, expected[name]))
                assert found.dtype == before.dtype
                # Bits, so that zeros of either sign differ.
                same = found.tobytes() == before.tobytes()
                assert same, f"{name}: rows beside {place} moved, for {np.abs(other).max():g}"
