"""The card: what it says is what the record says, in every form."""

import html.parser
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from climbing import climbed, into_ball
from markdown_it import MarkdownIt
from record_kinds import KINDS, made
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    Normalizer,
    StandardScaler,
)

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    RadiusPolicy,
    ReconstructionAuditor,
    compose_releases,
    publish,
)
from sklearn_balldp.publish.card import CANDIDATES, FALSE_POSITIVE_RATES
from sklearn_balldp.publish.steps import step_of
from sklearn_balldp.showing import DOWN, down, percent, up

N = 240


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 5))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.arange(N) % 3


HEADS = {
    "prototypes": BallDPRidgePrototype(2.0, radius=0.5),
    "protected": BallDPRidgePrototype(2.0, protect_labels=True, classes=range(3)),
    "protected ball": BallDPRidgePrototype(2.0, radius=1.8, protect_labels=True, classes=range(3)),
    "any distance": BallDPRidgePrototype(2.0),
    "descent": BallDPLogisticRegression(2.0, radius=0.5, mechanism="gradient"),
}


def fitted(name):
    return HEADS[name].fit(*data())


def sections(card):
    return re.findall("^## (.*)$", card, re.M)


def points(card, title="In short"):
    """Points of a section."""
    return re.findall("^- (.*)$", card.split(f"## {title}\n")[1].split("\n## ")[0], re.M)


def cells(markdown):
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.mark.parametrize("name", HEADS)
def test_numbers_of_the_table_are_upper_bounds(name):
    release = fitted(name).release_
    head, _, *rows = cells(publish.card(release))
    radii = [r for r in (release.radius, 2 * release.radius) if r < 2.0] + [2.0]
    assert len(head) == 1 + len(radii)
    table = {first: rest for first, *rest in rows}
    for i, radius in enumerate(radii):
        guarantee = release.guarantee(radius)
        assert float(table["epsilon"][i]) == pytest.approx(guarantee.epsilon, rel=1e-3)
        shares = {"advantage in telling the two apart": 2 * norm.cdf(guarantee.mu / 2) - 1}
        for fpr in FALSE_POSITIVE_RATES:
            name = f"true positives at {100 * fpr:g} % false positives"
            shares[name] = guarantee.tpr(fpr)
        for m in CANDIDATES:
            name = f"names the right one of {m} candidates"
            shares[name] = release.certificate(1 / m, radius)
        for what, share in shares.items():
            # Of candidates with any labels there is one column: the radius says nothing.
            *_, last = given = table[what]
            shown = float((given[i] if i < len(given) else last).removesuffix(" %")) / 100
            assert share <= shown + 1e-12
            assert shown <= share + 0.0011


def test_decimals_that_need_no_rounding_stay():
    """Products with powers of ten would move 0.07, 0.14 and others to the next digit."""
    for k in range(1, 1001):
        places = 2 if k < 10 else 1
        assert percent(k / 1000) == percent(k / 1000, DOWN) == f"{k / 10:.{places}f} %"
        assert down(k / 1000) == up(k / 1000) == f"{k / 1000:g}"
    assert up(math.inf) == "none"
    for share in (0.1234, 0.00567891, 1.23e-5, math.nextafter(0.07, 1.0)):
        low, high = (float(percent(share, *way).removesuffix(" %")) for way in ((DOWN,), ()))
        assert low < 100 * share < high


def test_proofs_of_the_publishers_own_are_named(release_of):
    release = release_of("hinge descent")
    assert release.accepted == ("mine:Query",)
    said = "the sensitivity of mine:Query is as the publisher states; nobody else has checked it"
    assert said in publish.card(release)
    assert "nobody else" not in publish.card(release_of("descent"))
    said = "candidates for the records of one person, with the same labels, each record inside"
    assert said in publish.card(release_of("persons"))


def test_records_of_every_kind_have_a_card(release):
    card = publish.card(release)
    assert card._repr_markdown_() == card
    assert card.startswith(f"# Privacy card of a {release.head}\n")
    assert release.bound.what in card
    assert sections(card)[0] == ("NOT PRIVATE" if release.private is False else "In short")
    # No attacker or publisher is a he.
    assert not re.search(r"\b(he|his|him)\b", card, re.IGNORECASE)


class Text(html.parser.HTMLParser):
    """Words of a page, whose tags are closed."""

    def __init__(self, page):
        super().__init__()
        self.words, self.open, self.tags = [], [], set()
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag not in ("meta", "hr", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" not in self.open:
            self.words += data.split()


PAGE = {"h1", "h2", "p", "ul", "li", "table", "thead", "tbody", "tr", "th", "td"}


HOSTILE = (
    "<script>alert(1)</script> | *x* _y_ `z` &lt;b&gt; $a$ ~~b~~",
    "[a](http://evil.example) <http://evil.example> ![](x) http://evil.example www.evil.example",
    "# a <!-- --> a@b.example \\ \\\\ \\* |---|",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_marks_of_names_stay_text(name):
    """Of an encoder and of a step: in Markdown that takes tags, with or without what hubs add."""
    head = BallDPRidgePrototype(2.0, encoder=name)
    model = Pipeline([(name.replace("__", ""), Normalizer()), ("head", head)])
    card = publish.card(model.fit(*data()))
    words, added = name.split(), MarkdownIt("gfm-like", {"html": True, "linkify": False})
    for page in (MarkdownIt("commonmark").enable("table").render(card), added.render(card)):
        text = Text(page)
        assert text.tags <= PAGE
        for before in (["records:"], ["after"]):
            start = next(i for i in range(len(text.words)) if text.words[i : i + 1] == before)
            assert text.words[start + 1 : start + 1 + len(words)][:-1] == words[:-1]
    assert "<script>" not in card
    # Behind a mark, or without its dot, nothing looks like an address.
    assert not re.search(r"https?://|www\.|\w@", card)


def test_model_and_audit():
    X, y = data()
    head = BallDPRidgePrototype(2.0, radius=1.5).fit(X[:160], y[:160])
    audit = ReconstructionAuditor(FrozenEstimator(head), n_candidates=4, n_supports=2)
    audit.fit(X[:160], y[:160], X[160:], y[160:])
    text = publish.card(head, audit)
    for said in ("at hand has these parameters", "not for publication", "scale of the noise: PASS"):
        assert said in text
    # Both ends of the interval are rounded outward.
    audit.success_interval_["clopper_pearson"] = (0.1234, 0.5678)
    assert "(12.3 % to 56.8 %)" in publish.card(head, audit)
    assert head.release_.digest in text
    # What is meant for publication holds none of it.
    assert "candidate was named" not in publish.card(head)
    assert "not for publication" not in publish.card(head)
    other = clone(head).fit(X[:160], y[:160]).released_
    head.released_ = replace(head.released_, values=other.values)
    assert "does NOT have" in publish.card(head)
    # Of a record alone nothing is said of parameters or steps.
    assert "the model at hand" not in publish.card(head.release_)


def test_words_follow_the_advantage():
    said = {0.5: "can hardly tell", 2.0: "a little better", 40.0: "can often tell"}
    for epsilon, words in said.items():
        assert words in publish.card(BallDPRidgePrototype(epsilon, radius=0.5).fit(*data()))


def test_the_distance_is_that_of_rows_as_the_head_sees_them():
    """Steps before it may move rows together, or further apart."""
    X, y = data()
    head = BallDPRidgePrototype(1.0, radius=0.5)
    plain = head.fit(X, y)
    said = "rows as the head sees them"
    # Without a model nobody knows whether steps come before its head.
    assert said in publish.card(plain.release_)
    nothing = make_pipeline("passthrough", clone(head)).fit(X, y)
    for model in (plain, nothing):
        assert "(euclidean distance between rows)" in publish.card(model)
        assert "head sees" not in publish.card(model)
    text = publish.card(make_pipeline(Normalizer(), clone(head)).fit(X, y))
    assert said in text
    assert "How far apart they are before is not known: normalizer may" in text
    steps = StandardScaler(), MinMaxScaler(), MaxAbsScaler(), PCA(3), PCA(2, whiten=True)
    for step in steps:
        model = make_pipeline(step, clone(head)).fit(X, y)
        text = publish.card(model)
        before = float(re.search(r"Two rows within ([0-9.e-]+) of each other", text)[1])
        # Pairs in every direction, as far apart as the card says, are at most the radius apart.
        rng = np.random.default_rng(0)
        moves = rng.standard_normal((500, X.shape[1]))
        moves = np.vstack([moves, np.eye(X.shape[1])])
        if hasattr(model[0], "components_"):
            moves = np.vstack([moves, model[0].components_])
        moves *= before / np.linalg.norm(moves, axis=1, keepdims=True)
        moved = model[0].transform(X[:1] + moves) - model[0].transform(X[:1])
        lengths = np.linalg.norm(moved, axis=1)
        assert 0.499 < lengths.max() <= 0.5


def test_steps_that_look_beyond_one_row_are_named():
    for step in (StandardScaler(), FrozenEstimator(StandardScaler().fit(data()[0]))):
        model = Pipeline([("it", step), ("head", BallDPRidgePrototype(2.0, radius=0.5))])
        said = "steps before the head: it learns from the rows" in publish.card(model.fit(*data()))
        assert said == isinstance(step, StandardScaler)


@pytest.mark.kills("publish/card.py", 'if release.domain == "sphere":', "if False:")
def test_rows_are_scaled_to_the_sphere_after_the_steps():
    """No factor bounds how far that moves short rows apart, so the card states none."""
    X, y = data()
    head = BallDPLinearDiscriminant(2.0, radius=0.5, domain="sphere")
    model = make_pipeline(StandardScaler(), head).fit(X, y)
    near = model[0].mean_ + 1e-3 * np.array([[1.0], [-1.0]]) * model[0].scale_
    units = model[0].transform(near)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    assert np.linalg.norm(near[0] - near[1]) < 0.01 < 1.99 < np.linalg.norm(units[0] - units[1])
    text = publish.card(model)
    assert "of each other before these steps" not in text
    assert "before is not known: the scaling to norm 1 after them may" in text


@pytest.mark.kills("publish/steps.py", '2.0 / len(a["offset"]))', '2.0 / len(a["offset"])) / 1.05')
def test_random_features_stretch_no_further_than_the_card_says():
    """A search over places and directions for the largest stretch of a step."""
    step = RBFSampler(gamma=0.7, n_components=6, random_state=0).fit(np.zeros((1, 3)))

    def stretch(free, _):
        move = 1e-5 * into_ball(1e9 * free[:, 3:], 1.0)
        moved = step.transform(free[:, :3] + move) - step.transform(free[:, :3])
        return np.linalg.norm(moved, axis=1) / 1e-5

    rng = np.random.default_rng(0)
    largest = climbed(stretch, 5.0 * rng.standard_normal((2000, 6)), rng)
    assert 0.9 * step_of(step).stretch < largest <= step_of(step).stretch * (1.0 + 1e-6)


@pytest.mark.parametrize("name", HEADS)
@pytest.mark.kills("publish/card.py", "release.certificate(0.1)", "release.certificate(0.1), DOWN")
def test_three_lines_come_first_and_are_bounds(name):
    release = fitted(name).release_
    hidden, gains, left = points(publish.card(release))
    near = re.search(r"at most (\S+) away", hidden)
    # No two rows are further apart than the largest radius: nothing is left to be said.
    assert (near is None) == (release.radius == 2.0) == ("larger changes" not in left)
    if near is not None:
        assert float(near[1]) <= release.radius <= float(near[1]) * 1.01
    named = re.search(r"with probability (\S+ %) at most", gains)[1]
    assert 100 * release.certificate(0.1) <= float(named.removesuffix(" %"))
    # One number, and one way to round it: here, in the table and on the terminal.
    table = {first: cells for first, *cells in cells(publish.card(release))}
    assert named == percent(release.certificate(0.1))
    assert named == table["names the right one of 10 candidates"][0]
    assert ("labels" in left) == (release.labels == "public")
    protected = release.labels == "protected"
    assert ("different label" in hidden or "whatever its label" in hidden) == protected
    assert ("of any labels" in gains) == ("of one label" not in gains) == protected


def every_card():
    """Cards of all kinds of records, at their radius and at the largest there is."""
    for name in KINDS:
        release = made(name)
        yield release, publish.card(release)
        whole = replace(release.problem, radius=release.full_radius)
        if release.bound.mu(whole, whole.diameter) < 20.0:
            release = replace(release, problem=whole)
            yield release, publish.card(release)


def test_what_a_card_says_of_seeds_distances_and_persons():
    for release, card in every_card():
        first = points(card, next(title for title in sections(card) if "short" in title))[0]
        seeded = release.private is False
        assert ("NOT PRIVATE" in card) == seeded
        assert first.startswith("Not private, because of the seed." if seeded else "Hidden: ")
        assert ("without the seed" in card) == seeded
        # Nothing is further away than the largest distance.
        anywhere = release.radius == release.full_radius
        assert ("further away" in card) == ("larger changes" in card) == (not anywhere)
        # A ball that holds all rows holds all candidates.
        assert "inside one ball" not in card or not anywhere
        assert ("around a possible" in card) == ("inside one ball" in card)
        # Above its tables too: all records of one person, or one record.
        person = release.unit == "person"
        assert ("Two versions of one person's records" in card) == person
        assert ("Two records" in card) == (not person)
        assert ("candidates for the records of one person" in card) == person
        assert ("several persons at once" in card) == person


@pytest.mark.parametrize("radii", [(0.3, 0.6), (0.6, 0.6)])
def test_models_add_up_at_one_distance(radii):
    """Of mu at the distances promised a root of squares is too little."""
    releases = [BallDPRidgePrototype(2.0, radius=r).fit(*data()).release_ for r in radii]
    tables = [{first: row for first, *row in cells(publish.card(r))} for r in releases]
    columns = [dict(zip(t["distance"], t["mu (Gaussian DP)"], strict=True)) for t in tables]
    # The one column that every card has.
    [shared] = {*columns[0]} & {*columns[1]} & {"any (up to 2)"}
    total = compose_releases(releases, radius=2.0).mu
    assert math.hypot(*(float(column[shared]) for column in columns)) >= total * (1 - 1e-12)
    own = math.hypot(*(release.mu for release in releases))
    most = compose_releases(releases, radius=max(radii)).mu
    assert (own < 0.9 * most) == (radii[0] != radii[1])
    words = publish.card(releases[0])
    assert "take the mu of each at one and the same distance" in words
    assert "mu1^2" not in words.replace("sqrt(mu1^2 + mu2^2 + ...) at that distance", "")


def test_a_radius_is_shown_in_three_digits_with_its_meaning():
    def hidden(radius):
        release = BallDPRidgePrototype(2.0, radius=radius).fit(*data()).release_
        return points(publish.card(release))[0]

    assert "at most 0.612 away (30 % of the largest distance" in hidden(0.6129)
    assert hidden(None).endswith("was swapped for another: any of the same label.")
    assert "at most 0.00123 away (less than a hundredth" in hidden(0.00123)


def test_the_first_line_promises_no_more_than_there_is():
    weak = publish.card(BallDPRidgePrototype(100.0, radius=0.5).fit(*data()))
    assert points(weak)[0].startswith("Next to nothing is hidden")
    declared = BallDPRidgePrototype(2.0, radius=RadiusPolicy(source="declared")).fit(*data())
    card = publish.card(declared)
    assert "may be public" in points(card)[0]
    assert "This holds on one condition" in card
