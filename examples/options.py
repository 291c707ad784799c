"""The options of the small examples."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable


def run(example: Callable[[str, str], None], topic: str) -> None:
    """Call ``example(bootstrap_servers, topic)`` with values from the command line; ``topic`` is the default."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", default=topic, help=f"default: {topic}")
    options = parser.parse_args()
    example(options.bootstrap_servers, options.topic)
