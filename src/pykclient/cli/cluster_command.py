"""``pykclient cluster``: brokers for development, until Ctrl-C."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from typing import Any

from pykclient.cli import arguments
from pykclient.errors import KafkaError

#: The interval of checks for changes.
_LOOK_INTERVAL_S = 0.2

_DESCRIPTION = """\
Runs Kafka brokers in this process, for development and tests. Any client can use them. Nothing is written to disk: all
data is lost when the command ends.
"""


def add_to(commands: Any) -> None:
    """Add this command to argparse's ``commands``."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "cluster", help="run an embedded cluster until Ctrl-C", description=_DESCRIPTION
    )
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="number of brokers (default: 1)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument(
        "--advertised-host", metavar="HOST", help="address for clients to connect to, such as this machine's name"
    )
    parser.add_argument(
        "--port",
        type=arguments.port,
        default=9092,
        help="port of the first broker; the others use the next ports; 0: any free ports (default: 9092)",
    )
    parser.add_argument("--release", metavar="VERSION", help="pose as this release of Kafka, such as 2.8")
    parser.add_argument(
        "--topic",
        dest="topics",
        action="append",
        default=[],
        type=arguments.topic,
        metavar="NAME[:PARTITIONS[:REPLICATION]]",
        help="a topic to create; can be given several times",
    )
    parser.add_argument(
        "--config",
        dest="settings",
        action="append",
        default=[],
        type=arguments.setting,
        metavar="KEY=VALUE",
        help="a broker setting, such as num.partitions=6; can be given several times",
    )
    parser.add_argument(
        "--memory-limit",
        type=arguments.size_bytes,
        default=512 << 20,
        metavar="SIZE",
        help="what all logs may hold together (default: 512MB)",
    )
    parser.add_argument("--verbose", action="store_true", help="print each request of a client")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the cluster; return the exit code: 0 after Ctrl-C or SIGTERM, 1 if it cannot be started."""
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _run(options, stopping)
    except BrokenPipeError:  # the reader of the output is gone; do not flush the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _complain(f"{error}{'; --port names another one' if error.errno == errno.EADDRINUSE else ''}")
    except KafkaError as error:
        return _complain(str(error))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(options: argparse.Namespace, stopping: threading.Event) -> int:
    from pykclient.cli.watch import Watch
    from pykclient.testing.embedded_cluster import EmbeddedCluster

    cluster = EmbeddedCluster(
        options.brokers,
        host=options.host,
        advertised_host=options.advertised_host,
        port=options.port,
        release=options.release,
        memory_limit_bytes=options.memory_limit,
        config=dict(options.settings),
    )
    with cluster:
        watch = Watch(cluster, verbose=options.verbose)
        for topic in options.topics:
            cluster.create_topic(topic.name, topic.partitions or -1, topic.replication_factor)
        _say(f"bootstrap servers: {cluster.bootstrap_servers}")
        release = f" as Kafka {options.release}" if options.release else ""
        _say(f"{options.brokers} broker{'s' * (options.brokers > 1)}{release}, Ctrl-C ends")
        while not stopping.wait(_LOOK_INTERVAL_S):
            for line in watch.look():
                _say(line)
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _complain(reason: str) -> int:
    sys.stderr.write(f"pykclient cluster: {reason}\n")
    return 1
