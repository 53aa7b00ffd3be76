"""``balldp train`` on texts, from start to end.

Against a script that embeds the same texts by ``SentenceTransformer.encode`` and fits the logistic
regression of scikit-learn. Each runs as a process of its own, in turn, on the threads allowed.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from sklearn_balldp.datasets import load_messages
from sklearn_balldp.encoders.weights import DEFAULT, located

from ..study import Study, show

TEXTS, ROUNDS = 10_000, 3
OURS, THEIRS = "`balldp train`", "`encode` and `LogisticRegression`"
_PLAIN = """
import sys
import pandas as pd
from sentence_transformers import SentenceTransformer
from sklearn.linear_model import LogisticRegression
table = pd.read_csv(sys.argv[1])
rows = SentenceTransformer(sys.argv[2]).encode(table["text"].tolist(), normalize_embeddings=True)
LogisticRegression().fit(rows, table["topic"])
"""


def write(path, n):
    """Texts that begin as one message and end as another of its topic, and few of them twice."""
    data, rng = load_messages(), np.random.default_rng(0)
    topics = np.asarray(data.y_train)
    texts = []
    for first in rng.integers(len(topics), size=n):
        other = rng.choice(np.flatnonzero(topics == topics[first]))
        words = [data.texts_train[i].split() for i in (first, other)]
        half = [len(own) // 2 for own in words]
        parts = words[0][: half[0]] + words[1][half[1] :]
        texts.append({"text": " ".join(parts), "topic": topics[first]})
    pd.DataFrame(texts).to_csv(path, index=False)


def timed(command):
    """Seconds, processor seconds and peak gigabytes of a process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if status:
        raise SystemExit(f"{command} ended with status {os.waitstatus_to_exitcode(status)}")
    scale = 1 if sys.platform == "darwin" else 2**10
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss * scale / 1e9


def measure(run, n):
    """Medians over the rounds of both."""
    runs = {OURS: [], THEIRS: []}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "texts.csv")
        write(path, n)
        for i in range(ROUNDS):
            fit = ("--text", "text", "--label", "topic", "--radius", "0.6", "--epsilon", "4")
            fit += ("--delta", "1e-6", "--out", f"{folder}/model{i}")
            commands = {
                OURS: [sys.executable, "-m", "sklearn_balldp", "train", path, *fit],
                THEIRS: [sys.executable, "-c", _PLAIN, path, located(DEFAULT)],
            }
            for name, command in commands.items():
                runs[name].append(timed([*map(str, command)]))
    ours, theirs = (np.median(runs[name], axis=0) for name in (OURS, THEIRS))
    names = ("seconds", "processor seconds", "peak memory, GB")
    return [
        {"measured": name, OURS: a, THEIRS: b, "ratio": a / b}
        for name, a, b in zip(names, ours, theirs, strict=True)
    ]


CELLS = Study("texts.csv", ("texts",), measure, lambda run: [(TEXTS,)], {}, alone=True)
STUDIES = (CELLS,)


def report(out):
    cells = CELLS.read(out)
    table = cells[["measured", OURS, THEIRS]].rename(columns={"measured": f"{TEXTS:,} texts"})
    table[[OURS, THEIRS]] = table[[OURS, THEIRS]].map("{:.3g}".format)
    show(table.assign(ratio=cells["ratio"].map("{:.2f}".format)), out, "texts", cells)
