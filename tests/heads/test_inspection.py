"""What audits, checks and publishers ask of a head, and that they ask by public names."""

import ast
from pathlib import Path

import numpy as np
import pytest
from head_cases import head_of, owners, rows

import sklearn_balldp
from sklearn_balldp.heads.inspection import fit_with_answers, records_of

ROOT = Path(sklearn_balldp.__file__).parent
TOUCH = {"getattr", "hasattr", "setattr", "delattr"}


def is_private(name):
    return name.startswith("_") and not name.startswith("__")


def reaches(code):
    """Underscore members of objects that are not the module's own, however they are named."""
    tree, found = ast.parse(code), set()
    own = {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    own |= {
        n.target.id
        for n in ast.walk(tree)
        if isinstance(n, ast.AnnAssign)
        if "id" in vars(n.target)
    }
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls"):
            names = [node.attr]
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in TOUCH:
            names = [a.value for a in node.args if isinstance(getattr(a, "value", None), str)]
        found |= {(node.lineno, name) for name in names if is_private(name) and name not in own}
    return sorted(found)


@pytest.mark.parametrize(
    ("code", "n"),
    [
        ("head._records(X, y)", 1),
        ("type(head)._get_param_names()", 1),
        ("prepare().head._noise()", 1),
        ("getattr(head, '_noise')", 1),
        ("from ..heads.base import _no_rows", 1),
        ("self._check(); cls._make(); super().__init__()", 0),
        ("def _check(one): ...\nother._check()", 0),
        ("from .._parameters import is_real", 0),
    ],
)
def test_reaches_are_found(code, n):
    assert len(reaches(code)) == n


def test_audits_and_publishers_speak_to_heads_through_public_names():
    files = [path for room in ("audit", "publish") for path in sorted((ROOT / room).glob("*.py"))]
    found = {path.name: reaches(path.read_text()) for path in files}
    assert len(files) > 15
    assert sum(map(len, found.values())) <= 2, {k: v for k, v in found.items() if v}


@pytest.mark.parametrize(
    ("name", "params", "weighted"),
    [
        ("prototypes", {}, True),
        ("descent", {"class_weight": "balanced"}, False),
        ("discriminant", {"protect_labels": True, "classes": [0, 1, 2]}, False),
    ],
)
def test_records_are_those_of_the_fit(name, params, weighted):
    X, y = rows()
    given = {"groups": owners(y)} if weighted else {}
    head = head_of(name, delta=1e-4, **params).fit(X, y, **given)
    records = records_of(head, X, y, **given)
    np.testing.assert_array_equal(records.X, X)
    np.testing.assert_array_equal(head.classes_[records.codes], y)
    assert (records.weights is not None) == weighted
    for n in (299, 301):
        some = np.arange(n) % 300
        with pytest.raises(ValueError, match=rf"X has {n} records, .* fitted on 300: pass all"):
            records_of(head, X[some], y[some], **given)
    with pytest.raises(ValueError, match="labels that the released model does not know"):
        records_of(head, X, y + 1, **given)
    if not head.protect_labels:
        with pytest.raises(ValueError, match="y contradicts the public class counts"):
            records_of(head, X, np.r_[y[:-1], 0], **given)
    others = {} if weighted else {"groups": owners(y)}
    with pytest.raises(ValueError, match="groups: they are not those of the fit"):
        records_of(head, X, y, **others)


@pytest.mark.parametrize("name", ["descent", "prototypes"])
def test_a_fit_with_answers_is_a_fit(name):
    """The head keeps what a fit of its own keeps, and nothing after an error."""
    (X, y), descends = rows(), name == "descent"
    head = head_of(name, **({"mechanism__keep_transcript": False} if descends else {}))
    released = fit_with_answers(head, X, y)
    assert len(released.answers) > descends
    assert head.released_.answers == (() if descends else released.answers)
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit_with_answers(head, np.where(X[3, 4] == X, np.nan, X), y)
    assert not set(vars(head)) - set(head.get_params(deep=False))
