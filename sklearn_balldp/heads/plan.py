"""A fit before it is made: its record, its noise, and what may be left to see above it."""

from dataclasses import dataclass

from ..privacy.release import Release

#: Signal to noise of a class below which its recall was near zero on benchmark data, and below
#: which it was less than without noise.
LOST, AT_RISK = 0.5, 2.0


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
            shown.append("  class   records   noise    signal to noise (at most)")
            counts = self.class_counts or ("?",) * len(self.noise)
            rows = zip(counts, self.noise, self.signal_to_noise, strict=True)
            for code, (count, noise, ratio) in enumerate(rows):
                shown.append(f"  {code:>5}   {count:>7}   {noise:<8.3g} {ratio:.3g}{_lost(ratio)}")
            return "\n".join(shown)
        names = (" in the class sums", " in the second moment") if len(self.noise) > 1 else ("",)
        for name, noise, ratio in zip(names, self.noise, self.signal_to_noise, strict=False):
            shown.append(
                f"  noise of length {noise:.3g}{name}; signal to noise at most {ratio:.3g}"
            )
        if self.class_signal_to_noise:
            shown.append("  class   records   signal to noise (at most)")
            pairs = zip(self.class_counts or (), self.class_signal_to_noise, strict=True)
            for code, (count, ratio) in enumerate(pairs):
                shown.append(f"  {code:>5}   {count:>7}   {ratio:.3g}{_lost(ratio)}")
        return "\n".join(shown)

    __repr__ = __str__


def _lost(ratio: float) -> str:
    """What a ratio of one class means."""
    if ratio >= AT_RISK:
        return ""
    return "   lost in the noise" if ratio < LOST else "   at risk"
