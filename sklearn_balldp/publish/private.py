"""Checks of a published model for the owner of the records: the noise itself."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.pipeline import Pipeline

from ..audit.noise_tests import weight_checks
from ..heads import Released
from ..heads.inspection import records_of
from ..verdicts import CANNOT_CHECK, FAIL, PASS, Check
from .model import Published
from .steps import NamedEncoder


def private_checks(
    pipeline: Any, private: dict[str, Any], earlier: Iterable[Published]
) -> Iterator[Check]:
    """The noise itself, for the owner of the rows."""
    steps = pipeline.steps[:-1] if isinstance(pipeline, Pipeline) else []
    head = pipeline[-1] if steps else pipeline
    released, X, groups = head.released_, private["X"], private.get("groups")

    def of_rows(verdict: str, shown: str, basis: str) -> Check:
        return Check("rows", verdict, shown, basis, True)

    for name, step in steps:
        basis = "the model's own steps"
        if isinstance(step, NamedEncoder):
            shown = f"{step.identity} made them: pass the weights that you trust (encoder=)"
            yield of_rows(CANNOT_CHECK, shown, basis)
            return
        try:
            X = step.transform(X)
        except Exception as error:
            # Its message may quote a record.
            kind = type(error).__name__
            yield of_rows(FAIL, f"the step {name} cannot transform them ({kind})", basis)
            return
    persons = released.release.unit == "person"
    if persons != (groups is not None):
        shown = "owners of the records were passed (groups), and the model was fitted without: the "
        shown += "record hides single records. Leave them out to test the noise"
        if persons:
            shown = "the model was fitted with owners of the records: pass them (groups=)"
        yield of_rows(CANNOT_CHECK, shown, "all that the fit was given")
        return
    try:
        with np.errstate(all="ignore"):
            records = records_of(head, X, np.asarray(private["y"]), groups)
    except (AttributeError, TypeError, ValueError) as error:
        yield of_rows(FAIL, str(error), "the record's counts")
        return
    basis = "only the noise tests can tell whether these are the rows of the fit"
    yield of_rows(PASS, f"{len(records)} records, with the record's counts", basis)
    sound, odd = list[Released](), list[str]()
    for other in earlier:
        try:
            faults = other.faults()
        except ValueError:
            faults = ["a record that contradicts itself"]
        if faults:
            odd.append(f"it has {'; '.join(faults)}")
        else:
            sound.append(other.released)
    try:
        yield from weight_checks(released, records, sound)
    except ValueError as error:
        yield Check("noise in the numbers", CANNOT_CHECK, str(error), "a model as it was", True)
    for why in odd:
        yield Check("earlier release", CANNOT_CHECK, why, "models as they were", True)
