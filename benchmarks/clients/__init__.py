"""One adapter per client, each used as its own documentation recommends for throughput.

An adapter's methods run one case and return a ``Sample``. All produce with idempotence and ``acks=all``. All consume
with ``assign`` from the beginning, so that the figures do not include the group protocol (Java's tool subscribes, and
reports the time of fetching without that).

``kinds`` are the cases that a client supports. ``share`` is the client's number of records of 100 bytes relative to
confluent-kafka's, so that fast and slow clients take about as long; ``share_of_many`` is the remaining part of it when
producing to many partitions. ``only_plain`` excludes codecs, keys, sizes and partitions; ``runs_with_defaults``
includes the cases in which clients keep their defaults.
"""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.clients.aio import Aiokafka, AiokafkaLoop, PykclientAio, PykclientAioLoop
from benchmarks.clients.confluent import (
    ConfluentKafka,
    ConfluentKafkaPolled,
    ConfluentKafkaPolledRarely,
    ConfluentKafkaWithReports,
    PykclientConfluent,
    PykclientConfluentPolled,
    PykclientConfluentWithReports,
)
from benchmarks.clients.java import Java
from benchmarks.clients.kafka_python import (
    KafkaPython,
    Pykclient,
    PykclientColumns,
    PykclientColumnsInPython,
    PykclientInPython,
    PykclientThousand,
    PykclientValues,
    PykclientViews,
)
from benchmarks.clients.measuring import NeverResting, Sample, payload

__all__ = ["CLIENTS", "Case", "Client", "NeverResting", "Sample", "payload"]

Client = KafkaPython | ConfluentKafka | Aiokafka | Java

CLIENTS: dict[str, type[Client]] = {
    cls.name: cls
    for cls in (
        Pykclient,
        PykclientThousand,
        PykclientColumns,
        PykclientViews,
        PykclientValues,
        PykclientInPython,
        PykclientColumnsInPython,
        PykclientAio,
        PykclientAioLoop,
        KafkaPython,
        Aiokafka,
        AiokafkaLoop,
        ConfluentKafka,
        ConfluentKafkaWithReports,
        ConfluentKafkaPolledRarely,
        ConfluentKafkaPolled,
        PykclientConfluent,
        PykclientConfluentPolled,
        PykclientConfluentWithReports,
        Java,
    )
}
