"""The command ``pykclient``: the entry point, and the exit code of each kind of error."""

from __future__ import annotations

import sys
from collections.abc import Sequence

_NEEDS_EXTRA = "pykclient: the command line needs {module}; install it with: pip install 'pykclient[cli]'\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    ``arguments`` default to the process's. The code is 0 for success, 1 for a failure, 2 for bad input, 130 after
    Ctrl-C, and 141 if the reader of stdout is gone.
    """
    try:
        from pykclient.cli.app import run
    except ModuleNotFoundError as error:
        if error.name not in {"click", "rich"}:
            raise
        sys.stderr.write(_NEEDS_EXTRA.format(module=error.name))
        return 2
    return run(arguments)
