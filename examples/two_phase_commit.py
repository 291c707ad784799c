"""Publish orders of a database: each one reaches Kafka exactly once, whatever is killed.

The table ``orders`` has the orders to publish. A Kafka transaction sends some of them, and a transaction of the
database marks the same ones as published. Two-phase commit (KIP-939) makes both one unit: the database commits first,
with the state of the prepared Kafka transaction in the table ``prepared``, and so decides about the Kafka transaction,
too.

``kill -9`` may leave a prepared transaction behind. The next start finds it: if the database has its state, it is
committed, and otherwise aborted. The brokers must allow that; see docs/transactions.md.

It writes the topic ``orders``; ``--topic`` replaces it. ``--create`` adds orders to the database first.
"""

from __future__ import annotations

import argparse
import sqlite3

from pykclient import KafkaProducer, PreparedTxnState

TABLES = """
    CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, published INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS prepared (transactional_id TEXT PRIMARY KEY, state TEXT NOT NULL);
"""


class OrderPublisher:
    """Publishes orders. Only one process per topic may do so; a second one fences the first."""

    def __init__(self, bootstrap_servers: str, topic: str, database: sqlite3.Connection) -> None:
        self.topic = topic
        self.database = database
        self.transactional_id = f"{topic}-publisher"
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
            self.producer.complete_transaction(self.stored_state())
            while orders := self.unpublished(limit=20):
                self.publish(orders)

    def publish(self, orders: list[int]) -> None:
        """Publish ``orders``, and mark them as published."""
        self.producer.begin_transaction()
        for order in orders:
            self.producer.send(self.topic, b"order %d" % order)
        state = self.producer.prepare_transaction()
        with self.database:  # commits at the end of the block, which decides about both transactions
            self.database.executemany("UPDATE orders SET published = 1 WHERE id = ?", [(order,) for order in orders])
            self.database.execute("INSERT OR REPLACE INTO prepared VALUES (?, ?)", (self.transactional_id, str(state)))
        self.producer.complete_transaction(state)

    def stored_state(self) -> PreparedTxnState:
        """Return the state of the last Kafka transaction that the database has committed."""
        query = "SELECT state FROM prepared WHERE transactional_id = ?"
        row = self.database.execute(query, (self.transactional_id,)).fetchone()
        return PreparedTxnState(row[0] if row else None)

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
