"""The follower's side of a fetch session (Java: FetchSessionHandler; KIP-227).

Consumers have a different one. A fetcher knows which of its partitions have changed and needs no comparisons.
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

#: Errors that end the session and nothing else: the follower can start a new one immediately.
SESSION_ERRORS: Final = frozenset(
    {FetchSessionIdNotFoundError.code, InvalidFetchSessionEpochError.code, FetchSessionTopicIdError.code}
)


class FetchPosition(NamedTuple):
    """The state of a partition that the leader was last told."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int


class FollowerFetchSession:
    """The partitions that the leader has in the session, and the epoch of the next request. Thread: loop."""

    __slots__ = ("_epoch", "_names", "_session_id", "positions")

    def __init__(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._names: dict[UUID, str] = {}
        #: As the leader knows them, or will know them after the request in flight.
        self.positions: dict[TopicPartition, FetchPosition] = {}

    @property
    def is_full(self) -> bool:
        """True if the next request names all partitions and starts a session."""
        return self._epoch == INITIAL_EPOCH

    def build(
        self,
        request: FetchRequest,
        changes: Iterable[tuple[TopicPartition, FetchPosition | None]],
        max_bytes: int,
    ) -> bool:
        """Put the changes into ``request``; return whether there is anything to fetch.

        None as a position removes a partition. In a full request the changes are all partitions.
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
        """Return the name of a topic in the session."""
        return self._names.get(topic_id)

    def handle_response(self, response: FetchResponse) -> bool:
        """Process a response; return whether the session continues. If not, the response has no data."""
        if response.error_code:
            if response.error_code == FetchSessionIdNotFoundError.code:
                self._session_id = INVALID_SESSION_ID
            self._epoch = INITIAL_EPOCH
            return False
        self._session_id = response.session_id
        self._epoch = INITIAL_EPOCH if response.session_id == INVALID_SESSION_ID else next_epoch(self._epoch)
        return True

    def handle_error(self) -> None:
        """Process a lost response: the leader's state is unknown now."""
        self._epoch = INITIAL_EPOCH
