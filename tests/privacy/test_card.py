"""The card: what it says is what the record says, in every form."""

import html.parser
import json
import math
import re

import numpy as np
import pytest
import yaml
from scipy.stats import norm
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.frozen import FrozenEstimator
from sklearn.kernel_approximation import RBFSampler
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.pipelines import stretch_of
from sklearn_balldp.privacy.card import (
    CANDIDATES,
    FALSE_POSITIVE_RATES,
    _down,
    _short,
    _times,
    _up,
)
from sklearn_balldp.text import DOWN, percent

N = 240


def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 5))
    return X / np.linalg.norm(X, axis=1, keepdims=True), np.arange(N) % 3


HEADS = {
    "prototypes": BallDPRidgePrototype(2.0, radius=0.5),
    "protected": BallDPRidgePrototype(2.0, protect_labels=True, classes=range(3)),
    "private radius": BallDPRidgePrototype(2.0, radius=RadiusPolicy(source="private", epsilon=0.5)),
    "descent": BallDPLogisticRegression(2.0, radius=0.5, mechanism="gradient"),
}


def fitted(name):
    return HEADS[name].fit(*data())


def cells(markdown):
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows]


@pytest.mark.parametrize("name", HEADS)
def test_numbers_of_the_table_are_upper_bounds(name):
    release = fitted(name).release_
    head, _, *rows = cells(release.card().to_markdown())
    radii = [r for r in (release.radius, 2 * release.radius) if r < 2.0] + [2.0]
    assert len(head) == 1 + len(radii)
    table = {first: rest for first, *rest in rows}
    for i, radius in enumerate(radii):
        guarantee = release.guarantee(radius)
        assert float(table["epsilon"][i]) == pytest.approx(guarantee.epsilon, rel=1e-3)
        shares = {
            "advantage in telling two records apart": 2 * norm.cdf(guarantee.mu_total / 2) - 1
        }
        for fpr in FALSE_POSITIVE_RATES:
            name = f"true positives at {100 * fpr:g} % false positives"
            shares[name] = guarantee.tpr(fpr)
        for m in CANDIDATES:
            name = f"names the right one of {m} candidates"
            shares[name] = release.certificate(1 / m, radius)
        for what, share in shares.items():
            shown = float(table[what][i].removesuffix(" %")) / 100
            assert share <= shown + 1e-12
            assert shown <= share + 0.0011
    assert release.card().to_markdown().startswith("---\nlibrary_name: sklearn_balldp\n")


@pytest.mark.parametrize("value", [1.23444, 1.23446, 9.99961, 0.00012344, 2.906e-5, 32.56598, 1e-6])
def test_upper_bounds_in_few_digits(value):
    for digits in (2, 4, 6):
        shown = float(_up(value, digits))
        assert shown >= value * (1 - 1e-9)
        assert shown <= value * (1 + 10.0 ** (1 - digits))
    assert _up(math.inf) == "none"


def test_decimals_that_need_no_rounding_stay():
    """Products with powers of ten would move 0.07, 0.14 and others to the next digit."""
    for k in range(1, 1001):
        places = 2 if k < 10 else 1
        assert percent(k / 1000) == percent(k / 1000, DOWN) == f"{k / 10:.{places}f} %"
        assert _short(k / 1000) == _down(k / 1000) == _up(k / 1000) == f"{k / 1000:g}"
    assert [_times(k / 100) for k in range(101)] == [str(k) for k in range(101)]
    for share in (0.1234, 0.00567891, 1.23e-5, math.nextafter(0.07, 1.0)):
        low, high = (float(percent(share, *way).removesuffix(" %")) for way in ((DOWN,), ()))
        assert low < 100 * share < high


def test_proofs_of_the_publishers_own_are_named(release_of):
    release = release_of("hinge descent")
    assert release.accepted == ("mine:Query",)
    said = "the sensitivity of mine:Query is as the publisher states; nobody else has checked it"
    assert said in release.card().to_markdown()
    assert "nobody else" not in release_of("descent").card().to_markdown()


def test_records_of_every_kind_have_a_card(release):
    card = release.card()
    assert f"Privacy card of a {release.head}" in str(card)
    assert release.bound.what in str(card)
    assert (card.sections[0].title == "NOT PRIVATE") == (release.private is False)


def test_an_attacker_in_other_words():
    """The profile's tangent lines: one curve, three ways to say it."""
    guarantee = HEADS["prototypes"].fit(*data()).release_.guarantee()
    grid = np.linspace(1e-6, 1 - 1e-6, 4001)
    gaps = [guarantee.tpr(fpr) - fpr for fpr in grid]
    assert max(gaps) == pytest.approx(guarantee.advantage, abs=1e-6)
    # A DP bound on the same curve: never below it.
    for fpr in (0.001, 0.01, 0.5):
        assert guarantee.tpr(fpr) <= math.exp(guarantee.epsilon) * fpr + guarantee.delta + 1e-12
    drawn = HEADS["private radius"].fit(*data()).release_.guarantee()
    assert drawn.advantage == pytest.approx(2 * norm.cdf(drawn.mu_total / 2) - 1)
    assert drawn.tpr(0.01) >= norm.cdf(norm.ppf(0.01) + drawn.mu)


class Text(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.words, self.open = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize("name", HEADS)
def test_markdown_and_html_say_the_same(name):
    card = fitted(name).release_.card()
    parser = Text()
    parser.feed(card.to_html())
    assert not parser.open
    shown = " ".join(parser.words)
    for section in card.sections:
        assert section.title in shown
        for text in (*section.points, " ".join(section.sentences)):
            assert text in shown
    assert card._repr_html_() == card.to_html()
    assert str(card) == card.to_markdown()


def test_what_is_not_private_says_so_first():
    seeded = BallDPRidgePrototype(2.0, random_state=0).fit(*data()).release_.card()
    assert seeded.sections[0].title == "NOT PRIVATE"
    assert "NOT PRIVATE" in seeded.registry["deployment"]["privacy_loss"]["privacy_unit_details"]
    policy = RadiusPolicy(source="declared")
    declared = BallDPRidgePrototype(2.0, radius=policy).fit(*data()).release_.card()
    assert "This holds on one condition" in str(declared)


def test_marks_of_names_stay_text():
    head = BallDPRidgePrototype(2.0, encoder="<script>alert(1)</script> | *x* _y_")
    card = head.fit(*data()).release_.card()
    assert "<script>" not in card.to_html()
    assert "<script>" not in card.to_markdown()
    assert "\\*x\\* \\_y\\_" in card.to_markdown()


def test_model_and_audit():
    X, y = data()
    head = BallDPRidgePrototype(2.0, radius=1.5).fit(X[:160], y[:160])
    audit = ReconstructionAuditor(FrozenEstimator(head), n_candidates=4, n_supports=2)
    audit.fit(X[:160], y[:160], X[160:], y[160:])
    card = head.release_.card(head, audit)
    text = str(card)
    assert "the model at hand has these parameters" in text
    assert "not for publication" in text
    assert "check of the scale of the noise: PASS" in text
    # Both ends of the interval are rounded outward.
    audit.success_interval_["clopper_pearson"] = (0.1234, 0.5678)
    assert "(12.3 % to 56.8 %)" in str(head.release_.card(head, audit))
    assert head.release_.digest in text
    # What is meant for publication holds none of it.
    assert "candidate was named" not in card.to_yaml()
    assert "not for publication" not in str(head.release_.card(head))
    other = clone(head).fit(X[:160], y[:160])
    assert "does NOT have" in str(head.release_.card(other))


# Fields and options of the registry of deployments (schema of 2026): names are checked here, as an
# entry with others is refused there.
SCHEMA = {
    "basic": {
        "name",
        "data_curators",
        "description",
        "intended_use",
        "data_product_type",
        "data_product_region",
        "data_product_sector",
        "publication_date",
    },
    "dp_variant": {"variant_name", "data_domain", "unprotected_quantities"},
    "privacy_loss": {
        "privacy_unit",
        "privacy_unit_details",
        "number_of_privacy_units",
        "privacy_parameters",
        "privacy_parameters_details",
    },
    "deployment_model": {
        "model_name",
        "model_name_details",
        "trust_assumptions",
        "actors",
        "release_type",
        "release_type_details",
        "data_source_type",
        "data_source_type_details",
        "access_type",
        "access_type_details",
    },
    "implementation": {
        "preprocessing_and_hyperparameter_tuning",
        "mechanisms",
        "composition",
        "post_processing",
        "justification",
        "utility",
        "additional_information",
    },
}


@pytest.mark.parametrize("name", HEADS)
def test_the_registrys_entry(name):
    release = fitted(name).release_
    card = release.card()
    entry = yaml.safe_load(card.to_yaml())
    assert entry == card.registry
    assert set(entry) == {"url_slug", "deployment", "administrative"}
    for block, fields in entry["deployment"].items():
        assert set(fields) <= SCHEMA[block]
    assert {"basic"} <= set(entry["deployment"])
    loss = entry["deployment"]["privacy_loss"]
    parameters = loss["privacy_parameters"]
    assert set(parameters) == {"epsilon", "delta", "rho"}
    assert parameters["epsilon"] == pytest.approx(release.guarantee().epsilon)
    assert parameters["rho"] == pytest.approx(release.guarantee().mu_total ** 2 / 2)
    assert isinstance(parameters["delta"], float)
    assert loss["number_of_privacy_units"] == N
    assert isinstance(entry["deployment"]["basic"]["publication_date"], str)
    assert "FILL IN" in card.to_yaml()
    assert not re.search(r"[>|]\n", card.to_yaml())


def test_files(tmp_path):
    card = fitted("prototypes").release_.card()
    for ending in ("md", "html", "yaml"):
        card.save(tmp_path / f"card.{ending}")
        text = (tmp_path / f"card.{ending}").read_text(encoding="utf-8")
        assert text == getattr(card, f"to_{ending}", card.to_markdown)()
    with pytest.raises(ValueError, match=r"must end in .md, .html, .yaml"):
        card.save(tmp_path / "card.pdf")


@pytest.mark.needs("huggingface_hub")
def test_model_hubs_read_it():
    import huggingface_hub as hub

    card = hub.ModelCard(fitted("prototypes").release_.card().to_markdown())
    assert card.data.library_name == "sklearn_balldp"
    assert json.dumps(card.data.to_dict())


def test_words_follow_the_advantage():
    for epsilon, said in (
        (0.5, "can hardly tell"),
        (2.0, "a little better"),
        (40.0, "can often tell"),
    ):
        X, y = data()
        release = BallDPRidgePrototype(epsilon, radius=0.5).fit(X, y).release_
        assert said in release.card().to_markdown()
    assert release.guarantee().advantage > 0.5


def test_the_distance_is_that_of_rows_as_the_head_sees_them():
    """Steps before it may move rows together, or further apart."""
    X, y = data()
    head = BallDPRidgePrototype(1.0, radius=0.5)
    plain = head.fit(X, y)
    said = "distance between rows as the head sees them"
    assert said in plain.release_.card(plain).to_markdown()
    assert "The head sees rows after" not in plain.release_.card(plain).to_markdown()
    unit = make_pipeline(Normalizer(), clone(head)).fit(X, y)
    text = unit[-1].release_.card(unit).to_markdown()
    assert "How far apart they are before is not known: normalizer may" in text
    for step in (StandardScaler(), MaxAbsScaler(), MinMaxScaler(), PCA(3), TruncatedSVD(3)):
        model = make_pipeline(step, clone(head)).fit(X, y)
        text = model[-1].release_.card(model).to_markdown()
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


def test_rows_are_scaled_to_the_sphere_after_the_steps():
    """No factor bounds how far that moves short rows apart, so the card states none."""
    X, y = data()
    head = BallDPLinearDiscriminant(2.0, radius=0.5, domain="sphere")
    model = make_pipeline(StandardScaler(), head).fit(X, y)
    near = model[0].mean_ + 1e-3 * np.array([[1.0], [-1.0]]) * model[0].scale_
    units = model[0].transform(near)
    units /= np.linalg.norm(units, axis=1, keepdims=True)
    assert np.linalg.norm(near[0] - near[1]) < 0.01 < 1.99 < np.linalg.norm(units[0] - units[1])
    text = model[-1].release_.card(model).to_markdown()
    assert "of each other before these steps" not in text
    assert "before is not known: the scaling to norm 1 after them may" in text


def test_random_features_stretch_no_further_than_the_card_says():
    """A search over places and directions for the largest stretch of a step."""
    step = RBFSampler(gamma=0.7, n_components=6, random_state=0).fit(np.zeros((1, 3)))
    rng, most = np.random.default_rng(0), 0.0
    for direction in (*np.linalg.svd(step.random_weights_)[0].T, *rng.standard_normal((20, 3))):
        move = 1e-5 * direction / np.linalg.norm(direction)
        places = 5.0 * rng.standard_normal((20_000, 3))
        moved = step.transform(places + move) - step.transform(places)
        most = max(most, np.linalg.norm(moved, axis=1).max() / 1e-5)
    assert 0.9 * stretch_of(step) < most <= stretch_of(step) * (1.0 + 1e-6)


def test_versions_of_a_person_keep_their_labels():
    X, y = data()
    release = (
        BallDPRidgePrototype(1.0, radius=0.5).fit(X, y, groups=np.arange(len(y)) // 2).release_
    )
    assert "versions of one person's records with the same labels." in release.card().to_markdown()


@pytest.mark.parametrize("name", HEADS)
def test_three_lines_come_first_and_are_bounds(name):
    release = fitted(name).release_
    first = release.card().sections[0]
    assert first.title == "In short"
    hidden, gains, left = first.points
    near = float(re.search(r"at most (\S+) away", hidden)[1])
    assert near <= release.radius <= near * 1.01
    times = float(re.search(r"(\d+) times in a hundred", gains)[1])
    assert 100 * release.certificate(0.1) <= times
    assert times < 100 * release.certificate(0.1) + 1
    assert ("labels" in left) == (release.labels == "public")
    assert ("any of another label" in hidden) == (release.labels == "protected")


def test_a_radius_is_shown_in_three_digits_with_its_meaning():
    def hidden(radius):
        release = BallDPRidgePrototype(2.0, radius=radius).fit(*data()).release_
        return release.card().sections[0].points[0]

    assert "at most 0.612 away (30 % of the largest distance" in hidden(0.6129)
    assert "at most 2 away (no two records are further apart)" in hidden(None)
    assert "at most 0.00123 away (less than a hundredth" in hidden(0.00123)


def test_what_is_for_experts_is_folded():
    page = fitted("prototypes").release_.card().to_html()
    assert page.index("In short") < page.index("What is not covered") < page.index("<details>")
    assert page.count("<details>") == page.count("</details>") == 3


def test_the_first_line_promises_no_more_than_there_is():
    weak = BallDPRidgePrototype(100.0, radius=0.5).fit(*data()).release_.card()
    assert weak.sections[0].points[0].startswith("Next to nothing is hidden")
    declared = BallDPRidgePrototype(2.0, radius=RadiusPolicy(source="declared")).fit(*data())
    assert "may be public" in declared.release_.card().sections[0].points[0]
