"""Power and false alarms of the noise tests, and forgeries, on scikit-learn's bundled digits."""

import contextlib
import copy
import itertools
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from unittest import mock

import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

from benchmarks.study import ORIGIN, Study, show
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    verify,
)
from sklearn_balldp.audit import noise_tests
from sklearn_balldp.audit.noise_tests import Deviates, deviates_of, noise_checks, weight_checks
from sklearn_balldp.heads.inspection import records_of
from sklearn_balldp.privacy import Noise, Release
from sklearn_balldp.privacy.digest import record_digest
from sklearn_balldp.privacy.noise import EXACT_SAMPLER
from sklearn_balldp.publish.model import Published
from sklearn_balldp.publish.saving import write_files

X, Y = load_digits(return_X_y=True)
X = normalize(X)
FACTORS = {"none": 0.0, "x 0.5": 0.5, "x 0.8": 0.8, "x 0.9": 0.9}
FACTORS |= {"honest": 1.0, "x 1.1": 1.1, "x 2": 2.0}
#: Releases for each share of the power, and honest ones for false alarms.
RELEASES, HONEST = 1000, 100_000
KEPT = GradientPerturbation(n_steps=20, keep_transcript=True)
HEADS = {
    "prototypes": BallDPRidgePrototype(4.0, radius=0.5),
    "logistic, softmax": BallDPLogisticRegression(4.0, radius=0.5, mechanism="output"),
    "squared hinge": BallDPSquaredHingeSVC(
        4.0, radius=0.5, mechanism="output", fit_intercept=False
    ),
    "logistic, binary": BallDPLogisticRegression(4.0, radius=0.5, mechanism="output"),
    "descent, 20 steps": BallDPLogisticRegression(4.0, radius=0.5, mechanism=KEPT),
}


def rows_of(name):
    """Rows and labels that a head is fitted on."""
    return (X, (Y > 4).astype(int)) if "binary" in name else (X, Y)


@contextlib.contextmanager
def scaled(factor, change=None):
    """A sampler whose noise is a multiple of what it says, for as long as it is entered."""
    call = Noise.__call__

    def wrong(noise, values, sigma):
        released = call(noise, values, factor * np.asarray(sigma, dtype=float))
        return released if change is None else change(released, values, sigma)

    with mock.patch.object(Noise, "__call__", wrong):
        yield


def fitted(head, data=None, factor=1.0, change=None):
    """A fit with so much of its noise."""
    with scaled(factor, change):
        return copy.deepcopy(head).fit(*(data or (X, Y)))


def failed(checks):
    return [check.name for check in checks if check.verdict == "FAIL"]


def measure_power(run, name, noise):
    """Share of releases that are convicted, each by itself."""
    head, data, n = HEADS[name], rows_of(name), min(RELEASES, run.most or RELEASES)
    convicted = 0
    for _ in range(n):
        model = fitted(head, data, FACTORS[noise])
        records = records_of(model, *data)
        convicted += bool(failed(weight_checks(model.released_, records)))
    n_values = deviates_of(model.released_, records).size
    return {"values": n_values, "releases": n, "convicted": convicted / n}


def measure_false_alarms(run, name):
    """Honest noise by the heads' own sampler: alarms, and how small the smallest p-values are."""
    n = 100 if run.most else HONEST
    head = fitted(HEADS[name], rows_of(name))
    problem, query = head.released_.problem, head.released_.bound
    values = query.values(problem, records_of(head, *rows_of(name)))
    scale = np.broadcast_to(query.scales(problem), values.shape)
    blocks = values.reshape(-1, X.shape[1]) if values.ndim == 1 else values
    exact = (blocks / scale.reshape(blocks.shape)).copy()
    noise, alarms, small, real = Noise(), 0, [], noise_tests._verdict

    def kept(p, level):
        small.append(p)
        return real(p, level)

    with mock.patch.object(noise_tests, "_verdict", kept):
        for _ in range(n):
            z = ((noise(values, scale) - values) / scale).reshape(blocks.shape)
            alarms += bool(failed(noise_checks(Deviates([z], {"the noiseless values": [exact]}))))
    ps = np.array(small).reshape(n, -1).min(axis=1)
    shares = {f"any p below {level:g}": np.mean(ps < level) for level in (1e-2, 1e-3, 1e-4)}
    return {"releases": n, "alarms": alarms, **shares, "smallest p": ps.min()}


def measure_forgeries(run, rows):
    """What was forged, and the lines of the verifier that say so, without rows and with them."""
    found = []

    def add(what, model, record=None, data=(X, Y), **options):
        alone = failed(verified(model, record, **options).checks)
        with_rows = failed(verified(model, record, private=data, **options).checks)
        new = [name for name in with_rows if name not in alone]
        found.append(
            {
                "forgery": what,
                "caught without rows by": ", ".join(alone) or "nothing",
                "and with them by": ", ".join(new) or "nothing more",
            }
        )

    honest = fitted(HEADS["prototypes"])
    record = honest.release_.to_dict()
    add("none", honest)
    add("epsilon 0.1 in the record", honest, edited(record, "epsilon", 0.1, sealed=False))
    full = record["follows"]["epsilon_full_radius"]
    tenfold = [10 * count for count in record["problem"]["class_counts"]]
    for what, path, value in (
        ("the same, with a new checksum", "epsilon", 0.1),
        ("half of mu, new checksum", "follows.mu", record["follows"]["mu"] / 2),
        (
            "a smaller epsilon at full radius, new checksum",
            "follows.epsilon_full_radius",
            full * 0.99,
        ),
        ("ten times the records, new checksum", "problem.class_counts", tenfold),
        ("twice the radius, new checksum", "problem.radius", 2.0 * honest.release_.radius),
    ):
        add(what, honest, edited(record, path, value))
    seeded = fitted(copy.deepcopy(HEADS["prototypes"]).set_params(random_state=0))
    add("seeded noise, honestly stated", seeded)
    sums = honest.released_.values
    for what, values in {
        "weights of one number": np.full_like(sums, 123.0),
        "reversed columns": sums.reshape(-1, X.shape[1])[:, ::-1].ravel(),
        "weights of another dataset": fitted(HEADS["prototypes"], (X[:, ::-1], Y)).released_.values,
    }.items():
        model = altered(honest, values=values, answers=(values,))
        add(what, model)
        # With a digest made anew, as a forger would.
        model.released_ = model.released_.with_digest()
        add(f"{what}, new digest", model)
    for label, factor in {
        "no noise": 0.0,
        "half of the noise": 0.5,
        "twice the noise": 2.0,
    }.items():
        add(f"{label}, honest record", fitted(HEADS["prototypes"], factor=factor))

    def repeated(noisy, values, sigma):
        noise = (noisy - values).reshape(len(np.unique(Y)), -1)
        return values + noise[np.zeros(len(noise), dtype=int)].ravel()

    add("the same noise in every class", fitted(HEADS["prototypes"], change=repeated))
    add("the noise of an earlier release", copy.deepcopy(honest), earlier=[honest])
    descent, another, halved = (fitted(HEADS["descent, 20 steps"], factor=f) for f in (1, 1, 0.5))
    own, bound = descent.released_.answers, descent.release_.bound
    add("descent, half of the noise", halved)
    answers = another.released_.answers
    add("descent, another run's transcript", altered(descent, answers=answers))
    add("descent, its last answer left out", altered(descent, answers=own[:-1]))
    for what, name, value in (
        ("twice the step size", "bound.learning_rate", 2.0 * bound.learning_rate),
        ("twice the noise of its steps", "bound.sigma", 2.0 * bound.sigma),
        ("twice the radius", "problem.radius", 2.0 * descent.release_.radius),
    ):
        changed = edited(descent.release_.to_dict(), name, value)
        add(f"descent, {what} in the record", descent, changed)
    behind = (*own, np.resize(X, own[-1].shape))
    add("descent, private rows behind its answers", altered(descent, answers=behind))

    # What nobody can find.
    def missing(noisy, values, sigma):
        noisy[:9] = values[:9]
        return noisy

    def seed(noisy, values, sigma):
        return values + sigma * np.random.default_rng(7).standard_normal(values.shape)

    private = BallDPRidgePrototype(1.0, radius=0.5)
    add("clever: a seed that was kept", fitted(private, change=seed))
    add("clever: nine values without noise", fitted(private, change=missing))
    liked = min((fitted(private) for _ in range(20)), key=lambda m: np.abs(m.prototypes_).max())
    add("clever: the draw that he likes best of 20", liked)
    forged = edited(seeded.release_.to_dict(), "sampler", EXACT_SAMPLER, sealed=False)
    add(
        "clever: noise of a seed, said to be of none",
        seeded,
        edited(forged, "follows.private", True),
    )
    add("clever: another encoder in the record", honest, edited(record, "encoder", "another"))
    rolled = X.copy()
    rolled[:20] = np.roll(rolled[:20], 1, axis=1)
    add("clever: 20 of 1797 records differ", fitted(private), data=(rolled, Y))
    return found


def verified(model, record=None, earlier=(), **options):
    """The verdict on a folder as a forger writes it: a model, beside another record if given."""
    with tempfile.TemporaryDirectory() as place:
        folders = []
        for number, one in enumerate([model, *earlier]):
            published = Published.of(one)
            if record is not None and not number:
                published = replace(published, as_json=record)
            folders.append(Path(place, str(number)))
            folders[-1].mkdir()
            with contextlib.suppress(ValueError):  # of such a record there is no card
                write_files(published, folders[-1])
        return verify(folders[0], earlier=folders[1:], **options)


def altered(model, **changes):
    """A copy whose release is another."""
    model = copy.deepcopy(model)
    model.released_ = replace(model.released_, **changes)
    return model


def edited(record, path, value, *, sealed=True):
    """A record with another number, and the checksum that belongs to it."""
    record = copy.deepcopy(record)
    *way, name = path.split(".")
    inner = record
    for step in way:
        inner = inner[step]
    inner[name] = value
    if sealed:
        record.pop("checksum")
        record["checksum"] = record_digest(record)
        # With every field in its place, if the record does not contradict itself.
        with contextlib.suppress(ValueError):
            record = Release.from_dict(record).to_dict()
    return json.loads(json.dumps(record))


def chance(row):
    """Standard error of a share of releases, which is never taken for certain."""
    n, share = row["releases"], (row["releases"] * row["convicted"] + 1) / (row["releases"] + 2)
    return np.sqrt(share * (1.0 - share) / n)


POWER = Study(
    "power.csv",
    ("head", "noise"),
    measure_power,
    lambda run: itertools.product(HEADS, FACTORS),
    {"convicted": chance},
)
FALSE_ALARMS = Study(
    "false_alarms.csv",
    ("head",),
    measure_false_alarms,
    lambda run: [("prototypes",), ("logistic, binary",)],
    {"alarms": 0.0},
)
FORGERIES = Study("forgeries.csv", ("rows",), measure_forgeries, lambda run: [("digits",)], {})
STUDIES = FORGERIES, POWER, FALSE_ALARMS


def tables(out):
    """Name, table and cells of each."""
    for study in (FORGERIES, FALSE_ALARMS):
        cells = study.read(out)
        table = cells.drop(columns=["rows", *ORIGIN], errors="ignore")
        yield study.file.removesuffix(".csv"), table, cells
    cells = POWER.read(out)
    wide = cells.pivot(index="head", columns="noise", values="convicted")[list(FACTORS)]
    sizes = cells[cells["noise"] == "honest"].set_index("head")[["values", "releases"]]
    table = sizes.rename(columns={"releases": "releases each"}).join(wide).loc[list(HEADS)]
    yield "power", table.reset_index(), cells


def report(out):
    for name, table, cells in tables(out):
        show(table.map(lambda v: f"{v:.4g}" if isinstance(v, float) else v), out, name, cells)
