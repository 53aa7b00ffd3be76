"""What a report says, and records and folders as a careful forger writes them."""

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path

from sklearn_balldp import verify
from sklearn_balldp.privacy.digest import record_digest
from sklearn_balldp.publish.files import FILES, README
from sklearn_balldp.publish.model import Published
from sklearn_balldp.publish.saving import write_files


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


def written(model, folder):
    """A folder of plain data, whatever is wrong with it, whose card follows from what it holds."""
    folder.mkdir(exist_ok=True)
    for name in (*FILES, README):
        (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(Exception):  # of a record that contradicts itself there is no card
        write_files(model, folder)
    return folder


def verified(model, record=None, *, arrays=None, earlier=(), **options):
    """The verdict on a model in memory, written with another record or other arrays if given."""
    with tempfile.TemporaryDirectory() as place:
        folders = []
        for number, one in enumerate([model, *earlier]):
            if not isinstance(one, (str, Path)):
                published = Published.of(one)
                if not number:
                    as_json = published.as_json if record is None else record
                    held = {**published.arrays, **(arrays or {})}
                    published = replace(published, as_json=as_json, arrays=held)
                one = written(published, Path(place, str(number)))
            folders.append(one)
        return verify(folders[0], earlier=folders[1:], **options)
