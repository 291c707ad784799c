"""``python -m pykclient`` is the command ``pykclient``."""

from __future__ import annotations

import sys

from pykclient.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
