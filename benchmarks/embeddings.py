"""``python -m benchmarks.embeddings --out DIR``: the files ``NAME.npz`` that every study reads.

The records of the paper's datasets come from the Hugging Face hub, each at a fixed revision, or
from copies in folders. They are embedded one by one, and kept in half precision. Needs the extra
``models``, and a GPU for more than a few thousand records.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.study import DATASETS
from sklearn_balldp.encoders import ImageEncoder, SentenceEncoder

#: Repository and revision; what else is asked for; columns of records and labels.
SOURCES = {
    "trec6": ("CogComp/trec", "65752bf53af25bc935a0dce92fb5b6c930728450"),
    "emotion": ("dair-ai/emotion", "cab853a1dbdf4c42c2b3ef2173804746df8825fe"),
    "banking77": ("legacy-datasets/banking77", "f54121560de48f2852f90be299010d1d6dc612ec"),
    "agnews": ("fancyzhx/ag_news", "eb185aade064a813bc0b7f42de02595523103ca4"),
    "imdb": ("stanfordnlp/imdb", "e6281661ce1c48d982bc483cf8a173c1bbeb5d31"),
    "cifar10": ("uoft-cs/cifar10", "0b2714987fa478483af9968de7c934580d0bb9a2"),
    "mnist": ("ylecun/mnist", "77f3279092a1c1579b2250db8eafed0ad422088c"),
}
CONFIGURATIONS = {"emotion": "split"}
COLUMNS = {
    "trec6": ("text", "coarse_label"),
    "cifar10": ("img", "label"),
    "mnist": ("image", "label"),
}
#: The paper's encoders.
ENCODERS = {"text": SentenceEncoder(), "image": ImageEncoder("resnet18", weights="IMAGENET1K_V1")}


def embedded(name, copies=None):
    """Rows and labels of both official splits, as a study's file holds them."""
    from datasets import load_dataset

    column, label = COLUMNS.get(name, ("text", "label"))
    if copies is None:
        repository, revision = SOURCES[name]
        splits = load_dataset(repository, CONFIGURATIONS.get(name), revision=revision)
    else:
        splits = load_dataset(str(copies / name))
    encoder, arrays = ENCODERS["text" if column == "text" else "image"], {}
    for split in ("train", "test"):
        records, labels = list(splits[split][column]), np.array(splits[split][label])
        arrays[f"X_{split}"] = encoder.fit_transform(records).astype(np.float16)
        arrays[f"y_{split}"] = labels
    return arrays


def main(argv=None):
    parser = argparse.ArgumentParser(prog="python -m benchmarks.embeddings", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="files there are not made again")
    parser.add_argument("--datasets", choices=DATASETS, nargs="+", default=list(DATASETS))
    parser.add_argument("--copies", type=Path, help="folders NAME of records, in place of the hub")
    run = parser.parse_args(argv)
    run.out.mkdir(parents=True, exist_ok=True)
    for name in run.datasets:
        path = run.out / f"{name}.npz"
        if not path.exists():
            arrays = embedded(name, run.copies)
            np.savez(path, **arrays)
            print(f"{path}: {arrays['X_train'].shape} and {arrays['X_test'].shape}")


if __name__ == "__main__":
    main()
