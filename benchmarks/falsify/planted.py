"""Five faults, each of which the attacks must find: ``python -m benchmarks.falsify --planted``."""

import subprocess
import sys
import time

from ..mutants import MUTANTS, Mutant, faulty

_KNOWN = {mutant.name: mutant for mutant in MUTANTS}
#: Each fault, and the attack that finds it.
FAULTS: dict[str, Mutant] = {
    "ridge prototypes": _KNOWN["sensitivity of prototypes / 1.05"],
    "descent from sums": _KNOWN["share of the start left out of what is stated"],
    "gap at an iterate, softmax": Mutant(
        "a Lipschitz factor dropped",
        "losses.py",
        "return min(self.curvature, math.sqrt(2.0) * clip)",
        "return min(0.5 * self.curvature, math.sqrt(2.0) * clip)",
        (),
    ),
    "discriminant": _KNOWN["chain of persons one short"],
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
        options = ["--minutes", f"{minutes}", "--processes", f"{n_processes}", "--seed", f"{seed}"]
        with faulty(fault) as (root, environment):
            started = time.perf_counter()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.falsify", *options],
                cwd=root,
                env=environment,
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
