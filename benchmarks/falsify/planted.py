"""Five faults, each of which the attacks must find: ``python -m benchmarks.falsify --planted``."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ..mutants import COPIED, ROOT, Mutant

#: Each fault, and the attack that finds it.
FAULTS: dict[str, Mutant] = {
    "ridge prototypes": Mutant(
        "a sensitivity divided by 1.05",
        "privacy/sensitivity.py",
        "np.where(counts > 0, 2.0 * radius / (2.0 * counts + ridge), 0.0)",
        "np.where(counts > 0, 2.0 * radius / 1.05 / (2.0 * counts + ridge), 0.0)",
        (),
    ),
    "descent from sums": Mutant(
        "a share forgotten",
        "privacy/transcript.py",
        "return math.nextafter(math.hypot(steps, self.start.mu(radius, labels)), math.inf)",
        "return steps",
        (),
    ),
    "gap at an iterate, softmax": Mutant(
        "a Lipschitz factor dropped",
        "losses.py",
        "return min(self.curvature, math.sqrt(2.0) * clip)",
        "return min(0.5 * self.curvature, math.sqrt(2.0) * clip)",
        (),
    ),
    "discriminant": Mutant(
        "a chain of persons one short",
        "privacy/release.py",
        "mu = math.nextafter(records * mu, math.inf)",
        "mu = math.nextafter((records - 1) * mu, math.inf)",
        (),
    ),
    "noise that repeats": Mutant(
        "noise reused after a fork",
        "privacy/noise.py",
        "if self._process != os.getpid():",
        "if self._process == -1:",
        (),
    ),
}


def main(minutes: float, n_processes: int, seed: int) -> int:
    """Attack a copy of the package with each fault, and count those that are not found."""
    alive = 0
    for attack, fault in FAULTS.items():
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for name in COPIED:
                copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
                copy(ROOT / name, root / name)
            fault.apply(root)
            started = time.perf_counter()
            options = ["--minutes", f"{minutes}", "--processes", f"{n_processes}"]
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.falsify", *options, "--seed", f"{seed}"],
                cwd=root,
                env={**os.environ, "PYTHONPATH": str(root)},
                capture_output=True,
                text=True,
            )
            seconds = time.perf_counter() - started
        refuted = [line for line in done.stdout.splitlines() if line.startswith("REFUTED")]
        if bool(refuted) != bool(done.returncode):
            raise RuntimeError(f"{fault.name}: the attacks did not run.\n{done.stderr[-2000:]}")
        alive += not refuted
        found = refuted[0][:160] if refuted else f"NOT FOUND, though {attack!r} should"
        print(f"{fault.name}: {seconds:.0f} s, {found}", flush=True)
    return int(alive > 0)
