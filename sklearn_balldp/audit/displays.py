"""Figures of audits, as scikit-learn's Display classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from .._display import Display, check_columns
from ..pipelines import parts_of

if TYPE_CHECKING:
    import pandas as pd

#: Columns of a ReconstructionDisplay's table.
COLUMNS = ("name", "epsilon", "success", "low", "high", "baseline", "certificate")
# Told apart by colour-blind readers (Okabe and Ito), and in grey by the markers.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P")
# Width of one epsilon's group of points, and largest of one policy, as a share of the spacing.
_GROUP, _SLOT = 0.8, 0.14
# More policies than this put the legend beside the figure.
_INSIDE_LEGEND = 5


class ReconstructionDisplay(Display):
    """Measured reconstruction success against blind guessing and certificates.

    Build it with :meth:`from_estimator` or :meth:`from_estimators`.

    Parameters
    ----------
    results : DataFrame
        One row per audit: name (of the policy), epsilon, success, low, high (exact interval),
        baseline and certificate (direct, at the radius that was audited).

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        After :meth:`plot`.

    References
    ----------
    Margaryan & Gupta, the exact-identification figure.
    """

    def __init__(self, results: pd.DataFrame) -> None:
        check_columns("results", results, COLUMNS)
        self.results = results

    @classmethod
    def from_estimator(cls, auditor: Any, name: str | None = None) -> ReconstructionDisplay:
        """Display of one fitted auditor.

        Parameters
        ----------
        auditor : ReconstructionAuditor
            Fitted auditor, a Pipeline that ends in one, or a search whose best estimator does.
        name : str, optional
            Name of the policy; by default the radius that was audited, and the release's where it
            differs.

        Returns
        -------
        ReconstructionDisplay
            Not drawn yet.
        """
        return cls.from_estimators([auditor] if name is None else {name: auditor})

    @classmethod
    def from_estimators(cls, auditors: Mapping[str, Any] | Iterable[Any]) -> ReconstructionDisplay:
        """Display of several fitted auditors, such as one per epsilon and policy.

        Parameters
        ----------
        auditors : iterable of ReconstructionAuditor, or mapping
            Fitted auditors; a mapping gives each policy's auditor, or several, by name. Without
            names as for :meth:`from_estimator`.

        Returns
        -------
        ReconstructionDisplay
            Not drawn yet.
        """
        import pandas as pd

        groups = auditors.items() if isinstance(auditors, Mapping) else [(None, auditors)]
        rows = []
        for name, group in groups:
            several = np.iterable(group) and not hasattr(group, "fit")
            for auditor in map(fitted_auditor, group if several else [group]):
                release = parts_of(auditor.estimator_).head.release_
                audited = release.radius if auditor.radius is None else auditor.radius
                policy = f"r = {audited:.3g}"
                if audited != release.radius:
                    policy += f" (released for {release.radius:.3g})"
                named = policy if name is None else name, release.epsilon
                success = auditor.success_rate_, *auditor.success_interval_["clopper_pearson"]
                limits = auditor.baseline_, auditor.certificate_["direct"]
                rows.append((*named, *success, *limits))
        if not rows:
            raise ValueError("auditors holds no fitted auditor; pass at least one.")
        return cls(pd.DataFrame(rows, columns=list(COLUMNS)))

    def _draw(self, ax: Any) -> None:
        """A marker per audit, with a line at its certificate; policies side by side."""
        results = self.results
        epsilons = np.sort(results["epsilon"].unique())
        names, baselines = results["name"].unique(), results["baseline"].unique()
        slot = min(_SLOT, _GROUP / len(names))
        for i, (name, colour) in enumerate(zip(names, _colours(len(names)), strict=True)):
            part = results[results["name"] == name].sort_values("epsilon")
            x = np.searchsorted(epsilons, part["epsilon"]) + slot * (i - (len(names) - 1) / 2.0)
            errors = [part["success"] - part["low"], part["high"] - part["success"]]
            marker = _MARKERS[i % len(_MARKERS)]
            style = {"fmt": marker, "markersize": 5, "capsize": 2, "color": colour}
            ax.errorbar(x, part["success"], np.abs(errors), label=name, **style)
            ends = x - 0.42 * slot, x + 0.42 * slot
            ax.hlines(part["certificate"], *ends, color=colour, linewidth=2)
            if len(baselines) > 1:
                ax.hlines(part["baseline"], *ends, color=colour, linestyle=":", linewidth=2)
        ax.plot([], [], color="0.4", linewidth=2, label="direct certificate")
        if len(baselines) == 1:
            ax.axhline(baselines[0], color="0.4", linestyle=":", linewidth=1, label="blind guess")
        else:
            ax.plot([], [], color="0.4", linestyle=":", linewidth=2, label="blind guess")
        ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
        ax.set_xlim(-0.6, len(epsilons) - 0.4)
        for edge in np.arange(len(epsilons) - 1) + 0.5:
            ax.axvline(edge, color="0.9", linewidth=0.8, zorder=0)
        ax.set_ylim(0.0, 1.02)
        ax.set_xlabel(r"$\varepsilon$")
        ax.set_ylabel("reconstruction success")
        _legend(ax, len(names))


class PrivacyUtilityDisplay(Display):
    """Utility against the reconstruction certificate: the trade-off of a search.

    Build it with :meth:`from_cv_results`.

    Parameters
    ----------
    results : DataFrame
        One row per candidate of the search: group, certificate, utility, deviation.
    utility_name : str
        Label of the vertical axis.

    Attributes
    ----------
    ax_, figure_ : matplotlib Axes and Figure
        After :meth:`plot`.

    References
    ----------
    Margaryan & Gupta, the accuracy-certificate figure.
    """

    def __init__(self, results: pd.DataFrame, utility_name: str = "utility") -> None:
        check_columns("results", results, ("certificate", "deviation", "group", "utility"))
        self.results, self.utility_name = results, utility_name

    @classmethod
    def from_cv_results(
        cls, cv_results: Mapping[str, ArrayLike], *, utility: str = "accuracy", group: str = ""
    ) -> PrivacyUtilityDisplay:
        """Display of a multi-metric search that scores :func:`.neg_certificate_scorer`.

        Parameters
        ----------
        cv_results : dict
            Results of the search (``search.cv_results_``), with a scorer named "certificate". To
            compare radii, audit them all at one: ``ReconstructionAuditor(radius=...)``.
        utility : str, default="accuracy"
            Scorer whose mean is on the vertical axis.
        group : str, optional
            Parameter that tells curves apart, such as ``"estimator__radius"``.

        Returns
        -------
        PrivacyUtilityDisplay
            Not drawn yet.

        Raises
        ------
        ValueError
            If it is no dict, or the search has no such scorer or parameter.
        """
        import pandas as pd

        if not isinstance(cv_results, Mapping):
            raise ValueError(
                f"cv_results must be a dict such as search.cv_results_, got "
                f"{type(cv_results).__name__}."
            )
        table = pd.DataFrame({name: list(np.asarray(v)) for name, v in cv_results.items()})
        names = {
            "mean_test_certificate": "certificate",
            f"mean_test_{utility}": "utility",
            f"std_test_{utility}": "deviation",
        }
        lacking = [name for name in names if name not in table]
        if lacking:
            raise ValueError(
                f"cv_results lacks {', '.join(lacking)}: search over a ReconstructionAuditor with "
                f"scoring={{'certificate': neg_certificate_scorer, {utility!r}: 'accuracy'}} (or "
                "another scorer), and refit by one of these names."
            )
        check_columns("cv_results", table, [f"param_{group}"] if group else [])
        results = table[list(names)].rename(columns=names)
        results["certificate"] = results["certificate"].abs()
        values = np.asarray(cv_results[f"param_{group}"]) if group else [""] * len(table)
        results["group"] = [_setting_name(group.rsplit("__", 1)[-1], value) for value in values]
        # Candidates that could not be fitted have no score.
        return cls(results.dropna(subset=["certificate", "utility"]), utility)

    def _draw(self, ax: Any) -> None:
        groups = dict(list(self.results.groupby("group", sort=False)))
        for (name, part), colour in zip(groups.items(), _colours(len(groups)), strict=True):
            part = part.sort_values("certificate")
            fmt = "o-" if name else "o"
            x, height, deviation = part["certificate"], part["utility"], part["deviation"]
            ax.errorbar(x, height, deviation, fmt=fmt, color=colour, capsize=2, label=name)
        ax.set_xlabel("reconstruction certificate")
        ax.set_ylabel(self.utility_name)
        if list(groups) != [""]:
            _legend(ax, len(groups))


def fitted_auditor(estimator: Any) -> Any:
    """The auditor in an estimator: itself, a Pipeline's last step, or a search's best estimator."""
    check_is_fitted(estimator)
    estimator = getattr(estimator, "best_estimator_", estimator)
    estimator = getattr(estimator, "steps", [(None, estimator)])[-1][1]
    if not hasattr(estimator, "success_rate_"):
        raise ValueError(
            "expected a fitted ReconstructionAuditor, a Pipeline that ends in one, or a search "
            f"over one; got {type(estimator).__name__}."
        )
    return estimator


def _setting_name(name: str, value: Any) -> str:
    if not name:
        return ""
    if name == "radius" and value is None:
        return "full radius"
    return f"{name} = {value:.3g}" if isinstance(value, float) else f"{name} = {value}"


def _legend(ax: Any, n_names: int) -> None:
    beside = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
    ax.legend(frameon=False, **({} if n_names <= _INSIDE_LEGEND else beside))


def _colours(n: int) -> Any:
    import matplotlib

    if n <= len(_COLOURS):
        return _COLOURS[:n]
    # Dark to middling: the light end of the map is illegible on white.
    return matplotlib.colormaps["viridis"](np.linspace(0.0, 0.8, max(n, 1))[:n])
