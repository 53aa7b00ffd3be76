"""``python docs/pictures``: draw the pictures of pages that are read as plain Markdown too.

Each notes the script that drew it. The architecture is drawn from the code, when the site is built.
"""

import hashlib
import runpy
from pathlib import Path

PICTURES = ("ball", "conversation", "rebuilt", "within")


def digest(script):
    """What a picture says of its script."""
    return hashlib.sha256(script.read_text("utf-8").encode()).hexdigest()


if __name__ == "__main__":
    for name in PICTURES:
        script = Path(__file__).with_name(f"{name}.py")
        figure = runpy.run_path(str(script))["figure"]
        noted = {"Software": None, "Source": digest(script)}
        figure.savefig(script.with_suffix(".png"), metadata=noted)
