"""kafka-python, and pykclient, which has the same methods."""

from __future__ import annotations

import itertools
import time
from array import array
from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar

from benchmarks.cases import Case
from benchmarks.clients.measuring import (
    BATCH_SIZE,
    BATCH_SIZE_WITH_DEFAULTS,
    LINGER_MS,
    Sample,
    Stopwatch,
    chunks,
    consume_all,
    idle,
    in_groups,
    joined,
    keys,
    one_at_a_time,
    payloads,
    produce_all,
    settle,
    warm_up_records,
)

#: Bytes of values per call of ``send_batch``.
_TABLE_BYTES = 8 << 20


def connection(case: Case) -> dict[str, str]:
    """Return the settings of connections, in kafka-python's names."""
    names = {"ssl.ca.location": "ssl_cafile"}
    return {names.get(name, name.replace(".", "_")): value for name, value in case.connection.items()}


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    distribution = "kafka-python"
    environment: ClassVar[Mapping[str, str]] = MappingProxyType({})
    kinds: ClassVar[tuple[str, ...]] = (
        *("produce", "consume", "busy", "busy-consume", "latency", "transactions", "flushes"),
        *("idle-producer", "idle-consumer", "idle-group-classic"),
    )
    share = 0.1
    share_of_many = 0.3
    only_plain = False
    runs_with_defaults = False
    module = "kafka"
    consumer_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def __init__(self) -> None:
        self._kafka = import_module(self.module)

    def _producer(self, case: Case, linger_ms: int = LINGER_MS, **settings: Any) -> Any:
        if case.defaults:
            return self._kafka.KafkaProducer(**connection(case), batch_size=BATCH_SIZE_WITH_DEFAULTS)
        return self._kafka.KafkaProducer(
            **connection(case),
            acks="all",
            enable_idempotence=True,
            compression_type=None if case.codec == "none" else case.codec,
            linger_ms=linger_ms,
            batch_size=BATCH_SIZE,
            **settings,
        )

    def produce(self, case: Case) -> Sample:
        producer = self._producer(case)
        topic, send = case.topic, producer.send

        def send_values(values: list[bytes]) -> None:
            for value in values:
                send(topic, value)

        def send_pairs(pairs: list[tuple[bytes, bytes]]) -> None:
            for key, value in pairs:
                send(topic, value, key)

        sample = produce_all(case, send_pairs if case.keyed else send_values, producer.flush)
        producer.close()
        return sample

    def latency(self, case: Case) -> Sample:
        producer, topic = self._producer(case, linger_ms=0), case.topic
        sample = one_at_a_time(case, lambda value: producer.send(topic, value).get(30))
        producer.close()
        return sample

    def transactions(self, case: Case) -> Sample:
        producer, topic = self._producer(case, transactional_id=f"{case.topic}-{self.name}"), case.topic
        producer.init_transactions()
        send = producer.send
        sample = in_groups(
            case, producer.begin_transaction, lambda value: send(topic, value), producer.commit_transaction
        )
        producer.close()
        return sample

    def flushes(self, case: Case) -> Sample:
        producer, topic = self._producer(case), case.topic
        send = producer.send
        sample = in_groups(case, lambda: None, lambda value: send(topic, value), producer.flush)
        producer.close()
        return sample

    def _consumer(self, case: Case) -> Any:
        consumer: Any = self._kafka.KafkaConsumer(
            **connection(case),
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **self.consumer_options,
        )
        consumer.assign([self._kafka.TopicPartition(case.topic, p) for p in range(case.partitions)])
        return consumer

    def consume(self, case: Case) -> Sample:
        consumer = self._consumer(case)

        def poll() -> int:
            count = 0
            for records in consumer.poll(1000).values():
                for record in records:
                    record.value  # noqa: B018
                count += len(records)
            return count

        sample = consume_all(case, poll)
        consumer.close()
        return sample

    def idle_consumer(self, case: Case) -> Sample:
        consumer = self._consumer(case)
        consumer.seek_to_end()
        sample = idle(case, lambda: consumer.poll(1000))
        consumer.close()
        return sample

    def idle_group_classic(self, case: Case) -> Sample:
        return self._idle_member(case)

    def _idle_member(self, case: Case, **options: Any) -> Sample:
        consumer: Any = self._kafka.KafkaConsumer(**connection(case), group_id=f"{case.topic}-{self.name}", **options)
        consumer.subscribe([case.topic])
        joined(lambda: consumer.poll(1000), consumer.assignment)
        sample = idle(case, lambda: consumer.poll(1000))
        consumer.close()
        return sample

    def idle_producer(self, case: Case) -> Sample:
        producer = self._producer(case)
        producer.send(case.topic, b"x").get(30)
        sample = idle(case, lambda: time.sleep(1))
        producer.close()
        return sample


class Pykclient(KafkaPython):
    """pykclient, called as a program written for kafka-python would."""

    name = "pykclient"
    distribution = "pykclient"
    kinds: ClassVar[tuple[str, ...]] = (*KafkaPython.kinds, "idle-group-consumer")
    share = 1.0
    share_of_many = 1.0
    runs_with_defaults = True
    module = "pykclient"

    def idle_group_consumer(self, case: Case) -> Sample:
        return self._idle_member(case, group_protocol="consumer")


class PykclientInPython(Pykclient):
    """pykclient without its compiled modules."""

    name = "pykclient-python"
    environment = MappingProxyType({"PYKCLIENT_IMPL": "python"})
    share = 0.25


class PykclientThousand(Pykclient):
    """pykclient with as many records per poll as confluent-kafka."""

    name = "pykclient-1000"
    kinds = ("consume",)
    runs_with_defaults = False
    consumer_options = MappingProxyType({"max_poll_records": 1000})


class PykclientColumns(Pykclient):
    """pykclient with columns: sends tables, and reads record batches with all columns, copied."""

    name = "pykclient-columns"
    kinds: ClassVar[tuple[str, ...]] = ("produce", "consume", "busy", "busy-consume")
    share = 3.0
    poll_options: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    def produce(self, case: Case) -> Sample:
        table = self._table(case)
        producer = self._producer(case)
        names = {name: name for name in table.column_names}

        def send(records: int) -> list[Any]:
            counts = [table.num_rows] * (records // table.num_rows) + [records % table.num_rows]
            futures = [producer.send_batch(case.topic, table.slice(0, rows), **names) for rows in counts if rows]
            producer.flush()
            return futures

        send(warm_up_records(case))
        watch = Stopwatch()
        watch.start()
        futures = send(case.records)
        sample = watch.stop(case.records)._replace(sent=warm_up_records(case) + case.records)
        assert all(future.succeeded() for future in futures)
        producer.close()
        return sample

    def _table(self, case: Case) -> Any:
        import pyarrow as pa

        def column(values: list[bytes]) -> Any:
            # pa.array() would import pandas if it is installed, which takes 65 MB.
            ends = array("i", itertools.accumulate(map(len, values), initial=0))
            buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))]
            return pa.Array.from_buffers(pa.binary(), len(values), buffers)

        values = [value for chunk in chunks(case._replace(keyed=False), self._rows(case)) for value in chunk]
        columns = {"value": column(values)}
        if case.keyed:
            columns["key"] = column(keys(len(values)))
        del values
        payloads.cache_clear()  # the table has them now
        return pa.table(columns)

    def _rows(self, case: Case) -> int:
        return min(len(payloads(case.size_bytes)) * 2, _TABLE_BYTES // case.size_bytes)

    def consume(self, case: Case) -> Sample:
        import pyarrow as pa  # noqa: F401

        settle()
        consumer, options = self._consumer(case), self.poll_options

        def poll(max_records: int | None = None) -> int:
            count: int = consumer.poll_arrow(1000, max_records, **options).num_rows
            return count

        sample = consume_all(case, poll, first_poll=lambda: poll(100))
        consumer.close()
        return sample


class PykclientViews(PykclientColumns):
    """All columns, with keys and values left in the receive buffer."""

    name = "pykclient-views"
    kinds = ("consume",)
    runs_with_defaults = False
    poll_options = MappingProxyType({"binary_view": True})


class PykclientValues(PykclientViews):
    """Only values, as views."""

    name = "pykclient-values"
    poll_options = MappingProxyType({"binary_view": True, "columns": ["value"]})
    only_plain = True


class PykclientColumnsInPython(PykclientColumns):
    """Columns without the compiled modules."""

    name = "pykclient-python-columns"
    kinds = ("produce", "consume")
    environment = PykclientInPython.environment
    share = 0.25
    only_plain = True
