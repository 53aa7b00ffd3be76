"""scikit-learn's own checks, once for every estimator and mechanism."""

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator, parametrize_with_checks

from sklearn_balldp import (
    BallDPLinearDiscriminant,
    BallDPLogisticRegression,
    BallDPRidgePrototype,
    BallDPSquaredHingeSVC,
    GradientPerturbation,
    RadiusPolicy,
    ReconstructionAuditor,
)
from sklearn_balldp.pipelines import DenseRows

# These checks bring label sets of their own, where protected labels must be declared.
OTHER_LABELS = {
    "check_classifiers_one_label",
    "check_classifiers_classes",
    "check_classifiers_train",
}


@parametrize_with_checks(
    [
        BallDPRidgePrototype(),
        BallDPLinearDiscriminant(radius=0.5, domain="sphere"),
        BallDPLogisticRegression(mechanism=GradientPerturbation(n_steps=5)),
        # A radius above the norm bound takes a search in each fit.
        BallDPSquaredHingeSVC(radius=0.5, mechanism="output", fit_intercept=False),
        ReconstructionAuditor(
            BallDPRidgePrototype(norm_bound=1000.0, random_state=0),
            n_candidates=2,
            n_supports=1,
            holdout=0.5,
        ),
        DenseRows(),
        RadiusPolicy(source="declared", norm_bound=1000.0),
    ]
)
# SciPy's DOK arrays cannot be searched for NaN, of which scikit-learn warns.
@pytest.mark.filterwarnings("ignore:Can't check dok")
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
# The audited head is seeded, for fits to agree: its audit says so, and that seeds repeat noise.
@pytest.mark.filterwarnings("ignore:FAILED GUARANTEE. the check of the sampler failed:UserWarning")
@pytest.mark.usefixtures("array_api")
def test_contract(estimator, check):
    check(estimator)


def _with_protected_labels():
    head = BallDPRidgePrototype(protect_labels=True, classes=list(range(5)))
    for estimator, check in estimator_checks_generator(head):
        name = getattr(check, "func", check).__name__
        if name not in OTHER_LABELS:
            yield pytest.param(estimator, check, id=name)


@pytest.mark.parametrize(("estimator", "check"), list(_with_protected_labels()))
@pytest.mark.usefixtures("array_api")
def test_contract_with_protected_labels(estimator, check):
    check(estimator)
