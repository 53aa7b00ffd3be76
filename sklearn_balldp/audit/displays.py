"""Figures of audits, as scikit-learn's Display classes."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

#: Columns of a ReconstructionDisplay's table.
COLUMNS = ("name", "epsilon", "success", "low", "high", "baseline", "certificate")
# Offset between the points of neighbouring policies, as a share of the spacing.
_DODGE = 0.12


class ReconstructionDisplay:
    """Measured reconstruction success against blind guessing and certificates.

    Build it with :meth:`from_estimator` or :meth:`from_estimators`.

    Parameters
    ----------
    results : DataFrame
        One row an audit: name (of the policy), epsilon, success, low, high, baseline and
        certificate.

    Attributes
    ----------
    ax_ : matplotlib Axes
        After :meth:`plot`.
    figure_ : matplotlib Figure
        After :meth:`plot`.

    References
    ----------
    Margaryan & Gupta, the exact-identification figure.
    """

    def __init__(self, results: pd.DataFrame) -> None:
        missing = [name for name in COLUMNS if name not in results]
        if missing:
            raise ValueError(f"results lacks the column(s) {', '.join(missing)}.")
        self.results = results

    @classmethod
    def from_estimator(cls, auditor: Any, name: str | None = None) -> "ReconstructionDisplay":
        """Display of one fitted auditor.

        Parameters
        ----------
        auditor : ReconstructionAuditor
            Fitted auditor.
        name : str, optional
            Name of the policy; its radius by default.

        Returns
        -------
        ReconstructionDisplay
        """
        return cls.from_estimators([auditor] if name is None else {name: auditor})

    @classmethod
    def from_estimators(
        cls, auditors: Mapping[str, Any] | Iterable[Any]
    ) -> "ReconstructionDisplay":
        """Display of several fitted auditors, such as one an epsilon and policy.

        Parameters
        ----------
        auditors : iterable of ReconstructionAuditor, or mapping
            Fitted auditors; a mapping gives each policy's auditor, or list of auditors, by name.
            Without names an auditor is named by the radius of its release.

        Returns
        -------
        ReconstructionDisplay
        """
        if isinstance(auditors, Mapping):
            named = [
                (name, auditor)
                for name, group in auditors.items()
                for auditor in (group if isinstance(group, (list, tuple)) else [group])
            ]
        else:
            named = [(None, auditor) for auditor in auditors]
        rows = []
        for name, auditor in named:
            release = _release(auditor)
            low, high = auditor.success_interval_["clopper_pearson"]
            rows.append(
                {
                    "name": f"r = {release.radius:.3g}" if name is None else name,
                    "epsilon": release.epsilon,
                    "success": auditor.success_rate_,
                    "low": low,
                    "high": high,
                    "baseline": auditor.baseline_,
                    "certificate": auditor.certificate_["direct"],
                }
            )
        return cls(pd.DataFrame(rows, columns=list(COLUMNS)))

    def plot(self, ax: Any = None) -> "ReconstructionDisplay":
        """Draw the figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.

        Returns
        -------
        self
        """
        self.figure_, self.ax_ = _, ax = _axes(ax)
        results = self.results
        epsilons = np.sort(results["epsilon"].unique())
        place = {epsilon: i for i, epsilon in enumerate(epsilons)}
        names = list(dict.fromkeys(results["name"]))
        colours = _colours(len(names))
        for i, (name, colour) in enumerate(zip(names, colours, strict=True)):
            part = results[results["name"] == name].sort_values("epsilon")
            shift = _DODGE * (i - (len(names) - 1) / 2.0)
            x = part["epsilon"].map(place) + shift
            errors = [part["success"] - part["low"], part["high"] - part["success"]]
            ax.errorbar(
                x, part["success"], np.abs(errors), fmt="o", color=colour, capsize=3, label=name
            )
            ax.scatter(x, part["certificate"], marker="_", s=250, color=colour, linewidths=2)
        ax.scatter([], [], marker="_", s=150, color="0.4", label="certificate")
        for i, value in enumerate(sorted(results["baseline"].unique())):
            label = "blind guess" if i == 0 else None
            ax.axhline(value, color="0.4", linestyle=":", linewidth=1, label=label)
        ax.set_xticks(range(len(epsilons)), [f"{epsilon:g}" for epsilon in epsilons])
        ax.set_xlim(-0.6, len(epsilons) - 0.4)
        ax.set_ylim(0.0, 1.02)
        ax.set_xlabel(r"$\varepsilon$")
        ax.set_ylabel("reconstruction success")
        ax.legend(frameon=False, loc="upper left")
        return self


class PrivacyUtilityDisplay:
    """Utility against the reconstruction certificate: the trade-off of a search.

    Build it with :meth:`from_cv_results`.

    Parameters
    ----------
    results : DataFrame
        One row a candidate of the search: group, certificate, utility, deviation.
    utility_name : str, default="utility"
        Label of the vertical axis.

    Attributes
    ----------
    ax_ : matplotlib Axes
        After :meth:`plot`.
    figure_ : matplotlib Figure
        After :meth:`plot`.

    References
    ----------
    Margaryan & Gupta, the accuracy-certificate figure.
    """

    def __init__(self, results: pd.DataFrame, utility_name: str = "utility") -> None:
        missing = {"group", "certificate", "utility", "deviation"} - set(results)
        if missing:
            raise ValueError(f"results lacks the column(s) {', '.join(sorted(missing))}.")
        self.results, self.utility_name = results, utility_name

    @classmethod
    def from_cv_results(
        cls,
        cv_results: Mapping[str, ArrayLike],
        *,
        utility: str = "accuracy",
        certificate: str = "certificate",
        group: str | None = None,
    ) -> "PrivacyUtilityDisplay":
        """Display of a multi-metric search, such as ``GridSearchCV(...).cv_results_``.

        Parameters
        ----------
        cv_results : dict
            Results of the search.
        utility : str, default="accuracy"
            Scorer whose mean is drawn upwards.
        certificate : str, default="certificate"
            Scorer of the certificate, or of the measured success: between 0 and 1, or its
            negative, as :func:`~sklearn_balldp.audit.auditor.neg_certificate_scorer` gives.
        group : str, optional
            Parameter that tells curves apart, such as ``"estimator__radius"``.

        Returns
        -------
        PrivacyUtilityDisplay

        Raises
        ------
        ValueError
            If the search has no such scorer or parameter.
        """
        columns = {
            "certificate": f"mean_test_{certificate}",
            "utility": f"mean_test_{utility}",
            "deviation": f"std_test_{utility}",
        }
        parameter = None if group is None else f"param_{group}"
        for column in [*columns.values(), *([] if parameter is None else [parameter])]:
            if column not in cv_results:
                raise ValueError(
                    f"cv_results has no {column!r}: name a scorer of scoring={{...}}, and a "
                    "parameter of the grid."
                )
        table = pd.DataFrame({name: np.asarray(cv_results[key]) for name, key in columns.items()})
        table["certificate"] = table["certificate"].abs()
        table["group"] = ""
        if group is not None and parameter is not None:
            short = group.rsplit("__", 1)[-1]
            values = np.asarray(cv_results[parameter], dtype=object)
            table["group"] = [f"{short} = {value}" for value in values]
        return cls(table, utility)

    def plot(self, ax: Any = None) -> "PrivacyUtilityDisplay":
        """Draw the figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.

        Returns
        -------
        self
        """
        self.figure_, self.ax_ = _, ax = _axes(ax)
        names = list(dict.fromkeys(self.results["group"]))
        for name, colour in zip(names, _colours(len(names)), strict=True):
            part = self.results[self.results["group"] == name].sort_values("certificate")
            ax.errorbar(
                part["certificate"],
                part["utility"],
                part["deviation"],
                fmt="o-",
                color=colour,
                capsize=3,
                label=name,
            )
        ax.set_xlabel("reconstruction certificate")
        ax.set_ylabel(self.utility_name)
        if names != [""]:
            ax.legend(frameon=False)
        return self


def _release(auditor: Any) -> Any:
    model = auditor.estimator_
    model = getattr(model, "estimator", model)
    return getattr(model, "steps", [(None, model)])[-1][1].release_


def _axes(ax: Any) -> tuple[Any, Any]:
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    return ax.figure, ax


def _colours(n: int) -> Any:
    import matplotlib

    # Dark to middling: the light end of the map is illegible on white.
    return matplotlib.colormaps["viridis"](np.linspace(0.0, 0.8, max(n, 1))[:n])
