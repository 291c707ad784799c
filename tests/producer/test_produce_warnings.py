"""A produce response warns once of each kind of error, not once of each batch."""

from __future__ import annotations

import logging

import pytest

from pykclient.errors import NotLeaderOrFollowerError, UnknownTopicOrPartitionError
from pykclient.types import TopicPartition
from tests.producer.harness import RETRY_BACKOFF_MS, TOPIC, TP0, SenderHarness, metadata_response, produce_response

MANY = [TopicPartition(TOPIC, index) for index in range(2_000)]


@pytest.mark.parametrize(
    ("partitions", "code", "expected"),
    [
        (
            MANY,
            NotLeaderOrFollowerError.code,
            ["Retrying the batches of 2000 partitions, after up to 2 attempts, because of NotLeaderOrFollowerError"],
        ),
        ([TP0], NotLeaderOrFollowerError.code, ["Retrying "]),
        (
            MANY,
            UnknownTopicOrPartitionError.code,
            [
                "Retrying the batches of 2000 partitions, after up to 2 attempts, because of UnknownTopicOrPartition",
                "2000 partitions do not exist",
            ],
        ),
        ([TP0], UnknownTopicOrPartitionError.code, ["Retrying ", f"Partition {TP0} does not exist"]),
    ],
    ids=["many without a leader", "one without a leader", "many missing", "one missing"],
)
def test_partitions_with_same_error_share_log_line(
    partitions: list[TopicPartition], code: int, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    cluster = metadata_response(dict.fromkeys(partitions, 0))
    h = SenderHarness(idempotent=False, batch_size=256, metadata=cluster)
    for tp in partitions:
        h.append(tp)
    for _ in range(2):
        h.run_once()
        assert h.client.in_flight_request_count() == 1
        caplog.clear()
        h.client.respond(produce_response(dict.fromkeys(partitions, (code, -1))))
        with caplog.at_level(logging.WARNING):
            h.run_once()
        h.clock.advance(RETRY_BACKOFF_MS)
        h.client.update_metadata(cluster)
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == len(expected)
    for line, beginning in zip(told, expected, strict=True):
        assert line.startswith(beginning)
        assert str(TP0) in line
        assert len(line) < 1_000
        if len(partitions) > 1:
            assert "and 1990 more" in line
