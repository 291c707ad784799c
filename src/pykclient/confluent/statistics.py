"""librdkafka's statistics as JSON text, made of this package's metrics."""

from __future__ import annotations

import json
from math import isfinite
from typing import TYPE_CHECKING, Any

from pykclient.confluent.configuration import NOWHERE
from pykclient.confluent.constants import OFFSET_INVALID
from pykclient.confluent.events import monotonic
from pykclient.producer.transactions import transaction_state as state
from pykclient.system_time import monotonic_ms, wall_ms

if TYPE_CHECKING:
    from pykclient.types import Node

#: The metric that counts each of librdkafka's totals.
_TOTALS = {
    "tx": "request-total",
    "tx_bytes": "outgoing-byte-total",
    "rx": "response-total",
    "rx_bytes": "incoming-byte-total",
}
_COORDINATOR_ID = 2**31 - 1
#: librdkafka's names of the states of a transactional producer.
_TRANSACTION_STATES = {
    state.UNINITIALIZED: "Init",
    state.INITIALIZING: "WaitPID",
    state.READY: "Ready",
    state.IN_TRANSACTION: "InTransaction",
    state.PREPARING_TRANSACTION: "BeginCommit",
    state.PREPARED_TRANSACTION: "BeginCommit",
    state.COMMITTING_TRANSACTION: "CommittingTransaction",
    state.ABORTING_TRANSACTION: "AbortingTransaction",
    state.ABORTABLE_ERROR: "AbortableError",
    state.FATAL_ERROR: "FatalError",
}
#: The values of a histogram, which only ``rtt`` has.
_HISTOGRAM = dict.fromkeys(
    (
        *("min", "max", "avg", "sum", "stddev", "p50", "p75", "p90", "p95", "p99", "p99_99"),
        *("outofrange", "hdrsize", "cnt"),
    ),
    0,
)


def of_producer(producer: Any) -> str:
    """Return the statistics of a producer."""
    inner = producer.inner()
    metrics = inner.metrics()
    own = metrics.get("producer-metrics", {})
    page = _head(producer, "producer", own)
    page["msg_cnt"] = len(producer)
    page["msg_size"] = producer.unreported_bytes()
    page["msg_max"] = producer.configuration.number("queue.buffering.max.messages")
    page["msg_size_max"] = producer.configuration.number("queue.buffering.max.kbytes") * 1024
    page["txmsgs"] = _whole(own.get("record-send-total", 0))
    page["txmsg_bytes"] = _whole(sum(_topic_metrics(metrics, "byte-total").values()))
    cluster = inner._components.metadata.fetch()
    page["brokers"] = _brokers(
        cluster.nodes, metrics, "producer-node-metrics", producer.network_client().is_unreachable
    )
    sent = _topic_metrics(metrics, "record-send-total")
    size = _topic_metrics(metrics, "byte-total")
    topics = {}
    for topic in sorted(sent):
        partitions = {}
        for info in cluster.partitions_for_topic(topic):
            partitions[str(info.partition)] = _partition(info.partition, _leader(info))
        topics[topic] = _topic(topic, partitions)
        topics[topic]["txmsgs"], topics[topic]["txbytes"] = _whole(sent[topic]), _whole(size.get(topic, 0))
    page["topics"] = topics
    _list_partitions(page)
    if producer.configuration.is_idempotent:
        page["eos"] = _eos(producer)
    return json.dumps(page)


def _eos(producer: Any) -> dict[str, Any]:
    """Return the state of an idempotent producer. Times are unknown."""
    manager = producer.inner()._components.id_manager
    producer_id, epoch = manager.producer_id_and_epoch
    return {
        "idemp_state": "Assigned" if producer_id >= 0 else "Init",
        "idemp_stateage": 0,
        "txn_state": _TRANSACTION_STATES[manager.current_state] if producer.is_transactional else "Init",
        "txn_stateage": 0,
        "txn_may_enq": producer.is_transactional and manager.current_state == state.IN_TRANSACTION,
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "epoch_cnt": 0,
    }


def of_consumer(consumer: Any) -> str:
    """Return the statistics of a consumer."""
    inner = consumer.inner()
    metrics = inner.metrics()
    own = metrics.get("consumer-metrics", {})
    page = _head(consumer, "consumer", own)
    fetched = metrics.get("consumer-fetch-manager-metrics", {})
    page["rxmsgs"] = _whole(fetched.get("records-consumed-total", 0))
    page["rxmsg_bytes"] = _whole(fetched.get("bytes-consumed-total", 0))
    cluster = inner._consumer.components.metadata.fetch()
    page["brokers"] = _brokers(
        cluster.nodes, metrics, "consumer-node-metrics", consumer.network_client().is_unreachable
    )
    topics: dict[str, Any] = {}
    for row in consumer.progress():
        info = next((each for each in cluster.partitions_for_topic(row.topic) if each.partition == row.partition), None)
        partition = _partition(row.partition, -1 if info is None else _leader(info))
        partition |= {
            "fetch_state": "active",
            "fetchq_cnt": row.at_hand,
            "app_offset": row.position,
            "next_offset": max(row.position, 0),
            "stored_offset": row.stored.offset,
            "stored_leader_epoch": row.stored.leader_epoch,
            "commited_offset": row.committed.offset,
            "committed_offset": row.committed.offset,
            "committed_leader_epoch": row.committed.leader_epoch,
            "lo_offset": row.low,
            "hi_offset": row.high,
            "ls_offset": row.high,
            "eof_offset": row.high if row.position == row.high else OFFSET_INVALID,
            "consumer_lag": _lag(row.high, row.committed.offset),
            "consumer_lag_stored": _lag(row.high, row.stored.offset),
        }
        topics.setdefault(row.topic, _topic(row.topic, {}))["partitions"][str(row.partition)] = partition
    page["topics"] = topics
    _list_partitions(page)
    coordinator = metrics.get("consumer-coordinator-metrics", {})
    joined = bool(inner.group_metadata().member_id)
    page["cgrp"] = {
        "state": "up" if joined else "init",
        "stateage": 0,
        "join_state": "steady" if joined else "init",
        "rebalance_age": max(0, _whole(coordinator.get("last-rebalance-seconds-ago", 0)) * 1000),
        "rebalance_cnt": _whole(coordinator.get("rebalance-total", 0)),
        "rebalance_reason": "",
        "assignment_size": _whole(coordinator.get("assigned-partitions", 0)),
    }
    return json.dumps(page)


def _head(client: Any, kind: str, own: dict[str, Any]) -> dict[str, Any]:
    page: dict[str, Any] = {
        "name": client.name,
        "client_id": client.configuration.text("client.id"),
        "type": kind,
        "ts": monotonic_ms() * 1000,
        "time": wall_ms() // 1000,
        "age": int((monotonic() - client.started) * 1_000_000),
        "replyq": len(client.events),
        "msg_cnt": 0,
        "msg_size": 0,
        "msg_max": 0,
        "msg_size_max": 0,
        "simple_cnt": 0,
        "metadata_cache_cnt": 0,
        "txmsgs": 0,
        "txmsg_bytes": 0,
        "rxmsgs": 0,
        "rxmsg_bytes": 0,
    }
    return page | {name: _whole(own.get(metric, 0)) for name, metric in _TOTALS.items()}


def _brokers(nodes: tuple[Node, ...], metrics: dict[str, Any], group: str, is_down: bool) -> dict[str, Any]:
    brokers = {}
    for node in nodes:
        if f"{node.host}:{node.port}" == NOWHERE:
            continue
        own = metrics.get(f"{group}.node-{node.id}")
        coordinator = metrics.get(f"{group}.node-{_COORDINATOR_ID - node.id}", {})
        name = f"{node.host}:{node.port}/{node.id if node.id >= 0 else 'bootstrap'}"
        connected = "INIT" if own is None else "DOWN" if is_down else "UP"
        broker: dict[str, Any] = {
            "name": name,
            "nodeid": node.id,
            "nodename": f"{node.host}:{node.port}",
            "source": "learned" if node.id >= 0 else "configured",
            "state": connected,
            "stateage": 0,
            "outbuf_cnt": 0,
            "outbuf_msg_cnt": 0,
            "waitresp_cnt": 0,
            "waitresp_msg_cnt": 0,
            "txerrs": 0,
            "txretries": 0,
            "txidle": -1,
            "req_timeouts": 0,
            "rxerrs": 0,
            "rxcorriderrs": 0,
            "rxpartial": 0,
            "rxidle": -1,
            "zbuf_grow": 0,
            "buf_grow": 0,
            "wakeups": 0,
            "connects": 0,
            "disconnects": 0,
            "int_latency": _HISTOGRAM,
            "outbuf_latency": _HISTOGRAM,
            "throttle": _HISTOGRAM,
            "req": {},
            "toppars": {},
        }
        for short, metric in _TOTALS.items():
            total = _whole((own or {}).get(metric, 0)) + _whole(coordinator.get(metric, 0))
            broker[short.replace("_", "")] = total
        broker["rtt"] = _HISTOGRAM | {
            "avg": int(_number((own or {}).get("request-latency-avg", 0)) * 1000),
            "max": int(_number((own or {}).get("request-latency-max", 0)) * 1000),
        }
        brokers[name] = broker
    return brokers


def _topic(topic: str, partitions: dict[str, Any]) -> dict[str, Any]:
    return {
        "topic": topic,
        "age": 0,
        "metadata_age": 0,
        "batchsize": _HISTOGRAM,
        "batchcnt": _HISTOGRAM,
        "partitions": partitions,
    }


def _list_partitions(page: dict[str, Any]) -> None:
    """Add to each broker the partitions that it leads, and to each topic the partition -1 of unassigned messages."""
    by_id = {broker["nodeid"]: broker["toppars"] for broker in page["brokers"].values()}
    for name, topic in page["topics"].items():
        for row in topic["partitions"].values():
            if row["leader"] in by_id:
                number = row["partition"]
                by_id[row["leader"]][f"{name}-{number}"] = {"topic": name, "partition": number}
        topic["partitions"]["-1"] = _partition(-1, -1) | {"desired": False}


def _partition(number: int, leader: int) -> dict[str, Any]:
    return {
        "partition": number,
        "broker": leader,
        "leader": leader,
        "desired": True,
        "unknown": False,
        "msgq_cnt": 0,
        "msgq_bytes": 0,
        "xmit_msgq_cnt": 0,
        "xmit_msgq_bytes": 0,
        "fetchq_cnt": 0,
        "fetchq_size": 0,
        "fetch_state": "none",
        "query_offset": OFFSET_INVALID,
        "next_offset": 0,
        "app_offset": OFFSET_INVALID,
        "stored_offset": OFFSET_INVALID,
        "stored_leader_epoch": -1,
        "commited_offset": OFFSET_INVALID,
        "committed_offset": OFFSET_INVALID,
        "committed_leader_epoch": -1,
        "eof_offset": OFFSET_INVALID,
        "lo_offset": OFFSET_INVALID,
        "hi_offset": OFFSET_INVALID,
        "ls_offset": OFFSET_INVALID,
        "consumer_lag": -1,
        "consumer_lag_stored": -1,
        "leader_epoch": -1,
        "txmsgs": 0,
        "txbytes": 0,
        "rxmsgs": 0,
        "rxbytes": 0,
        "msgs": 0,
        "rx_ver_drops": 0,
        "msgs_inflight": 0,
        "next_ack_seq": 0,
        "next_err_seq": 0,
        "acked_msgid": 0,
    }


def _leader(info: Any) -> int:
    leader = info.leader
    if leader is None:
        return -1
    return int(getattr(leader, "id", leader))


def _lag(high: int, offset: int) -> int:
    return -1 if high < 0 or offset < 0 else max(0, high - offset)


def _topic_metrics(metrics: dict[str, Any], name: str) -> dict[str, float]:
    prefix = "producer-topic-metrics."
    return {
        group.removeprefix(prefix): _number(values.get(name, 0))
        for group, values in metrics.items()
        if group.startswith(prefix)
    }


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and isfinite(value) else 0.0


def _whole(value: Any) -> int:
    return int(_number(value))
