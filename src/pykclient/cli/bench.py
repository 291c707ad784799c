"""``pykclient bench``: a first figure of what a cluster takes and gives."""

from __future__ import annotations

import os
import uuid
from typing import Any

import click

from pykclient.admin.values import NewTopic
from pykclient.cli.console import emit, note
from pykclient.cli.options import SIZE, Command, complete_topics, pass_session
from pykclient.cli.problems import CommandError
from pykclient.cli.session import Session
from pykclient.clock import SYSTEM_CLOCK
from pykclient.errors import KafkaError
from pykclient.record.row_columns import BytesColumn
from pykclient.types import TopicPartition

#: The rows of one call of send_batch.
_ROWS = 10_000


@click.command(cls=Command)
@click.option(
    "--topic",
    metavar="NAME",
    shell_complete=complete_topics,
    help="Use this topic, and keep it. Default: a new one, deleted at the end.",
)
@click.option("-n", "--records", type=click.IntRange(min=1), default=100_000, metavar="N", help="Default: 100000.")
@click.option("--size", type=SIZE, default="100", metavar="SIZE", help="Bytes of a record. Default: 100.")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), default=3, metavar="N", help="Of the new topic. Default: 3."
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="Of the new topic. Default: the brokers'.",
)
@click.option("-z", "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), help="The codec.")
@click.option(
    "--acks", type=click.Choice(["0", "1", "all"]), help="How many replicas must have a record. Default: all."
)
@pass_session
def bench(session: Session, /, topic: str | None, **options: Any) -> None:
    """Write records, read them again, and show both rates.

    The records are random, so that codecs find nothing to compress. The figures are those of this machine, network and
    cluster together.
    """
    with session.admin() as admin:
        name = topic or f"pykclient-bench-{uuid.uuid4().hex[:12]}"
        if topic is None:
            new = NewTopic(name, options["partitions"], options["replication_factor"] or -1)
            admin.create_topics([new]).all()
        try:
            rows = _run(session, name, **options)
        finally:
            if topic is None:
                _delete(admin, name)
    emit(session, rows, ("step", "records", "seconds", "records_per_s", "mb_per_s"))


def _delete(admin: Any, name: str) -> None:
    try:
        admin.delete_topics([name]).all()
    except KafkaError as error:
        note(f"pykclient: topic {name} was not deleted: {error}")


def _run(
    session: Session, topic: str, *, records: int, size: int, compression: str | None, acks: str | None, **_: Any
) -> list[dict[str, Any]]:
    chosen = {"compression.type": compression, "acks": acks}
    with session.producer(**{key: value for key, value in chosen.items() if value is not None}) as producer:
        numbers = producer.partitions_for(topic)
        consumer = session.consumer(group_id=None, enable_auto_commit=False, auto_offset_reset="earliest")
        with consumer:
            partitions = [TopicPartition(topic, number) for number in numbers]
            starts = consumer.end_offsets(partitions)
            begin_ms = SYSTEM_CLOCK.now_ms()
            left = records
            while left:
                count = min(_ROWS, left)
                column = _random_column(count, size)
                producer.send_batch(topic, column)
                left -= count
            producer.flush()
            written = _row("produce", records, size, SYSTEM_CLOCK.now_ms() - begin_ms)
            ends = consumer.end_offsets(partitions)
            if acks != "0" and sum(ends.values()) - sum(starts.values()) < records:
                raise CommandError(f"not all records were written to {topic!r}; --debug shows why")
            consumer.assign(partitions)
            for tp, start in starts.items():
                consumer.seek(tp, start)
            begin_ms, read = SYSTEM_CLOCK.now_ms(), 0
            while any(consumer.position(tp) < ends[tp] for tp in partitions):
                columns = consumer.poll_columns(1000, ("value",), max_records=records, max_bytes=1 << 20, until=ends)
                read += columns.rows
                columns.give_back()
            return [written, _row("consume", read, size, SYSTEM_CLOCK.now_ms() - begin_ms)]


def _random_column(count: int, size: int) -> BytesColumn:
    data = os.urandom(count * size)
    return BytesColumn.of([data[row * size : (row + 1) * size] for row in range(count)])


def _row(step: str, records: int, size: int, duration_ms: int) -> dict[str, Any]:
    seconds = max(1, duration_ms) / 1000
    return {
        "step": step,
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_s": round(records / seconds),
        "mb_per_s": round(records * size / seconds / 1e6, 1),
    }
