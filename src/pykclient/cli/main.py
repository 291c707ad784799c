"""The command ``pykclient``: the entry point, and the exit code of each kind of error."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn

#: New objects between two runs of the garbage collector: more than any command imports.
_GC_THRESHOLD: Final = 200_000
_AFTER_CTRL_C: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code.

    ``arguments`` default to the process's. The code is 0 for success, 1 for a failure, 2 for bad input, 130 after
    Ctrl-C, 143 after SIGTERM, 129 after SIGHUP, and 141 if the reader of stdout is gone.
    """
    try:
        from pykclient.cli.run import run

        return run(arguments)
    except KeyboardInterrupt:  # while modules were imported, or once the command was done
        return _AFTER_CTRL_C


def entry() -> NoReturn:
    """Run the command of this process, and end the process.

    The interpreter's own end would take a third of a short command's time: it destroys every module. By now all clients
    are closed, and all output is written.
    """
    gc.set_threshold(_GC_THRESHOLD)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # it was closed, as by `>&-`; a socket must not get its number
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - for the rest of the process
    code = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):  # main() has reported what could not be written
                stream.flush()
    os._exit(code)
