"""The request history: what it keeps, for how long, and how to search it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from pykclient.protocol.messages.offset_commit import OffsetCommitResponse
from pykclient.testing.event_loop import EventLoop
from pykclient.testing.request_channel import History
from pykclient.types import Node
from tests.support.mock_clock import MockClock


def request(party: str = "client:a", broker_id: int = 1, size_bytes: int = 100) -> Any:
    return SimpleNamespace(
        party=party,
        principal="User:ANONYMOUS",
        is_from_broker=party.startswith("broker-"),
        client_id=party.partition(":")[2] or None,
        broker_id=broker_id,
        api_key=ApiKeys.HEARTBEAT,
        body=HeartbeatRequest(group_id="g"),
        size_bytes=size_bytes,
        received_ms=5,
    )


def new_history(size: int = 10) -> History:
    return History(EventLoop(MockClock()), size)


def test_history_keeps_the_latest_requests_per_kind_of_party() -> None:
    history = new_history(size=3)
    for number in range(5):
        history.add(request(broker_id=number), 4)
        for _ in range(100):
            history.add(request("broker-2"), 4)
    assert [record.broker_id for record in history.matching()] == [2, 3, 4]
    assert len(history.matching(party="broker-2")) == 3
    assert len(history) == 6
    assert [record.number for record in history] == sorted(record.number for record in history)
    assert history.total == 505
    assert history.counts == {ApiKeys.HEARTBEAT: 5}
    history.clear()
    assert (len(history), history.matching(), history.counts) == (0, [], {})
    assert history.add(request(), 4).number == 506


def test_history_is_bounded_in_bytes() -> None:
    history = new_history(size=1000)
    first = history.add(request(size_bytes=10_000_000), 4)
    second = history.add(request(size_bytes=5_000_000), 4)
    assert history.matching() == [first, second]
    history.answered(second, HeartbeatResponse(), 5_000_000)
    assert history.matching() == [second]
    history.answered(first, HeartbeatResponse(), 15_000_000)  # already evicted, so its size does not count
    assert history.matching() == [second]
    history.add(request(size_bytes=100_000_000), 4)
    assert history.matching() == []
    assert [history.add(request(), 4)] == history.matching()


def test_requests_are_filtered_by_api_client_broker_and_party() -> None:
    history = new_history()
    a = history.add(request("client:a", broker_id=1), 4)
    b = history.add(request("client:b", broker_id=2), 4)
    history.add(request("broker-1", broker_id=2), 4)
    assert history.matching(client_id="b") == [b]
    assert history.matching(broker=1) == [a]
    assert history.matching(broker=Node(2, "h", 1)) == [b]
    assert history.matching(party="client:a") == [a]
    assert history.matching(api="Heartbeat", after=a.number) == [b]
    assert history.matching(api=ApiKeys.PRODUCE) == []


def test_error_codes_are_found_at_any_depth() -> None:
    history = new_history()
    record = history.add(request(), 4)
    assert record.error_codes == set()
    response = OffsetCommitResponse(
        topics=[
            OffsetCommitResponse.OffsetCommitResponseTopic(
                name="t",
                partitions=[
                    OffsetCommitResponse.OffsetCommitResponsePartition(partition_index=0, error_code=code)
                    for code in (0, 22, 25)
                ],
            )
        ]
    )
    history.answered(record, response, 10)
    assert record.error_codes == {22, 25}
    assert repr(record) == ("RequestRecord(5 ms: HEARTBEAT v4 from client:a to broker-1, ANSWERED, errors [22, 25])")
