"""Files whose container, not their model, was made to deceive: what no reader looks at is empty."""

import json
import re
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
import skops.io
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from sklearn_balldp import BallDPLogisticRegression, BallDPRidgePrototype, GradientPerturbation
from sklearn_balldp.publish import load
from sklearn_balldp.publish.files import load_model, load_transcript
from sklearn_balldp.publish.tree import array_of, tree_of
from sklearn_balldp.text import one_line

ROWS = "0123456789abcdef" * 20


def data():
    y = np.arange(60) % 3
    X = np.eye(3, 5)[y] + 0.1 * np.random.default_rng(0).standard_normal((60, 5))
    return X / np.linalg.norm(X, axis=1, keepdims=True), y


def prototypes():
    return BallDPRidgePrototype(epsilon=4.0, radius=0.5)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("honest") / "m.skops"
    skops.io.dump(prototypes().fit(*data()), path)
    return path


def schema_of(source):
    return json.loads(zipfile.ZipFile(source).read("schema.json"))


def written(source, target, text=None, info=zipfile.ZipInfo, method=zipfile.ZIP_DEFLATED):
    """The file with another text of its description, or members listed otherwise."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            body = text.encode() if name == "schema.json" and text else old.read(name)
            new.writestr(info(name), body, compress_type=method)
    return target


def array_file(kind, body, length):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': ({length},), }}".ljust(117)
    return b"\x93NUMPY\1\0" + struct.pack("<H", 118) + header.encode() + b"\n" + body


def peak(act):
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_honest_file_is_read(source, tmp_path, method):
    skops.io.dump(prototypes().fit(*data()), tmp_path / "m.skops", compression=method)
    assert load(tmp_path / "m.skops").classes_.tolist() == [0, 1, 2]
    assert load(written(source, tmp_path / "n.skops", method=method))


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_honest_transcript_is_read(tmp_path, save):
    steps = GradientPerturbation(n_steps=4, keep_transcript=True)
    head = BallDPLogisticRegression(30.0, radius=0.2, mechanism=steps).fit(*data())
    save(tmp_path / "t.npz", **vars(head.transcript_))
    read = load_transcript(tmp_path / "t.npz")
    np.testing.assert_array_equal(read.gradients, head.transcript_.gradients)


def test_a_step_that_nobody_reads_is_told_apart(tmp_path):
    """A lambda has no name in Python's grammar, but in skops' files."""
    lasting = FunctionTransformer(np.abs, validate=True)
    skops.io.dump(
        Pipeline([("a", lasting), ("h", prototypes())]).fit(*data()), tmp_path / "m.skops"
    )
    with pytest.raises(ValueError, match="the step a is not made"):
        load(tmp_path / "m.skops")


# Sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", [50 * 10**6, 0])
def test_a_size_that_lies_costs_no_memory(source, tmp_path, zeros):
    """Of a stream that goes on beyond the size that is stated, and of bytes after its end."""
    path, small = tmp_path / "lie.skops", zipfile.ZipFile(source).read("schema.json")
    deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
    body = deflate.compress(small) + deflate.compress(bytes(zeros)) + deflate.flush()
    body += b"" if zeros else ROWS.encode()
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, body if name == "schema.json" else old.read(name))
        place = new.getinfo("schema.json").header_offset
    raw = bytearray(path.read_bytes())
    listed = raw.rfind(b"PK\1\2")
    for start in (place + 8, listed + 10):
        struct.pack_into("<H", raw, start, zipfile.ZIP_DEFLATED)
        struct.pack_into("<3L", raw, start + 6, zlib.crc32(small), len(body), len(small))
    path.write_bytes(raw)

    def read():
        with pytest.raises(ValueError, match=r"schema\.json is not of the size or sum stated"):
            load_model(path)

    assert peak(read) < 5 * 10**6


def test_a_sum_that_differs(source, tmp_path):
    path = written(source, tmp_path / "m.skops", method=zipfile.ZIP_STORED)
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"ridge_prototype", b"ridge_prototypf", 1))
    with pytest.raises(ValueError, match="not of the size or sum stated"):
        load_model(path)


def test_an_absolute_cap(source, tmp_path, monkeypatch):
    monkeypatch.setattr("sklearn_balldp.publish.files._MOST_IN_ALL", 20_000)
    with pytest.raises(ValueError, match="would unpack to"):
        load_model(written(source, tmp_path / "m.skops"))


def test_an_array_named_many_times_is_held_once(tmp_path):
    n_steps, size = 12, 4 * 10**6
    steps = [(f"s{i}", StandardScaler()) for i in range(n_steps)]
    path = tmp_path / "m.skops"
    skops.io.dump(Pipeline([*steps, ("h", prototypes())]).fit(*data()), path)
    schema = schema_of(path)
    for step in schema["content"]["content"]["steps"]["content"][:-1]:
        held = step["content"][1]["content"]["content"]
        for name in ("mean_", "var_", "scale_"):
            held[name]["file"] = "big.npy"
    with zipfile.ZipFile(path) as old:
        own = set(re.findall(r"[0-9]+\.npy", json.dumps(schema)))
        kept = {name: old.read(name) for name in own}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr("big.npy", array_file("<f8", bytes(size), size // 8))
        for name, body in kept.items():
            new.writestr(name, body)
        new.writestr("schema.json", json.dumps(schema))

    def refused():
        with pytest.raises(ValueError, match=r"s0\.mean_"):
            load(path)

    assert peak(refused) < 3 * size


def test_arrays_in_memory_are_copied_unless_read_only():
    array = np.arange(3.0)
    assert tree_of(array) is not array
    array.flags.writeable = False
    assert tree_of(array) is array


# What no reader looks at ------------------------------------------------------------------------


def at_the_top(schema):
    schema["rows"] = ROWS


def in_a_node(schema):
    schema["content"]["content"]["epsilon"]["rows"] = ROWS


def in_key_types(schema):
    schema["content"]["key_types"]["content"][0]["rows"] = ROWS


def as_a_key(schema):
    held = schema["content"]["content"]
    schema["content"]["key_types"]["content"][0]["__class__"] = "int"
    schema["content"]["content"] = {ROWS + "x": None, **dict(list(held.items())[1:])}


def as_a_type_of_array(schema):
    schema["content"]["content"]["prototypes_"]["type"] = ROWS


def as_the_module_of_a_key(schema):
    schema["content"]["key_types"]["content"][0]["__module__"] = "abcdef"


def as_digits_of_a_key(schema):
    held = schema["content"]["content"]
    kinds = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode"}
    kind = {"__class__": "float", "__module__": "builtins", "__loader__": "TypeNode"}
    held["class_weight"] = {"__class__": "dict", "__module__": "builtins", "__loader__": "DictNode"}
    held["class_weight"]["key_types"] = {**kinds, "content": [kind]}
    held["class_weight"]["content"] = {"0.50000000000000000000123": held["epsilon"]}
    names = schema["content"]["key_types"]["content"]
    names.extend(names[:1] * (len(held) - len(names)))


def as_a_class(schema):
    schema["content"]["content"]["epsilon"]["__class__"] = ROWS


def as_a_class_of_a_short_name(schema):
    schema["content"]["content"]["epsilon"]["__class__"] = "abcdef"


def as_a_module(schema):
    schema["content"]["content"]["epsilon"]["__module__"] = ".".join("a" * 60)


def as_an_id(schema):
    schema["content"]["content"]["epsilon"]["__id__"] = 2**64


def as_a_version(schema):
    schema["_skops_version"] = ROWS


def as_digits(schema):
    schema["content"]["content"]["epsilon"]["content"] = "4.0000000000000000000123456789"


def as_spaces(schema):
    schema["content"]["content"]["epsilon"]["content"] = "4.0 \t \t"


def beside_an_array(schema):
    schema["content"]["content"]["prototypes_"]["shape"] = ROWS


def as_a_file(schema):
    schema["content"]["content"]["prototypes_"]["file"] = "../" + ROWS


@pytest.mark.parametrize(
    ("hide", "said"),
    [
        (at_the_top, "holds 'rows' as well"),
        (in_a_node, "holds 'rows' as well"),
        (in_key_types, "a key of its schema"),
        (as_a_key, "a key of its schema"),
        (as_a_type_of_array, "more than its values"),
        (as_the_module_of_a_key, "a key of its schema"),
        (as_digits_of_a_key, "a key of its schema"),
        (as_a_class, "__class__ of a node"),
        (as_a_class_of_a_short_name, "not written as skops does"),
        (as_a_module, "__module__ of a node"),
        (as_an_id, "__id__ of a node"),
        (as_a_version, "no version of skops"),
        (as_digits, "not written as skops does"),
        (as_spaces, "not written as skops does"),
        (beside_an_array, "more than its values"),
        (as_a_file, "a file of an odd name"),
    ],
)
def test_a_description_says_no_more_than_skops_writes(source, tmp_path, hide, said):
    schema = schema_of(source)
    hide(schema)
    with pytest.raises(ValueError, match=said) as error:
        load_model(written(source, tmp_path / "m.skops", json.dumps(schema)))
    assert ROWS[:20] not in str(error.value)


def test_a_node_that_nobody_reads_is_a_fault(tmp_path):
    """Its loader is another, so that a step looks like one without attributes."""
    path = tmp_path / "m.skops"
    skops.io.dump(Pipeline([("a", StandardScaler()), ("h", prototypes())]).fit(*data()), path)
    schema = schema_of(path)
    step = schema["content"]["content"]["steps"]["content"][0]["content"][1]
    step.update(__loader__="RandomStateNode", content=ROWS)
    with pytest.raises(ValueError, match=r"holds a\.unread") as error:
        load(written(path, tmp_path / "n.skops", json.dumps(schema)))
    assert ROWS[:20] not in str(error.value)


def test_spellings_of_a_description(source, tmp_path):
    """A key given twice, or a space more, could hold anything."""
    text = json.dumps(schema_of(source))
    for forged in (f'{{"protocol": "{ROWS}",{text[1:]}', text.replace(": ", ":  ", 1), f"{text} "):
        with pytest.raises(ValueError, match="not written as skops does"):
            load_model(written(source, tmp_path / "m.skops", forged))


def with_a_comment(name):
    info = zipfile.ZipInfo(name)
    info.comment = ROWS.encode()
    return info


def with_an_extra(name):
    info = zipfile.ZipInfo(name)
    info.extra = struct.pack("<2H", 0x9999, len(ROWS)) + ROWS.encode()
    return info


def with_attributes(name):
    info = zipfile.ZipInfo(name)
    info.external_attr = 0x12345678
    return info


@pytest.mark.parametrize(
    ("info", "said"),
    [
        (with_a_comment, "a comment or an extra field"),
        (with_an_extra, "a comment or an extra field"),
        (with_attributes, "none that zipfile writes"),
    ],
)
def test_members_say_no_more_than_zipfile_writes(source, tmp_path, info, said):
    with pytest.raises(ValueError, match=said):
        load_model(written(source, tmp_path / "m.skops", info=info))


def before(raw):
    return ROWS.encode() + raw


def after(raw):
    return raw + ROWS.encode()


def commented(raw):
    return raw[:-2] + struct.pack("<H", len(ROWS)) + ROWS.encode()


def between(raw):
    """Bytes before the list of members, which tells where it begins."""
    listed = struct.unpack("<L", raw[-6:-2])[0]
    end = raw[-22:-6] + struct.pack("<L", listed + len(ROWS)) + raw[-2:]
    return raw[:listed] + ROWS.encode() + raw[listed:-22] + end


def in_a_local_header(raw):
    """The date of a member, which only the list of members is asked for."""
    return raw[:10] + b"\1\2\3\4" + raw[14:]


@pytest.mark.parametrize(
    ("hide", "said"),
    [
        (before, "bytes outside its members"),
        (after, "does not end as a short zip file"),
        (commented, "does not end as a short zip file"),
        (between, "bytes outside its members"),
        (in_a_local_header, "listed otherwise than it is stored"),
    ],
)
def test_members_fill_the_file(source, tmp_path, hide, said):
    (tmp_path / "m.skops").write_bytes(hide(source.read_bytes()))
    with pytest.raises(ValueError, match=said):
        load_model(tmp_path / "m.skops")


# Texts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [0x110000, 0xFFFFFFFF, 0xD800, 0xDFFF])
def test_an_array_of_what_is_no_character(code):
    for honest in (0x10FFFF, 0xD7FF, 0xE000):
        text = array_file("<U2", struct.pack("<2L", 0x61, honest), 1)
        assert array_of(text).tolist() == [f"a{chr(honest)}"]
    with pytest.raises(ValueError, match="no character"):
        array_of(array_file("<U2", struct.pack("<2L", 0x61, code), 1))


def test_arrays_of_a_file_are_aligned_and_read_only():
    body = array_file("<f8", np.arange(3.0).tobytes(), 3)
    odd = body[:8] + struct.pack("<H", 119) + body[10:127] + b" \n" + body[128:]
    for file in (body, odd):
        array = array_of(file)
        assert array.tolist() == [0.0, 1.0, 2.0]
        assert array.flags.aligned
        assert not array.flags.writeable


def test_gaps_and_unseen_marks_are_shown():
    assert one_line("a" + 500 * " " + "PASS") == "a PASS"
    for char in "\u0301\u20dd\u200b\u202e\u115f\u1160\u3164\uffa0\u2800":
        assert one_line(f"a{char}b") == f"a{ascii(char)[1:-1]}b"
    assert one_line("Zoë, 한글, 名前") == "Zoë, 한글, 名前"
