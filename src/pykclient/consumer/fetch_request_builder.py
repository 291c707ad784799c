"""Builder of fetch requests (Java: FetchRequest.Builder)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykclient.consumer.fetch_session_handler import TOPIC_ID_VERSION, FetchRequestData
from pykclient.network.client_request import Renewal, RequestBuilder
from pykclient.protocol.messages.fetch import FetchRequest

if TYPE_CHECKING:
    from pykclient.consumer.fetch_config import FetchConfig
    from pykclient.types import TopicIdPartition

_NO_EPOCH = -1


class FetchRequestBuilder(RequestBuilder):
    """Writes a session's data into a fetch request. Without topic ids, it uses no version that needs them.

    Thread: owner.
    """

    __slots__ = ("_config", "data", "renewal")

    def __init__(self, config: FetchConfig, data: FetchRequestData, renewal: Renewal | None = None) -> None:
        self.renewal = renewal
        oldest, latest = FetchRequest.VERSIONS
        self._config = config
        self.data = data
        self.api_key = FetchRequest.API_KEY
        self.oldest_allowed_version = oldest
        self.latest_allowed_version = latest if data.can_use_topic_ids else TOPIC_ID_VERSION - 1

    def build(self, version: int) -> FetchRequest:
        data, config = self.data, self._config
        to_forget = data.to_forget
        if version >= TOPIC_ID_VERSION:
            # By name alone, forgetting the deleted topic would forget the new one.
            to_forget = to_forget + data.to_replace
        return FetchRequest(
            max_wait_ms=config.max_wait_ms,
            min_bytes=config.min_bytes,
            max_bytes=config.max_bytes,
            isolation_level=config.isolation_level,
            session_id=data.metadata.session_id,
            session_epoch=data.metadata.epoch,
            topics=self._topics(),
            forgotten_topics_data=_forgotten(to_forget),
            rack_id=config.client_rack_id,
        )

    def _topics(self) -> list[FetchRequest.FetchTopic]:
        """Return the partitions in order, with a new group wherever the topic changes."""
        topics: list[FetchRequest.FetchTopic] = []
        last = None
        for tp, partition in self.data.to_send.items():
            if last is None or last.topic != tp.topic:
                last = FetchRequest.FetchTopic(topic=tp.topic, topic_id=partition.topic_id)
                topics.append(last)
            epoch, last_epoch = partition.current_leader_epoch, partition.last_fetched_epoch
            last.partitions.append(
                FetchRequest.FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=_NO_EPOCH if epoch is None else epoch,
                    fetch_offset=partition.fetch_offset,
                    last_fetched_epoch=_NO_EPOCH if last_epoch is None else last_epoch,
                    log_start_offset=partition.log_start_offset,
                    partition_max_bytes=partition.max_bytes,
                )
            )
        return topics

    def __repr__(self) -> str:
        return f"FetchRequestBuilder({self.data})"


def _forgotten(partitions: Iterable[TopicIdPartition]) -> list[FetchRequest.ForgottenTopic]:
    topics: dict[tuple[str, int], FetchRequest.ForgottenTopic] = {}
    for topic_id, tp in partitions:
        key = tp.topic, topic_id.int
        if key not in topics:
            topics[key] = FetchRequest.ForgottenTopic(topic=tp.topic, topic_id=topic_id)
        topics[key].partitions.append(tp.partition)
    return list(topics.values())
