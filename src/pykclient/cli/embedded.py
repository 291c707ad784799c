"""``pykclient embedded``: brokers for development, until Ctrl-C."""

from __future__ import annotations

import errno
import signal
import threading
from typing import Any

import click

from pykclient.cli.problems import CommandError
from pykclient.cli.value_types import PORT, SETTING, SIZE, TOPIC_OPTION
from pykclient.cli.values import TopicOption

#: The interval of checks for changes.
_LOOK_INTERVAL_S = 0.2


@click.command()
@click.option("--brokers", type=int, default=1, metavar="N", help="Number of brokers. Default: 1.")
@click.option("--host", default="127.0.0.1", metavar="HOST", help="Address to listen on. Default: 127.0.0.1.")
@click.option(
    "--advertised-host", metavar="HOST", help="Address for clients to connect to, such as this machine's name."
)
@click.option(
    "--port",
    type=PORT,
    default=9092,
    metavar="PORT",
    help="Port of the first broker; the others use the next ports; 0: any free ports. Default: 9092.",
)
@click.option("--release", metavar="VERSION", help="Pose as this release of Kafka, such as 2.8.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    type=TOPIC_OPTION,
    metavar="NAME[:PARTITIONS[:REPLICATION]]",
    help="A topic to create. Can be given several times.",
)
@click.option(
    "--config",
    "settings",
    multiple=True,
    type=SETTING,
    metavar="KEY=VALUE",
    help="A broker setting, such as num.partitions=6. Can be given several times.",
)
@click.option(
    "--memory-limit",
    type=SIZE,
    default="512MB",
    metavar="SIZE",
    help="What all logs may hold together. Default: 512MB.",
)
@click.option("--verbose", is_flag=True, help="Print each request of a client.")
def embedded(**options: Any) -> None:
    """Run Kafka brokers in this process, for development and tests.

    Any client can use them. Nothing is written to disk: all data is lost when the command ends, at Ctrl-C or SIGTERM.
    """
    stopping = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopping.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _run(stopping, **options)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        hint = "; --port names another one" if error.errno == errno.EADDRINUSE else ""
        raise CommandError(f"{error}{hint}") from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _run(
    stopping: threading.Event,
    *,
    brokers: int,
    host: str,
    advertised_host: str | None,
    port: int,
    release: str | None,
    topics: tuple[TopicOption, ...],
    settings: tuple[tuple[str, str], ...],
    memory_limit: int,
    verbose: bool,
) -> None:
    from pykclient.cli.watch import Watch
    from pykclient.testing.embedded_cluster import EmbeddedCluster

    cluster = EmbeddedCluster(
        brokers,
        host=host,
        advertised_host=advertised_host,
        port=port,
        release=release,
        memory_limit_bytes=memory_limit,
        config=dict(settings),
    )
    with cluster:
        watch = Watch(cluster, verbose=verbose)
        for topic in topics:
            cluster.create_topic(topic.name, topic.partitions or -1, topic.replication_factor)
        click.echo(f"bootstrap servers: {cluster.bootstrap_servers}")
        posing = f" as Kafka {release}" if release else ""
        click.echo(f"{brokers} broker{'s' * (brokers > 1)}{posing}, Ctrl-C ends")
        while not stopping.wait(_LOOK_INTERVAL_S):
            for line in watch.look():
                click.echo(line)
