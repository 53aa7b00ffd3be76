"""One line of a report: what was checked, the verdict, and what it rests on."""

from dataclasses import dataclass

from .showing import one_line

#: Computed here, and true or not; true, and next to nothing; the publisher's word; and what should
#: have been computed, and could not be.
PASS, FAIL, WEAK, STATED, CANNOT_CHECK = "PASS", "FAIL", "WEAK", "STATED", "CANNOT CHECK"
#: Probability, at most, that an honest release fails one of the tests on its noise.
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Check:
    """Result of one check, as one line of a report: PASS, FAIL, WEAK, STATED or CANNOT CHECK.

    ``found`` is the number found, in words; ``basis`` what the check relies on, or what it would
    need. One that is ``private`` used private records, so that its result is for their owner alone.
    """

    name: str
    verdict: str
    found: str
    basis: str
    private: bool = False

    def __post_init__(self) -> None:
        # Both may quote what a stranger wrote.
        for name in ("name", "found"):
            object.__setattr__(self, name, one_line(getattr(self, name)))
