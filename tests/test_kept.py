"""Records and models of earlier versions stay readable, and no choice of a setting refutes them.

``tests/kept`` holds a model, its record and, for noise on gradients, its transcript of each kind of
release. They are never made anew: ``python tests/test_kept.py`` adds the kinds that are missing.
"""

import importlib
import json
import pkgutil
import re
import sys
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch
from zipfile import ZIP_DEFLATED

import numpy as np
import pytest

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
    RadiusPolicy,
    heads,
    verify,
)
from sklearn_balldp.heads import (
    discriminant_rule,
    initialisation,
    prototype_rule,
    settings,
    whitening,
)
from sklearn_balldp.privacy import Release
from sklearn_balldp.publish.files import load_model

KEPT = Path(__file__).parent / "kept"
BUDGET = {"epsilon": 8.0, "delta": 1e-5, "radius": 0.4}
PROTECTED = {"protect_labels": True, "classes": [0, 1, 2]}
STEPS = GradientPerturbation(keep_transcript=True)
FEW = GradientPerturbation(n_steps=6, keep_transcript=True)

#: Heads, and whether they see two classes, or owners.
KINDS = {
    "prototypes": (BallDPRidgePrototype(**BUDGET), ""),
    "prototypes_worst": (BallDPRidgePrototype(**BUDGET, counts="worst", decision="nearest"), ""),
    "prototypes_protected": (BallDPRidgePrototype(**BUDGET, **PROTECTED), ""),
    "prototypes_persons": (BallDPRidgePrototype(**BUDGET), "owners"),
    "prototypes_private_radius": (
        BallDPRidgePrototype(8.0, 1e-5, RadiusPolicy(source="private", epsilon=1.0)),
        "",
    ),
    "discriminant": (BallDPLinearDiscriminant(**BUDGET, share=0.5, domain="sphere"), ""),
    "discriminant_protected": (BallDPLinearDiscriminant(**BUDGET, **PROTECTED), ""),
    "minimiser": (BallDPLogisticRegression(**BUDGET, mechanism="output", alpha=0.1), ""),
    "minimiser_paper": (
        BallDPSquaredHingeSVC(
            **BUDGET, alpha=0.1, mechanism=OutputPerturbation(sensitivity="paper")
        ),
        "two",
    ),
    "descent": (BallDPLogisticRegression(**BUDGET, mechanism=STEPS, domain="sphere"), ""),
    "descent_protected": (
        BallDPLogisticRegression(**BUDGET, **PROTECTED, mechanism=STEPS, encoder="kept v1"),
        "",
    ),
    "descent_zero": (
        BallDPLogisticRegression(
            **BUDGET, mechanism=GradientPerturbation(start="zero", keep_transcript=True)
        ),
        "two",
    ),
    "descent_moment": (
        BallDPLogisticRegression(epsilon=300.0, delta=1e-5, radius=0.05, mechanism=FEW),
        "",
    ),
    "descent_balanced": (
        BallDPLogisticRegression(**BUDGET, mechanism=FEW, class_weight="balanced"),
        "owners",
    ),
    "descent_hinge": (BallDPSquaredHingeSVC(**BUDGET, mechanism=STEPS, metric="manhattan"), ""),
}


def rows_of(kind):
    """What a kind was fitted on, as ``verify`` takes it."""
    rows = dict(np.load(KEPT / "rows.npz"))
    if KINDS[kind][1] != "owners":
        del rows["groups"]
    if KINDS[kind][1] == "two":
        rows["y"] = np.minimum(rows["y"], 1)
    return rows


def files_of(kind):
    found = {"release": KEPT / f"{kind}.json", "private": rows_of(kind)}
    if (KEPT / f"{kind}.npz").exists():
        found["transcript"] = KEPT / f"{kind}.npz"
    return found


def test_every_kind_is_kept():
    assert {path.stem for path in KEPT.glob("*.json")} == set(KINDS)
    mechanisms = {json.loads((KEPT / f"{kind}.json").read_text())["mechanism"] for kind in KINDS}
    assert mechanisms == {"output", "gradient", "statistics"}


@pytest.mark.parametrize("kind", KINDS)
def test_kept_models_are_read_and_verified(kind):
    lines = verdicts(KEPT / f"{kind}.skops", kind)
    assert "FAIL" not in lines.values(), lines
    assert lines["record"] == lines["parameters"] == "PASS"
    assert lines["scale of the noise"] == lines["rows"] == "PASS"


@pytest.mark.parametrize("kind", KINDS)
def test_kept_records_are_written_as_they_were_read(kind):
    record = json.loads((KEPT / f"{kind}.json").read_text())
    written = Release.from_dict(record).to_dict()
    assert record.keys() <= written.keys()
    assert Release.from_dict(written).to_dict() == written


MODULES = [
    importlib.import_module(f"{heads.__name__}.{info.name}")
    for info in pkgutil.iter_modules(heads.__path__)
]


def tuned():
    """Numbers of the modules of heads, by name."""
    return {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if type(value) in (int, float) and re.fullmatch(r"_?[A-Z][A-Z0-9_]*", name)
    }


@contextmanager
def changed(*names):
    """Every module of heads with other numbers, and the rule that then has another digest."""
    with ExitStack() as stack:
        for name in names:
            value = tuned()[name]
            other = 2 * value if isinstance(value, int) else 0.8 * value
            for module in MODULES:
                if vars(module).get(name) == value:
                    stack.enter_context(patch.object(module, name, other))
        rule = settings._rule()
        for module in MODULES:
            if hasattr(module, "RULE"):
                stack.enter_context(patch.object(module, "RULE", rule))
        yield


def numbers_of_the_rule():
    """Numbers that the modules of the rule know, wherever they are defined."""
    known = (settings, discriminant_rule, prototype_rule, whitening, initialisation)
    return sorted({name for module in known for name in vars(module)} & set(tuned()))


@pytest.mark.parametrize("name", numbers_of_the_rule())
def test_the_digest_of_the_rule_moves_with_each_of_its_numbers(name):
    """Otherwise a record of another number would be refuted, where it cannot be checked."""
    rule = settings.RULE
    with changed(name):
        assert settings._rule() != rule


def verdicts(model, kind):
    return {check.name: check.verdict for check in verify(model, **files_of(kind)).checks}


@pytest.fixture(scope="module")
def loaded():
    """What the files of models hold, which are read once."""
    return {kind: load_model(KEPT / f"{kind}.skops")[0] for kind in KINDS}


@pytest.mark.parametrize("of_the_rule", [False, True])
def test_no_number_of_the_heads_refutes_what_was_released(of_the_rule, loaded):
    """An improved default must not turn published models into forgeries.

    All numbers change at once. Each line says what it said, so no change hides that of another.
    """
    names = [name for name in tuned() if hasattr(settings, name) == of_the_rule]
    assert len(names) > 20
    for kind, model in loaded.items():
        expected = verdicts(model, kind)
        with changed(*names):
            found = verdicts(model, kind)
        if of_the_rule and kind.startswith("discriminant"):
            # Its line on weights appears, and might hide another: one number at a time as well.
            expected["weights"] = "CANNOT CHECK"
            for name in names:
                with changed(name):
                    assert "FAIL" not in verdicts(model, kind).values(), f"{kind}, {name}"
        if of_the_rule and "start of the steps" in expected:
            expected["start of the steps"] = "CANNOT CHECK"
        assert found == expected, kind


def test_another_rule_cannot_be_replayed_and_the_version_to_ask_is_named():
    # A new model: the rule of kept ones may be an earlier one.
    model = KINDS["descent"][0].fit(**rows_of("descent"))

    def line():
        checks = verify(model, model.release_, private=rows_of("descent")).checks
        return next(check for check in checks if check.name == "start of the steps")

    assert line().verdict == "PASS"
    with changed("LEAST_REACH"):
        found = line()
    assert found.verdict == "CANNOT CHECK"
    assert model.release_.version in found.found


def make():
    """Add kinds that are missing. What is there stays: it was made by the version it names."""
    import skops.io

    KEPT.mkdir(exist_ok=True)
    if not (KEPT / "rows.npz").exists():
        rng = np.random.default_rng(0)
        y = np.arange(240) % 3
        X = 0.3 * rng.standard_normal((240, 6)) + np.eye(3, 6)[y]
        X = (X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]).astype(np.float32)
        np.savez_compressed(KEPT / "rows.npz", X=X, y=y, groups=np.arange(240) // 6)
    for kind, (head, _) in KINDS.items():
        if (KEPT / f"{kind}.json").exists():
            continue
        head = head.fit(**rows_of(kind))
        if hasattr(head, "transcript_"):
            np.savez_compressed(KEPT / f"{kind}.npz", **vars(head.transcript_))
            del head.transcript_
        skops.io.dump(head, KEPT / f"{kind}.skops", compression=ZIP_DEFLATED)
        (KEPT / f"{kind}.json").write_text(json.dumps(head.release_.to_dict(), indent=1))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.exit(make())
