"""Folders of earlier versions stay readable, and no choice of a setting refutes them.

``tests/kept`` holds a published model of each kind, with its transcript, but for the card, whose
words may change. They are never made anew: ``python tests/test_kept.py`` adds kinds that are
missing.
"""

import json
import shutil
import sys
import tempfile
import warnings
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from verdicts import line, verified
from verdicts import lines as lines_of

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    OutputPerturbation,
)
from sklearn_balldp.mechanisms import settings
from sklearn_balldp.privacy import Release, rounding
from sklearn_balldp.publish import load, save
from sklearn_balldp.publish.files import CARD, README
from sklearn_balldp.publish.model import Published

KEPT = Path(__file__).parent / "kept"
BUDGET = {"epsilon": 8.0, "delta": 1e-5, "radius": 0.4}
SMALL = BUDGET | {"epsilon": 0.5}
PROTECTED = {"protect_labels": True, "classes": [0, 1, 2]}
STEPS = GradientPerturbation(keep_transcript=True)
FEW = GradientPerturbation(n_steps=6, keep_transcript=True)
ZERO = GradientPerturbation(n_steps=6, start="zero", keep_transcript=True)
PAPER = OutputPerturbation(sensitivity="paper")

#: Heads, and whether they see two classes, owners, or public examples too.
KINDS = {
    "prototypes": (BallDPRidgePrototype(**BUDGET), ""),
    "prototypes_worst": (BallDPRidgePrototype(**BUDGET, counts="worst", decision="nearest"), ""),
    "prototypes_protected": (BallDPRidgePrototype(**BUDGET, **PROTECTED), ""),
    "prototypes_persons": (BallDPRidgePrototype(**BUDGET), "owners"),
    "discriminant": (BallDPLinearDiscriminant(**BUDGET, share=0.5, domain="sphere"), ""),
    "discriminant_protected": (BallDPLinearDiscriminant(**BUDGET, **PROTECTED), ""),
    "minimiser": (BallDPLogisticRegression(**BUDGET, mechanism="output", alpha=0.1), ""),
    "minimiser_paper": (BallDPSquaredHingeSVC(**BUDGET, alpha=0.1, mechanism=PAPER), "two"),
    "descent": (BallDPLogisticRegression(**BUDGET, mechanism=STEPS, domain="sphere"), ""),
    "descent_protected": (
        BallDPLogisticRegression(**BUDGET, **PROTECTED, mechanism=STEPS, encoder="kept v1"),
        "",
    ),
    "descent_zero": (BallDPLogisticRegression(**BUDGET, mechanism=ZERO), "two"),
    "descent_moment": (
        BallDPLogisticRegression(epsilon=300.0, delta=1e-5, radius=0.05, mechanism=FEW),
        "",
    ),
    "descent_balanced": (
        BallDPLogisticRegression(**BUDGET, mechanism=FEW, class_weight="balanced"),
        "owners",
    ),
    # Of few records with hidden labels: from the model of the examples, after the mean alone.
    "descent_examples": (BallDPLogisticRegression(**SMALL, **PROTECTED, mechanism=FEW), "examples"),
    "descent_names": (
        BallDPLogisticRegression(**SMALL, mechanism=FEW, class_embeddings=np.eye(3, 6)),
        "",
    ),
    "descent_hinge": (BallDPSquaredHingeSVC(**BUDGET, mechanism=FEW, metric="manhattan"), ""),
}


def rows_of(kind):
    """What a kind was fitted on, as ``verify`` takes it."""
    rows = dict(np.load(KEPT / "rows.npz"))
    if KINDS[kind][1] != "owners":
        del rows["groups"]
    if KINDS[kind][1] == "two":
        rows["y"] = np.minimum(rows["y"], 1)
    return rows


def verdicts(model, private=None):
    return lines_of(verified(model, private=private))


def test_every_kind_is_kept():
    assert {path.name for path in KEPT.iterdir() if path.is_dir()} == set(KINDS)
    mechanisms = {Published.read(KEPT / kind).record.mechanism for kind in KINDS}
    assert mechanisms == {"output", "gradient", "statistics", "prototypes"}
    assert Published.read(KEPT / "descent_examples").record.examples == 18


@pytest.mark.parametrize("kind", KINDS)
def test_kept_models_are_read_and_verified(kind):
    lines = verdicts(load(KEPT / kind), rows_of(kind))
    assert "FAIL" not in lines.values(), lines
    assert lines["record"] == lines["parameters"] == lines["model"] == "PASS"
    assert ("transcript" in lines) == kind.startswith("descent")
    assert lines["scale of the noise"] == lines["rows"] == "PASS"


@pytest.mark.parametrize("kind", KINDS)
def test_kept_folders_are_written_as_they_were_read(kind):
    model = Published.read(KEPT / kind)
    for name, body in model.files().items():
        assert (KEPT / kind / name).read_bytes() == body
    again = Published.of(load(KEPT / kind)).files()
    assert again["model.safetensors"] == model.files()["model.safetensors"]
    assert again["config.json"] == model.files()["config.json"]
    record = json.loads((KEPT / kind / "release.json").read_text())
    written = Release.from_dict(record).to_dict()
    assert record.keys() <= written.keys()
    assert Release.from_dict(written).to_dict() == written


#: Every tuned number, by the module that it is of.
TUNED = {
    name: module
    for module, names in ((settings, vars(settings)), (rounding, ("MOST_DIRECTIONS", "LEAST_KEPT")))
    for name in names
    if name.isupper() and type(getattr(module, name)) in (int, float)
}


@contextmanager
def changed(**factors):
    """All modules with other numbers, and the rule that then has another digest."""
    ours = [module for name, module in sys.modules.items() if name.startswith("sklearn_balldp.")]
    with ExitStack() as stack:

        def put(name, value, other):
            for module in ours:
                if vars(module).get(name) == value:
                    stack.enter_context(patch.object(module, name, other))

        for name, factor in factors.items():
            value = getattr(TUNED[name], name)
            put(name, value, round(2.5 * factor * value) if type(value) is int else factor * value)
        put("TUNING", settings.TUNING, settings._tuning())
        yield


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The kept models as they were saved, with their cards."""
    place = tmp_path_factory.mktemp("kept")
    kept = {kind: load(KEPT / kind) for kind in KINDS}
    return {
        kind: save(model, place / kind, transcript=kind.startswith("descent"))
        for kind, model in kept.items()
    }


def test_the_tuned_numbers_are_found():
    assert len(TUNED) > 20
    assert {"CLIP", "LEAST_REACH", "WITHIN_CLASS_FLOOR", "LEAST_KEPT"} <= TUNED.keys()


#: Half of the numbers grow and the others fall: each does both, and of any two one by itself.
HALVES = [
    {name: 0.8 if (number >> bit) % 2 == low else 2.5 for number, name in enumerate(TUNED)}
    for bit in range(len(TUNED).bit_length())
    for low in (0, 1)
]


@pytest.mark.parametrize(
    "factors",
    [
        *HALVES,
        # So that the maps of these models are other ones.
        *({"LEAST_KEPT": 0.8}, {"LEAST_KEPT": 2.85}, {"MOST_DIRECTIONS": 0.00625}),
    ],
)
def test_no_number_refutes_what_was_released(factors, folders):
    """An improved default must not turn published models into forgeries."""
    for kind, folder in folders.items():
        with changed(**factors):
            lines = verdicts(folder)
        assert set(lines.values()) <= {"PASS", "CANNOT CHECK", "STATED", "WEAK"}, (kind, lines)


def test_all_numbers_together_refute_nothing_for_the_owner(folders):
    for kind, folder in folders.items():
        before = verdicts(folder, rows_of(kind))
        with changed(**dict.fromkeys(TUNED, 0.8)):
            lines = verdicts(folder, rows_of(kind))
        assert "FAIL" not in lines.values(), (kind, lines)
        model = Published.read(folder)
        sums = model.record.mechanism in ("prototypes", "statistics")
        assert ("weights" in lines) == (sums and hasattr(model.head(), "predict_proba"))
        for name in before.keys() & lines.keys() - {"transcript"}:
            assert lines[name] == before[name]


def test_another_rule_cannot_be_replayed_and_the_version_to_ask_is_named(folders):
    model = folders["descent_moment"]
    assert verdicts(model)["transcript"] == "PASS"
    with changed(WHITENING=0.8):
        told = line(verified(model), "transcript")
    assert told.verdict == "CANNOT CHECK"
    assert verified(model).release.version in told.found


def make():
    """Add kinds that are missing. What is there stays: it was made by the version it names."""
    KEPT.mkdir(exist_ok=True)
    if not (KEPT / "rows.npz").exists():
        rng = np.random.default_rng(0)
        y = np.arange(240) % 3
        X = 0.3 * rng.standard_normal((240, 6)) + np.eye(3, 6)[y]
        X = (X / np.maximum(1.0, np.linalg.norm(X, axis=1))[:, None]).astype(np.float32)
        np.savez_compressed(KEPT / "rows.npz", X=X, y=y, groups=np.arange(240) // 6)
    for kind, (head, sees) in KINDS.items():
        if not (KEPT / kind).exists():
            rows, public = rows_of(kind), {}
            if sees == "examples":
                X, y = rows["X"][:18], rows["y"][:18]
                public = {"X_public": (X + np.roll(X, 3, axis=1)) / 2, "y_public": y}
            head = head.fit(**rows, **public)
            with tempfile.TemporaryDirectory() as place:
                kept = kind.startswith("descent")
                folder = save(head, Path(place) / kind, transcript=kept)
                (folder / README).unlink()
                (folder / CARD).unlink()
                shutil.copytree(folder, KEPT / kind)


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sys.exit(make())
