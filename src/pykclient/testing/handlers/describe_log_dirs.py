"""DescribeLogDirs: the sizes of this broker's logs (KIP-113, KIP-827)."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from pykclient.errors import KafkaStorageError
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from pykclient.testing import acls
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.server.request_channel import Request

API_KEY = ApiKeys.DESCRIBE_LOG_DIRS
VERSIONS = (0, 5)


def handle(broker: Broker, request: Request) -> None:
    """Respond with one directory. Its free space is what remains of the cluster's memory limit."""
    body = cast(DescribeLogDirsRequest, request.body)
    broker.auth.check_cluster(request, acls.DESCRIBE)
    disk = broker.disk
    result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=f"/memory/broker-{broker.id}")
    if disk.offline:
        result.error_code = KafkaStorageError.code
    else:
        result.topics = _topics(broker, body)
        if request.api_version >= 4:
            result.total_bytes = disk.budget.limit_bytes
            result.usable_bytes = max(0, disk.budget.limit_bytes - disk.budget.held_bytes)
    request.respond(DescribeLogDirsResponse(results=[result]))


def _topics(broker: Broker, body: DescribeLogDirsRequest) -> list[DescribeLogDirsResponse.DescribeLogDirsTopic]:
    wanted = None
    if body.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in body.topics for index in topic.partitions}
    topics: dict[str, DescribeLogDirsResponse.DescribeLogDirsTopic] = {}
    for log in broker.log_manager.all_logs:
        name, index = log.topic_partition
        if wanted is None or log.topic_partition in wanted:
            topic = topics.setdefault(name, DescribeLogDirsResponse.DescribeLogDirsTopic(name=name))
            topic.partitions.append(
                DescribeLogDirsResponse.DescribeLogDirsPartition(
                    partition_index=index,
                    partition_size=log.size,
                    offset_lag=max(0, log.high_watermark - log.log_end_offset),
                )
            )
    return list(topics.values())


def error_response(body: DescribeLogDirsRequest, code: int, message: str | None = None) -> DescribeLogDirsResponse:  # noqa: ARG001
    # Before version 3, the error only fits into a directory.
    return DescribeLogDirsResponse(
        error_code=code, results=[DescribeLogDirsResponse.DescribeLogDirsResult(error_code=code)]
    )
