"""What every measurement of speed shares: data, clocks and the row of the table."""

import contextlib
import os
import threading
import time
import tracemalloc

import numpy as np

from sklearn_balldp.privacy import Noise

#: Seconds between two measurements: threads of a BLAS spin for a while after a product, and would
#: take a core from what is measured next.
PAUSE = 0.1


def interleaved(functions, repeats=5, clock=time.perf_counter):
    """Seconds of each function, measured in turn so that drift hits all alike.

    With ``clock=time.process_time`` they are those of all cores together.
    """
    times = {name: [] for name in functions}
    for _ in range(repeats):
        for name, function in functions.items():
            time.sleep(PAUSE)
            start = clock()
            function()
            times[name].append(clock() - start)
    return {name: np.array(values) for name, values in times.items()}


def against(job, ours, others, repeats=5, clock=time.perf_counter):
    """A row for each of the others: a function, and the ratio that is asked for (or None).

    Where many calls take another's place, their number comes third.
    """
    functions = {name: function for name, (function, *_) in others.items()}
    times = interleaved({"": ours, **functions}, repeats, clock)
    for name, (_, asked, *n_calls) in others.items():
        yield row(job, times[""], name, times[name] * (n_calls or [1])[0], asked)


def row(job, ours, other, theirs, asked=None):
    """One figure of two series of seconds: medians, and the range of the ratio over rounds."""
    ratios, seconds, their_seconds = ours / theirs, np.median(ours), np.median(theirs)
    return {
        "job": job,
        "seconds": seconds,
        "against": other,
        "their_seconds": their_seconds,
        "ratio": seconds / their_seconds,
        "least": ratios.min(),
        "most": ratios.max(),
        "asked": asked,
    }


def memory(job, function, X, asked=None):
    """Peak bytes that a call allocates, over those of its rows."""
    tracemalloc.start()
    try:
        function()
        return {"job": job, "share": tracemalloc.get_traced_memory()[1] / X.nbytes, "asked": asked}
    finally:
        tracemalloc.stop()


@contextlib.contextmanager
def without_noise():
    """A sampler that adds nothing, for as long as it takes to time the rest of a fit."""
    call, Noise.__call__ = Noise.__call__, lambda self, values, sigma: np.array(values)
    try:
        yield
    finally:
        Noise.__call__ = call


def bare(head, X, y):
    """A fit apart from its noise."""
    with without_noise():
        head.fit(X, y)


def disk_speed(path):
    """Bytes a second of reading a file in order, its pages dropped from memory before."""
    with open(path, "rb", buffering=0) as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        start, size = time.perf_counter(), 0
        while block := file.read(2**23):
            size += len(block)
        return size / (time.perf_counter() - start)


def allocated(process="self"):
    """Bytes that a process holds, without pages of mapped files."""
    with open(f"/proc/{process}/status") as file:
        return sum(1024 * int(line.split()[1]) for line in file if line.startswith("RssAnon"))


def watched(function, processes=("self",)):
    """Seconds of a call, and the most that these processes held together beyond what they did."""

    def held():
        return sum(map(allocated, processes))

    before = most = held()
    ended = threading.Event()

    def look():
        nonlocal most
        while not ended.wait(0.01):
            most = max(most, held())

    watcher = threading.Thread(target=look)
    watcher.start()
    start = time.perf_counter()
    try:
        function()
        return time.perf_counter() - start, most - before
    finally:
        ended.set()
        watcher.join()


def rates(cells, names):
    """What passes over files reach; cells have records, features, bytes of a value and passes."""
    values = cells["records"] * cells["passes"] / cells["seconds"]
    share = values * cells["features"] * cells["itemsize"] / cells["disk"]
    return cells[names].assign(
        **{
            "seconds": cells["seconds"].map(lambda own: f"{own:.2g}" if own < 10 else f"{own:.0f}"),
            "million rows a second": (values / 1e6).map("{:.2g}".format),
            "share of the disk's speed": share.map("{:.2g}".format),
            "peak memory, MB": (cells["memory"] / 1e6).map("{:.0f}".format),
        }
    )


def unit_rows(n, d):
    """Rows without structure, of unit norm, float32."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    return X / np.linalg.norm(X, axis=1, keepdims=True)


def embeddings(n, d, n_classes):
    """Unit rows with a decaying spectrum and noisy class structure, float32."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    scale = (1.0 + np.arange(d)) ** -0.5
    X = rng.standard_normal((n, d)) * scale + 0.4 * (rng.standard_normal((n_classes, d)) * scale)[y]
    X += 0.5 * scale
    y = np.where(rng.random(n) < 0.1, rng.integers(n_classes, size=n), y)
    return (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32), y
