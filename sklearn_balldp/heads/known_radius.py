"""The radius of a head, where its parameters tell it before a row is read."""

from typing import Any

from sklearn.frozen import FrozenEstimator
from sklearn.utils.validation import check_is_fitted

from ..privacy.origins import Declared
from ..radius import ChosenRadius, RadiusPolicy


def known_radius(head: Any) -> ChosenRadius | None:
    """What the ``radius`` of a head says; None where a policy has yet to choose it from rows."""
    radius, frozen = head.radius, isinstance(head.radius, FrozenEstimator)
    policy = radius.estimator if frozen else radius
    if not isinstance(policy, RadiusPolicy):
        return ChosenRadius(radius if radius is None else float(radius), head.metric)
    if frozen:
        check_is_fitted(policy)
        # The fitted choice counts, even if the parameters were changed after the fit.
        declared = isinstance(policy.choice_.origin, Declared)
    else:
        policy._check_parameters()
        declared = policy.source == "declared"
    # If labels are private, the pairing of records and the set of classes are private too.
    if declared and head.protect_labels:
        raise ValueError(
            "radius: source='declared' reads public labels, which protect_labels=True keeps "
            "private; use source='reference' or 'edits', or a number."
        )
    if frozen:
        choice = policy.choice_
        for name, value in (("metric", head.metric), ("norm_bound", float(head.norm_bound))):
            if getattr(choice, name) != value:
                raise ValueError(
                    f"radius: the frozen policy was fitted with {name}={getattr(choice, name)!r}, "
                    f"the head has {name}={value!r}; fit it with the head's."
                )
        if not declared and head.domain == "sphere" and not choice.on_sphere:
            raise ValueError(
                "radius: the frozen policy measured public rows that domain='sphere' would scale; "
                "normalise the rows before its fit, or pass the policy itself, with X_public and "
                "y_public."
            )
        return choice
    if policy.accountant not in (None, head.accountant):
        raise ValueError(
            "radius: the policy has another accountant than the head, so that neither would count "
            "all; pass one to both (accountant.attach(head)), or leave out the policy's."
        )
    return None
