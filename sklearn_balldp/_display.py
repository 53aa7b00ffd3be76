"""Base of the package's figures, as scikit-learn's Display classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    import pandas as pd


class Display(ABC):
    """The figure of a table: a subclass draws it on the axes."""

    def plot(self, ax: Any = None) -> Self:
        """Draw the figure.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; new ones by default.

        Returns
        -------
        self
            The display, with ``ax_`` and ``figure_``.
        """
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots(layout="constrained")
        self.figure_, self.ax_ = ax.figure, ax
        self._draw(ax)
        return self

    @abstractmethod
    def _draw(self, ax: Any) -> None:
        """Draw on these axes."""


def check_columns(name: str, table: pd.DataFrame, columns: Iterable[str]) -> None:
    """Raise a ValueError unless ``table`` has all of the columns, and a row."""
    missing = [column for column in columns if column not in table]
    if missing:
        raise ValueError(f"{name} lacks the column(s) {', '.join(missing)}.")
    if len(table) == 0:
        raise ValueError(f"{name} holds no row, so there is nothing to draw; pass at least one.")
