"""Faults, each of which the attacks must find: ``python -m benchmarks.falsify --planted``.

They are those whose test says so: ``@pytest.mark.kills(file, text, other, attack=NAME)``.
"""

import subprocess
import sys
import time

from ..faults import collected


def main(minutes: float, n_processes: int, seed: int) -> int:
    """Attack a copy of the package with each fault, and count those that are not found."""
    alive = 0
    for fault in {fault: None for _, fault in collected("tests") if fault.attack}:
        options = ["--minutes", f"{minutes}", "--processes", f"{n_processes}", "--seed", f"{seed}"]
        with fault.copy() as (root, environment):
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
            raise RuntimeError(f"{fault}: the attacks did not run.\n{done.stderr[-2000:]}")
        alive += not refuted
        found = refuted[0][:160] if refuted else f"NOT FOUND, though {fault.attack!r} should"
        print(f"{fault.file}: {fault.other!r}: {seconds:.0f} s, {found}", flush=True)
    return int(alive > 0)
