"""One broker's fetch session: what it knows already need not be sent again (KIP-227, KIP-516).

The first request of a session is full: it names every partition, and the broker answers with a session id. Later ones
are incremental: they name what has changed, and the answers leave out partitions with nothing new. Numbers called
epochs tell both sides that no request was lost; when they do not fit, the session begins anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from pykclient.errors import FetchSessionIdNotFoundError, for_code
from pykclient.log_context import LogContext
from pykclient.network.cluster import ZERO_UUID
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.fetch import FetchResponse

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1

#: From this version on requests and responses name topics by id alone.
TOPIC_ID_VERSION = 13


class FetchMetadata(NamedTuple):
    """What a request says of its session. Epoch 0 begins a session, -1 ends it."""

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def next_incremental(self) -> FetchMetadata:
        """For the next request of the same session; after the largest epoch comes 1."""
        if self.epoch < 0:
            return FetchMetadata(self.session_id, FINAL_EPOCH)
        return FetchMetadata(self.session_id, 1 if self.epoch == _MAX_EPOCH else self.epoch + 1)

    def next_close_existing(self) -> FetchMetadata:
        return FetchMetadata(self.session_id, FINAL_EPOCH)

    def next_close_existing_attempt_new(self) -> FetchMetadata:
        return FetchMetadata(self.session_id, INITIAL_EPOCH)

    def __str__(self) -> str:
        session = "no session" if self.session_id == INVALID_SESSION_ID else f"session {self.session_id}"
        epoch = {INITIAL_EPOCH: "initial", FINAL_EPOCH: "final"}.get(self.epoch, self.epoch)
        return f"{session}, epoch {epoch}"


INITIAL = FetchMetadata(INVALID_SESSION_ID, INITIAL_EPOCH)


class PartitionData(NamedTuple):
    """What a request says of one partition (Java: FetchRequest.PartitionData)."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int | None = None
    last_fetched_epoch: int | None = None


class TopicIdPartition(NamedTuple):
    """A partition together with its topic's id, as a topic made anew has the same name and another id."""

    topic_id: UUID
    topic_partition: TopicPartition


class FetchRequestData(NamedTuple):
    """What to put into a request. ``session_partitions`` is all that the broker will then know the session to hold."""

    to_send: Mapping[TopicPartition, PartitionData]
    to_forget: list[TopicIdPartition]
    to_replace: list[TopicIdPartition]
    session_partitions: Mapping[TopicPartition, PartitionData]
    metadata: FetchMetadata
    can_use_topic_ids: bool

    def __str__(self) -> str:
        kind = "full" if self.metadata.is_full else "incremental"
        implied = len(self.session_partitions) - len(self.to_send)
        return (
            f"{kind} fetch ({self.metadata}): {len(self.to_send)} sent, {len(self.to_forget)} forgotten, "
            f"{len(self.to_replace)} replaced, {implied} implied"
        )


class FetchSessionHandler:
    """The client's half of one session (Java: FetchSessionHandler).

    For each request ``new_builder``, ``add`` every partition that is wanted, ``build``; then either ``handle_response``
    or ``handle_error``, before the next one is built. Thread: owner.
    """

    __slots__ = ("_log", "_next_metadata", "_node_id", "_session_partitions", "_session_topic_names")

    def __init__(self, log_context: LogContext, node_id: int) -> None:
        self._log = log_context.logger(__name__)
        self._node_id = node_id
        self._next_metadata = INITIAL
        self._session_partitions: dict[TopicPartition, PartitionData] = {}
        self._session_topic_names: dict[UUID, str] = {}

    @property
    def session_id(self) -> int:
        return self._next_metadata.session_id

    @property
    def session_topic_names(self) -> Mapping[UUID, str]:
        """Names by id; empty when the session cannot use ids."""
        return self._session_topic_names

    @property
    def session_partitions(self) -> Mapping[TopicPartition, PartitionData]:
        """What the broker was told last, so that the same objects can be handed to ``Builder.add`` again."""
        return self._session_partitions

    def session_topic_partitions(self) -> list[TopicPartition]:
        return list(self._session_partitions)

    def new_builder(self) -> Builder:
        return Builder(self)

    def _build(
        self, wanted: dict[TopicPartition, PartitionData], names: dict[UUID, str], can_use_topic_ids: bool
    ) -> FetchRequestData:
        to_send: dict[TopicPartition, PartitionData] = wanted
        removed: list[TopicIdPartition] = []
        replaced: list[TopicIdPartition] = []
        if not self._next_metadata.is_full:
            to_send, removed, replaced = self._differences(wanted)
            if any(partition.topic_id == ZERO_UUID for partition in removed):
                can_use_topic_ids = False
        self._session_partitions = wanted
        self._session_topic_names = names if can_use_topic_ids else {}
        data = FetchRequestData(to_send, removed, replaced, wanted, self._next_metadata, can_use_topic_ids)
        self._log.debug("Built %s for node %d", data, self._node_id)
        return data

    def _differences(
        self, wanted: dict[TopicPartition, PartitionData]
    ) -> tuple[dict[TopicPartition, PartitionData], list[TopicIdPartition], list[TopicIdPartition]]:
        """What is new or changed, what is gone, and what has the name but not the id of something before."""
        session = self._session_partitions
        to_send: dict[TopicPartition, PartitionData] = {}
        replaced: list[TopicIdPartition] = []
        known = 0
        for tp, data in wanted.items():
            previous = session.get(tp)
            if previous is None:
                to_send[tp] = data
                continue
            known += 1
            if previous is data or previous == data:
                continue
            to_send[tp] = data
            if previous.topic_id != data.topic_id and ZERO_UUID not in (previous.topic_id, data.topic_id):
                replaced.append(TopicIdPartition(previous.topic_id, tp))
        removed: list[TopicIdPartition] = []
        if known < len(session):
            removed = [TopicIdPartition(data.topic_id, tp) for tp, data in session.items() if tp not in wanted]
        return to_send, removed, replaced

    def response_partitions(
        self, response: FetchResponse, version: int
    ) -> dict[TopicPartition, FetchResponse.PartitionData]:
        """The partitions of a response by name; those of ids that the session does not know are left out."""
        names = self._session_topic_names
        result: dict[TopicPartition, FetchResponse.PartitionData] = {}
        for topic in response.responses:
            name = names.get(topic.topic_id) if version >= TOPIC_ID_VERSION else topic.topic
            if name is not None:
                for partition in topic.partitions:
                    result[TopicPartition(name, partition.partition_index)] = partition
        return result

    def handle_response(
        self, response: FetchResponse, version: int
    ) -> dict[TopicPartition, FetchResponse.PartitionData] | None:
        """Take note of a response; its partitions, or None when it does not fit the session and must not be used."""
        error = for_code(response.error_code)
        if error is not None:
            self._log.info("Node %d refused a fetch (%s): %s", self._node_id, self._next_metadata, error)
            if isinstance(error, FetchSessionIdNotFoundError):
                self._next_metadata = INITIAL
            else:
                self._next_metadata = self._next_metadata.next_close_existing_attempt_new()
            return None
        partitions = self.response_partitions(response, version)
        full = self._next_metadata.is_full
        if full and not partitions and response.throttle_time_ms > 0:
            # A throttled client gets an empty answer even to a full request (KIP-219).
            self._next_metadata = INITIAL
            return None
        problem = self._problem(partitions, response, version, full)
        if problem:
            self._log.info("Node %d answered a fetch (%s) wrongly: %s", self._node_id, self._next_metadata, problem)
            self._next_metadata = INITIAL if full else self._next_metadata.next_close_existing_attempt_new()
            return None
        if response.session_id == INVALID_SESSION_ID:
            # The broker has no room for the session, or ended it.
            self._next_metadata = INITIAL
        elif full:
            self._next_metadata = FetchMetadata(response.session_id, INITIAL_EPOCH).next_incremental()
        else:
            self._next_metadata = self._next_metadata.next_incremental()
        return partitions

    def _problem(
        self,
        partitions: dict[TopicPartition, FetchResponse.PartitionData],
        response: FetchResponse,
        version: int,
        full: bool,
    ) -> str:
        """What the response has that the session has not, or lacks though it is full; empty if it fits."""
        session = self._session_partitions
        problems = []
        extra = [tp for tp in partitions if tp not in session]
        if extra:
            problems.append(f"partitions that are not of the session: {_join(extra)}")
        if full and len(partitions) - len(extra) < len(session):
            problems.append(f"partitions left out: {_join(tp for tp in session if tp not in partitions)}")
        if version >= TOPIC_ID_VERSION:
            unknown = {topic.topic_id for topic in response.responses} - self._session_topic_names.keys() - {ZERO_UUID}
            if unknown:
                problems.append(f"unknown topic ids: {_join(unknown)}")
        return "; ".join(problems)

    def notify_close(self) -> None:
        """Let the next request end the session."""
        self._next_metadata = self._next_metadata.next_close_existing()

    def handle_error(self, error: Exception) -> None:
        """The request failed or was never answered, so what the broker knows is unknown."""
        self._log.info("A fetch (%s) from node %d failed: %s", self._next_metadata, self._node_id, error)
        self._next_metadata = self._next_metadata.next_close_existing_attempt_new()


class Builder:
    """Collects what the next request of a session is to fetch. Thread: owner."""

    __slots__ = ("_can_use_topic_ids", "_handler", "_last_topic_id", "_names", "_wanted")

    def __init__(self, handler: FetchSessionHandler) -> None:
        self._handler = handler
        self._wanted: dict[TopicPartition, PartitionData] = {}
        self._names: dict[UUID, str] = {}
        self._last_topic_id: UUID | None = None
        self._can_use_topic_ids = True

    def add(self, tp: TopicPartition, data: PartitionData) -> None:
        """Want ``tp``. The object that was handed in the last time tells fastest that nothing has changed."""
        self._wanted[tp] = data
        topic_id = data.topic_id
        if topic_id is not self._last_topic_id:  # hashing and comparing ids is slow, and topics come in runs
            self._last_topic_id = topic_id
            if topic_id == ZERO_UUID:
                self._can_use_topic_ids = False
            else:
                self._names.setdefault(topic_id, tp.topic)

    def build(self) -> FetchRequestData:
        """The difference to what the session holds; from then on the session holds what was added. Call it once."""
        return self._handler._build(self._wanted, self._names, self._can_use_topic_ids)


def _join(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))
