"""Whether a model is the one that its record speaks of: parameters, settings, and nothing else."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator

from .._parameters import checked_priors, is_real
from ..audit.residuals import CANNOT_CHECK, FAIL, PASS, Check
from ..heads import ReleasedModel
from ..losses import Loss
from ..privacy.bounds import counts_intercept
from ..privacy.digest import parameters_digest
from ..privacy.fields import agree
from ..privacy.noise import EXACT_SAMPLER
from ..privacy.release import Release
from ..privacy.statistics import StatisticsBound
from ..privacy.weights import is_weighted
from ..radius import RadiusPolicy
from .received import Received

# A longer label is a sentence, and somebody may have written it.
_LONG_LABEL = 60
_OWN = ("output", "gradient", "statistics")
#: Parameters of a head that its record holds by the same name.
_SAME_NAME = (
    "epsilon",
    "delta",
    "metric",
    "domain",
    "norm_bound",
    "encoder",
)


def shape_fault(model: ReleasedModel) -> str | None:
    """Why nothing can be computed of a model, in words; None where everything can."""
    record, head = model.record, model.head
    try:
        parameters = model.parameters()
        shape, n_classes = np.shape(parameters), len(model.classes)
        sound = all(
            np.asarray(v).dtype.kind in "fiubUOmM" for v in model.named_parameters().values()
        )
        numbers = np.asarray(parameters).dtype.kind == "f"
        # Whatever is computed of a model asks what was minimised, with its parameters.
        _ = model.problem
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        return f"its parameters cannot be read ({type(error).__name__})"
    weights = getattr(record.bound, "weights", None)
    counted = record.labels == "public" and not is_weighted(weights)
    if counted and record.mechanism in _OWN and model.class_counts is None:
        return "class_counts_ are missing, though labels are public"
    if n_classes != record.n_classes:
        return f"{n_classes} classes, the record has {record.n_classes}"
    kind = getattr(record.bound, "kind", None)
    n_scores = kind.n_scores if isinstance(kind, Loss) else None
    width = record.n_features + int(counts_intercept(record.bound) is True)
    known = counts_intercept(record.bound) is not None or n_scores is not None
    if not (sound and numbers and len(shape) == 2):
        return "its parameters are no table of numbers"
    if known and shape != (n_scores, width):
        return f"parameters of shape {shape}, the record's are {(n_scores, width)}"
    if counts_intercept(record.bound) is False and hasattr(head, "intercept_"):
        offsets = np.asarray(head.intercept_)
        if offsets.shape != shape[:1] or offsets.any():
            return "an intercept that is not zero, though none is fitted"
    if record.head == "BallDPRidgePrototype" and shape != (n_classes, record.n_features):
        return f"prototypes of shape {shape}, the record's are {(n_classes, record.n_features)}"
    if record.head == "BallDPLinearDiscriminant":
        scores = 1 if n_classes == 2 else n_classes
        for name, wanted in (("coef_", (scores, record.n_features)), ("intercept_", (scores,))):
            values = np.asarray(getattr(head, name, None))
            if values.shape != wanted or values.dtype.kind != "f":
                return f"{name} of shape {values.shape}, the record's is {wanted}"
    return None


def consistency_checks(model: ReleasedModel, received: Received) -> list[Check]:
    """Parameters, settings, encoder and steps of a model, against its record."""
    return [
        *_parameters_checks(model),
        _model_check(model, [*received.faults, *_not_released(model)]),
        _encoder_check(model.record, received),
        *_publishers_checks(model, received),
        *_preprocessing_checks(received),
    ]


def _parameters_checks(model: ReleasedModel) -> list[Check]:
    record = model.record
    digest = parameters_digest(model.named_parameters())
    same = digest == record.digest
    found = f"SHA-256 {digest[:16]}" + ("" if same else f", the record says {record.digest[:16]}")
    if same and not model.decision_follows():
        same, found = False, f"{found}, but what it predicts with does not follow from them"
    checks = [Check("parameters", PASS if same else FAIL, found, "the record's digest")]
    if same and record.mechanism == "statistics" and not model.same_rule:
        found = (
            f"its rule {record.rule or 'is not named'} is not that of this version; ask "
            f"sklearn_balldp {record.version}, and verify again"
        )
        why = "weights follow from the released sums by the rule that the record names"
        checks.append(Check("weights", CANNOT_CHECK, found, why))
    return checks


def _model_check(model: ReleasedModel, beside: list[str]) -> Check:
    record, faults = model.record, list[str]()
    for look in (
        _sense_faults,
        _parameter_faults,
        _radius_faults,
        _mechanism_faults,
        _count_faults,
    ):
        try:
            faults += look(model)
        except Exception as error:
            # A model that was loaded may hold anything, and its message may quote that.
            faults.append(f"its parameters are of no use ({type(error).__name__})")
    if beside:
        faults.append(f"it holds {', '.join(beside)}, which no head releases")
    found = (
        "; ".join(faults)
        or f"{record.head}, {record.n_features} features, {record.n_classes} classes"
    )
    return Check("model", FAIL if faults else PASS, found, "shape, labels and counts")


def _sense_faults(model: ReleasedModel) -> Iterator[str]:
    """Parameters that no fit would take may hold anything."""
    model.check_head()
    declared, listed = model.declared_classes, np.asarray(getattr(model.head, "classes", None))
    if declared is not None and not (
        np.array_equal(declared, model.classes) and listed.shape == declared.shape
    ):
        yield "classes are not those that were declared"
    n_classes, priors = len(model.classes), getattr(model.head, "priors", None)
    checked_priors(priors, n_classes, None)
    vectors = getattr(model.head, "class_embeddings", None)
    if vectors is not None and np.shape(vectors) != (n_classes, model.record.n_features):
        yield f"class_embeddings of shape {np.shape(vectors)}"
    moment = getattr(getattr(model.head, "statistics_", None), "second_moment", None)
    if moment is not None and not np.array_equal(moment, np.transpose(moment)):
        yield "a second moment that is not symmetric"


def _parameter_faults(model: ReleasedModel) -> Iterator[str]:
    record, head = model.record, model.head
    if type(head).__name__ != record.head:
        yield f"the record is of a {record.head}"
    for name in _SAME_NAME:
        value: Any = getattr(head, name, None)
        if (float(value) if is_real(value) else value) != getattr(record, name):
            yield f"its parameter {name}={value!r}, the record has {getattr(record, name)!r}"
    if bool(head.protect_labels) != (record.labels == "protected"):
        yield f"protect_labels={head.protect_labels!r}, the record keeps labels {record.labels}"
    intercept = counts_intercept(record.bound)
    if intercept is not None and head.fit_intercept != intercept:
        yield f"fit_intercept={head.fit_intercept!r}, the record counts otherwise"
    if getattr(head, "n_features_in_", None) != record.n_features:
        yield f"the record has {record.n_features} features"
    if head.random_state is not None and record.sampler == EXACT_SAMPLER:
        yield f"random_state={head.random_state!r}, the record's sampler is {record.sampler!r}"
    if not model.class_weight_follows():
        asked = getattr(head, "class_weight", None)
        yield f"class_weight={asked!r}, the record has other weights of classes, or none"


def _radius_faults(model: ReleasedModel) -> Iterator[str]:
    """Whether the radius comes from where the record says."""
    record, head = model.record, model.head
    frozen = isinstance(head.radius, FrozenEstimator)
    policy = head.radius.estimator if frozen else head.radius
    if not isinstance(policy, RadiusPolicy):
        radius = record.full_radius if policy is None else policy
        if not is_real(radius) or float(radius) != record.radius:
            yield f"its parameter radius={head.radius!r}, the record has {record.radius!r}"
        # A head made of released statistics states the number, wherever it came from.
        return
    if frozen:
        choice = policy.choice_
        source, epsilon = choice.source, choice.epsilon
        source = "seeded" if choice.seeded else source
        stated = (
            record.radius_draw,
            record.radius_edits,
            record.radius_hides,
            record.radius_hides_records,
        )
        chosen = choice.draw, choice.n_edits, choice.hidden, choice.hidden_records
        value = record.full_radius if choice.value is None else choice.value
        if value != record.radius or chosen != stated:
            yield f"its frozen policy chose radius={choice.value!r}, the record has another"
    else:
        source, epsilon = policy.source, 0.0
        if source == "private":
            epsilon = float(policy.epsilon)
            source = "private" if policy.random_state is None else "seeded"
    if source != record.radius_source:
        yield f"its radius is from {source!r}, the record's from {record.radius_source!r}"
    elif epsilon != record.radius_epsilon:
        yield f"its radius spends epsilon={epsilon!r}, the record's {record.radius_epsilon!r}"


def _mechanism_faults(model: ReleasedModel) -> Iterator[str]:
    record, mechanism = model.record, model.named_mechanism
    if mechanism.name != record.mechanism:
        yield f"its mechanism is {mechanism.name!r}, the record's {record.mechanism!r}"
        return
    alpha = model.given_alpha
    if alpha is not None and alpha != record.alpha:
        yield f"its parameter alpha={alpha!r}, the record has {record.alpha!r}"
    if record.mechanism in _OWN:
        for name, (value, stated) in mechanism.settings_beside(record).items():
            if not agree(value, stated):
                yield f"its {name}={value!r}, the record has {stated!r}"


def _count_faults(model: ReleasedModel) -> Iterator[str]:
    record, counts = model.record, model.class_counts
    if record.labels == "protected":
        if counts is not None:
            yield "class counts are published, though labels are protected"
        return
    if counts is None:
        return
    own = tuple(np.asarray(counts).tolist())
    if len(own) != record.n_classes or min(own) < 0:
        yield "class counts are not one whole number for each class"
        return
    stated = getattr(record.bound, "class_counts", None)
    differ = stated is not None and own != stated
    if record.weights is not None and record.weights.class_records is not None:
        differ = differ or own != record.weights.class_records
    if differ or sum(own) != record.n_samples:
        yield f"class counts are not those of the record's {record.n_samples} records"


def _not_released(model: ReleasedModel) -> list[str]:
    """What this kind of release leaves no place for."""
    record, found = model.record, []
    if record.mechanism in _OWN and record.mechanism != "gradient":
        found += ["transcript_"] if hasattr(model.head, "transcript_") else []
    if getattr(model.head, "class_embeddings", None) is not None and not _shrinks(record):
        found.append("class_embeddings, where no class means are shrunk")
    return found


def _shrinks(record: Release) -> bool:
    """Whether noisy class means were released, which public vectors may take a part in."""
    bound: Any = record.bound
    start = getattr(bound, "start", None) if record.mechanism == "gradient" else bound
    return record.mechanism not in _OWN or (isinstance(start, StatisticsBound) and not start.pooled)


def _encoder_check(record: Release, received: Received) -> Check:
    basis = "the name and revision that each of them states"
    steps = [step for step in received.steps if step.encoder is not None]
    named = steps[0].names_encoder(record.encoder) if steps else None
    verdict, found = (
        CANNOT_CHECK,
        "neither model nor record names one: ask the publisher what made the rows",
    )
    if steps and record.encoder is None:
        found = f"only the model names {steps[0].encoder_name}: ask the publisher"
    elif record.encoder is not None and not steps:
        found = f"only the record names {record.encoder}: embed records with it"
    elif steps and named is None:
        found = (
            f"the record names {record.encoder}: pass these weights (encoder=, --encoder), to "
            "compare"
        )
    elif steps:
        verdict = PASS if named else FAIL
        own = steps[0].encoder_name
        found = own if own == record.encoder else f"{own}, the record says {record.encoder}"
    return Check("encoder", verdict, found, basis)


def _publishers_checks(model: ReleasedModel, received: Received) -> Iterator[Check]:
    """What a publisher chose freely: it moves predictions or can be read, and has no digest."""
    head, basis = model.head, "no digest covers them"
    priors = getattr(head, "priors", None)
    if not (priors is None or isinstance(priors, str)):
        found = f"priors={priors!r} move its predictions; only the publisher knows whether they"
        yield Check("priors", CANNOT_CHECK, f"{found} follow from private rows: ask him", basis)
    if getattr(head, "class_embeddings", None) is not None:
        found = (
            "vectors of the classes are part of the model; ask where they come from: means of "
            "private rows would be published without noise"
        )
        yield Check("class_embeddings", CANNOT_CHECK, found, basis)
    made = (step.made for step in received.steps if step.made is not None)
    for owner in (head, *made):
        names = getattr(owner, "feature_names_in_", None)
        if names is not None:
            found = f"{len(names)} names of columns, from {names[0]!r} on, are part of the model"
            yield Check("names of columns", CANNOT_CHECK, f"{found}; read them", basis)
    long = max((len(label) for label in model.classes if isinstance(label, str)), default=0)
    if long > _LONG_LABEL:
        found = f"labels of up to {long} characters are part of the model"
        yield Check("labels", CANNOT_CHECK, f"{found}; read them", basis)


def _preprocessing_checks(received: Received) -> list[Check]:
    if not received.steps:
        return []
    with_state = [step.shown for step in received.steps if step.has_state]
    found = "every step maps each row on its own"
    if with_state:
        found = (
            f"{', '.join(with_state)}: only the publisher knows whether the rows of its fit were "
            "public: ask him"
        )
    why = "a step fitted on private rows is outside of the guarantee"
    return [Check("preprocessing", CANNOT_CHECK if with_state else PASS, found, why)]
