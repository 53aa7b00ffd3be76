"""Text of a stranger, as it may be shown."""


def one_line(text: object, most: int = 400) -> str:
    """One printable line of a text: the rest is escaped, or cut off.

    Line feeds and terminal codes could forge a line of a report.
    """
    start = str(text)[: most + 1]
    safe = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in start)
    return safe if len(safe) <= most else f"{safe[: most - 3]}..."
