"""Split the cost of transactions: ``python -m benchmarks.transactions`` prints JSON lines.

Groups of records take turns in one process, on one real broker: transactions, the same records with a flush after each
group, and without any. Bare sockets send the requests of the first two, encoded before, and read the responses: the
part that no client can avoid. CPU is in microseconds per group.

At last a transaction without records, which makes the calls of a transaction but sends nothing, runs after pauses of
several lengths, in which code and data leave the processor's caches.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import time
from collections.abc import Callable
from typing import Any

from benchmarks.clients.measuring import BATCH_SIZE, LINGER_MS, payloads
from pykclient import KafkaProducer
from pykclient.protocol.headers import encode_request, parse_response
from pykclient.protocol.message import Request
from pykclient.protocol.messages.end_txn import EndTxnRequest
from pykclient.protocol.messages.find_coordinator import FindCoordinatorRequest
from pykclient.protocol.messages.init_producer_id import InitProducerIdRequest
from pykclient.protocol.messages.produce import ProduceRequest
from pykclient.record.memory_records_builder import MemoryRecordsBuilder

_FIND_VERSION, _INIT_VERSION, _PRODUCE_VERSION, _END_VERSION = 6, 5, 12, 5
_TRANSACTIONAL_ID_KEY = 1
_TIMEOUT_MS = 60_000
_TOPIC = "transactions"
_ATTEMPTS = 100
_BATCH_RECORDS = 1_000
_PAUSES_MS = (0, 0.2, 0.5, 1, 2)
_INT16, _INT32 = struct.Struct(">h"), struct.Struct(">i")
#: Where the error codes of the responses are: behind the correlation id, tags, one topic with its name, one partition
#: with its index; and behind the correlation id, tags and the throttle time.
_PRODUCE_CODE, _END_CODE = 4 + 1 + 1 + 1 + len(_TOPIC) + 1 + 4, 4 + 1 + 4


class BareSocket:
    """Sends encoded requests on a blocking socket. ``transactional_id`` None: flushes. Thread: owner."""

    def __init__(self, address: tuple[str, int], values: list[bytes], transactional_id: str | None) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._values = values
        self._transactional_id = transactional_id
        self._groups: list[tuple[list[bytes], bytes | None]] = []
        self._received = b""
        self._sequence = 0
        if transactional_id is not None:
            find = FindCoordinatorRequest(key_type=_TRANSACTIONAL_ID_KEY, coordinator_keys=[transactional_id])
            self._until_done(find, _FIND_VERSION, lambda body: body.coordinators[0].error_code)
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=_TIMEOUT_MS)
        body = self._until_done(init, _INIT_VERSION, lambda body: body.error_code)
        self._producer_id, self._epoch = body.producer_id, body.producer_epoch

    def _until_done(self, request: Request, version: int, error_code: Callable[[Any], int]) -> Any:
        """Send a request until it succeeds: the topic of transactions may just be created."""
        for _ in range(_ATTEMPTS):
            self._socket.sendall(_frame(request, version))
            body: Any = parse_response(self._response(), request.API_KEY, version)[1]
            if not error_code(body):
                return body
            time.sleep(0.1)
        raise TimeoutError(f"{request!r} does not succeed")

    def _response(self) -> bytes:
        """Return the next response."""
        data = self._received or self._socket.recv(65_536)
        while len(data) < 4 or len(data) < 4 + _INT32.unpack_from(data)[0]:
            data += self._socket.recv(65_536)
        end = 4 + _INT32.unpack_from(data)[0]
        self._received = data[end:]
        return data[4:end]

    def _exchange(self, frames: list[bytes], place: int) -> None:
        """Send frames, and read their responses, in which the error code is at ``place``; repeat if there is one."""
        for _ in range(_ATTEMPTS):
            for frame in frames:
                self._socket.sendall(frame)
            codes = [_INT16.unpack_from(self._response(), place)[0] for _ in frames]
            if not any(codes):
                return
            time.sleep(0.02)  # the markers of the last transaction are still being written
        raise TimeoutError(f"the responses have the error codes {codes}")

    def prepare(self, groups: int) -> None:
        """Encode the requests of the next groups. Each transaction has the epoch that follows the last one's."""
        for _ in range(groups):
            is_transactional = self._transactional_id is not None
            now_ms = time.time_ns() // 1_000_000
            frames = []
            sequence = 0 if is_transactional else self._sequence
            for begin in range(0, len(self._values), _BATCH_RECORDS):
                builder = MemoryRecordsBuilder(
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    base_sequence=sequence + begin,
                    is_transactional=is_transactional,
                )
                for value in self._values[begin : begin + _BATCH_RECORDS]:
                    builder.append(now_ms, None, value)
                partition = ProduceRequest.PartitionProduceData(index=0, records=builder.build())
                topic = ProduceRequest.TopicProduceData(name=_TOPIC, partition_data=[partition])
                produce = ProduceRequest(
                    transactional_id=self._transactional_id, acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[topic]
                )
                frames.append(_frame(produce, _PRODUCE_VERSION))
            self._sequence += len(self._values)
            end = None
            if self._transactional_id is not None:
                request = EndTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self._producer_id,
                    producer_epoch=self._epoch,
                    committed=True,
                )
                end = _frame(request, _END_VERSION)
                self._epoch += 1
            self._groups.append((frames, end))
        self._groups.reverse()

    def run(self) -> None:
        """Send a group."""
        frames, end = self._groups.pop()
        self._exchange(frames, _PRODUCE_CODE)
        if end is not None:
            self._exchange([end], _END_CODE)


def _frame(request: Request, version: int) -> bytes:
    return encode_request(request, version, 0, "bare").getvalue()


def _nothing(_: int) -> None:
    """Prepare nothing."""


def measure(servers: str, records: int, rounds: int) -> dict[str, dict[str, float]]:
    """Return the CPU time and the time of a group of ``records``, by kind: medians over the rounds."""
    values = (payloads(100) * (records // 100))[:records]
    name = f"{records}-{os.getpid()}"
    host, port = servers.split(",", maxsplit=1)[0].split(":")
    settings: dict[str, Any] = {"bootstrap_servers": servers, "batch_size": BATCH_SIZE, "linger_ms": LINGER_MS}
    groups = max(10, 30_000 // records)
    with (
        KafkaProducer[Any, Any](**settings) as plain,
        KafkaProducer[Any, Any](**settings, transactional_id=f"a-{name}") as transactional,
    ):
        transactional.init_transactions()
        bare = BareSocket((host, int(port)), values, None), BareSocket((host, int(port)), values, f"b-{name}")

        def send(producer: KafkaProducer[Any, Any]) -> None:
            for value in values:
                producer.send(_TOPIC, value)

        def send_and_flush() -> None:
            send(plain)
            plain.flush()

        def commit() -> None:
            transactional.begin_transaction()
            send(transactional)
            transactional.commit_transaction()

        kinds: dict[str, tuple[Callable[[int], None], Callable[[], None], Callable[[], object]]] = {
            "no flush": (_nothing, lambda: send(plain), plain.flush),
            "flush": (_nothing, send_and_flush, lambda: None),
            "transaction": (_nothing, commit, lambda: None),
            "bare flush": (bare[0].prepare, bare[0].run, lambda: None),
            "bare transaction": (bare[1].prepare, bare[1].run, lambda: None),
        }
        found: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(rounds + 1):  # the first warms up
            for kind, (prepare, run, end) in kinds.items():
                prepare(groups)
                cpu_s, begun_s = time.process_time(), time.perf_counter()
                for _ in range(groups):
                    run()
                end()
                cpu_s, elapsed_s = time.process_time() - cpu_s, time.perf_counter() - begun_s
                if number:
                    found[kind].append((cpu_s / groups * 1e6, elapsed_s / groups * 1e6))
    return {
        kind: {
            "cpu_us": round(statistics.median(cpu_us for cpu_us, _ in of_kind), 1),
            "elapsed_us": round(statistics.median(elapsed_us for _, elapsed_us in of_kind), 1),
        }
        for kind, of_kind in found.items()
    }


def after_pauses(servers: str) -> dict[str, float]:
    """Return the CPU time of a transaction without records, in microseconds, by the pause before it in ms."""
    found = {}
    with KafkaProducer[Any, Any](bootstrap_servers=servers, transactional_id=f"c-{os.getpid()}") as producer:
        producer.init_transactions()
        for pause_ms in (0.0, *_PAUSES_MS):  # the first warms up
            times_us = []
            for _ in range(500):
                if pause_ms:
                    time.sleep(pause_ms / 1000)
                begun_ns = time.thread_time_ns()
                producer.begin_transaction()
                producer.commit_transaction()
                times_us.append((time.thread_time_ns() - begun_ns) / 1000)
            found[f"after {pause_ms} ms"] = round(statistics.median(times_us), 1)
    return found


def main() -> None:
    from tests.kafka.cluster import KafkaCluster

    parser = argparse.ArgumentParser(prog="python -m benchmarks.transactions", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--records", type=int, nargs="+", default=[100, 1_000, 10_000], help="per group")
    arguments = parser.parse_args()
    with KafkaCluster(brokers=1, throughput=True) as cluster:
        cluster.create_topic(_TOPIC, 1)
        for records in arguments.records:
            split = measure(cluster.bootstrap_servers, records, arguments.rounds)
            print(json.dumps({"records": records, **split}), flush=True)
        print(json.dumps(after_pauses(cluster.bootstrap_servers)))


if __name__ == "__main__":
    main()
