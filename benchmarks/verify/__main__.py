"""``python -m benchmarks.verify``: power and false alarms of the residual test, forgeries, time.

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
import skops.io
from scipy.stats import binom
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.preprocessing import normalize

from benchmarks.paper.tables import markdown
from benchmarks.speed.timing import interleaved
from sklearn_balldp import (
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    ReconstructionAuditor,
    verify,
)
from sklearn_balldp.audit import residuals
from sklearn_balldp.audit.certificates import bayes_success
from sklearn_balldp.audit.residuals import (
    FALSE_ALARM,
    Residuals,
    residual_checks,
    weight_checks,
)
from sklearn_balldp.heads import Promise, ReleasedModel, Transcript
from sklearn_balldp.privacy import Noise
from sklearn_balldp.privacy.digest import parameters_digest, record_digest

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
            n_values = residuals._residuals(
                ReleasedModel(model), ReleasedModel(model).on(*data)
            ).blocks.size
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
    return bool(failed(weight_checks(ReleasedModel(model), ReleasedModel(model).on(*data))))


def measure_false_alarms(n_releases):
    """Honest noise by the heads' own sampler: alarms, and how small the smallest p-values are."""
    rows = []
    real = residuals._verdict
    for name in ("prototypes", "logistic, binary"):
        head = fitted(HEADS[name], rows_of(name))
        values, sigma = ReleasedModel(head).mechanism.noiseless(
            ReleasedModel(head).on(*rows_of(name)), Promise(head.release_.bound)
        )
        scale = np.broadcast_to(np.asarray(sigma, dtype=float), values.shape)
        noise, alarms, small = Noise(), 0, []
        residuals._verdict = lambda p, keep=small: keep.append(p) or real(p)
        for _ in range(n_releases):
            z = (noise(values, scale) - values) / scale
            found = residual_checks(Residuals(z[None], {"solution": (values / scale)[None]}))
            alarms += bool(failed(found))
        residuals._verdict = real
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
        best = bayes_success(spread, 1.0, n_draws=200_000, random_state=0).value
        rows.append(
            {
                "epsilon": epsilon,
                "certificate": stated,
                "success on digits": audit.success_rate_,
                "trials": trials_needed(audit.success_rate_, stated),
                "success at best": best,
                "trials at best": trials_needed(best, stated),
                "residual test": "one release",
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

    def sealed(model):
        """A digest made anew, as a forger would."""
        digest = parameters_digest(model.released_parameters())
        object.__setattr__(model.release_, "digest", digest)
        return model

    def changed(model, change):
        model = copy.deepcopy(model)
        change(model)
        return model

    honest = fitted(HEADS["prototypes"], (X, Y))
    add("none", honest)
    record = honest.release_.to_dict()
    edits = {
        "epsilon 0.1 in the record": {"epsilon": 0.1},
        "the same, with a new checksum": {"epsilon": 0.1, "sealed": True},
        "half of mu and rho, new checksum": {"mu": record["mu"] / 2, "rho": 0.0, "sealed": True},
        "ten times the records, new checksum": {"n_samples": 17970, "sealed": True},
        "another encoder": {"encoder": "another"},
    }
    for what, edit in edits.items():
        forged = {**record, **edit}
        if forged.pop("sealed", False):
            forged.pop("checksum")
            forged = json.loads(json.dumps({**forged, "checksum": record_digest(forged)}))
        add(what, honest, forged)
    seeded = copy.deepcopy(HEADS["prototypes"]).set_params(random_state=0).fit(X, Y)
    add("seeded noise, honestly stated", seeded)
    forged = {**seeded.release_.to_dict(), "private": True}
    forged.pop("checksum")
    add(
        "seeded noise, private yes, new checksum",
        seeded,
        {**forged, "checksum": record_digest(forged)},
    )

    def set_weights(value):
        def change(model):
            model.prototypes_ = np.array(value(model.prototypes_))

        return change

    weights = {
        "weights 123.0": lambda w: np.full_like(w, 123.0),
        "reversed columns": lambda w: w[:, ::-1],
        "weights of another dataset": lambda w: (
            fitted(HEADS["prototypes"], (X[:, ::-1], Y)).prototypes_
        ),
    }
    for what, value in weights.items():
        add(what, changed(honest, set_weights(value)))
        add(f"{what}, new digest", sealed(changed(honest, set_weights(value))))
    for label, factor in {
        "no noise": 0.0,
        "half of the noise": 0.5,
        "twice the noise": 2.0,
    }.items():
        with Scaled(factor):
            add_later = fitted(HEADS["prototypes"], (X, Y))
        add(f"{label}, honest record", add_later)
    with Scaled(1.0, lambda released, values, sigma: values + (released - values)[[0] * 10]):
        add("the same noise in every class", fitted(HEADS["prototypes"], (X, Y)))
    add("the noise of an earlier release", copy.deepcopy(honest), earlier=[honest])
    descent = fitted(HEADS["descent, 20 steps"], (X, Y))
    with Scaled(0.5):
        halved = fitted(HEADS["descent, 20 steps"], (X, Y))
    add("descent, half of the noise", halved)
    other = copy.deepcopy(descent)
    other.transcript_ = fitted(HEADS["descent, 20 steps"], (X, Y)).transcript_
    add("descent, another run's transcript", other)
    figure = {"epsilon_full_radius_ex_post": descent.release_.epsilon * 1.01}
    lower = changed(descent, lambda m: vars(m).update(release_=replace(m.release_, **figure)))
    add("descent, a smaller epsilon ex post", lower)
    add(
        "a seed in the model, none in the record",
        changed(honest, lambda m: m.set_params(random_state=0)),
    )
    add("other steps in the model", changed(descent, lambda m: m.mechanism.set_params(n_steps=200)))
    add(
        "private rows as a transcript",
        changed(honest, lambda m: vars(m).update(transcript_=Transcript(X, X, Y))),
    )

    # What nobody can find.
    def missing(released, values, sigma):
        released[:3, :3] = values[:3, :3]
        return released

    def seed(released, values, sigma):
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
    add("clever: the draw that he likes best of 20", liked)
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
            path = Path(folder, "model.skops")
            skops.io.dump(head, path)
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
                "verify a file without rows, s": np.median(times["without"]),
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
