"""The command line: ``pykclient cluster`` runs an embedded cluster until Ctrl-C."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pykclient import implementation
from pykclient.cli import cluster_command
from pykclient.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; return the exit code. ``arguments`` default to the process's."""
    parser = argparse.ArgumentParser(
        prog="pykclient", description="The Apache Kafka clients for Python, and a cluster to try them on."
    )
    parser.add_argument("--version", action="version", version=f"pykclient {__version__} ({implementation.NAME})")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    cluster_command.add_to(commands)
    options = parser.parse_args(arguments)
    code: int = options.run(options)
    return code
