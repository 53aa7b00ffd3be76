"""Tables from measured cells: values with their 95% intervals, beside the paper's."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pandas as pd
from scipy.interpolate import PchipInterpolator

from sklearn_balldp.audit.certificates import rero_bound, rero_bound_dp
from sklearn_balldp.privacy.gaps import gradient_gap
from sklearn_balldp.privacy.gaussian import delta_from_mu, mu_from_budget
from sklearn_balldp.privacy.sensitivity import prototype_sensitivity

from . import published, store
from .plan import EPSILONS, LINES, WITHOUT_NOISE
from .protocol import (
    DATASETS,
    DELTA,
    N_CANDIDATES,
    NOISELESS,
    PAPERS_NUMBER,
    PUBLIC_LABELS,
    QUANTILES,
)

#: What a row of a table hides, in words.
ADJACENCY = {
    "none": "nothing",
    "q50": "q50 ball",
    "q80": "q80 ball",
    "q95": "q95 ball",
    "full": "any distance",
    "diameter": "largest distance",
    "labels": "DP, replace one",
    "added": "DP, add or remove",
}
#: Columns of accuracy, and the method behind each.
COLUMNS = {"prototypes": "ridge", "logistic": "logistic", "SVC": "svc"}
#: Policies of an audit; the paper calls the last one "full".
AUDITED = (*QUANTILES, "diameter")
#: Certificates of ten candidates at the q50 distance, at which lines are compared.
COMPARED_AT = (0.15, 0.2, 0.3, 0.5, 0.8)


@dataclasses.dataclass(frozen=True)
class Results:
    """Measured cells of one base seed, with lookups."""

    accuracy: pd.DataFrame
    identification: pd.DataFrame
    radius: pd.DataFrame
    comparators: pd.DataFrame
    seed: int

    @classmethod
    def read(cls, folder, seed):
        """Cells in ``folder``; comparators of this seed."""
        tables = {kind: store.read(folder, kind, seed) for kind in store.KINDS}
        path = folder / "comparators.csv"
        others = pd.DataFrame(columns=["dataset", "method", "epsilon", "seed"])
        if path.exists():
            others = pd.read_csv(path)
        return cls(**tables, comparators=others[others["seed"] == seed], seed=seed)

    @property
    def datasets(self):
        seen = set(self.accuracy["dataset"]) | set(self.identification["dataset"])
        return [name for name in DATASETS if name in seen | set(self.radius["dataset"])]

    def of(self, dataset, method, policy, epsilon):
        """The accuracy cell, or None where it was not measured."""
        return _cell(self.accuracy, dataset=dataset, method=method, policy=policy, epsilon=epsilon)

    def noiseless(self, dataset, method):
        return self.of(dataset, method, "full", NOISELESS)

    def audit(self, dataset, counts, policy, epsilon):
        return _cell(
            self.identification, dataset=dataset, counts=counts, policy=policy, epsilon=epsilon
        )

    def radius_of(self, dataset, policy):
        return _cell(self.radius, dataset=dataset, policy=policy)

    def other(self, dataset, method, epsilon):
        found = _cell(self.comparators, dataset=dataset, method=method, epsilon=epsilon)
        return None if found is None else found.rename({"accuracy": "mean"})


def _cell(table, **key):
    """The row with these values, or None."""
    here = np.logical_and.reduce([table[name] == value for name, value in key.items()])
    return table[here].iloc[-1] if here.any() else None


def interval(cell):
    """A mean and half of its interval, as text."""
    if cell is None:
        return ""
    half = (cell["high"] - cell["low"]) / 2
    return f"{cell['mean']:.3f}" if half == 0 else f"{cell['mean']:.3f} ± {half:.3f}"


def number(value, digits=3):
    return "" if value is None or math.isnan(value) else f"{value:.{digits}f}"


def signed(value):
    return "" if value is None or math.isnan(value) else f"{value:+.3f}"


def table1(results, epsilon):
    """Accuracy of every head, a row for each thing hidden: the paper's Table 1, and others'."""
    rows = []
    for dataset in results.datasets:
        row = {
            "data": DATASETS[dataset],
            "hides": ADJACENCY["none"],
            "paper mode": interval(results.noiseless(dataset, "ridge per class")),
        }
        for column, method in COLUMNS.items():
            if results.of(dataset, method, "q50", epsilon) is not None:
                row[column] = interval(results.noiseless(dataset, WITHOUT_NOISE[method]))
        rows.append(row)
        for policy in (*PUBLIC_LABELS, "labels"):
            value = published.TABLE1.get(dataset, {}).get(policy) if epsilon == 2.0 else None
            row = {"data": DATASETS[dataset], "hides": ADJACENCY[policy], "paper": number(value)}
            own = results.of(dataset, "ridge paper", policy, epsilon)
            row["paper mode"] = interval(own)
            if own is not None and value is not None:
                row["difference"] = signed(own["mean"] - value)
                row["its formula, its n"] = interval(
                    results.of(dataset, PAPERS_NUMBER, policy, epsilon)
                )
            for column, method in COLUMNS.items():
                row[column] = interval(results.of(dataset, method, policy, epsilon))
            if policy == "labels":
                for name in ("diffprivlib", "Opacus"):
                    method = "Opacus, replace one" if name == "Opacus" else name
                    row[name] = interval(results.other(dataset, method, epsilon))
            rows.append(row)
        added = results.other(dataset, "Opacus, add/remove", epsilon)
        if added is not None:
            rows.append(
                {"data": DATASETS[dataset], "hides": ADJACENCY["added"], "Opacus": interval(added)}
            )
    columns = ["data", "hides", "paper", "paper mode", "difference", "its formula, its n"]
    columns += [*COLUMNS, "diffprivlib", "Opacus"]
    table = pd.DataFrame(rows, columns=columns, dtype=object).fillna("")
    measured = [name for name in columns[2:] if (table[name] != "").any()]
    # Rows that nothing was measured in belong to other tables.
    return table[(table[measured] != "").any(axis=1)][["data", "hides", *measured]]


def classes(results, epsilon):
    """Balanced accuracy and the rarest class's recall, of the heads of Table 1."""
    rows = []
    for dataset in results.datasets:
        for policy in ("none", *PUBLIC_LABELS, "labels"):
            row = {"data": DATASETS[dataset], "hides": ADJACENCY[policy]}
            for column, method in COLUMNS.items():
                cell = results.of(dataset, method, policy, epsilon)
                if policy == "none":
                    cell = results.noiseless(dataset, WITHOUT_NOISE[method])
                for score in ("balanced", "rarest"):
                    row[f"{column}: {score}"] = number(None if cell is None else cell[score])
            rows.append(row)
    table = pd.DataFrame(rows).fillna("")
    return table[(table.iloc[:, 2:] != "").any(axis=1)] if len(table) else table


def worth(seeds):
    """Accuracy at equal certificates for the same candidates, which lie within the q50 radius.

    Means over base seeds; a gain has half of its 95% interval, from those of its cells.
    """
    lines = {name: key for name, key in LINES.items() if key[0] == "logistic"}
    rows = []
    for dataset in seeds[0].datasets:
        found = {name: _at_certificates(seeds, dataset, *key) for name, key in lines.items()}
        if any(line is None for line in found.values()):
            continue
        for place, at in enumerate(COMPARED_AT):
            row = {"data": DATASETS[dataset], "certificate": f"{at:g}"}
            row |= {name: number(means[place]) for name, (means, _) in found.items()}
            (ball, half), *others = [
                (means[place], halves[place]) for means, halves in found.values()
            ]
            for name, (other, its) in zip(("any distance", "standard DP"), others, strict=True):
                gain = f"{signed(ball - other)} ± {math.hypot(half, its):.3f}"
                row[f"ball over {name}"] = "" if math.isnan(ball - other) else gain
            rows.append(row)
    return pd.DataFrame(rows)


def _at_certificates(seeds, dataset, method, policy):
    """Accuracy of a line where its certificate is one of COMPARED_AT, and half of its interval.

    Between the budgets measured: monotone cubics in the logarithm of mu. None if there are too few.
    """
    asked = np.log([NormalDist().inv_cdf(at) - NormalDist().inv_cdf(0.1) for at in COMPARED_AT])
    means, halves = [], []
    for results in seeds:
        _, cells = against_one_attacker(results, dataset, method, policy)
        if len(cells) < 2:
            return None
        known = np.log([float(cell["mu_at_q50"]) for cell in cells])
        values = [[cell["mean"], (cell["high"] - cell["low"]) / 2] for cell in cells]
        order = np.argsort(known)
        line = PchipInterpolator(known[order], np.array(values)[order], extrapolate=False)
        mean, half = line(asked).T
        means.append(mean)
        halves.append(half)
    return np.mean(means, axis=0), np.linalg.norm(halves, axis=0) / len(seeds)


def against_one_attacker(results, dataset, method, policy):
    """Certificates for ten candidates within the q50 radius, and cells, over epsilon."""
    cells = [results.of(dataset, method, policy, epsilon) for epsilon in EPSILONS]
    cells = [cell for cell in cells if cell is not None]
    return [rero_bound(1 / N_CANDIDATES, float(cell["mu_at_q50"])) for cell in cells], cells


def tradeoff(results):
    """Accuracy over epsilon, behind the accuracy-certificate figure."""
    lines = {
        **{f"paper mode, {policy}": ("ridge paper", policy) for policy in PUBLIC_LABELS},
        **LINES,
    }
    rows = []
    for dataset in results.datasets:
        for epsilon in EPSILONS:
            row = {
                "data": DATASETS[dataset],
                "epsilon": f"{epsilon:g}",
                "certificate": number(certificate(epsilon)),
            }
            for name, (method, policy) in lines.items():
                row[name] = interval(results.of(dataset, method, policy, epsilon))
            rows.append(row)
    table = pd.DataFrame(rows, columns=["data", "epsilon", "certificate", *lines])
    return table[(table[list(lines)] != "").any(axis=1)]


def certificate(epsilon):
    """Largest success of an informed attacker with ten candidates in the ball."""
    return rero_bound(1 / N_CANDIDATES, mu_from_budget(epsilon, DELTA))


def classic_mu(epsilon):
    """Rho of the textbook formula's noise, also where the formula is not proved."""
    return epsilon / math.sqrt(2.0 * math.log(1.25 / DELTA))


def convex(results):
    """The paper's IMDb table of three heads."""
    rows = []
    for (head, policy, epsilon), (value, half) in published.CONVEX.items():
        row = {
            "head": head,
            "hides": ADJACENCY[policy],
            "epsilon": f"{epsilon:g}",
            "paper": f"{value:.3f} ± {half:.3f}",
        }
        own = results.of("imdb", f"{head} paper", policy, epsilon)
        row["paper mode"] = interval(own)
        row["difference"] = signed(None if own is None else own["mean"] - value)
        best = results.of("imdb", head, policy, epsilon)
        output = results.of("imdb", f"{head} output", policy, epsilon)
        row["noise on parameters"] = interval(best if head == "ridge" else output)
        row["noise on gradients"] = "" if head == "ridge" else interval(best)
        rows.append(row)
    table = pd.DataFrame(rows)
    return table[table["paper mode"] != ""]


def heads(results):
    """Every head at epsilon 2 and q50, beside what it reaches without noise."""
    noise = {
        "ridge paper": "parameters, one scale for worst counts",
        "ridge per class": "parameters, a scale per class",
        "ridge": "the same, noise-aware decision",
        "logistic paper": "minimiser, the paper's constant",
        "logistic output": "minimiser, this package's",
        "logistic": "gradients",
        "svc paper": "minimiser, the paper's constant",
        "svc output": "minimiser, this package's",
        "svc": "gradients",
    }
    rows = []
    for method in noise:
        cells = {d: results.of(d, method, "q50", 2.0) for d in results.datasets}
        row = {"head": method.split()[0], "noise on": noise[method]}
        rows.append(row | {DATASETS[d]: interval(cell) for d, cell in cells.items()})
    ours = {"ridge per class": "ridge", "ridge": "ridge, noise-aware decision"}
    for name in dict.fromkeys((*ours, "NearestCentroid", *WITHOUT_NOISE.values())):
        cells = {d: interval(results.noiseless(d, name)) for d in results.datasets}
        label = ours.get(name, f"scikit-learn's {name}")
        rows.append({"head": label, "noise on": "nothing"} | {DATASETS[d]: cells[d] for d in cells})
    return pd.DataFrame(rows)


def identification(results):
    """The paper's exact-identification table."""
    rows = []
    for dataset in results.datasets:
        for policy in AUDITED:
            for epsilon in sorted(results.identification["epsilon"].unique()):
                low, per_class = (
                    results.audit(dataset, counts, policy, epsilon)
                    for counts in ("min", "per_class")
                )
                if low is None:
                    continue
                paper = published_audit(dataset, epsilon, policy)
                text = "" if paper is None else f"{paper[0]:.3f} ± {paper[1]:.3f}"
                rows.append(
                    {
                        "data": DATASETS[dataset],
                        "hides": ADJACENCY[policy],
                        "epsilon": f"{epsilon:g}",
                        "certificate": number(low["certificate"]),
                        "paper": text,
                        "smallest class's noise": rate(low),
                        "difference": signed(None if paper is None else low["rate"] - paper[0]),
                        "best attack": number(low["bayes"]),
                        "noise a class": rate(per_class),
                        "best attack on it": number(
                            None if per_class is None else per_class["bayes"]
                        ),
                    }
                )
    return pd.DataFrame(rows)


def published_audit(dataset, epsilon, policy):
    """The paper's success rate and half of its interval, or None."""
    return published.IDENTIFICATION.get(
        (dataset, epsilon, "full" if policy == "diameter" else policy)
    )


def rate(cell):
    return "" if cell is None else f"{cell['rate']:.3f} [{cell['low']:.3f}, {cell['high']:.3f}]"


def calibration():
    """What (epsilon, delta) costs and certifies, without data."""
    rows = []
    for epsilon in EPSILONS:
        mu, kappa = mu_from_budget(epsilon, DELTA), 1 / N_CANDIDATES
        classic = classic_mu(epsilon)
        rows.append(
            {
                "epsilon": f"{epsilon:g}",
                "mu": number(mu, 4),
                "classic formula's mu": number(classic, 4),
                "its true delta": f"{delta_from_mu(classic, epsilon):.1e}",
                "certificate": number(rero_bound(kappa, mu), 4),
                "paper": number(published.CERTIFICATES.get(epsilon), 4),
                "by Rényi": number(rero_bound(kappa, mu, method="rdp"), 4),
                "by (epsilon, delta)": number(rero_bound_dp(kappa, epsilon, DELTA), 4),
            }
        )
    return pd.DataFrame(rows)


def radii(results):
    """Radii of the policies, and the private quantile."""
    rows = []
    for dataset in results.datasets:
        for policy in AUDITED:
            cell = results.radius_of(dataset, policy)
            if cell is not None:
                rows.append(
                    {
                        "data": DATASETS[dataset],
                        "policy": policy,
                        "radius": number(cell["radius"]),
                        "pooled classes": number(cell["pooled"]),
                        "private, mean": number(cell["private_mean"]),
                        "its root mean square error": number(cell["private_error"]),
                    }
                )
    return pd.DataFrame(rows)


def noise(results, epsilon=2.0, policy="q50"):
    """Noise scale of each output-perturbed head: the paper's calibration over this package's."""
    mu, rows = mu_from_budget(epsilon, DELTA), []
    for dataset in results.datasets:
        cell = results.radius_of(dataset, policy)
        if cell is None:
            continue
        n, radius, classes = int(cell["n"]), float(cell["radius"]), int(cell["classes"])
        few, many = ([int(cell[m]), n - int(cell[m])] for m in ("n_min", "n_max"))
        counts = {"worst": few, "min": few, "per_class": many}
        worst, fewest, (largest, _) = (
            prototype_sensitivity(radius, counts[mode], alpha=0.01, mode=mode)
            for mode in ("worst", "min", "per_class")
        )
        row = {
            "data": DATASETS[dataset],
            "radius": number(radius),
            "prototypes: paper": f"{worst / mu:.4f}",
            "ours, smallest class": f"{fewest / mu:.4f}",
            "ours, largest class": f"{largest / mu:.4f}",
        }
        loss = "logistic" if classes == 2 else "softmax"
        for name, kind in ((loss, loss), ("hinge", "squared_hinge")):
            options = {
                "alpha": 0.01,
                "norm_bound": 1.0,
                "fit_intercept": True,
                "n_classes": classes,
            }
            gaps = [gradient_gap(kind, radius, method=m, **options) for m in ("paper", "tight")]
            row["logistic: paper over ours" if name == loss else "hinge: paper over ours"] = (
                f"{gaps[0] / gaps[1]:.1f}"
            )
        rows.append(row)
    return pd.DataFrame(rows)


def summary(results, epsilon=2.0):
    """The few numbers that matter: accuracy against the paper's calibration and standard DP."""
    rows = []
    for dataset in results.datasets:
        row = {"test accuracy": DATASETS[dataset]}
        row["paper, ball"] = number(published.TABLE1.get(dataset, {}).get("q50"))
        row["the same, measured here"] = results.of(dataset, "ridge paper", "q50", epsilon)
        row["ours, ball"] = results.of(dataset, "logistic", "q50", epsilon)
        row["ours, standard DP"] = results.of(dataset, "logistic", "labels", epsilon)
        row["Opacus, standard DP"] = results.other(dataset, "Opacus, replace one", epsilon)
        row["no noise"] = results.noiseless(dataset, "LogisticRegression")
        rows.append(
            {
                key: value
                if isinstance(value, str)
                else number(None if value is None else value["mean"])
                for key, value in row.items()
            }
        )
    return pd.DataFrame(rows).fillna("")


def short(found):
    """The summary for a reader in a hurry."""
    columns = ["Opacus, standard DP", "ours, standard DP", "ours, ball", "no noise"]
    return found[["test accuracy", *columns]]


def markdown(table):
    """A pipe table whose intervals and short names stay on one line; nothing for an empty one."""
    if table.empty:
        return ""
    rows = [list(table.columns), ["---"] * table.shape[1], *table.astype(str).to_numpy().tolist()]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    for whole in (" ± ", " [0", ", 0", *ADJACENCY.values()):
        text = text.replace(whole, whole.replace(" ", "\N{NO-BREAK SPACE}"))
    return text
