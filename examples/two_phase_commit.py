"""Publish orders of a database: each one reaches Kafka exactly once, whatever is killed.

The table ``orders`` has the orders to publish. A Kafka transaction sends some of them, and a transaction of the
database marks the same ones as published. Two-phase commit (KIP-939) makes both one unit: the database commits first,
with the state of the prepared Kafka transaction in the table ``prepared``, and so decides about the Kafka transaction,
too.

``kill -9`` may leave a prepared transaction behind. The next start finds it: if the database has its state, it is
committed, and otherwise aborted. A process that was paused, and replaced meanwhile, can commit in neither: brokers
fence its producer, and the database compares its owner. The brokers must allow all that; see docs/transactions.md.

It writes the topic ``orders``; ``--topic`` replaces it. ``--create`` adds orders to the database first.
"""

from __future__ import annotations

import argparse
import sqlite3
import uuid

from pykclient import KafkaProducer, PreparedTxnState

TABLES = """
    CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, published INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS prepared (transactional_id TEXT PRIMARY KEY, state TEXT NOT NULL, owner TEXT NOT NULL);
"""


class OrderPublisher:
    """Publishes orders. Only one process per topic may do so; a second one fences the first."""

    def __init__(self, bootstrap_servers: str, topic: str, database: sqlite3.Connection) -> None:
        self.topic = topic
        self.database = database
        self.transactional_id = f"{topic}-publisher"
        self.owner = uuid.uuid4().hex
        self.producer = KafkaProducer[bytes, bytes](
            bootstrap_servers=bootstrap_servers,
            transactional_id=self.transactional_id,
            transaction_two_phase_commit_enable=True,
        )

    def run(self) -> None:
        """Publish all orders that are not published yet.

        Raises:
            KafkaError: this process cannot continue. Start it again.
        """
        with self.producer:
            self.producer.init_transactions(keep_prepared_txn=True)
            # In this order: an earlier process can no longer begin a transaction, and then not decide about one.
            self.producer.complete_transaction(self.claim())
            while orders := self.unpublished(limit=20):
                state = self.prepare(orders)
                self.commit(orders, state)
                self.producer.complete_transaction(state)

    def prepare(self, orders: list[int]) -> PreparedTxnState:
        """Send ``orders`` in a transaction, and prepare it."""
        self.producer.begin_transaction()
        for order in orders:
            self.producer.send(self.topic, b"order %d" % order)
        return self.producer.prepare_transaction()

    def commit(self, orders: list[int], state: PreparedTxnState) -> None:
        """Mark ``orders`` as published, and store the state of their transaction.

        Raises:
            RuntimeError: another process has taken over.
        """
        with self.database:  # commits at the end of the block, which decides about both transactions
            query = "UPDATE prepared SET state = ? WHERE transactional_id = ? AND owner = ?"
            changed = self.database.execute(query, (str(state), self.transactional_id, self.owner)).rowcount
            if changed != 1:
                raise RuntimeError("another process has taken over")
            self.database.executemany("UPDATE orders SET published = 1 WHERE id = ?", [(order,) for order in orders])

    def claim(self) -> PreparedTxnState:
        """Become the owner; return the state of the last Kafka transaction that the database has committed."""
        with self.database:
            self.database.execute(
                "INSERT INTO prepared VALUES (?, '', ?) "
                "ON CONFLICT (transactional_id) DO UPDATE SET owner = excluded.owner",
                (self.transactional_id, self.owner),
            )
            query = "SELECT state FROM prepared WHERE transactional_id = ?"
            (state,) = self.database.execute(query, (self.transactional_id,)).fetchone()
        return PreparedTxnState(state)

    def unpublished(self, limit: int) -> list[int]:
        """Return the first orders that are not published."""
        query = "SELECT id FROM orders WHERE published = 0 ORDER BY id LIMIT ?"
        return [id for (id,) in self.database.execute(query, (limit,))]


def open_database(path: str) -> sqlite3.Connection:
    """Return the database, with its tables."""
    database = sqlite3.connect(path)
    database.executescript(TABLES)
    return database


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092", metavar="HOST:PORT")
    parser.add_argument("--topic", default="orders", help="default: orders")
    parser.add_argument("--database", default="orders.db", metavar="FILE", help="default: orders.db")
    parser.add_argument("--create", type=int, default=0, metavar="N", help="add N orders first; default: 0")
    options = parser.parse_args()
    database = open_database(options.database)
    with database:
        database.executemany("INSERT INTO orders (published) VALUES (?)", [(0,)] * options.create)
    OrderPublisher(options.bootstrap_servers, options.topic, database).run()


if __name__ == "__main__":
    main()
