"""``pykclient spark-transactions``: what the exactly-once sink for Spark has decided, and has left behind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from pykclient.cli import settings
from pykclient.cli.console import confirm, emit
from pykclient.cli.options import CommandGroup
from pykclient.cli.problems import CommandError
from pykclient.cli.session import Session

if TYPE_CHECKING:
    from pykclient.spark.sink_driver import SinkDriver
    from pykclient.spark.transactions import Entry

_LEDGER = click.option(
    "--ledger",
    default="pykclient-spark-ledger",
    metavar="TOPIC",
    help="The option ledgerTopic of the query. Default: pykclient-spark-ledger.",
)


@click.group("spark-transactions", cls=CommandGroup)
def spark_transactions() -> None:
    """Show and settle transactions of Spark jobs that write exactly once.

    A query settles its own when it is restarted. These commands are for jobs that are not.
    """


def _driver(session: Session, prefix: str, ledger: str) -> SinkDriver:
    from pykclient.config.admin_config import AdminClientConfig
    from pykclient.config.producer_config import ProducerConfig
    from pykclient.spark.sink_driver import SinkDriver

    config: dict[str, object] = {}
    for table in (AdminClientConfig, ProducerConfig):  # the driver has clients of both kinds
        config |= settings.for_client(table, session.settings(), session.waits())
    return SinkDriver(config, prefix, ledger)


def _entry(driver: SinkDriver, prefix: str, ledger: str) -> Entry:
    entry = driver.entry()
    if entry is None:
        raise CommandError(f"the ledger {ledger} has no entry for the prefix {prefix!r}")
    return entry


@spark_transactions.command("list")
@_LEDGER
def list_transactions(session: Session, /, ledger: str) -> None:
    """List queries with the state of their last batch, and the number of their open transactions.

    A decided batch is being committed, or its driver has died: start the query again, or use `commit`. A torn one is
    committed in part; --json shows the transactions whose rows are missing. An unreadable one is of a later version.
    Batches committed by tasks have no decision; `batch` is the last one with rows, and --json shows what tasks have
    committed of it if it is not done.
    """
    from pykclient.spark.transactions import pattern_of

    with _driver(session, "", ledger) as driver:
        entries = driver.entries()
        tokens = driver.tokens_after_done(entries)
        found = [listed.transactional_id for listed in driver.open_transactions(".*")] if entries else []
    rows = [
        {
            "prefix": prefix,
            "state": entry.state if entry else "unreadable",
            "batch": max([entry.batch, *(each.batch for each in tokens.get(prefix, ()))]) if entry else None,
            "done": entry.done if entry else None,
            "open": sum(re.fullmatch(pattern_of(prefix), id) is not None for id in found),
            "checkpoint": entry.owner.checkpoint if entry else None,
            "transactions": [
                {
                    "transactional_id": each.id,
                    "producer_id": each.producer.producer_id,
                    "producer_epoch": each.producer.epoch,
                    "rows": each.rows,
                    "offsets": each.offsets,
                }
                for each in (entry.transactions if entry else ())
            ],
            "tokens": [
                {"batch": each.batch, "partition": each.partition, "rows": each.content.rows, "offsets": each.written}
                for each in tokens.get(prefix, ())
            ],
        }
        for prefix, entry in sorted(entries.items(), key=lambda item: item[0])
    ]
    emit(session, rows, ("prefix", "state", "batch", "done", "open", "checkpoint"))


@spark_transactions.command()
@click.argument("prefix")
@_LEDGER
@click.option(
    "--deleted-rows",
    type=click.Choice(["committed", "aborted"]),
    help="What to take transactions for whose rows were deleted, so that nobody can tell any more.",
)
@click.option(
    "--as-written",
    is_flag=True,
    help="Keep what is committed of the last batch although the query has other rows for it now, as it is not "
    "deterministic.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def commit(
    session: Session, /, prefix: str, ledger: str, deleted_rows: str | None, as_written: bool, yes: bool
) -> None:
    """Commit the batch of a stopped query that was decided to commit, and abort its other transactions.

    A torn batch then counts as done: write its missing rows first.
    """
    _settle(session, prefix, ledger, yes, commit=True, deleted_rows=deleted_rows, as_written=as_written)


@spark_transactions.command()
@click.argument("prefix")
@_LEDGER
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def abort(session: Session, /, prefix: str, ledger: str, yes: bool) -> None:
    """Abort the open transactions of a stopped query that have no commit decision.

    A torn batch is then repeated when the query starts again, and those of its rows that are committed come twice.
    """
    _settle(session, prefix, ledger, yes, commit=False)


def _settle(
    session: Session,
    prefix: str,
    ledger: str,
    yes: bool,
    *,
    commit: bool,
    deleted_rows: str | None = None,
    as_written: bool = False,
) -> None:
    from pykclient.spark.transactions import ENDED, LOST, settle

    forgotten = None if deleted_rows is None else ENDED if deleted_rows == "committed" else LOST

    with _driver(session, prefix, ledger) as driver:
        entry = _entry(driver, prefix, ledger)
        found = len(driver.open_transactions())
        verb = "Commit" if commit else "Abort"
        confirm(
            session,
            f"{verb} batch {entry.batch} of {prefix}, which is {entry.state}, with {found} open transactions?",
            yes,
        )
        settled = driver.run(settle(entry, commit, forgotten, as_written=as_written))
    click.echo(f"{prefix}: batch {settled.batch} is {settled.state}")


@spark_transactions.command()
@click.argument("prefix")
@_LEDGER
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def forget(session: Session, /, prefix: str, ledger: str, yes: bool) -> None:
    """Remove a retired query from the ledger, so that another query can use its prefix.

    If the query is started again after all, a batch that its checkpoint does not know as committed is written twice.
    """
    from pykclient.spark.transactions import forget as forgotten

    with _driver(session, prefix, ledger) as driver:
        entry = _entry(driver, prefix, ledger)
        confirm(session, f"Forget {prefix}, which has committed batch {entry.done}?", yes)
        driver.run(forgotten(entry))
    click.echo(f"forgotten: {prefix}")
