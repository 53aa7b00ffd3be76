"""Labels: whatever a fit takes, a folder holds; what none holds is refused before the charge."""

import numpy as np
import pandas as pd
import pytest
from verdicts import failed

from sklearn_balldp import BallDPRidgePrototype, PrivacyAccountant, verify
from sklearn_balldp.labels import fault_of
from sklearn_balldp.publish import load, save

CODES = np.arange(60) % 2
X = np.eye(2, 3)[CODES] + 0.1 * np.random.default_rng(0).standard_normal((60, 3))
LARGE = 2**53 + CODES
DAYS = np.array(["2024-01-01", "2024-01-02"], dtype="datetime64[ns]")


def series(values, dtype):
    return pd.Series(values).astype(dtype)


TAKEN = {
    "big-endian numbers": (CODES.astype(">i4"), "int32"),
    "big-endian floats": (CODES.astype(">f8"), "float64"),
    "big-endian texts": (np.array(["a", "b"])[CODES].astype(">U1"), "text"),
    "big-endian days": (DAYS[CODES].astype(">M8[ns]"), "datetime64[ns]"),
    "nullable numbers": (series(LARGE, "Int64"), "int64"),
    "small nullable numbers": (series(CODES, "UInt8"), "uint8"),
    "a column of nullable numbers": (series(LARGE, "Int64").to_frame(), "int64"),
    "numbers of Arrow": (series(LARGE, "int64[pyarrow]"), "int64"),
    "nullable truth values": (series(CODES == 1, "boolean"), "bool"),
    "truth values of Arrow": (series(CODES == 1, "bool[pyarrow]"), "bool"),
    "unsigned numbers": (np.uint64(2**63) + CODES.astype(np.uint64), "uint64"),
    "texts of NumPy": (np.array(["a", "b"])[CODES].astype(np.dtypes.StringDType()), "text"),
    "texts of Arrow": (series(np.array(["a", "b"])[CODES], "string[pyarrow]"), "text"),
    "categories": (series(np.array(["a", "b"])[CODES], "category"), "text"),
    "long names": (np.array(["a" * 1000, "b"])[CODES], "text"),
}


@pytest.mark.filterwarnings("ignore:A column-vector")
@pytest.mark.parametrize("name", TAKEN)
def test_what_a_fit_takes_is_saved_as_it_was(name, tmp_path):
    y, kind = TAKEN[name]
    head = BallDPRidgePrototype(40.0, radius=0.5).fit(X, y)
    folder = save(head, tmp_path / "model")
    again = load(folder)
    assert f'"type": "{kind}"' in (folder / "config.json").read_text()
    assert len(head.classes_) == 2
    np.testing.assert_array_equal(again.classes_, head.classes_)
    assert again.classes_.dtype.isnative
    assert again.predict(X).tolist() == head.predict(X).tolist()
    assert not failed(verify(folder, private=(X, y)))
    classes = head.classes_.astype(">i8") if head.classes_.dtype.kind == "i" else head.classes_
    declared = BallDPRidgePrototype(40.0, classes=classes, radius=0.5).fit(X, y)
    assert declared.classes_.tolist() == head.classes_.tolist()


REFUSED = {
    "durations": (series(CODES, int).map(lambda d: pd.Timedelta(days=d)), r"timedelta.*astype"),
    "surrogates": ([["a\ud800", "b"][code] for code in CODES], "lone surrogates"),
    "1,001 letters": (np.array(["a" * 1001, "b"])[CODES], "more than 1000 characters"),
    "a NUL at the end": (np.array(["a\0", "b"], dtype=object)[CODES], "end in NUL"),
    "bytes": (np.array([b"a", b"b"])[CODES], r"string|astype"),
    "steps of 25 seconds": (DAYS[CODES].astype("datetime64[25s]"), r"astype\(str\)"),
}

if np.dtype(np.longdouble) != np.float64:  # which some processors have no others than
    REFUSED["long doubles"] = CODES.astype(np.longdouble), r"astype\(str\)"


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_folder_holds_is_refused_before_the_charge(name):
    y, said = REFUSED[name]
    accountant = PrivacyAccountant(radius=0.5)
    head = BallDPRidgePrototype(4.0, radius=0.5, accountant=accountant)
    with pytest.raises((TypeError, ValueError), match=said) as caught:
        head.fit(X, y)
    assert accountant.total().n_releases == 0
    assert not hasattr(head, "classes_")
    assert "aaaa" not in str(caught.value)


def test_days_of_any_unit_come_back():
    for unit in ("Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns"):
        assert fault_of(np.unique(DAYS.astype(f"datetime64[{unit}]"))) is None, unit
