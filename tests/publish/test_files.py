"""Files made to deceive: what no reader looks at has no place in them."""

import numpy as np
import pytest

from sklearn_balldp.publish.files import arrays_text, difference, json_text, read_arrays, read_json
from sklearn_balldp.showing import one_line

ARRAYS = {"coef_": np.arange(6.0).reshape(2, 3), "intercept_": np.array([0.5, -0.5])}
RECORD = {"epsilon": 4.0, "labels": ["a", "ü"], "counts": [1, 2], "none": None}
TEXT = json_text(RECORD)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def test_what_is_written_is_read(path):
    for arrays in (ARRAYS, {}):
        path.write_bytes(arrays_text(arrays))
        again = read_arrays(path)
        assert again.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(again[name], array)
    for text in (TEXT, TEXT.replace(b"\n", b"\r\n")):
        path.write_bytes(text)
        assert read_json(path) == RECORD


@pytest.mark.parametrize(
    "body",
    [TEXT.replace(b"4.0", b"NaN"), TEXT.replace(b"4.0", b"9" * 10_000), b"[" * 100_000],
)
def test_json_that_is_none_is_refused(path, body):
    path.write_bytes(body)
    with pytest.raises(ValueError, match=r"file(: it differs| cannot be read)"):
        read_json(path)


def test_json_holds_an_object(path):
    for value in ([], "text", 5, None):
        path.write_bytes(json_text(value))
        with pytest.raises(ValueError, match="holds no JSON object"):
            read_json(path)


def test_long_files_and_folders_are_not_read(path, monkeypatch):
    monkeypatch.setattr("sklearn_balldp.publish.files._MAX_BYTES", 100)
    monkeypatch.setattr("sklearn_balldp.publish.files._MAX_TEXT", 20)
    for text, read in ((arrays_text(ARRAYS), read_arrays), (TEXT, read_json)):
        path.write_bytes(text)
        with pytest.raises(ValueError, match="is longer than"):
            read(path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match="holds no file"):
        read_json(path)


def test_differences_are_shown_from_where_they_begin():
    assert difference("a\nb", "a\nb") == "no line differs"
    assert difference("a\nb", "a\nc") == "line 2 is 'b', expected 'c'"
    assert difference("a", "a\nb") == "line 2 is nothing, expected 'b'"
    assert difference("a\n\n", "a\n") == "behind its last line are 2 line ends, expected 1"
    long = 300 * "x"
    assert "yes" in difference(f"{long}yes", f"{long}no")
    assert "\x1b" not in difference("\x1b[2J", "")


def test_gaps_and_unseen_marks_are_shown():
    assert one_line("a" + 500 * " " + "PASS") == "a PASS"
    for char in "\u0301\u20dd\u200b\u202e\u115f\u1160\u3164\uffa0\u2800":
        assert one_line(f"a{char}b") == f"a{ascii(char)[1:-1]}b"
    assert one_line("Zoë, 한글, 名前") == "Zoë, 한글, 名前"
