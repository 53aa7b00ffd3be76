"""A released head as a plain scikit-learn model, which runs without this package."""

from typing import Any

import numpy as np

# Takes the place of infinity; single precision can hold it too.
_AS_INFINITY = 1e30


def plain_model(head: Any, project: bool) -> Any:
    """The rule of a fitted head as a scikit-learn estimator, behind steps that ``project``.

    An infinite offset means that a class is never predicted.
    """
    # They take longer to import than all that a check needs.
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
    from sklearn.preprocessing import FunctionTransformer, Normalizer
    from sklearn.svm import LinearSVC

    (coef, intercept), classes = head._linear_rule(), head.classes_
    norm_bound, domain = head.release_.norm_bound if project else None, head.release_.domain
    names = getattr(head, "feature_names_in_", None)
    finite = np.isfinite(intercept)
    # No score of a row in the ball exceeds this, so a thousand times it is out of reach.
    longest = np.linalg.norm(coef, axis=1).max() * (norm_bound or 1.0)
    longest += np.abs(intercept[finite]).max(initial=0.0)
    intercept = np.where(
        finite, intercept, np.copysign(max(_AS_INFINITY, 1e3 * longest), intercept)
    )
    if len(classes) == 2 and len(coef) == 2:
        coef, intercept = coef[1:] - coef[:1], intercept[1:] - intercept[:1]
    model: Any = LogisticRegression() if hasattr(head, "predict_proba") else LinearSVC()
    model.classes_, model.intercept_ = classes, intercept
    model.n_iter_ = np.zeros(1, dtype=np.int32)
    if norm_bound is None:
        if names is not None:
            model.feature_names_in_ = names
        model.coef_, model.n_features_in_ = coef, coef.shape[1]
        return model
    public: Any = np.zeros((1, coef.shape[1]))
    if names is not None:
        import pandas as pd

        public = pd.DataFrame(public, columns=names)
    if domain == "sphere":
        model.coef_, model.n_features_in_ = norm_bound * coef, coef.shape[1]
        # Division by the largest entry comes first, so that no square overflows. If that entry is
        # below ten times the machine epsilon, scikit-learn takes the row for zero.
        largest, scale = Normalizer("max").fit(public), Normalizer().fit(np.zeros_like(coef))
        return Pipeline([("largest", largest), ("scale", scale), ("head", model)])
    # A last column holds the larger of the row's norm and B. No entry exceeds it, so division by
    # the largest entry gives the projection of the row over B. The weight of the column is zero.
    model.coef_ = np.hstack([norm_bound * coef, np.zeros((len(coef), 1))])
    model.n_features_in_ = model.coef_.shape[1]
    size = make_pipeline(
        FunctionTransformer(np.linalg.norm, kw_args={"axis": 1, "keepdims": True}, validate=True),
        FunctionTransformer(np.clip, kw_args={"a_min": norm_bound, "a_max": None}),
    )
    rows = FunctionTransformer(validate=True)
    beside = FeatureUnion([("rows", rows), ("size", size)]).fit(public)
    scale = Normalizer("max").fit(beside.transform(public))
    return Pipeline([("beside", beside), ("project", scale), ("head", model)])
