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


def _row(*values: tuple[Any, str]) -> dict[str, Any]:
    """Return a row of a page: the names of librdkafka's fields, by the value that they have unless it is known."""
    return {name: value for value, names in values for name in names.split()}


#: The values of a histogram, which only ``rtt`` has.
_HISTOGRAM = _row((0, "min max avg sum stddev p50 p75 p90 p95 p99 p99_99 outofrange hdrsize cnt"))
_PAGE = _row((0, "msg_cnt msg_size msg_max msg_size_max simple_cnt metadata_cache_cnt"))
_PAGE |= _row((0, "txmsgs txmsg_bytes rxmsgs rxmsg_bytes"))
_BROKER = _row(
    (0, "stateage outbuf_cnt outbuf_msg_cnt waitresp_cnt waitresp_msg_cnt txerrs txretries req_timeouts rxerrs"),
    (0, "rxcorriderrs rxpartial zbuf_grow buf_grow wakeups connects disconnects"),
    (-1, "txidle rxidle"),
    (_HISTOGRAM, "int_latency outbuf_latency throttle"),
)
_PARTITION = _row(
    (0, "msgq_cnt msgq_bytes xmit_msgq_cnt xmit_msgq_bytes fetchq_cnt fetchq_size next_offset txmsgs txbytes rxmsgs"),
    (0, "rxbytes msgs rx_ver_drops msgs_inflight next_ack_seq next_err_seq acked_msgid"),
    (OFFSET_INVALID, "query_offset app_offset stored_offset commited_offset committed_offset eof_offset lo_offset"),
    (OFFSET_INVALID, "hi_offset ls_offset"),
    (-1, "stored_leader_epoch committed_leader_epoch leader_epoch consumer_lag consumer_lag_stored"),
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
    page["brokers"] = _brokers(producer, cluster.nodes, metrics, "producer-node-metrics")
    sent = _topic_metrics(metrics, "record-send-total")
    size = _topic_metrics(metrics, "byte-total")
    topics = {}
    for topic in sorted(sent):
        infos = cluster.partitions_for_topic(topic)
        topics[topic] = _topic(
            topic, {str(info.partition): _partition(info.partition, _leader(info)) for info in infos}
        )
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
    page["brokers"] = _brokers(consumer, cluster.nodes, metrics, "consumer-node-metrics")
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
        **_PAGE,
    }
    return page | {name: _whole(own.get(metric, 0)) for name, metric in _TOTALS.items()}


def _brokers(client: Any, nodes: tuple[Node, ...], metrics: dict[str, Any], group: str) -> dict[str, Any]:
    brokers = {}
    is_down = client.network_client().is_unreachable
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
            **_BROKER,
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
    own = {"partition": number, "broker": leader, "leader": leader, "desired": True, "unknown": False}
    return {**own, "fetch_state": "none", **_PARTITION}


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
