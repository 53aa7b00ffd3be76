"""Names of encoders: the digest decides, and a folder's place stays the owner's."""

import pytest

from sklearn_balldp import BallDPRidgePrototype
from sklearn_balldp.accounting import PrivacyAccountant
from sklearn_balldp.encoder_name import has_digest, name_of_weights, public_name, same_encoder

DIGEST = "0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "other", "same"),
    [
        (f"a sha256:{DIGEST}", f"b/c sha256:{DIGEST}", True),
        (f"a sha256:{DIGEST}", f"a sha256:{DIGEST[::-1]}", False),
        (f"a sha256:{DIGEST}, 64 tokens", f"a sha256:{DIGEST}", False),
        (f"a sha256:{DIGEST}, 64 tokens", f"b sha256:{DIGEST}, 64 tokens", True),
        (f"r@w sha256:{DIGEST}, torchvision 1", f"r@w sha256:{DIGEST}, torchvision 2", False),
        (f"a sha256:{DIGEST}", "a@newest", None),
        ("a@newest", "a@newest", True),
        ("a@newest", "a@main", False),
        # What is said beside a digest counts.
        (f"A sha256:{DIGEST}", f"A with rows times 0.1; sha256:{DIGEST}", None),
        (f"resnet18@w sha256:{DIGEST}", f"resnet50@w sha256:{DIGEST}", False),
        (f"a sha256:{DIGEST}", f"asha256:{DIGEST}", None),
        (f"a sha256:{DIGEST}", f"a sha256:{DIGEST}, scaled", None),
        (f"a sha256:{DIGEST}", f"a sha256:{DIGEST}\n", None),
        (f"sha256:{DIGEST}0", f"sha256:{DIGEST}1", False),  # no digest of ours: compared whole
    ],
)
@pytest.mark.kills(
    "encoder_name.py",
    'return match["kind"], match["digest"], match["settings"]',
    'return match["digest"]',
)
def test_which_names_mean_one_encoder(name, other, same):
    assert same_encoder(name, other) is same
    assert same_encoder(other, name) is same


def test_a_name_shows_no_place(tmp_path):
    folder = tmp_path / "of alice" / "my weights"
    folder.mkdir(parents=True)
    assert public_name(str(folder)) == "my-weights"
    (folder / "README.md").write_text("---\nx: y\n---\n\n# all-MiniLM-L6-v2\nText\n")
    assert name_of_weights(str(folder), DIGEST * 4) == f"all-MiniLM-L6-v2 sha256:{DIGEST}"
    (folder / "README.md").write_text(f"# sha256:{DIGEST}\n")
    assert public_name(str(folder)) == "my-weights"
    hub = "/home/alice/.cache/hub/models--sentence-transformers--all-MiniLM-L6-v2/snapshots/1ab3"
    assert public_name(hub) == public_name(hub + "/") == "sentence-transformers/all-MiniLM-L6-v2"
    # A name that looks like a digest does not take the place of the real one.
    assert same_encoder(name_of_weights(f"/sha256:{DIGEST}", "9" * 64), f"x sha256:{'9' * 16}")
    assert not has_digest("a@newest")


def test_one_encoder_under_two_names_is_composed(ball_rows):
    X, y = ball_rows
    names = [f"a sha256:{DIGEST}", f"b sha256:{DIGEST}"]
    for limit in (None, 9.0):
        accountant = PrivacyAccountant(radius=0.5, limit=limit)
        head = BallDPRidgePrototype(epsilon=1.0, radius=0.5, accountant=accountant)
        for name in names:
            head.set_params(encoder=name).fit(X, y)
        with pytest.raises(ValueError, match="differ in encoder"):
            head.set_params(encoder="a@newest").fit(X, y)
        assert accountant.total().n_releases == 2


def test_a_long_name_is_refused_before_noise(ball_rows):
    X, y = ball_rows
    for name in ("e" * 201, "two\nlines"):
        with pytest.raises(ValueError, match="one line of 200"):
            BallDPRidgePrototype(epsilon=1.0, radius=0.5, encoder=name).fit(X, y)
