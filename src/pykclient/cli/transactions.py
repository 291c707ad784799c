"""``pykclient transactions``: list, describe, find those that hang, abort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from pykclient.admin.values import AbortTransactionSpec, TransactionState
from pykclient.cli.console import confirm, emit, note_failures
from pykclient.cli.options import DURATION, CommandGroup
from pykclient.cli.problems import CommandError
from pykclient.cli.session import Session
from pykclient.clock import SYSTEM_CLOCK
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.admin.admin import Admin


@click.group(cls=CommandGroup)
def transactions() -> None:
    """List and describe transactions, find those that hang, and abort them."""


@transactions.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only those in a state, such as Ongoing.")
@click.option("--older-than", type=DURATION, metavar="TIME", help="Only those that run for longer than this.")
def list_transactions(session: Session, /, states: tuple[str, ...], older_than: int | None) -> None:
    """List transactional ids and the states of their transactions."""
    with session.admin() as admin:
        found = admin.list_transactions(states=states, duration_ms=older_than)
    if older_than is not None:  # brokers also return ids whose last transaction has ended
        ended = {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
        found = [listed for listed in found if listed.state not in {*ended, TransactionState.DEAD}]
    rows = [
        {"transactional_id": listed.transactional_id, "producer_id": listed.producer_id, "state": listed.state.value}
        for listed in sorted(found)
    ]
    emit(session, rows, ("transactional_id", "producer_id", "state"))


@transactions.command()
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def describe(session: Session, /, ids: tuple[str, ...]) -> int:
    """Describe transactions by their transactional ids."""
    now_ms = SYSTEM_CLOCK.wall_ms()
    with session.admin() as admin:
        found = admin.describe_transactions(ids)
    rows = [
        {
            "transactional_id": name,
            "state": described.state.value,
            "producer_id": described.producer_id,
            "producer_epoch": described.producer_epoch,
            "coordinator": described.coordinator_id,
            "timeout_ms": described.transaction_timeout_ms,
            "age_ms": None
            if described.transaction_start_time_ms < 0
            else max(0, now_ms - described.transaction_start_time_ms),
            "partitions": [str(tp) for tp in sorted(described.topic_partitions)],
        }
        for name, described in found.succeeded.items()
    ]
    if rows:
        emit(session, rows, tuple(rows[0]))
    return note_failures(found)


@transactions.command()
@click.option(
    "--max-timeout",
    type=DURATION,
    default="15m",
    metavar="TIME",
    help="The brokers' transaction.max.timeout.ms. Default: 15m.",
)
@click.option("--topic", "topics", multiple=True, metavar="NAME", help="Only partitions of this topic. Default: all.")
def hanging(session: Session, /, max_timeout: int, topics: tuple[str, ...]) -> None:
    """Find hanging transactions: open in a partition, but unknown to their coordinator.

    They hold up consumers with isolation.level=read_committed. `transactions abort` ends one.
    """
    with session.admin() as admin:
        rows = _hanging(admin, topics, max_timeout)
    emit(session, rows, ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "age_ms"))


def _hanging(admin: Admin, topics: Sequence[str], max_timeout_ms: int) -> list[dict[str, Any]]:
    """Return the transactions of partitions that are older than brokers allow, and unknown to their coordinators."""
    names = list(topics) or [topic.name for topic in admin.list_topics(list_internal=True)]
    described = admin.describe_topics(names).all() if names else {}
    partitions = [
        TopicPartition(topic.name, part.partition) for topic in described.values() for part in topic.partitions
    ]
    now_ms = SYSTEM_CLOCK.wall_ms()
    old = [
        (tp, producer)
        for tp, state in (admin.describe_producers(partitions).all() if partitions else {}).items()
        for producer in state.active_producers
        if producer.current_transaction_start_offset >= 0 and now_ms - producer.last_timestamp >= max_timeout_ms
    ]
    if not old:
        return []
    listed = admin.list_transactions(producer_ids={producer.producer_id for _, producer in old})
    known = admin.describe_transactions([found.transactional_id for found in listed]).succeeded if listed else {}
    open_ones = {
        (found.producer_id, found.producer_epoch, tp) for found in known.values() for tp in found.topic_partitions
    }
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "start_offset": producer.current_transaction_start_offset,
            "age_ms": now_ms - producer.last_timestamp,
        }
        for tp, producer in sorted(old)
        if (producer.producer_id, producer.producer_epoch, tp) not in open_ones
    ]


@transactions.command()
@click.option("--topic", required=True, metavar="NAME", help="The topic.")
@click.option("--partition", required=True, type=click.IntRange(min=0), metavar="N", help="The partition.")
@click.option(
    "--start-offset", type=click.IntRange(min=0), metavar="N", help="Where the transaction begins in the partition."
)
@click.option("--producer-id", type=click.IntRange(min=0), metavar="N", help="In place of --start-offset.")
@click.option("--producer-epoch", type=click.IntRange(min=0), metavar="N", help="With --producer-id.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def abort(session: Session, /, topic: str, partition: int, yes: bool, **producer: Any) -> None:
    """Abort a hanging transaction on one partition.

    Its records are then skipped by consumers with isolation.level=read_committed.
    """
    start = producer["start_offset"]
    id, epoch = producer["producer_id"], producer["producer_epoch"]
    if (start is None) == (id is None) or (id is None) != (epoch is None):
        raise click.UsageError("name the transaction by --start-offset, or by --producer-id and --producer-epoch")
    tp = TopicPartition(topic, partition)
    with session.admin() as admin:
        coordinator_epoch = -1
        if start is not None:
            states = admin.describe_producers([tp])[tp].active_producers
            found = next((state for state in states if state.current_transaction_start_offset == start), None)
            if found is None:
                raise CommandError(f"no transaction on {tp} begins at offset {start}")
            id, epoch, coordinator_epoch = found.producer_id, found.producer_epoch, found.coordinator_epoch
        confirm(session, f"Abort the transaction of producer {id}, epoch {epoch}, on {tp}?", yes)
        admin.abort_transaction(AbortTransactionSpec(tp, id, epoch, coordinator_epoch))
    click.echo(f"aborted: producer {id}, epoch {epoch}, on {tp}")
