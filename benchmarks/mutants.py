"""``python -m benchmarks.mutants``: whether the tests notice code that protects too little.

Each mutant is the package with one fault: a sensitivity that is too small, a term that was dropped,
noise that is missing. Its tests run on a copy of the repository, and the first that fails kills it.
The command fails if a mutant survives.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPIED = (
    "sklearn_balldp",
    "tests",
    "benchmarks",
    "docs",
    "examples",
    "conftest.py",
    "pyproject.toml",
    "setup.cfg",
    "README.md",
)


@dataclass(frozen=True)
class Mutant:
    """One fault, and the tests that must notice it.

    Parameters
    ----------
    name : str
        What is wrong, in words.
    file : str
        Module of the package.
    old, new : str
        Text that occurs once in the module, and what takes its place.
    tests : tuple of str
        Files of tests, or tests.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, root: Path) -> None:
        """Put the fault into a copy of the package; ValueError if its place is not found once."""
        path = root / "sklearn_balldp" / self.file
        text = path.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {text.count(self.old)} times.")
        path.write_text(text.replace(self.old, self.new))


SUMS = (
    "mechanisms/test_queries.py",
    "mechanisms/test_sums.py",
    "privacy/test_sensitivity.py",
)
STEPS = (
    "mechanisms/test_queries.py",
    "mechanisms/test_kernel.py",
    "privacy/test_gaps.py",
    "heads/test_every_head.py",
    "heads/test_descent.py",
    "heads/test_start.py",
)
KERNEL = ("mechanisms/test_kernel.py", "mechanisms/test_own.py")
PERSONS = ("heads/test_weighing.py", "privacy/test_weights.py", "heads/test_every_head.py")
MUTANTS = (
    Mutant(
        "sensitivity of sums / 1.05",
        "mechanisms/sums.py",
        "return largest * sums, largest * moment",
        "return largest * sums / 1.05, largest * moment",
        SUMS,
    ),
    Mutant(
        "sensitivity of the second moment / 1.05",
        "privacy/sensitivity.py",
        "return _UP * norm_bound**2 * (across",
        "return _UP / 1.05 * norm_bound**2 * (across",
        SUMS,
    ),
    Mutant(
        "sensitivity of the minimiser / 1.05",
        "mechanisms/minimiser.py",
        "moved = self.gap(problem, radius, labels) / (",
        "moved = self.gap(problem, radius, labels) / 1.05 / (",
        ("mechanisms/test_queries.py", "privacy/test_bounds.py", "heads/test_output.py"),
    ),
    Mutant(
        "gradient gap / 1.05",
        "privacy/gaps.py",
        "return gap_over_minimisers(kind, geometry, float(alpha)",
        "return (1.0 / 1.05) * gap_over_minimisers(kind, geometry, float(alpha)",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "label change of sums dropped",
        "mechanisms/sums.py",
        "sums = max(sums, changed)",
        "sums = min(sums, changed)",
        SUMS,
    ),
    Mutant(
        "label change of steps dropped",
        "mechanisms/gradients.py",
        "clip=self.clip, labels=labels)\n        rounding",
        'clip=self.clip, labels="public")\n        rounding',
        STEPS,
    ),
    Mutant(
        "share of the start forgotten",
        "mechanisms/descent.py",
        "used = 0.0 if self.start is None else _mu_of(self.start, problem)",
        "used = 0.0",
        ("mechanisms/test_kernel.py", "heads/test_every_head.py"),
    ),
    Mutant(
        "share of the start left out of what is stated",
        "mechanisms/descent.py",
        "sums = 0.0 if self.start is None else _mu_of(self.start, problem, radius, labels)",
        "sums = 0.0",
        ("privacy/test_bounds.py", "heads/test_every_head.py"),
    ),
    Mutant(
        "whitening map of Lipschitz factor 1.05",
        "mechanisms/whitening.py",
        "return self._scaled(weights, self.factors - 1.0)",
        "return 1.05 * self._scaled(weights, self.factors - 1.0)",
        ("mechanisms/test_queries.py", "mechanisms/test_gradients.py", "heads/test_start.py"),
    ),
    Mutant(
        "noise scale / 1.05",
        "privacy/noise.py",
        "(scaled + deviates) * scale[noisy]",
        "(scaled + deviates / 1.05) * scale[noisy]",
        ("privacy/test_noise.py",),
    ),
    Mutant(
        "one value without noise",
        "privacy/noise.py",
        "        return released\n",
        "        released.flat[:1] = values.flat[:1]\n        return released\n",
        ("privacy/test_noise.py",),
    ),
    Mutant(
        "one block without noise",
        "mechanisms/sums.py",
        "[np.repeat(sums, d), moment, sums if",
        "[np.repeat(sums * (np.arange(k) > 0), d), moment, sums if",
        ("mechanisms/test_kernel.py", "mechanisms/test_sums.py", "heads/test_every_head.py"),
    ),
    Mutant(
        "noise of counts dropped",
        "mechanisms/sums.py",
        "moment, sums if self.constant > 0.0 else sums[:0]]",
        "moment, 0.0 * sums if self.constant > 0.0 else sums[:0]]",
        SUMS,
    ),
    Mutant(
        "grid slack dropped",
        "mechanisms/kernel.py",
        "return math.nextafter(ratio + self.slack(problem), math.inf) if proved else math.inf",
        "return math.nextafter(ratio, math.inf) if proved else math.inf",
        ("mechanisms/test_queries.py", "mechanisms/test_kernel.py"),
    ),
    Mutant(
        "rounding allowance of rows dropped",
        "adjacency.py",
        "up = 1.0 + ROW_ALLOWANCE",
        "up = 1.0",
        ("test_adjacency.py", "privacy/test_bounds.py"),
    ),
    Mutant(
        "rounding allowance of sums dropped",
        "mechanisms/sums.py",
        "rounding = self._roundings(problem)\n        noise = math.inf",
        "rounding = 0.0, 0.0\n        noise = math.inf",
        (*SUMS, "rows/test_any_order.py"),
    ),
    Mutant(
        "steps composed by their largest",
        "mechanisms/descent.py",
        "math.sqrt(_LEFT / max(self.n_steps, 1))",
        "math.sqrt(_LEFT)",
        STEPS,
    ),
    Mutant(
        "clip ignored",
        "mechanisms/gradients.py",
        "                residuals = clip_residuals(residuals, self.clip)\n",
        "                pass\n",
        ("mechanisms/test_gradients.py", "mechanisms/test_queries.py"),
    ),
    Mutant(
        "tolerance of the solver dropped",
        "mechanisms/minimiser.py",
        "moved += 2.0 * self.tol / problem.alpha",
        "pass",
        ("mechanisms/test_queries.py", "privacy/test_bounds.py", "heads/test_output.py"),
    ),
    Mutant(
        "chain of persons one short",
        "privacy/release.py",
        "mu = math.nextafter(records * mu, math.inf)",
        "mu = math.nextafter((records - 1) * mu, math.inf)",
        ("heads/test_weighing.py", "privacy/test_release.py"),
    ),
    Mutant(
        "chain of records one short",
        "privacy/bounds.py",
        "chain = max(1, math.ceil(steps[0] / steps[1] * _CHAIN_SLACK))",
        "chain = max(1, math.ceil(steps[0] / steps[1] * _CHAIN_SLACK) - 1)",
        ("privacy/test_bounds.py", *STEPS),
    ),
    Mutant(
        "largest weight of a person replaced by the mean",
        "heads/weighing.py",
        "float(np.bincount(owners, rows).max())",
        "float(np.bincount(owners, rows).mean())",
        PERSONS,
    ),
    Mutant(
        "a person whose weight in the loss is less than that in one class",
        "privacy/contradictions.py",
        "max(largest_of) <= largest * up",
        "True",
        ("privacy/test_forged_records.py", *PERSONS),
    ),
    Mutant(
        "fields of a record that no type names",
        "privacy/release.py",
        "check_same(plain(written), record)",
        "plain(written)",
        ("privacy/test_forged_records.py",),
    ),
    Mutant(
        "noise of one step used for the next",
        "mechanisms/descent.py",
        "gradient = yield replace(query, theta=theta)",
        "gradient = yield query",
        STEPS,
    ),
    Mutant(
        "radius capped at B",
        "adjacency.py",
        "min(radius, 2.0 * norm_bound)",
        "min(radius, norm_bound)",
        ("test_adjacency.py", "privacy/test_gaps.py", "privacy/test_sensitivity.py"),
    ),
    Mutant(
        "sphere without scaling",
        "rows/projection.py",
        'squares == 0.0 if domain == "sphere" else squares <=',
        "squares <=",
        ("heads/test_sphere.py",),
    ),
    Mutant(
        "epsilon of a private radius dropped",
        "privacy/guarantee.py",
        "return compose([self.mu, mu_from_pure(self.radius_epsilon)])",
        "return self.mu",
        ("test_radius.py", "privacy/test_release.py"),
    ),
    Mutant(
        "candidates of a certificate within B / 1.05 of the zero record",
        "privacy/release.py",
        "math.nextafter(self.norm_bound / modulus, math.inf)",
        "math.nextafter(self.norm_bound / 1.05 / modulus, math.inf)",
        ("audit/test_certificates.py",),
    ),
    Mutant(
        "candidates of several labels, of several records",
        "privacy/release.py",
        '(asked.labels == "public" or alone)',
        "True",
        ("audit/test_certificates.py",),
    ),
    Mutant(
        "a class whose records weigh nothing",
        "privacy/contradictions.py",
        "None if counts is None else [n > 0 for n in counts]",
        "None if counts is None else [t > 0.0 for t in totals]",
        ("privacy/test_forged_records.py", *PERSONS),
    ),
    Mutant(
        "kappa of a ball that is too small",
        "audit/attacks.py",
        "((gaps <= 2.0 * setting.eta) @ prior)",
        "((gaps <= setting.eta) @ prior)",
        ("audit/test_auditor.py", "audit/test_attacks.py"),
    ),
    Mutant(
        "the noise of an audited fit not looked at",
        "audit/auditor.py",
        "return checks + noise_checks(noise, level=_LEVEL)",
        "return checks",
        ("audit/test_auditor.py",),
    ),
    Mutant(
        "records of edits told apart by equal rows",
        "distances.py",
        "number = np.unique(checked_records(record, len(before)), return_inverse=True)[1]",
        "number = np.unique(before, axis=0, return_inverse=True)[1].ravel()",
        ("test_edits.py",),
    ),
    Mutant(
        "a release counted after its first values",
        "mechanisms/kernel.py",
        "        if self._charge is not None:\n            self._charge()\n"
        "            self._charge = None\n",
        "        values()\n        if self._charge is not None:\n"
        "            self._charge()\n            self._charge = None\n",
        ("accounting/test_accountant.py", "mechanisms/test_kernel.py"),
    ),
    Mutant(
        "an error of NumPy that some records alone raise",
        "mechanisms/kernel.py",
        'with np.errstate(all="ignore"):',
        "with np.errstate():",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "a map that moves rows by more than their norm",
        "mechanisms/whitening.py",
        '<= norm_bound * (1.0 + 1e-9):\n            return "its centre',
        '< math.inf:\n            return "its centre',
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "a release forgotten once its budget was refused",
        "mechanisms/kernel.py",
        "            self._charge()\n            self._charge = None\n",
        "            charge, self._charge = self._charge, None\n            charge()\n",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "a limit that is compared with the sum before the new charge",
        "accounting/ledger.py",
        "if mu_of([*earlier, charge]) <= mu_from_budget",
        "if mu_of(earlier) <= mu_from_budget",
        ("accounting/test_accountant.py",),
    ),
    Mutant(
        "a lost ledger begun anew",
        "accounting/ledger.py",
        "if page.terms != self.terms:",
        "if page.terms.radius != self.terms.radius:",
        ("accounting/test_ledger.py",),
    ),
    Mutant(
        "an older copy of a ledger believed",
        "accounting/ledger.py",
        "if page.seals[number : number + 1] != [seal]:",
        "if False:",
        ("accounting/test_ledger.py",),
    ),
    Mutant(
        "a ledger that was edited by hand believed",
        "accounting/ledger.py",
        "bool(rows) and seals[-1] != digest.hexdigest()",
        "any(row[-1] is None for row in rows)",
        ("accounting/test_ledger.py",),
    ),
    Mutant(
        "a mu that falls as the radius grows believed",
        "privacy/bounds.py",
        "if not mu >= least * (1.0 - 1e-9):",
        "if mu < 0.0:",
        ("mechanisms/test_own.py",),
    ),
    Mutant(
        "the last shard of a file skipped",
        "rows/table.py",
        "for start, stop in shards_of(*X.shape)\n",
        "for start, stop in shards_of(*X.shape)[: -1 if isinstance(X, Rows) else None]\n",
        ("rows/test_sources.py",),
    ),
    Mutant(
        "rows a little outside of the ball not projected",
        "rows/projection.py",
        "squares <= norm_bound * norm_bound",
        "squares <= 1.01 * norm_bound * norm_bound",
        ("rows/test_rows.py",),
    ),
    Mutant(
        "NaN in a later shard taken for zero",
        "rows/table.py",
        "rows.stop - self._first), block\n",
        "rows.stop - self._first), np.nan_to_num(block) if self.start else block\n",
        ("rows/test_sources.py",),
    ),
    Mutant(
        "rows of two shards swapped against their labels",
        "rows/table.py",
        "cut(columns, start, stop), may_change)",
        "cut(columns, len(X) - stop, len(X) - start), may_change)",
        ("rows/test_any_order.py",),
    ),
    Mutant(
        "a private radius counted after its rows were read",
        "radius.py",
        "count(accountant, spent)\n        rows, others = rows_to_read(policy, rows, others)\n",
        "rows, others = rows_to_read(policy, rows, others)\n        count(accountant, spent)\n",
        ("accounting/test_accountant.py",),
    ),
    Mutant(
        "a charge that a power cut takes back",
        "accounting/ledger.py",
        "'EXTRA' if self._lasting else 'OFF'",
        "'OFF'",
        ("accounting/test_ledger.py",),
    ),
    Mutant(
        "a total that claims what some of its releases hide",
        "accounting/ledger.py",
        '- {"any"} == {more} else less',
        '- {"any"} >= {more} else less',
        ("accounting/test_accountant.py",),
    ),
    Mutant(
        "a row that decides how its block is scored",
        "heads/scoring.py",
        "_score_others(scores, block, ~plain,",
        "_score_others(scores, block, plain | ~plain,",
        ("heads/test_scoring.py",),
    ),
    Mutant(
        "a score of any model private",
        "accounting/scoring.py",
        "if others:",
        "if others is None:",
        ("accounting/test_accountant.py",),
    ),
    Mutant(
        "a frozen step of any class taken to map each row by itself",
        "pipelines.py",
        "return _UNKNOWN if frozen or not _requires_fit(step) else _LEARNS",
        "return None if frozen or not _requires_fit(step) else _LEARNS",
        ("test_pipelines.py",),
    ),
    Mutant(
        "what a received model carries not named",
        "publish/model.py",
        "for name in sorted(arrays.keys() - wanted.keys() - allowed.keys()):",
        "for name in set():",
        ("publish/test_hostile.py",),
    ),
    Mutant(
        "memory of others taken for NumPy's own",
        "rows/sources.py",
        "else isinstance(base, bytes))",
        "else True)",
        ("rows/test_sources.py",),
    ),
    Mutant(
        "move of the shares / 1.05",
        "privacy/gaps.py",
        "return math.sqrt(2.0) * math.tanh(distance / math.sqrt(8.0))",
        "return math.sqrt(2.0) / 1.05 * math.tanh(distance / math.sqrt(8.0))",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "peak of the softmax / 1.05",
        "losses.py",
        "return float(np.max(expit(math.log(rest) + high) * np.sqrt(1.0 + shared)))",
        "return float(np.max(expit(math.log(rest) + high) * np.sqrt(1.0 + shared))) / 1.05",
        ("test_losses.py",),
    ),
    Mutant(
        "gap over log-odds / 1.05",
        "privacy/gaps.py",
        "math.sqrt(_softmax_gap_by_odds(wider, bound, n_classes, gap**2))",
        "math.sqrt(_softmax_gap_by_odds(wider, bound, n_classes, gap**2)) / 1.05",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "gap of one score / 1.05",
        "privacy/gaps.py",
        "return cap * math.sqrt(square) if",
        "return cap / 1.05 * math.sqrt(square) if",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "trough of the parts along turning weights forgotten",
        "privacy/gaps.py",
        "angles = np.stack([f0, f1, trough])",
        "angles = np.stack([f0, f1, f1])",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "steepest weights of a cell at its end",
        "privacy/gaps.py",
        "steep = np.cos(np.clip(0.0, f0, f1)) + _COSINE_ERROR",
        "steep = np.cos(f0) + _COSINE_ERROR",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "rows across the weights as if theirs were the farthest part",
        "privacy/gaps.py",
        "nearest = np.maximum(np.abs(np.clip(0.0, low, high))",
        "nearest = np.maximum(np.abs(high)",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "least rise taken where rows lie against the loss",
        "privacy/gaps.py",
        "np.where(z1 > 0.0, more, less) * z1",
        "less * z1",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "weights that turn away from the constant forgotten",
        "privacy/gaps.py",
        "[-0.5 * math.pi, -edge, 0.0]",
        "[0.0, -edge, 0.0]",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "another label of two classes / 1.05",
        "privacy/gaps.py",
        "    return math.sqrt(flipped)\n",
        "    return math.sqrt(flipped) / 1.05\n",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "certificates rounded to nearest",
        "privacy/gaussian.py",
        "float(ndtr(quantile + mu)) * up",
        "float(ndtr(quantile + mu))",
        ("privacy/test_gaussian.py",),
    ),
    Mutant(
        "deviates drawn ahead, and kept",
        "privacy/noise.py",
        "            return rounded_normal(size)",
        """            stock = vars(self).setdefault("_stock", rounded_normal(50 + size))
            self._stock = stock[size:] if len(stock) >= size else rounded_normal(50)
            return stock[:size] if len(stock) >= size else rounded_normal(size)""",
        ("privacy/test_noise.py",),
    ),
    Mutant(
        "scaling to the sphere left out of what stretches distances",
        "publish/card.py",
        'if release.domain == "sphere":\n        # Short',
        "if False:\n        # Short",
        ("publish/test_card.py",),
    ),
    Mutant(
        "stretch of random features / 1.05",
        "publish/steps.py",
        'factor = _norm(a["weights"]) * math.sqrt(2.0 / len(a["offset"]))',
        'factor = _norm(a["weights"]) * math.sqrt(2.0 / len(a["offset"])) / 1.05',
        ("publish/test_card.py",),
    ),
    Mutant(
        "certificate of the card rounded down",
        "publish/card.py",
        "{percent(release.certificate(0.1))} at most",
        "{percent(release.certificate(0.1), DOWN)} at most",
        ("publish/test_card.py",),
    ),
    Mutant(
        "encoders of one digest and other settings added up",
        "encoder_name.py",
        'return match["kind"], match["digest"] or match["old"], match["settings"]',
        'return match["digest"] or match["old"]',
        ("test_encoder_name.py",),
    ),
    Mutant(
        "a place of a stranger opened",
        "publish/steps.py",
        'return [NamedEncoder(s["name"])]',
        'return [SentenceEncoder(s["name"])]',
        ("publish/test_steps.py",),
    ),
    Mutant(
        "a promise that may be exceeded by three tenths",
        "mechanisms/kernel.py",
        "if spent > self._limit:",
        "if spent > 1.69 * self._limit:",
        KERNEL,
    ),
    Mutant(
        "the kernel's noise / 1.05",
        "mechanisms/kernel.py",
        "answer = self._noise(noiseless, query.scales(self._problem))",
        "answer = self._noise(noiseless, np.asarray(query.scales(self._problem)) / 1.05)",
        (*KERNEL, "heads/test_every_head.py", "audit/test_auditor.py"),
    ),
    Mutant(
        "queries that nobody vouches for answered",
        "mechanisms/kernel.py",
        "if type(query) not in self._accepts:",
        "if False:",
        KERNEL,
    ),
    Mutant(
        "the filter forgets what was spent",
        "mechanisms/kernel.py",
        "self._spent, self._asked = spent, self._asked + 1",
        "self._asked += 1",
        KERNEL,
    ),
    Mutant(
        "a refused query counted at none, or all",
        "mechanisms/kernel.py",
        "self._spent, self._asked = spent, self._asked + 1",
        "self._spent, self._asked = self._spent[:1] + spent[1:], self._asked + 1",
        KERNEL,
    ),
    Mutant(
        "queries without end",
        "mechanisms/kernel.py",
        "self._spent, self._asked = spent, self._asked + 1",
        "self._spent = spent",
        KERNEL,
    ),
    Mutant(
        "values of another shape get noise",
        "mechanisms/kernel.py",
        "if noiseless.shape != query.shape(self._problem):",
        "if False:",
        KERNEL,
    ),
    Mutant(
        "all records of a person count as one in steps",
        "mechanisms/gradients.py",
        "return gap / problem.effective_size + 2.0 * rounding",
        "return gap / problem.n_samples + 2.0 * rounding",
        ("mechanisms/test_queries.py", *PERSONS),
    ),
    Mutant(
        "joint move of sums and moment / 1.1",
        "mechanisms/sums.py",
        "ratio, together * _UP + math.hypot",
        "ratio, together / 1.1 + math.hypot",
        SUMS,
    ),
    Mutant(
        "persons in several classes / 1.01",
        "mechanisms/sums.py",
        "ratio = min(ratio, math.hypot(by_class, (moment + rounding[1]) / noise))",
        "ratio = min(ratio, 0.99 * math.hypot(by_class, (moment + rounding[1]) / noise))",
        ("mechanisms/test_queries.py",),
    ),
    Mutant(
        "sensitivity of steps / 1.1, without rounding",
        "mechanisms/gradients.py",
        "return gap / problem.effective_size + 2.0 * rounding",
        "return gap / problem.effective_size / 1.1",
        STEPS,
    ),
    Mutant(
        "rounding of steps dropped",
        "mechanisms/gradients.py",
        "return gap / problem.effective_size + 2.0 * rounding",
        "return gap / problem.effective_size",
        (*STEPS, "mechanisms/test_gradients.py", "privacy/test_bounds.py"),
    ),
    Mutant(
        "gradients of unproved states free of charge",
        "mechanisms/gradients.py",
        "            return math.inf\n        norm = float(",
        "            return 0.0\n        norm = float(",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "maps that lengthen taken for proved",
        "mechanisms/gradients.py",
        "if not mapped or self.theta.shape != shape:",
        "if self.theta.shape != shape:",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "states that no proof speaks of taken for proved",
        "mechanisms/gradients.py",
        "return largest <= longest and float(np.linalg.norm(self.theta)) <= longest",
        "return True",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "minimisers without alpha taken for proved",
        "mechanisms/minimiser.py",
        "regular = bool(problem.loss) and problem.alpha > 0.0 and self.method in METHODS",
        "regular = True",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "gradients of single records that are longer than in sums",
        "mechanisms/gradients.py",
        "products: Array = residuals[..., None] * (",
        "products: Array = 1.01 * residuals[..., None] * (",
        ("mechanisms/test_queries.py",),
    ),
    Mutant(
        "trials that hide another record than they say",
        "audit/attacks.py",
        "truth = values[truths[trial]]",
        "truth = values[truths[run]]",
        ("audit/test_attacks.py",),
    ),
    Mutant(
        "posterior of noise that is too small",
        "audit/attacks.py",
        "logs[trial] -= 0.5 * np.vecdot(standard, standard)",
        "logs[trial] -= 0.4 * np.vecdot(standard, standard)",
        ("audit/test_attacks.py", "audit/test_auditor.py"),
    ),
    Mutant(
        "values that do not follow from the answers",
        "publish/checks.py",
        "    if not _close(values, released.values, _ROUNDING[problem.precision]):",
        "    if False:",
        ("publish/test_verify.py", "publish/test_hostile.py"),
    ),
    Mutant(
        "an answer that is never asked for",
        "publish/checks.py",
        "    if unasked:\n        raise _Refused",
        "    if False:\n        raise _Refused",
        ("test_falsify.py::test_an_answer_that_is_never_asked_for_is_refused",),
    ),
    Mutant(
        "a replay that charges nothing",
        "publish/checks.py",
        "            privacy.charge(query)\n",
        "            pass\n",
        ("publish/test_verify.py",),
    ),
    Mutant(
        "a step that forgets the regulariser",
        "mechanisms/descent.py",
        "theta = rounded((theta - rate * velocity) / pull)",
        "theta = rounded(theta - rate * velocity)",
        (
            "mechanisms/test_kernel.py",
            "heads/test_descent.py",
            "heads/test_start.py",
            "test_kept.py",
        ),
    ),
    Mutant(
        "noise in the sum of the classes kept",
        "mechanisms/descent.py",
        "gradient = gradient - gradient.mean(axis=0)",
        "pass",
        (
            "mechanisms/test_kernel.py",
            "heads/test_descent.py",
            "heads/test_start.py",
            "test_kept.py",
        ),
    ),
    Mutant(
        "large scores and steps that cancel",
        "privacy/gaps.py",
        "top = t + step + error * (np.abs(t) + step)",
        "top = t + step",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "a bound that is a query believed of other queries",
        "mechanisms/kernel.py",
        "return asked == 0 and (query is self or query == self)",
        "return True",
        ("mechanisms/test_own.py",),
    ),
    Mutant(
        "a descent's bound believed of other gradients",
        "mechanisms/descent.py",
        "return (query.clip, query.constant) == stated",
        "return True",
        ("mechanisms/test_own.py",),
    ),
    Mutant(
        "growth of steps for the longest rows alone",
        "mechanisms/descent.py",
        "min(max(radius / problem.diameter, self.least_reach), 1.0)",
        "1.0",
        ("mechanisms/test_kernel.py", "privacy/test_bounds.py", "heads/test_start.py"),
    ),
    Mutant(
        "what the sums leave rounded down beyond the radius",
        "mechanisms/descent.py",
        "self.mu_of_steps(problem, _SLACK) * self.growth",
        "self.mu_of_steps(problem) * self.growth",
        ("privacy/test_bounds.py",),
    ),
    Mutant(
        "corner of one residual dropped",
        "privacy/gaps.py",
        "corners = [square, apart, 2.0 * v * square + (1.0 - v) * apart]",
        "corners = [apart, 2.0 * v * square + (1.0 - v) * apart]",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "corner of equal residuals dropped",
        "privacy/gaps.py",
        "corners = [square, apart, 2.0 * v * square + (1.0 - v) * apart]",
        "corners = [square, 2.0 * v * square + (1.0 - v) * apart * 0.0]",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "corner of two directions dropped",
        "privacy/gaps.py",
        "corners = [square, apart, 2.0 * v * square + (1.0 - v) * apart]",
        "corners = [square, apart]",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "corner of another label halved",
        "privacy/gaps.py",
        "corners.append(4.0 * square)",
        "corners.append(2.0 * square)",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "versine of softmax halved",
        "losses.py",
        "    versine = 0.5\n",
        "    versine = 0.25\n",
        ("privacy/test_gaps.py", "test_losses.py"),
    ),
    Mutant(
        "augmented rows without their constant",
        "privacy/gaps.py",
        "square, apart, v = geometry.augmented**2,",
        "square, apart, v = geometry.norm_bound**2,",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "clip squared",
        "privacy/gaps.py",
        "return longest * math.sqrt(max(corners)) * _UP",
        "return longest**2 * math.sqrt(max(corners)) * _UP",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "steps grow as those of the shortest rows",
        "mechanisms/descent.py",
        "min(max(radius / problem.diameter, self.least_reach), 1.0)",
        "self.least_reach",
        ("privacy/test_bounds.py",),
    ),
    Mutant(
        "clips whose squares vanish",
        "privacy/gaps.py",
        "SMALLEST_CLIP = 1e-100",
        "SMALLEST_CLIP = 1e-200",
        ("privacy/test_gaps.py", "mechanisms/test_kernel.py"),
    ),
    Mutant(
        "scores without a limit",
        "mechanisms/gradients.py",
        "_MOST_SCORE = 1e15",
        "_MOST_SCORE = 1e290",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "rounding without the parameters",
        "mechanisms/gradients.py",
        "            norm=norm,\n            n_samples",
        "            norm=0.0,\n            n_samples",
        ("mechanisms/test_gradients.py", "mechanisms/test_queries.py", "privacy/test_bounds.py"),
    ),
    Mutant(
        "arrays that stay as they were given",
        "privacy/plain.py",
        '            array = np.array(array, dtype=np.float64, order="C", subok=False)\n',
        "",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "masked arrays taken for plain",
        "privacy/plain.py",
        " and not isinstance(value, np.ma.MaskedArray)",
        "",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "queries that are not plain",
        "mechanisms/kernel.py",
        "if not is_plain(query):",
        "if False:",
        ("mechanisms/test_kernel.py",),
    ),
    Mutant(
        "a gradient after no steps",
        "mechanisms/descent.py",
        " or self.n_steps == 0:",
        ":",
        ("privacy/test_bounds.py",),
    ),
    Mutant(
        "the softmax search without a corner",
        "privacy/gaps.py",
        "            (one, low_two),\n",
        "",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "stacked hinges' proof lent to a loss that has none",
        "privacy/gaps.py",
        "if type(loss) not in PROOFS:",
        "if not issubclass(type(loss), PROOFS):",
        ("privacy/test_gaps.py",),
    ),
    Mutant(
        "values that were released bare, and differ, are no sign",
        "mechanisms/kernel.py",
        "bare = np.where(excess == 0.0, 0.0, np.inf)",
        "bare = np.zeros(excess.shape)",
        ("audit/test_attacks.py", "audit/test_noise_tests.py"),
    ),
    Mutant(
        "another mechanism taken for one that asks its bound alone",
        "heads/released.py",
        "return self.by_package and isinstance(self.bound, Query)",
        "return isinstance(self.bound, Query)",
        ("mechanisms/test_own.py",),
    ),
    Mutant(
        "a transcript that nobody asked for kept",
        "heads/fitting.py",
        "return not bound.has_transcript or bool(",
        "return True or bool(",
        ("heads/test_leaks.py",),
    ),
    Mutant(
        "rounding of shortened rows left out",
        "mechanisms/gradients.py",
        "whitened=mapped is not None and mapped.shortens,",
        "whitened=False,",
        ("mechanisms/test_queries.py", "mechanisms/test_gradients.py", "privacy/test_bounds.py"),
    ),
    Mutant(
        "persons of several classes count as of one",
        "heads/weighing.py",
        "min(max(1.0, block_factor), math.sqrt(most_classes))",
        "1.0",
        PERSONS,
    ),
    Mutant(
        "a digest that is not compared",
        "publish/model.py",
        "if not faults and self.digest != self.record.digest:",
        "if False:",
        ("publish/test_folder.py", "publish/test_hostile.py"),
    ),
    Mutant(
        "a file beyond the folder's list accepted",
        "publish/folder.py",
        "for name in sorted(source.names) if _may_be_taken(name)]",
        "for name in sorted(source.names) if False]",
        ("publish/test_folder.py",),
    ),
    Mutant(
        "bytes of a file that no reader looks at",
        "publish/files.py",
        "return value, write(value) != body",
        "return value, False",
        ("publish/test_files.py",),
    ),
    Mutant(
        "a link that leads out of its folder followed",
        "publish/files.py",
        "            if leads_out(folder / name):",
        "            if False:",
        ("publish/test_folder.py",),
    ),
    Mutant(
        "epsilon of a record not computed again",
        "privacy/contradictions.py",
        "if not 0.0 <= mu <= budget * (1.0 + ROUNDING):",
        "if False:",
        ("publish/test_verify.py",),
    ),
    Mutant(
        "the column that train was told forgotten",
        "command/predict.py",
        "options.column or published.column or kind",
        "options.column or kind",
        ("test_command.py",),
    ),
    Mutant(
        "rows behind a blank line read as if nothing lacked",
        "command/files.py",
        '            if blank:\n                raise InputError(f"{path}: line',
        '            if False:\n                raise InputError(f"{path}: line',
        ("test_records.py",),
    ),
    Mutant(
        "rows of a CSV with fewer cells dropped",
        "command/files.py",
        '            amount = "more" if',
        '            row += [""] * width\n            continue\n            amount = "more" if',
        ("test_records.py",),
    ),
    Mutant(
        "private records that pass for public ones",
        "command/public.py",
        "if common > len(contents) / 2 and (",
        "if False and (",
        ("test_command.py",),
    ),
    Mutant(
        "distance of two numbers / 1.25",
        "encoders/tables.py",
        "math.sin(0.25 * math.pi * min",
        "math.sin(0.2 * math.pi * min",
        ("test_tables.py",),
    ),
    Mutant(
        "widest step between knots in place of the narrowest",
        "encoders/tables.py",
        "float(steps.min())",
        "float(steps.max())",
        ("test_tables.py",),
    ),
    Mutant(
        "unknown values longer than others",
        "encoders/tables.py",
        "= scale / math.sqrt(self.n_values)",
        "= scale",
        ("test_tables.py",),
    ),
    Mutant(
        "some cells count once",
        "encoders/tables.py",
        "square = 2.0 * int(change)",
        "square = 1.0 * int(change)",
        ("test_tables.py",),
    ),
)


@contextmanager
def faulty(mutant: Mutant) -> Iterator[tuple[Path, dict[str, str]]]:
    """A copy of the repository with the fault, and the environment that imports it."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            own = ROOT / name
            copy = shutil.copytree if own.is_dir() else shutil.copy
            copy(own, root / name)
        mutant.apply(root)
        yield root, {**os.environ, "PYTHONPATH": str(root)}


def outcome(mutant: Mutant) -> str:
    """What killed a mutant, or an empty text if nothing did."""
    with faulty(mutant) as (root, environment):
        tests = [f"tests/{name}" for name in mutant.tests]
        options = ["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
        )
        killers = [
            line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))
        ]
        if done.returncode not in (0, 1):
            raise RuntimeError(f"{mutant.name}: the tests did not run.\n{done.stdout[-2000:]}")
        return killers[0].split(" - ")[0].removeprefix("FAILED ") if killers else ""


def main(argv: list[str] | None = None) -> int:
    """Apply every mutant, print a line for each, and count those that live."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutants", description=__doc__)
    parser.add_argument("--only", help="mutants whose name holds this text")
    options = parser.parse_args(argv)
    alive = 0
    for mutant in MUTANTS:
        if options.only and options.only not in mutant.name:
            continue
        started = time.perf_counter()
        killer = outcome(mutant)
        alive += not killer
        seconds = time.perf_counter() - started
        print(f"{mutant.name}: {killer or 'SURVIVES'} ({seconds:.0f} s)", flush=True)
    print(f"{alive} mutants survive")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
