"""``python -m pykclient`` is the command ``pykclient``."""

from __future__ import annotations

from pykclient.cli.main import entry

if __name__ == "__main__":
    entry()
