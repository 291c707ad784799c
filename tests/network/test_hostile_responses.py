"""Polling never raises, whatever bytes a broker sends, and the client recovers with an honest broker."""

from __future__ import annotations

import uuid

from hypothesis import given, settings, strategies as st

from pykclient.log_context import LogContext
from pykclient.network.metadata import Metadata
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.headers import encode_response
from pykclient.protocol.message import Response
from pykclient.protocol.messages.metadata import MetadataResponse
from pykclient.types import Node
from tests.network.test_network_client import Fixture, api_versions
from tests.support.examples import examples

HONEST = [Node(id, f"10.0.0.{id}", 9092) for id in range(3)]

mutations = st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6)


def metadata(cluster_id: str) -> MetadataResponse:
    partitions = [
        MetadataResponse.MetadataResponsePartition(
            partition_index=index, leader_id=index, leader_epoch=3, replica_nodes=[0, 1], isr_nodes=[0]
        )
        for index in range(3)
    ]
    topics = [
        MetadataResponse.MetadataResponseTopic(name=name, topic_id=uuid.UUID(int=7), partitions=partitions)
        for name in ("orders", "payments")
    ]
    brokers = [MetadataResponse.MetadataResponseBroker(node_id=n.id, host=n.host, port=n.port) for n in HONEST]
    return MetadataResponse(brokers=brokers, cluster_id=cluster_id, controller_id=1, topics=topics)


def answer(api_key: int, cluster_id: str) -> Response:
    return api_versions() if api_key == ApiKeys.API_VERSIONS else metadata(cluster_id)


def mutated(frame: bytes, changes: list[tuple[int, int]], cut: int | None) -> bytes:
    data = bytearray(frame)
    for position, value in changes:
        data[4 + position % (len(data) - 4)] = value  # the correlation id stays valid, so the body is parsed
    return bytes(data if cut is None else data[: cut % len(data)])


@settings(max_examples=examples(200), deadline=None)
@given(
    lies=st.lists(st.tuples(mutations, st.none() | st.integers(0, 10_000)), min_size=1, max_size=4),
    garbage=st.binary(max_size=40),
)
def test_broken_responses_are_survived(lies: list[tuple[list[tuple[int, int]], int | None]], garbage: bytes) -> None:
    known = Metadata(10, 10, 300_000, LogContext())
    known.bootstrap([("127.0.0.1", 9092)])
    f = Fixture(known, rebootstrap_trigger_ms=5_000)
    is_honest = False
    for turn in range(200):
        f.poll(50)
        if not is_honest and (not lies or turn == 30):
            is_honest = True
            lies.clear()
            # The client may have accepted false data: versions that the node does not support, or weeks of throttling.
            # New connections and time repair that.
            f.clock.advance(1 << 31)
            for node_id in list(f.selector.ready):
                f.selector.disconnect(node_id)
            f.poll(0)
            known.request_update(True)
        if known.fetch().cluster_resource.cluster_id == "honest":
            break
        for request in list(f.selector.requests):
            api_key = request.header.api_key
            if not lies:
                f.selector.respond(request.node_id, answer(api_key, "honest"))
                continue
            changes, cut = lies.pop()
            frame = encode_response(answer(api_key, "false"), request.header.api_version, request.header.correlation_id)
            f.selector.requests.remove(request)
            f.selector.receive(request.node_id, mutated(frame.getvalue()[4:], changes, cut))
            if turn % 2:
                f.selector.receive(request.node_id, garbage)
    assert known.fetch().cluster_resource.cluster_id == "honest"
    assert known.fetch().nodes == tuple(HONEST)
