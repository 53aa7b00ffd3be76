"""Sparse rows as dense ones, each by itself."""

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_balldp.pipelines import DenseRows


# SciPy's DOK arrays cannot be searched for NaN, of which scikit-learn warns.
@pytest.mark.filterwarnings("ignore:Can't check dok")
@parametrize_with_checks([DenseRows()])
@pytest.mark.usefixtures("array_api")
def test_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.coo_array, sp.csc_matrix])
def test_rows_stay_as_they_are(form):
    X = np.array([[0.0, 1.0, 0.0], [2.0, 0.0, -3.0]])
    dense = DenseRows().fit_transform(form(X))
    assert type(dense) is np.ndarray
    np.testing.assert_array_equal(dense, X)
    with pytest.raises(ValueError, match="3 features"):
        DenseRows().fit(form(X)).transform(form(X)[:, :2] if form is np.asarray else X[:, :2])
