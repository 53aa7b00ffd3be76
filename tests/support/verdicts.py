"""What a report says, and records as a careful forger writes them."""

import contextlib

from sklearn_balldp.privacy.digest import record_digest


def failed(verdict):
    return [check.name for check in verdict.checks if check.verdict == "FAIL"]


def lines(verdict):
    return {check.name: check.verdict for check in verdict.checks}


def line(verdict, name):
    [found] = [check for check in verdict.checks if check.name == name]
    return found


def resealed(record):
    """A record with a checksum that fits."""
    record = {name: value for name, value in record.items() if name != "checksum"}
    with contextlib.suppress(TypeError, ValueError, OverflowError, RecursionError):
        record["checksum"] = record_digest(record)
    return record
