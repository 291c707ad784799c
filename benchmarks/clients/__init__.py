"""One adapter per client, each used the way its own documentation shows for throughput.

An adapter's methods run one case and return a ``Sample``. All produce with idempotence and ``acks=all``, all consume by
``assign`` from the beginning, so that the group protocol is no part of the figures (Java's tool subscribes, and tells
how long fetching took without that).

``kinds`` are the cases that a client can do; ``share`` says how many records of 100 bytes it does of those that
confluent-kafka does, so that fast and slow clients take about as long, and ``share_of_many`` what is left of it when
producing to many partitions; ``only_plain``: not with codecs, keys, sizes and partitions.
"""

from __future__ import annotations

from benchmarks.cases import Case
from benchmarks.clients.aio import Aiokafka
from benchmarks.clients.confluent import ConfluentKafka, ConfluentKafkaPolledRarely, ConfluentKafkaWithReports
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
        KafkaPython,
        Aiokafka,
        ConfluentKafka,
        ConfluentKafkaWithReports,
        ConfluentKafkaPolledRarely,
        Java,
    )
}
