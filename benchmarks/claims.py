"""``python -m benchmarks.claims``: write every table, picture and page from the stored cells.

In a page ``<!-- =worth.rest -->0.6<!-- . -->`` is a number that was measured, or follows from the
code: the name says which entry of CLAIMS computes it. Hosts and the site do not show the marks. A
name in KEPT says why a number stays as it is written.
"""

import contextlib
import functools
import io
import math
import re

import numpy as np
import pandas as pd

from benchmarks import __main__ as driver
from benchmarks import classes, elsewhere, methods, public, radius
from benchmarks import tables as tables_study
from benchmarks.paper import errata, tables
from benchmarks.speed import ratios
from benchmarks.study import DATASETS, RESULTS, ROOT
from sklearn_balldp import BallDPLinearDiscriminant, BallDPRidgePrototype
from sklearn_balldp.privacy.gaussian import mu_from_budget
from sklearn_balldp.radius import MAX_ROWS_READ

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: A name, and what stands there. A comment that begins a line would end its paragraph.
MARKED = re.compile(r"<!-- =([\w.]+) -->(.*?)<!-- \. -->", re.DOTALL)
#: Names without a formula: a setting, size or year that no run measures; what a test of its own
#: compares with the page; what was measured once by hand and stands in no file.
KEPT = {"set", "tested", "hand"}

cells = functools.cache(lambda own: own.CELLS.read(RESULTS))
paper = functools.cache(lambda: tables.Results.read(RESULTS))


def most(value, digits=0):
    """Of "at most": rounded up."""
    return f"{math.ceil(round(value * 10**digits, 6)) / 10**digits:.{digits}f}"


@functools.cache
def behind():
    """Cells with a ball: points that the default is behind the best other head."""
    found = radius.against_the_best(cells(radius))
    return -found[found.index.get_level_values("radius") != "any"]["gain"]


def discriminant_behind():
    """Points that it is behind logistic regression, in small balls and at small epsilons."""
    small = cells(radius).query("radius in ('0.02', '0.1') and epsilon <= 2.0")
    wide = small.pivot_table(index=["dataset", "radius", "epsilon"], columns="head", values="mean")
    return 100.0 * (wide["logistic"] - wide["discriminant"]).max()


def wider(own, other, *epsilons):
    """Points that logistic regression loses from a promise to another, at most."""
    means = [
        [paper().of(name, "logistic", policy, epsilon)["mean"] for policy in (own, other)]
        for name in DATASETS
        for epsilon in epsilons
    ]
    return most(-100.0 * np.diff(means).min())


def others_lead():
    """Points that other heads are ahead of logistic regression where classes are many."""
    own = cells(elsewhere).query("dataset == 'hwu64' and epsilon == 0.5")
    wide = own.pivot_table(index="radius", columns="head", values="mean")
    return 100.0 * (wide[["SVC", "discriminant"]].max(axis=1) - wide["logistic"]).max()


def gain(choose, *names):
    """Points that a ball gains over standard DP while the attacker may succeed in 30 %."""
    found = pd.read_csv(RESULTS / "worth.csv").query("data in @names and certificate <= 0.3")
    return f"{100.0 * choose(found['ball over standard DP'].str.split().str[0].astype(float)):.1f}"


def ahead(method, *names):
    """Points that another method is ahead of our standard DP on the same splits."""
    wide = 100.0 * methods.read(RESULTS).pivot_table(
        index=["dataset", "epsilon"], columns="method", values="mean"
    )
    return (wide[method] - wide[methods.STANDARD]).dropna()[[*names]]


def at_any_distance():
    head = BallDPLinearDiscriminant(0.5, radius=0.02, domain="sphere")
    return head.plan(20_000, 384, [10_000, 10_000]).release.epsilon_full_radius


def letter(head, hidden):
    own = cells(elsewhere).query("dataset == 'letter' and epsilon == 2.0")
    return f"{100.0 * own.query('head == @head and radius == @hidden')['mean'].item():.0f}"


def records_of_a_class(epsilon):
    """What a class of embeddings needs so as not to be lost at radius 0.6."""
    return f"{0.6 * math.sqrt(384.0) / (2.0 * mu_from_budget(epsilon, 1e-6)):.0f}"


def weighed(head, weight):
    """Points of accuracy that weights of classes cost on TREC-6."""
    own = cells(classes).query("dataset == 'trec6'")
    wide = own.pivot_table(index=["radius", "epsilon"], columns="head", values="accuracy")
    return 100.0 * (wide[head] - wide[f"{head}, {weight}"]).dropna()


def leads(method, score):
    """By how much a library leads our standard DP on tables, cell by cell."""
    better = -1.0 if score == "log loss" else 1.0
    wide = cells(tables_study).pivot(index=["dataset", "epsilon"], columns="method", values=score)
    return better * (wide[method] - wide["ours, standard DP"]).dropna()


def slower(job, against=""):
    """The largest ratio of jobs whose names hold these texts."""
    found = cells(ratios).fillna({"against": ""})
    here = found["job"].str.contains(job, regex=False)
    return found["ratio"][here & found["against"].str.contains(against, regex=False)].max()


def names_ahead():
    """Points that standard DP with names is ahead of a q50 ball without them."""
    own = public.names_or_ball(cells(public))
    return own["standard DP, names"] - own["q50 ball"]


def ball_ahead():
    """Points that a q50 ball gains where both have names."""
    own = public.names_or_ball(cells(public))
    return own["q50 ball, names"] - own["standard DP, names"]


def helped(*kinds, dataset=""):
    """Points that public records or names gain over the better of them alone and none."""
    own = cells(public)[cells(public)["public"].isin(kinds)].set_index(["radius", "epsilon"])
    least = own["without"] if dataset else own[["without", "alone"]].max(axis=1)
    return (100.0 * (own["with"] - least))[(own["dataset"] == dataset) | (dataset == "")]


def certificate():
    head = BallDPRidgePrototype(2.0, radius=0.6)
    return head.plan(150, 4, [50, 50, 50]).release.certificate(0.1)


def table(name):
    """The table of a file of results, without what measured it."""
    return f"\n\n{(RESULTS / f'{name}.md').read_text().partition(chr(10) * 2)[0]}\n\n"


OTHERS, FEATURES = ("trec6", "emotion", "imdb"), elsewhere.FEATURES
FEW, REST = ("TREC-6", "BANKING77"), ("AG News", "IMDb", "CIFAR-10", "MNIST")
CLAIMS = {
    "readme.methods": lambda: table("methods_short"),
    "readme.speed": lambda: table("speed_short"),
    "checklist.named": lambda: most(100.0 * certificate(), 1),
    "choose.edits": lambda: table("edits"),
    "discriminant.sphere": lambda: f"{100.0 * (1.0 - math.sqrt(0.5)):.0f}",
    "guide.ball": lambda: letter("logistic", "0.3"),
    "guide.ball_features": lambda: letter(FEATURES, "0.3"),
    "guide.any": lambda: letter("logistic", "any"),
    "guide.any_features": lambda: letter(FEATURES, "any"),
    "heads.cells": lambda: f"{len(behind())}",
    "heads.near": lambda: f"{(behind() <= 0.5).sum()}",
    "heads.behind": lambda: most(behind().max(), 1),
    "heads.discriminant": lambda: most(discriminant_behind(), 1),
    "heads.others": lambda: most(others_lead(), 1),
    "heads.labels_at_2": lambda: wider("q50", "labels", 2.0),
    "heads.labels_at_half": lambda: wider("q50", "labels", 0.5),
    "heads.labels_alone": lambda: wider("full", "labels", 0.5, 1.0, 2.0, 8.0, 32.0),
    "people.balanced_least": lambda: f"{weighed('logistic', 'balanced').min():.0f}",
    "people.balanced_most": lambda: f"{weighed('logistic', 'balanced').max():.0f}",
    "people.uniform": lambda: most(weighed("prototypes", "uniform priors").max()),
    "people.recall": lambda: f"{100.0 / 9.0:.0f}",
    "people.records_at_half": lambda: records_of_a_class(0.5),
    "people.records_at_2": lambda: records_of_a_class(2.0),
    "public.names": lambda: f"{helped(public.NAMES, dataset='banking77')['any', 0.25]:.0f}",
    "public.five": lambda: f"{helped(public.FIVE, dataset='banking77')['any', 0.25]:.0f}",
    "public.cells": lambda: f"{len(helped(public.FIVE, public.TWENTY))}",
    "public.within": lambda: f"{(helped(public.FIVE, public.TWENTY) >= -1.0).sum()}",
    "public.behind": lambda: most(-helped(public.FIVE, public.TWENTY).min(), 1),
    "public.permuted": lambda: most(-helped(public.PERMUTED).min(), 1),
    "radius.declared": lambda: f"{MAX_ROWS_READ}",
    "radius.any": lambda: wider("q50", "full", 0.5),
    "reproduction.errata": lambda: f"\n\n{errata.errata()}\n\n",
    "reproduction.gradient": lambda: most(slower("one mean gradient", "two bare products"), 1),
    "reproduction.opacus": lambda: most(100.0 * slower("label-protecting fit", "Opacus")),
    "reproduction.help": lambda: most(100.0 * slower("balldp --help")),
    "reproduction.verify": lambda: most(slower("balldp verify FOLDER"), 1),
    "tables.cells": lambda: f"{len(leads('DP-EBM', 'accuracy'))}",
    "tables.accuracy": lambda: f"{(leads('DP-EBM', 'accuracy') > 0.0).sum()}",
    "tables.auc": lambda: f"{(leads('DP-EBM', 'auc') > 0.0).sum()}",
    "tables.log_loss": lambda: f"{(leads('DP-EBM', 'log loss') > 0.0).sum()}",
    "tables.diffprivlib": lambda: f"{(leads('diffprivlib', 'accuracy') > 0.0).sum()}",
    "tables.diffprivlib_by": lambda: most(100.0 * leads("diffprivlib", "accuracy").max(), 1),
    "worth.any": lambda: f"{at_any_distance():.0f}",
    "worth.few_least": lambda: gain(min, *FEW),
    "worth.few_most": lambda: gain(max, *FEW),
    "worth.emotion": lambda: gain(max, "Emotion"),
    "worth.rest": lambda: gain(max, *REST),
    "worth.names": lambda: f"{names_ahead()['banking77', 0.25]:.0f}",
    "worth.rest_least": lambda: f"{-names_ahead().drop('banking77')[:, 0.25].max():.1f}",
    "worth.rest_most": lambda: f"{-names_ahead().drop('banking77')[:, 0.25].min():.1f}",
    "worth.ball": lambda: most(-names_ahead().loc[:, 0.5:].min(), 1),
    "worth.ball_least": lambda: f"{ball_ahead()[:, 1.0].min():.1f}",
    "worth.ball_most": lambda: f"{ball_ahead()[:, 1.0].max():.1f}",
    "worth.opacus": lambda: most(-ahead("Opacus", *OTHERS).min()),
    "worth.opacus_banking77": lambda: most(-ahead("Opacus", "banking77").min()),
    "worth.opacus_added": lambda: most(ahead("Opacus, add or remove", *methods.SEARCHED).max()),
}


def filled(text):
    """A page whose numbers are those of CLAIMS."""
    return MARKED.sub(
        lambda own: own[0] if own[1] in KEPT else f"<!-- ={own[1]} -->{CLAIMS[own[1]]()}<!-- . -->",
        text,
    )


def plain(text):
    """A page without marks, as a reader sees it."""
    return MARKED.sub(r"\2", text)


def main():
    for entry in driver.ENTRIES.values():
        with contextlib.redirect_stdout(io.StringIO()):
            entry.report(RESULTS)
    for page in PAGES:
        page.write_text(filled(page.read_text()))


if __name__ == "__main__":
    main()
