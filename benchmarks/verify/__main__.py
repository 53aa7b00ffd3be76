"""``python -m benchmarks.verify``: power and false alarms of the noise tests, forgeries, time.

Writes ``power``, ``false_alarms``, ``forgeries``, ``trials`` and ``verify_speed``, as CSV and
Markdown, on scikit-learn's bundled digits.
"""

import argparse
import copy
import json
import tempfile
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import normalize

from benchmarks.speed.timing import interleaved
from benchmarks.study import markdown
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.audit import noise_tests
from sklearn_balldp.audit.certificates import bayes_success
from sklearn_balldp.audit.noise_tests import Deviates, deviates_of, noise_checks, weight_checks
from sklearn_balldp.checks import FALSE_ALARM
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.digest import record_digest
from sklearn_balldp.privacy.noise import EXACT_SAMPLER
from sklearn_balldp.publish import save

X, Y = load_digits(return_X_y=True)
X = normalize(X)
FACTORS = {"none": 0.0, "x 0.5": 0.5, "x 0.8": 0.8, "x 0.9": 0.9, "x 1.1": 1.1, "x 2": 2.0}
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


class Scaled:
    """A sampler whose noise is a multiple of what it says, for as long as it is entered."""

    def __init__(self, factor, change=None):
        self.factor, self.change = factor, change

    def __enter__(self):
        self.call = call = Noise.__call__

        def scaled(noise, values, sigma):
            released = call(noise, values, self.factor * np.asarray(sigma, dtype=float))
            return released if self.change is None else self.change(released, values, sigma)

        Noise.__call__ = scaled

    def __exit__(self, *_):
        Noise.__call__ = self.call


def failed(checks):
    return [check.name for check in checks if check.verdict == "FAIL"]


def measure_power(n_releases):
    """Share of releases that are convicted, each by itself."""
    rows = []
    for name, head in HEADS.items():
        data = rows_of(name)
        for label, factor in {**FACTORS, "honest": 1.0}.items():
            found = [convicted(head, data, factor) for _ in range(n_releases)]
            model = fitted(head, data)
            n_values = deviates_of(model.released_, model._records(*data)).size
            rows.append({"head": name, "values": n_values, "noise": label, "share": np.mean(found)})
            print(rows[-1], flush=True)
    table = pd.DataFrame(rows)
    order = [*[label for label in FACTORS if FACTORS[label] < 1.0], "honest"]
    order += [label for label in FACTORS if label not in order]
    wide = table.pivot(index=["head", "values"], columns="noise", values="share")[order]
    wide.insert(0, "releases each", n_releases)
    return wide.loc[list(HEADS)].reset_index()


def fitted(head, data):
    return copy.deepcopy(head).fit(*data)


def convicted(head, data, factor):
    with Scaled(factor):
        model = fitted(head, data)
    return bool(failed(weight_checks(model.released_, model._records(*data))))


def measure_false_alarms(n_releases):
    """Honest noise by the heads' own sampler: alarms, and how small the smallest p-values are."""
    rows = []
    real = noise_tests._verdict
    for name in ("prototypes", "logistic, binary"):
        head = fitted(HEADS[name], rows_of(name))
        problem, query = head.released_.problem, head.released_.bound
        values = query.values(problem, head._records(*rows_of(name)))
        scale = np.broadcast_to(query.scales(problem), values.shape)
        blocks = values.reshape(-1, X.shape[1]) if values.ndim == 1 else values
        exact = (blocks / scale.reshape(blocks.shape)).copy()
        noise, alarms, small = Noise(), 0, []
        noise_tests._verdict = lambda p, level, keep=small: keep.append(p) or real(p, level)
        for _ in range(n_releases):
            z = ((noise(values, scale) - values) / scale).reshape(blocks.shape)
            alarms += bool(failed(noise_checks(Deviates([z], {"the noiseless values": [exact]}))))
        noise_tests._verdict = real
        ps = np.array(small).reshape(n_releases, -1).min(axis=1)
        row = {"head": name, "releases": n_releases, "alarms": alarms}
        for level in (1e-2, 1e-3, 1e-4):
            row[f"any p below {level:g}"] = np.mean(ps < level)
        rows.append({**row, "smallest p": ps.min()})
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def measure_trials():
    """Trials that the identification attack needs to convict noise of half the stated scale."""
    rows = []
    private, public = (X[:1400], Y[:1400]), (X[1400:], Y[1400:])
    for epsilon in (1.0, 4.0, 8.0):
        with Scaled(0.5):
            head = BallDPRidgePrototype(epsilon, radius=0.7).fit(*private)
            audit = ReconstructionAuditor(
                FrozenEstimator(head), noise="mechanism", n_draws=100, n_supports=8, random_state=0
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                audit.fit(*private, *public)
        stated = float(audit.certificate_["direct"])
        # At best: ten candidates at the radius, in orthogonal directions.
        spread = 2.0 * head.release_.mu * np.eye(10)
        best = bayes_success(spread, 1.0, n_draws=200_000, random_state=0)
        rows.append(
            {
                "epsilon": epsilon,
                "certificate": stated,
                "success on digits": audit.success_rate_,
                "trials": trials_needed(audit.success_rate_, stated),
                "success at best": best,
                "trials at best": trials_needed(best, stated),
                "noise tests": "one release",
            }
        )
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def trials_needed(success, stated):
    """Trials that convict nine times in ten, if there are any up to a million."""
    sizes = np.unique(np.geomspace(10, 1e6, 3000).astype(int))
    needed = binom.isf(FALSE_ALARM, sizes, stated) + 1.0
    enough = sizes[binom.sf(needed - 1.0, sizes, success) >= 0.9]
    return str(enough[0]) if len(enough) else "over a million"


def measure_forgeries():
    """What was forged, and the lines of the verifier that say so, without rows and with them."""
    rows = []

    def add(what, model, record=None, data=(X, Y), **options):
        alone = verify(model, record, **options)
        with_rows = verify(model, record, private=data, **options)
        new = [name for name in failed(with_rows.checks) if name not in failed(alone.checks)]
        rows.append(
            {
                "forgery": what,
                "caught without rows by": ", ".join(failed(alone.checks)) or "nothing",
                "and with them by": ", ".join(new) or "nothing more",
            }
        )

    def released(model, values=None, *, sealed=False, **changes):
        """A copy whose release is another; sealed: with a digest made anew, as a forger would."""
        model = copy.deepcopy(model)
        if values is not None:
            changes |= {"values": values, "answers": (values,)}
        model.released_ = replace(model.released_, **changes)
        if sealed:
            model.released_ = model.released_.with_digest()
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
        return json.loads(json.dumps(record))

    honest = fitted(HEADS["prototypes"], (X, Y))
    add("none", honest)
    record = honest.release_.to_dict()
    follows = record["follows"]
    add("epsilon 0.1 in the record", honest, edited(record, "epsilon", 0.1, sealed=False))
    for what, path, value in (
        ("the same, with a new checksum", "epsilon", 0.1),
        ("half of mu, new checksum", "follows.mu", follows["mu"] / 2),
        (
            "a smaller epsilon at full radius, new checksum",
            "follows.epsilon_full_radius",
            follows["epsilon_full_radius"] * 0.99,
        ),
        ("ten times the records, new checksum", "problem.n_samples", 10 * len(X)),
        ("another encoder, new checksum", "encoder", "another"),
    ):
        add(what, honest, edited(record, path, value))
    seeded = copy.deepcopy(HEADS["prototypes"]).set_params(random_state=0).fit(X, Y)
    add("seeded noise, honestly stated", seeded)
    forged = edited(seeded.release_.to_dict(), "sampler", EXACT_SAMPLER, sealed=False)
    add("seeded noise, private yes, new checksum", seeded, edited(forged, "follows.private", True))
    sums = honest.released_.values
    other = fitted(HEADS["prototypes"], (X[:, ::-1], Y)).released_.values
    for what, values in {
        "weights of one number": np.full_like(sums, 123.0),
        "reversed columns": sums.reshape(-1, X.shape[1])[:, ::-1].ravel(),
        "weights of another dataset": other,
    }.items():
        add(what, released(honest, values))
        add(f"{what}, new digest", released(honest, values, sealed=True))
    for label, factor in {
        "no noise": 0.0,
        "half of the noise": 0.5,
        "twice the noise": 2.0,
    }.items():
        with Scaled(factor):
            add_later = fitted(HEADS["prototypes"], (X, Y))
        add(f"{label}, honest record", add_later)
    classes = len(np.unique(Y))

    def repeated(noisy, values, sigma):
        noise = (noisy - values).reshape(classes, -1)
        return values + noise[[0] * classes].ravel()

    with Scaled(1.0, repeated):
        add("the same noise in every class", fitted(HEADS["prototypes"], (X, Y)))
    add("the noise of an earlier release", copy.deepcopy(honest), earlier=[honest])
    descent = fitted(HEADS["descent, 20 steps"], (X, Y))
    with Scaled(0.5):
        halved = fitted(HEADS["descent, 20 steps"], (X, Y))
    add("descent, half of the noise", halved)
    answers = fitted(HEADS["descent, 20 steps"], (X, Y)).released_.answers
    add("descent, another run's transcript", released(descent, answers=answers))
    own = descent.released_.answers
    add("descent, its last answer left out", released(descent, answers=own[:-1]))
    rate = descent.release_.bound.learning_rate
    faster = edited(descent.release_.to_dict(), "bound.learning_rate", 2.0 * rate)
    add("descent, twice the step size in the record", descent, faster)
    less = edited(descent.release_.to_dict(), "bound.budget", descent.release_.bound.budget / 2)
    add("descent, half of its budget in the record", descent, less)
    rows_alone = np.resize(X, own[-1].shape)
    add("descent, private rows behind its answers", released(descent, answers=(*own, rows_alone)))

    # What nobody can find.
    def missing(noisy, values, sigma):
        noisy[:9] = values[:9]
        return noisy

    def seed(noisy, values, sigma):
        return values + sigma * np.random.default_rng(7).standard_normal(values.shape)

    private = BallDPRidgePrototype(1.0, radius=0.5)
    for what, change in {
        "clever: a seed that was kept": seed,
        "clever: nine values without noise": missing,
    }.items():
        with Scaled(1.0, change):
            add(what, fitted(private, (X, Y)))
    liked = min(
        (fitted(private, (X, Y)) for _ in range(20)), key=lambda m: np.abs(m.prototypes_).max()
    )
    add("clever: the draw that they like best of 20", liked)
    rolled = X.copy()
    rolled[:20] = np.roll(rolled[:20], 1, axis=1)
    add("clever: 20 of 1797 records differ", fitted(private, (X, Y)), data=(rolled, Y))
    return pd.DataFrame(rows)


def measure_speed():
    """Seconds of a verification, and its ratio to a fit, in one run."""
    rng = np.random.default_rng(0)
    rows = []
    sizes = {
        "prototypes": (120_000, 384),
        "logistic, softmax": (20_000, 384),
        "descent, 20 steps": (20_000, 384),
    }
    for name, shape in sizes.items():
        data = normalize(rng.standard_normal(shape).astype(np.float32)), np.arange(shape[0]) % 10
        head = fitted(HEADS[name], data)
        with tempfile.TemporaryDirectory() as folder:
            path = save(head, Path(folder, "model"))
            times = interleaved(
                {
                    "fit": lambda name=name, data=data: fitted(HEADS[name], data),
                    "with rows": lambda head=head, data=data: verify(head, private=data),
                    "without": lambda path=path: verify(path),
                }
            )
        ratios = times["with rows"] / times["fit"]
        rows.append(
            {
                "head": f"{name}, {shape[0]} x {shape[1]}",
                "fit, s": np.median(times["fit"]),
                "verify with rows, s": np.median(times["with rows"]),
                "ratio": np.median(ratios),
                "least": ratios.min(),
                "most": ratios.max(),
                "verify a folder without rows, s": np.median(times["without"]),
            }
        )
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)


def main(arguments=None):
    """Measure, and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("verify-results"))
    parser.add_argument("--releases", type=int, default=1000)
    parser.add_argument("--honest", type=int, default=100_000)
    parser.add_argument("--only", metavar="TABLE", help="one table alone")
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    measured = {
        "forgeries": measure_forgeries,
        "trials": measure_trials,
        "verify_speed": measure_speed,
        "power": lambda: measure_power(options.releases),
        "false_alarms": lambda: measure_false_alarms(options.honest),
    }
    if options.only is not None:
        if options.only not in measured:
            parser.error(f"--only {options.only}: one of {', '.join(measured)}")
        measured = {options.only: measured[options.only]}
    for name, measure in measured.items():
        start = time.perf_counter()
        table = measure()
        table.to_csv(options.out / f"{name}.csv", index=False)
        shown = table.map(lambda v: f"{v:.4g}" if isinstance(v, float) else v)
        (options.out / f"{name}.md").write_text(markdown(shown) + "\n")
        print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
