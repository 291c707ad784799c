"""The follower's half of a fetch session (Java: FetchSessionHandler; KIP-227).

Consumers have one of their own; a fetcher knows by itself which of its partitions have changed, and needs none of the
comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from pykclient.errors import FetchSessionIdNotFoundError, FetchSessionTopicIdError, InvalidFetchSessionEpochError
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.testing.replica.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID, next_epoch

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.types import TopicPartition

#: What ends a session, and nothing else: it can be begun again at once.
SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code, FetchSessionTopicIdError.code}
)


class FetchPosition(NamedTuple):
    """What the leader was last told of a partition."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerFetchSession:
    """Which partitions the leader has in the session, and the epoch of the next request. Thread: loop."""

    __slots__ = ("_epoch", "_names", "_session_id", "positions")

    def __init__(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._names: dict[UUID, str] = {}
        #: As the leader knows them, or will with the request that is in flight.
        self.positions: dict[TopicPartition, FetchPosition] = {}

    @property
    def is_full(self) -> bool:
        """Whether the next request names all partitions, beginning a session."""
        return self._epoch == INITIAL_EPOCH

    def build(
        self,
        request: FetchRequest,
        changes: Iterable[tuple[TopicPartition, FetchPosition | None]],
        max_bytes: int,
    ) -> bool:
        """Put into ``request`` what has changed, with None for what is not wanted now; whether there is anything to
        ask for. In a full request the changes are all that there is.
        """
        positions = self.positions
        if self.is_full:
            positions.clear()
            self._names.clear()
        request.session_id = self._session_id
        request.session_epoch = self._epoch
        topics: dict[UUID, FetchRequest.FetchTopic] = {}
        forgotten: dict[UUID, FetchRequest.ForgottenTopic] = {}
        for topic_partition, position in changes:
            known = positions.get(topic_partition)
            if known == position:
                continue
            if known is not None and (position is None or position.topic_id != known.topic_id):
                gone = forgotten.setdefault(known.topic_id, FetchRequest.ForgottenTopic(topic_id=known.topic_id))
                gone.partitions.append(topic_partition.partition)
                del positions[topic_partition]
            if position is None:
                continue
            positions[topic_partition] = position
            topic_id, fetch_offset, log_start_offset, current_leader_epoch, last_fetched_epoch = position
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchRequest.FetchTopic(topic_id=topic_id)
                self._names[topic_id] = topic_partition.topic
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=current_leader_epoch,
                    fetch_offset=fetch_offset,
                    last_fetched_epoch=last_fetched_epoch,
                    log_start_offset=log_start_offset,
                    partition_max_bytes=max_bytes,
                )
            )
        request.topics = list(topics.values())
        request.forgotten_topics_data = list(forgotten.values())
        return bool(positions or forgotten)

    def topic_name(self, topic_id: UUID) -> str | None:
        """The name of a topic of the session."""
        return self._names.get(topic_id)

    def handle_response(self, response: FetchResponse) -> bool:
        """Take note of an answer; whether the session goes on with it. If not, it holds nothing."""
        if response.error_code:
            if response.error_code == FetchSessionIdNotFoundError.code:
                self._session_id = INVALID_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return False
        self._session_id = response.session_id
        self._epoch = INITIAL_EPOCH if response.session_id == INVALID_SESSION_ID else next_epoch(self._epoch)
        return True

    def handle_error(self) -> None:
        """No answer came, so that it is not known what the leader knows."""
        self._epoch = INITIAL_EPOCH
