"""An algorithm in a process of its own: it reads a record's JSON and noisy answers, and no row."""

import json
import pickle
import struct
import sys


def send(stream, value):
    """Write a value with its length before it."""
    data = pickle.dumps(value)
    stream.write(struct.pack("<q", len(data)) + data)
    stream.flush()


def received(stream):
    """The bytes of the next value; None where there is none."""
    head = stream.read(8)
    return stream.read(*struct.unpack("<q", head)) if len(head) == 8 else None


def main():
    """Ask the queries of each record's conversation, and give what it returns."""
    from sklearn_balldp.privacy import Release

    while (told := received(sys.stdin.buffer)) is not None:
        # A process that only reads knows the bounds of this package, too.
        record = Release.from_dict(json.loads(pickle.loads(told)))
        from sklearn_balldp import mechanisms

        kind = mechanisms.MECHANISMS[record.mechanism]
        conversation, answer = kind().conversation(record.problem, record.bound), None
        while conversation is not None:
            try:
                send(sys.stdout.buffer, conversation.send(answer))
                answer = pickle.loads(received(sys.stdin.buffer))
            except StopIteration as end:
                send(sys.stdout.buffer, end.value)
                conversation = None


if __name__ == "__main__":
    main()
