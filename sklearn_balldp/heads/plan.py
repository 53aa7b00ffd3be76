"""A fit before it is made: its record, its noise, and what may be left to see above it."""

from dataclasses import dataclass

from ..privacy.release import Release

#: Signal to noise of a class below which its recall was near zero on benchmark data, and below
#: which it was less than without noise.
LOST, AT_RISK = 0.5, 2.0
#: Classes that are printed.
SHOWN = 10


@dataclass(frozen=True)
class Plan:
    """What a fit would release, from public numbers alone.

    Attributes
    ----------
    release : Release
        The record, as it would be counted before the rows are touched.
    class_counts : tuple of int or None
        Records of each class, where they were given.
    signal : tuple of float
        Largest length that the parameters can have before noise. Prototypes have one per class, a
        minimiser has one, statistics have one for the class sums and one for the second moment.
        With noise on gradients it is the largest joint length of the mean gradients of all steps at
        the start.
    noise : tuple of float
        Expected length of the noise in them. Both are empty for mechanisms of one's own.
    class_signal_to_noise : tuple of float
        For each class, what its records can at most move of the released values, over the length of
        the noise in its share of them. Below :data:`LOST` classes were hardly ever found on
        benchmark data, above :data:`AT_RISK` they mostly were. Empty where labels are protected,
        for prototypes (``signal_to_noise`` has one for each class) and for mechanisms of one's own.
    """

    release: Release
    class_counts: tuple[int, ...] | None
    signal: tuple[float, ...]
    noise: tuple[float, ...]
    class_signal_to_noise: tuple[float, ...] = ()

    @property
    def signal_to_noise(self) -> tuple[float, ...]:
        """Largest signal over expected length of the noise."""
        pairs = zip(self.signal, self.noise, strict=True)
        return tuple(signal / noise if noise > 0.0 else 0.0 for signal, noise in pairs)

    def __str__(self) -> str:
        lines = str(self.release).splitlines()[1:]
        shown = ["Plan", *(line for line in lines if not line.startswith("  parameters"))]
        if len(self.noise) == len(self.class_counts or ()) > 1:
            return "\n".join(shown + self._of_classes(self.signal_to_noise, self.noise))
        names = (" in the class sums", " in the second moment") if len(self.noise) > 1 else ("",)
        for name, noise, ratio in zip(names, self.noise, self.signal_to_noise, strict=False):
            shown.append(
                f"  noise of length {noise:.3g}{name}; signal to noise at most {ratio:.3g}"
            )
        if self.class_signal_to_noise:
            shown += self._of_classes(self.class_signal_to_noise)
        return "\n".join(shown)

    def _of_classes(
        self, ratios: tuple[float, ...], noise: tuple[float, ...] | None = None
    ) -> list[str]:
        """A line for each class; of many classes, for those most at risk."""
        counts = self.class_counts or ()
        title = "   noise " if noise else ""
        lines = [f"  class   records{title}   signal to noise (at most)"]
        chosen = list(range(len(ratios)))
        if len(ratios) > SHOWN:
            chosen = sorted(chosen, key=lambda code: ratios[code])[:SHOWN]
        for code in chosen:
            own = f"   {noise[code]:<6.3g}" if noise else ""
            ratio = ratios[code]
            lines.append(f"  {code:>5}   {counts[code]:>7}{own}   {ratio:.3g}{_lost(ratio)}")
        if len(ratios) > SHOWN:
            below = sum(ratio < AT_RISK for ratio in ratios)
            lines.append(
                f"  of {len(ratios)} classes, those most at risk; below {AT_RISK:g} are {below}, "
                f"and the largest is {max(ratios):.3g}"
            )
        return lines

    __repr__ = __str__


def _lost(ratio: float) -> str:
    """What a ratio of one class means."""
    if ratio >= AT_RISK:
        return ""
    return "   lost in the noise" if ratio < LOST else "   at risk"
