"""A fit before it is made: its record, its noise, and what may be left to see above it."""

from dataclasses import dataclass

from ..privacy.bounds import PROTOTYPE
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
    parts : dict of str to (float, float)
        What is released, by name: the largest length that it can have before noise, and the
        expected length of its noise. Prototypes have a part for each class, a minimiser has one,
        statistics have the class sums and, if released, the second moment. Noise on gradients has
        one: the joint length of the mean gradients of all steps at the start. Empty for mechanisms
        of one's own.
    class_signal_to_noise : tuple of float
        For each class, what its records can at most move of the released values, over the length of
        the noise in its share of them. Below :data:`LOST` classes were hardly ever found on
        benchmark data, above :data:`AT_RISK` they mostly were. Empty where labels are protected,
        and for mechanisms of one's own.
    """

    release: Release
    class_counts: tuple[int, ...] | None
    parts: dict[str, tuple[float, float]]
    class_signal_to_noise: tuple[float, ...] = ()

    @property
    def signal(self) -> tuple[float, ...]:
        """Largest length of each part before noise."""
        return tuple(signal for signal, _ in self.parts.values())

    @property
    def noise(self) -> tuple[float, ...]:
        """Expected length of the noise in each part."""
        return tuple(noise for _, noise in self.parts.values())

    @property
    def signal_to_noise(self) -> tuple[float, ...]:
        """Largest signal over expected length of the noise."""
        pairs = self.parts.values()
        return tuple(signal / noise if noise > 0.0 else 0.0 for signal, noise in pairs)

    def __str__(self) -> str:
        lines = str(self.release).splitlines()[1:]
        shown = ["Plan", *(line for line in lines if not line.startswith("  parameters"))]
        of_classes: list[float] = []
        for name, noise, ratio in zip(self.parts, self.noise, self.signal_to_noise, strict=True):
            if name.startswith(PROTOTYPE) and self.class_signal_to_noise:
                of_classes.append(noise)
                continue
            # Without class counts the prototypes are all alike.
            own = "each prototype" if name.startswith(PROTOTYPE) else f"the {name}"
            line = f"  noise of length {noise:.3g} in {own}; signal to noise at most {ratio:.3g}"
            shown += [line] if line not in shown else []
        if self.class_signal_to_noise:
            shown += self._of_classes(of_classes)
        return "\n".join(shown)

    def _of_classes(self, noise: list[float]) -> list[str]:
        """A line for each class, with its noise if it has its own; of many, those most at risk."""
        counts, ratios = self.class_counts or (), self.class_signal_to_noise
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
