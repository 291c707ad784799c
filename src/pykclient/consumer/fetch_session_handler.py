"""A fetch session with one broker, which saves sending what the broker already knows (KIP-227, KIP-516).

The first request of a session is full: it names every partition, and the broker returns a session id. Later requests
are incremental: they name only changes, and the responses leave out partitions with nothing new. Session epochs tell
both sides that no request was lost. If the epochs do not match, a new session begins.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from pykclient.errors import FetchSessionIdNotFoundError, for_code
from pykclient.log_context import LogContext
from pykclient.types import TopicIdPartition, TopicPartition

if TYPE_CHECKING:
    from pykclient.protocol.messages.fetch import FetchResponse

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1

#: From this version on, requests and responses identify topics by id alone.
TOPIC_ID_VERSION = 13


class FetchMetadata(NamedTuple):
    """The session id and epoch of a request. Epoch 0 begins a session, -1 ends it."""

    session_id: int
    epoch: int

    @property
    def is_full(self) -> bool:
        return self.epoch in (INITIAL_EPOCH, FINAL_EPOCH)

    def next_incremental(self) -> FetchMetadata:
        """Return the metadata of the session's next request; after the largest epoch comes 1."""
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
    """The fetch position and limits of one partition in a request (Java: FetchRequest.PartitionData)."""

    topic_id: UUID
    fetch_offset: int
    log_start_offset: int
    max_bytes: int
    current_leader_epoch: int | None = None
    last_fetched_epoch: int | None = None


class FetchRequestData(NamedTuple):
    """The contents of a request.

    ``session_partitions`` are the partitions of the session after this request. It is a view, valid until the next
    request is built.
    """

    to_send: Mapping[TopicPartition, PartitionData]
    to_forget: list[TopicIdPartition]
    to_replace: list[TopicIdPartition]
    session_partitions: Mapping[TopicPartition, PartitionData]
    metadata: FetchMetadata
    can_use_topic_ids: bool

    @property
    def is_repeatable(self) -> bool:
        """True if the request changes nothing in its session."""
        return not (self.to_send or self.to_forget or self.to_replace or self.metadata.is_full)

    def __str__(self) -> str:
        kind = "full" if self.metadata.is_full else "incremental"
        implied = len(self.session_partitions) - len(self.to_send)
        return (
            f"{kind} fetch ({self.metadata}): {len(self.to_send)} sent, {len(self.to_forget)} forgotten, "
            f"{len(self.to_replace)} replaced, {implied} implied"
        )


class FetchSessionHandler:
    """The client's side of one session (Java: FetchSessionHandler).

    For each request, call ``build`` with all wanted partitions or, if ``next_is_incremental``, ``build_changes`` with
    the changed ones. Then call ``handle_response`` or ``handle_error`` before you build the next.

    Thread: owner.
    """

    __slots__ = (
        "_log",
        "_next_metadata",
        "_node_id",
        "_session_partitions",
        "_topic_names",
        "_without_topic_id",
        "session_topic_names",
    )

    def __init__(self, log_context: LogContext, node_id: int) -> None:
        self._log = log_context.logger(__name__)
        self._node_id = node_id
        self._next_metadata = INITIAL
        self._session_partitions: dict[TopicPartition, PartitionData] = {}
        self._topic_names: dict[UUID, str] = {}
        self._without_topic_id = 0  # the number of partitions without an id
        #: Names by id; empty if the session cannot use ids.
        self.session_topic_names: Mapping[UUID, str] = {}

    @property
    def session_id(self) -> int:
        return self._next_metadata.session_id

    @property
    def next_is_incremental(self) -> bool:
        """True if ``build_changes`` can make the next request."""
        return not self._next_metadata.is_full

    def session_topic_partitions(self) -> list[TopicPartition]:
        return list(self._session_partitions)

    def build(self, wanted: Mapping[TopicPartition, PartitionData]) -> FetchRequestData:
        """Return a request that makes the session hold exactly ``wanted``."""
        if self.next_is_incremental:
            changes: dict[TopicPartition, PartitionData | None] = dict(wanted)
            changes.update((tp, None) for tp in self._session_partitions if tp not in wanted)
            return self.build_changes(changes)
        self._session_partitions = {}
        self._topic_names = {}
        self._without_topic_id = 0
        return self.build_changes(wanted)

    def build_changes(self, changes: Mapping[TopicPartition, PartitionData | None]) -> FetchRequestData:
        """Return a request that applies ``changes`` to the session; None removes a partition."""
        session = self._session_partitions
        to_send: dict[TopicPartition, PartitionData] = {}
        removed: list[TopicIdPartition] = []
        replaced: list[TopicIdPartition] = []
        can_use_topic_ids = True
        for tp, data in changes.items():
            previous = session.get(tp)
            if previous == data:
                continue
            if previous is not None and previous.topic_id.int == 0:
                self._without_topic_id -= 1
            if data is None:
                if previous is not None:
                    del session[tp]
                    removed.append(TopicIdPartition(previous.topic_id, tp))
                    # Without an id it can only be forgotten by name.
                    can_use_topic_ids &= previous.topic_id.int != 0
                continue
            to_send[tp] = session[tp] = data
            if data.topic_id.int == 0:
                self._without_topic_id += 1
            elif previous is None or (
                previous.topic_id is not data.topic_id
                and previous.topic_id != data.topic_id  # a comparison takes a call
            ):
                self._topic_names[data.topic_id] = tp.topic
                if previous is not None and previous.topic_id.int:
                    self._topic_names.pop(previous.topic_id, None)
                    replaced.append(TopicIdPartition(previous.topic_id, tp))
        can_use_topic_ids &= self._without_topic_id == 0
        self.session_topic_names = self._topic_names if can_use_topic_ids else {}
        request = FetchRequestData(to_send, removed, replaced, session, self._next_metadata, can_use_topic_ids)
        self._log.debug("Fetching from broker %d: %s", self._node_id, request)
        return request

    def response_partitions(
        self, response: FetchResponse, version: int
    ) -> dict[TopicPartition, FetchResponse.PartitionData]:
        """Return the partitions of a response by name, without those whose topic id the session does not know."""
        names = self.session_topic_names
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
        """Process a response. Return its partitions, or None if it does not fit the session and must be ignored."""
        error = for_code(response.error_code)
        if error is not None:
            self._log.info("Broker %d refused a fetch (%s): %s", self._node_id, self._next_metadata, error)
            if isinstance(error, FetchSessionIdNotFoundError):
                self._next_metadata = INITIAL
            else:
                self._next_metadata = self._next_metadata.next_close_existing_attempt_new()
            return None
        partitions = self.response_partitions(response, version)
        full = self._next_metadata.is_full
        if full and not partitions and response.throttle_time_ms > 0:
            # A throttled client gets an empty response even to a full request (KIP-219).
            self._next_metadata = INITIAL
            return None
        # An incremental response without partitions, as an idle consumer gets them, fits any session.
        if (full or response.responses) and (problem := self._problem(partitions, response, version, full)):
            self._log.info(
                "The response of broker %d does not fit the fetch (%s): %s",
                self._node_id,
                self._next_metadata,
                problem,
            )
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
        """Return the mismatch between the partitions of the response and of the session; empty if there is none."""
        session = self._session_partitions
        problems = []
        extra = [tp for tp in partitions if tp not in session]
        if extra:
            problems.append(f"partitions that are not of the session: {_join(extra)}")
        if full and len(partitions) - len(extra) < len(session):
            problems.append(f"partitions left out: {_join(tp for tp in session if tp not in partitions)}")
        if version >= TOPIC_ID_VERSION:
            names = self.session_topic_names
            ids = [topic.topic_id for topic in response.responses]
            unknown = [topic_id for topic_id in ids if topic_id not in names and topic_id.int]
            if unknown:
                problems.append(f"unknown topic ids: {_join(unknown)}")
        return "; ".join(problems)

    def next_epoch(self) -> int:
        """Move on to the epoch of the next request, after an empty response to an incremental one; return the epoch."""
        self._next_metadata = self._next_metadata.next_incremental()
        return self._next_metadata.epoch

    @property
    def epoch(self) -> int:
        """The epoch of the request in flight, or else of the next one."""
        return self._next_metadata.epoch

    def skip_epochs(self, count: int) -> None:
        """Move on by ``count`` epochs, none of which is the largest."""
        self._next_metadata = FetchMetadata(self._next_metadata.session_id, self._next_metadata.epoch + count)

    def notify_close(self) -> None:
        """Make the next request end the session."""
        self._next_metadata = self._next_metadata.next_close_existing()

    def handle_error(self, error: Exception) -> None:
        """Start a new session: the request failed or got no response, so the broker's state is unknown."""
        # Only debug: the network client logs lost connections, once for each outage.
        self._log.debug("A fetch (%s) from broker %d failed: %s", self._next_metadata, self._node_id, error)
        self._next_metadata = self._next_metadata.next_close_existing_attempt_new()


def _join(things: Iterable[object]) -> str:
    return ", ".join(map(str, things))
