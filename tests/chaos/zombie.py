"""A copier that is paused in the middle of its first transaction, and goes on with it when it wakes up.

``python -m tests.chaos.zombie`` with the arguments of ``copier`` prints ``holding`` once its records are written. It
goes on when it has read a line, and prints the names of the errors of that transaction and of the next one.
"""

from __future__ import annotations

import sys

from pykclient.errors import KafkaError
from tests.chaos.copier import Copier, Polled


class Zombie(Copier):
    """A copier that holds its first transaction open."""

    transaction_timeout_ms = 300_000  # else the coordinator would end it first

    def _copy_all(self, polled: Polled) -> None:
        producer = self.producer
        group = self.consumer.group_metadata()
        offsets = {tp: records[-1].offset + 1 for tp, records in polled.items()}
        records = [record for some in polled.values() for record in some]

        def hold() -> None:
            with producer.transaction():
                for record in records:
                    producer.send(self._target, record.value, key=record.key)
                producer.flush()
                print("holding", flush=True)
                sys.stdin.readline()
                producer.send_offsets_to_transaction(offsets, group)

        def again() -> None:
            with producer.transaction():
                producer.send(self._target, b"zombie")
                producer.send_offsets_to_transaction(offsets, group)

        for call in (hold, again):
            try:
                call()
                print("committed", flush=True)
            except KafkaError as error:
                print(type(error).__name__, flush=True)
        self.stopping = True


if __name__ == "__main__":
    Zombie(*sys.argv[1:]).run()
