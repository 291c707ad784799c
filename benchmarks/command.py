"""Common parts of the benchmark commands: the amount of work, the output, and the description of the run."""

from __future__ import annotations

import argparse
import datetime
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from benchmarks import report

#: Rounds and share of the records, for a full run and for a quick one.
FULL, QUICK = (5, 1.0), (1, 0.5)


def about(rounds: int, packages: Iterable[str]) -> dict[str, Any]:
    """Return what a reader must know about the run, without names of the machine."""
    from tests.kafka import artifacts

    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "rounds": rounds,
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "system": platform.system(),
        "python": platform.python_version(),
        "kafka": artifacts.KAFKA_VERSION,
        "java": artifacts.java_version() if artifacts.java_available() else None,
        "versions": {name: metadata.version(name) for name in packages},
    }


def new_parser(prog: str, description: str | None, what: str) -> argparse.ArgumentParser:
    """Return a parser of the arguments for ``parsed``; ``what`` is read or written."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help=f"one round, half of the {what}")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--scale", type=float, help=f"times as many {what} as usual")
    parser.add_argument("--output", type=Path, help="a folder for results and pages")
    return parser


def parsed(parser: argparse.ArgumentParser, words: list[str] | None) -> argparse.Namespace:
    """Return the arguments with ``place``: the repository's pages for a complete run, a folder for any other."""
    whole = parser.parse_args([])
    arguments = parser.parse_args(words)
    rounds, scale = QUICK if arguments.quick else FULL
    whole.rounds = arguments.rounds  # a complete run with fewer rounds also makes a page
    everything = arguments == whole
    arguments.rounds = arguments.rounds or rounds
    arguments.scale = arguments.scale or scale
    arguments.place = report.Place.of_repository() if everything else report.Place.of_folder(arguments.output)
    return arguments
