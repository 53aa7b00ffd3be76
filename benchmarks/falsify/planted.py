"""Faults, each of which the attacks must find: ``python -m benchmarks.falsify --planted``."""

import subprocess
import sys
import time

from ..mutants import MUTANTS, Mutant, faulty

_KNOWN = {mutant.name: mutant for mutant in MUTANTS}
#: Each fault, and the attack that finds it.
FAULTS: dict[str, tuple[str, Mutant]] = {
    name: (attack, _KNOWN[name])
    for name, attack in (
        ("sensitivity of sums / 1.05", "ridge prototypes"),
        ("label change of steps dropped", "descent from zero"),
        ("share of the start left out of what is stated", "descent from sums"),
        ("whitening map of Lipschitz factor 1.05", "descent from sums"),
        ("persons of several classes count as of one", "ridge prototypes"),
        ("chain of persons one short", "discriminant"),
        ("clip ignored", "descent from zero"),
        ("the filter forgets what was spent", "what the filter lets pass"),
        ("deviates drawn ahead, and kept", "noise that repeats"),
        ("versine of softmax halved", "gap at any parameters, softmax"),
        ("distance of two numbers / 1.25", "distances of declared columns"),
    )
}


def main(minutes: float, n_processes: int, seed: int) -> int:
    """Attack a copy of the package with each fault, and count those that are not found."""
    alive = 0
    for attack, fault in FAULTS.values():
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
