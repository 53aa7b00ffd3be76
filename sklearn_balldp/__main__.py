"""``python -m sklearn_balldp``: the same as ``balldp``."""

import sys

from .command import main

if __name__ == "__main__":
    sys.exit(main())
