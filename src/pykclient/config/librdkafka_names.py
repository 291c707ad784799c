"""Advice about keys that only librdkafka (confluent-kafka) has.

Loaded only when a key is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

#: librdkafka's names and Kafka's names for the same settings. The first name that the client has is suggested.
_RENAMED = {
    "auto.commit.enable": ("enable.auto.commit",),
    "batch.num.messages": ("batch.size",),
    "broker.address.ttl": ("metadata.max.age.ms",),
    "compression.codec": ("compression.type",),
    "compression.level": ("compression.zstd.level",),
    "default.topic.config": (),
    "fetch.message.max.bytes": ("max.partition.fetch.bytes",),
    "fetch.wait.max.ms": ("fetch.max.wait.ms",),
    "max.in.flight": ("max.in.flight.requests.per.connection",),
    "message.max.bytes": ("max.request.size", "fetch.max.bytes"),
    "message.send.max.retries": ("retries",),
    "message.timeout.ms": ("delivery.timeout.ms",),
    "metadata.broker.list": ("bootstrap.servers",),
    "metadata.request.timeout.ms": ("request.timeout.ms",),
    "offset.store.method": (),
    "queue.buffering.max.kbytes": ("buffer.memory",),
    "queue.buffering.max.ms": ("linger.ms",),
    "request.required.acks": ("acks",),
    "socket.blocking.max.ms": (),
    "socket.receive.buffer.bytes": ("receive.buffer.bytes",),
    "socket.send.buffer.bytes": ("send.buffer.bytes",),
    "socket.timeout.ms": ("request.timeout.ms",),
    "topic.metadata.refresh.interval.ms": ("metadata.max.age.ms",),
}

_UNITS = {
    "batch.num.messages": "batches are limited in bytes, not records",
    "queue.buffering.max.kbytes": "in bytes, not kilobytes",
    "compression.level": "each codec has a key of its own, such as compression.gzip.level and compression.lz4.level",
}

#: librdkafka's names for settings that are replaced by something else here.
_ADVICE = {
    "api.version.fallback.ms": "leave it out; the client always negotiates versions with the broker",
    "api.version.request": "leave it out; the client always negotiates versions with the broker",
    "api.version.request.timeout.ms": "leave it out; the client always negotiates versions with the broker",
    "broker.address.family": "leave it out; the client tries every address that the name resolves to",
    "broker.version.fallback": "leave it out; the client always negotiates versions with the broker",
    "consume.callback.max.messages": "use poll(max_records=...)",
    "debug": "use the standard logging module: logging.getLogger('pykclient').setLevel('DEBUG')",
    "default.topic.config": "put the topic's keys into the configuration itself",
    "delivery.report.only.error": "send() returns a future; add an errback to it",
    "dr.cb": "pass on_delivery= to send(), or use the future that it returns",
    "enable.auto.offset.store": "set enable.auto.commit to False and commit the offsets of your choice",
    "enable.partition.eof": "compare position() with end_offsets()",
    "enable.random.seed": "leave it out",
    "enable.sparse.connections": "leave it out; the client connects when needed",
    "error.cb": "calls raise their errors",
    "internal.termination.signal": "leave it out",
    "log.cb": "use the standard logging module, logger 'pykclient'",
    "log.connection.close": "use the standard logging module, logger 'pykclient'",
    "log.level": "use the standard logging module, logger 'pykclient'",
    "logger": "use the standard logging module, logger 'pykclient'",
    "message.copy.max.bytes": "leave it out",
    "offset.store.method": "leave it out; offsets are stored in the cluster",
    "on.commit": "pass a callback to commit_async()",
    "on.delivery": "pass on_delivery= to send(), or use the future that it returns",
    "queue.buffering.max.messages": "use buffer.memory, which limits the bytes that wait to be sent",
    "queued.max.messages.kbytes": "use fetch.max.bytes, which limits the bytes of one fetch",
    "queued.min.messages": "leave it out; the consumer fetches ahead while you process records",
    "rebalance.cb": "pass a listener to subscribe()",
    "socket.blocking.max.ms": "leave it out",
    "socket.keepalive.enable": "leave it out; keep-alive is always on",
    "socket.max.fails": "leave it out; a connection that fails is closed",
    "socket.nagle.disable": "leave it out; TCP_NODELAY is always on",
    "statistics.interval.ms": "call metrics(), or register a reporter with metric.reporters",
    "stats.cb": "call metrics(), or register a reporter with metric.reporters",
    "sticky.partitioning.linger.ms": "leave it out; the sticky partition changes with every batch (KIP-794)",
    "test.mock.num.brokers": "use pykclient.testing",
    "throttle.cb": "metrics() has the throttle times",
    "topic.metadata.refresh.fast.interval.ms": "use retry.backoff.ms",
    "topic.metadata.refresh.sparse": "leave it out; the client requests metadata only of topics in use",
}


def advice(name: str, known: Mapping[str, str | None]) -> str | None:
    """Return advice about librdkafka's ``name`` (dotted); None if there is none.

    ``known`` has the client's keys, each with the reason why it is not supported, or None.
    """
    for kafka_name in _RENAMED.get(name, ()):
        if kafka_name in known:
            if (reason := known[kafka_name]) is not None:
                return f"this is librdkafka's name for a feature that is not supported yet: {reason}"
            unit = f" ({_UNITS[name]})" if name in _UNITS else ""
            return f"this is librdkafka's name, Kafka's is {kafka_name!r}{unit}"
    if name in _ADVICE:
        return f"this is librdkafka's; {_ADVICE[name]}"
    if name in _RENAMED:
        return "this is librdkafka's and has no meaning for this client"
    return None
