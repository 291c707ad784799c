"""Followers, which copy the leader's log (Java: ReplicaFetcherThread, ReplicaFetcherManager)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from pykclient import errors
from pykclient.network.client_request import ClientResponse, RequestBuilder
from pykclient.protocol.message import Request
from pykclient.protocol.messages.fetch import FetchRequest, FetchResponse
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from pykclient.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.inter_broker_requests import LoopWorker, grouped
from pykclient.testing.log.log_types import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from pykclient.testing.log.unified_log import UnifiedLog
from pykclient.testing.replica.fetch_session import NO_EPOCH, SESSION_ERRORS, FetchPosition, FollowerFetchSession
from pykclient.testing.replica.partition import Partition, ReplicaHost
from pykclient.types import Node, TopicPartition

#: The follower is finding out where its log diverged from the leader's.
TRUNCATING: Final = "Truncating"

#: The leader does not have the follower's offset; the follower is asking for the bounds of the leader's log.
OUT_OF_RANGE: Final = "OutOfRange"

#: The follower is fetching.
FETCHING: Final = "Fetching"

_MOVES: Final = {
    TRUNCATING: (TRUNCATING, FETCHING),
    FETCHING: (FETCHING, TRUNCATING, OUT_OF_RANGE),
    OUT_OF_RANGE: (OUT_OF_RANGE, FETCHING),
}


@dataclass(eq=False)
class PartitionFetchState:
    """The progress of a follower: the next ``fetch_offset``, and the leader epoch of the record before it.

    The follower does nothing before ``delayed_until_ms``. Thread: loop.
    """

    topic_id: UUID
    fetch_offset: int
    current_leader_epoch: int
    last_fetched_epoch: int
    state: str
    delayed_until_ms: int = 0
    #: The end of the leader's log, while OUT_OF_RANGE; None if not known yet.
    leader_end_offset: int | None = None

    def move(self, state: str) -> None:
        """Change the state.

        Raises:
            IllegalStateError: ``state`` must not follow the current one.
        """
        errors.check_move("a follower", _MOVES, self.state, state)
        self.state = state

    def __repr__(self) -> str:
        return f"PartitionFetchState({self.state} from {self.fetch_offset} in epoch {self.current_leader_epoch})"


#: The interval of checks while a connection is being established.
_CONNECTING_MS: Final = 1_000


class ReplicaFetcherThread(LoopWorker):
    """Follows all partitions led by one other broker, with one request in flight at a time.

    A partition whose log may have diverged from the leader's is truncated first. Leaders since Kafka 2.7 report
    divergence in fetch responses (``diverging_epoch``), which needs no request of its own. For older ones
    (``truncates_on_fetch`` is False) the fetcher sends OffsetsForLeaderEpoch. There is no polling: a response, the end
    of a backoff or a new partition wakes the fetcher. Thread: loop.
    """

    def __init__(self, broker: BrokerContext, manager: ReplicaHost, leader: Node) -> None:
        super().__init__(broker)
        self._manager = manager
        self._leader = leader
        config = broker.config
        self._backoff_ms = config.get_int("replica.fetch.backoff.ms")
        self._request_timeout_ms = config.get_int("request.timeout.ms")
        self._max_wait_ms = config.get_int("replica.fetch.wait.max.ms")
        self._min_bytes = config.get_int("replica.fetch.min.bytes")
        self._max_bytes = config.get_int("replica.fetch.response.max.bytes")
        self._partition_max_bytes = config.get_int("replica.fetch.max.bytes")
        self.truncates_on_fetch = manager.truncates_on_fetch
        self._client, selector = broker.new_network_client(f"replica-fetcher-{leader.id}")
        selector.on_news = self.wakeup
        self._states: dict[TopicPartition, PartitionFetchState] = {}
        self._session = FollowerFetchSession()
        # Partitions whose session state may be wrong, and those that back off after an error.
        self._changed: dict[TopicPartition, None] = {}
        self._delayed: dict[TopicPartition, None] = {}
        # Partitions that are not FETCHING.
        self._unsettled: dict[TopicPartition, None] = {}
        self._handler: Callable[[ClientResponse], None] | None = None  # of the request that is in flight
        self._writing = False
        self._resting_until_ms = 0
        self._receiving = False
        self._running = True

    # --- partitions --------------------------------------------------------------------------------------------------

    @property
    def partition_count(self) -> int:
        return len(self._states)

    def fetch_state(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        return self._states.get(topic_partition)

    def add_partitions(self, initials: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Follow partitions from the ends of their logs."""
        for topic_partition, initial in initials.items():
            log = self._log_of(topic_partition)
            if log is None:
                continue
            epoch = log.latest_epoch
            if epoch is None:
                # Without epochs, only the high watermark shows how far the log equals the leader's.
                log.truncate_to(initial.init_offset)
            settled = epoch is None or self.truncates_on_fetch
            state = PartitionFetchState(
                initial.topic_id,
                log.log_end_offset,
                initial.current_leader_epoch,
                NO_EPOCH if epoch is None else epoch,
                FETCHING if settled else TRUNCATING,
            )
            self._states[topic_partition] = state
            self._changed[topic_partition] = None
            self._delayed.pop(topic_partition, None)
            if settled:
                self._unsettled.pop(topic_partition, None)
            else:
                self._unsettled[topic_partition] = None
        self.wakeup()

    def remove_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop following partitions."""
        for topic_partition in partitions:
            if self._states.pop(topic_partition, None) is not None:
                self._changed[topic_partition] = None
                self._delayed.pop(topic_partition, None)
                self._unsettled.pop(topic_partition, None)

    def shutdown(self) -> None:
        """Stop, and ignore the request in flight."""
        super().shutdown()
        self._states.clear()
        self._broker.close_network_client(self._client)

    # --- work --------------------------------------------------------------------------------------------------------

    def do_work(self) -> None:
        """Process the response that has arrived, and send the next request."""
        self._receiving = True
        try:
            for response in self._client.poll(0, self._broker.loop.now_ms):
                handler, self._handler = self._handler, None
                if handler is not None:
                    handler(response)
        finally:
            self._receiving = False
        if self._handler is None and not self._writing and self._running:
            self._send_next()

    def _send_next(self) -> None:
        """Send the next request, if there is anything to fetch and the leader is reachable."""
        if not self._states and not self._session.positions:
            return
        now_ms = self._broker.loop.now_ms
        if now_ms < self._resting_until_ms:
            self._wake_at(self._resting_until_ms)
            return
        if not self._client.ready(self._leader, now_ms):
            delay_ms = self._client.connection_delay_ms(self._leader, now_ms)
            self._wake_at(now_ms + min(max(1, delay_ms), _CONNECTING_MS))
            return
        if self._delayed:
            self._end_delays(now_ms)
        if not (self._unsettled and self._settle()):
            self._fetch()

    def _send(self, request: Request, handler: Callable[[ClientResponse], None]) -> None:
        now_ms = self._broker.loop.now_ms
        builder = RequestBuilder(request)
        self._client.send(self._client.new_client_request(self._leader.id_string, builder, now_ms, True), now_ms)
        self._handler = handler
        if self._timer is None:
            # For a response that never comes. The timer stays when one comes, which saves a timer per fetch.
            self._wake_at(now_ms + self._request_timeout_ms)

    def _on_timer(self) -> None:
        super()._on_timer()
        if self._handler is not None:
            self._wake_at(self._broker.loop.now_ms + self._request_timeout_ms)

    # --- partitions with errors --------------------------------------------------------------------------------------

    def _rest(self, reason: str) -> None:
        self._log.debug("Fetching from broker %d rests for %d ms: %s", self._leader.id, self._backoff_ms, reason)
        self._resting_until_ms = self._broker.loop.now_ms + self._backoff_ms

    def _delay(self, topic_partition: TopicPartition, reason: object) -> None:
        """Make a partition wait for ``replica.fetch.backoff.ms``."""
        self._log.debug("%s from broker %d is delayed: %s", topic_partition, self._leader.id, reason)
        state = self._states.get(topic_partition)
        if state is not None:
            state.delayed_until_ms = self._broker.loop.now_ms + self._backoff_ms
            self._delayed[topic_partition] = None
            self._changed[topic_partition] = None

    def _end_delays(self, now_ms: int) -> None:
        for topic_partition in list(self._delayed):
            state = self._states[topic_partition]
            if state.delayed_until_ms <= now_ms:
                del self._delayed[topic_partition]
                self._changed[topic_partition] = None
            else:
                self._wake_at(state.delayed_until_ms)

    # --- fetch -------------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        request = FetchRequest(
            replica_state=FetchRequest.ReplicaState(replica_id=self._broker.id, replica_epoch=self._broker.epoch),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            max_bytes=self._max_bytes,
        )
        changed = list(self._states) if self._session.is_full else list(self._changed)
        self._changed.clear()
        if self._session.build(request, self._positions(changed), self._partition_max_bytes):
            self._send(request, self._handle_fetch_response)

    def _positions(self, partitions: Iterable[TopicPartition]) -> Iterator[tuple[TopicPartition, FetchPosition | None]]:
        for topic_partition in partitions:
            state = self._states.get(topic_partition)
            log = self._log_of(topic_partition)
            position = None
            if (
                state is not None
                and log is not None
                and state.state == FETCHING
                and topic_partition not in self._delayed
            ):
                position = FetchPosition(
                    state.topic_id,
                    state.fetch_offset,
                    log.log_start_offset,
                    state.current_leader_epoch,
                    state.last_fetched_epoch if self.truncates_on_fetch else -1,
                )
            yield topic_partition, position

    def _handle_fetch_response(self, response: ClientResponse) -> None:
        body = response.response_body
        if not isinstance(body, FetchResponse):
            self._session.handle_error()
            self._rest("no answer")
            return
        if not self._session.handle_response(body):
            if body.error_code not in SESSION_ERRORS:
                self._rest(str(errors.for_code(body.error_code)))
            return
        if any(data.records for topic in body.responses for data in topic.partitions):
            self._writing = True
            self._manager.disk_queue.submit(self._write, body)
        elif body.responses:
            self._process(body)

    def _write(self, body: FetchResponse) -> None:
        self._writing = False
        if self._running:
            self._process(body)
            if not self._receiving:
                # The disk was slow, and nothing else continues from here.
                self.wakeup()

    def _process(self, body: FetchResponse) -> None:
        for topic in body.responses:
            name = self._session.topic_name(topic.topic_id)
            if name is None:
                continue
            for data in topic.partitions:
                topic_partition = TopicPartition(name, data.partition_index)
                state = self._states.get(topic_partition)
                asked = self._session.positions.get(topic_partition)
                partition = self._manager.partition(topic_partition)
                if (
                    state is None
                    or asked is None
                    or partition is None
                    or partition.log is None
                    or state.state != FETCHING
                    or asked.fetch_offset != state.fetch_offset
                    or asked.current_leader_epoch != state.current_leader_epoch
                ):
                    continue  # no longer followed in this epoch
                if data.error_code:
                    self._handle_partition_error(topic_partition, state, data.error_code)
                    continue
                try:
                    self._process_partition_data(partition, partition.log, state, data)
                except errors.KafkaError as error:
                    # A full disk, corrupt records ...; the other partitions must not suffer.
                    self._delay(topic_partition, error)
        self._manager.complete_delayed()

    def _process_partition_data(
        self, partition: Partition, log: UnifiedLog, state: PartitionFetchState, data: FetchResponse.PartitionData
    ) -> None:
        topic_partition = log.topic_partition
        if data.diverging_epoch.epoch >= 0:
            self._truncate(log, state, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return
        high_watermark = log.high_watermark
        if data.records:
            info = partition.append_records_to_follower(data.records, state.current_leader_epoch)
            if info is None:
                return
            state.fetch_offset = log.log_end_offset
            if info.last_leader_epoch is not None:
                state.last_fetched_epoch = info.last_leader_epoch
            self._changed[topic_partition] = None
        if log.update_high_watermark(data.high_watermark) != high_watermark:
            # Consumers that read from this follower wait for it (KIP-392).
            self._manager.partition_changed(topic_partition)
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            log.maybe_increment_log_start_offset(data.log_start_offset)
            self._changed[topic_partition] = None

    def _handle_partition_error(self, topic_partition: TopicPartition, state: PartitionFetchState, code: int) -> None:
        if code == errors.OffsetOutOfRangeError.code and state.state == FETCHING:
            state.move(OUT_OF_RANGE)
            state.leader_end_offset = None
            self._unsettled[topic_partition] = None
            self._changed[topic_partition] = None
        elif code == errors.FencedLeaderEpochError.code:
            # There is a newer leader; the controller is about to announce it to this broker.
            self._log.info("%s: leader epoch %d is over", topic_partition, state.current_leader_epoch)
            self.remove_partitions((topic_partition,))
        else:
            self._delay(topic_partition, errors.for_code(code))

    # --- truncation --------------------------------------------------------------------------------------------------

    def _truncate(self, log: UnifiedLog, state: PartitionFetchState, leader_epoch: int, leader_end_offset: int) -> None:
        """Truncate the log to where it equals the leader's, as far as the leader's end of ``leader_epoch`` shows."""
        offset, completed = offset_truncation_state(log, leader_epoch, leader_end_offset)
        if offset < log.high_watermark:
            self._log.warning("%r is truncated to %d, below its high watermark", log, offset)
        log.truncate_to(offset)
        self._truncated(log, state, is_settled=completed or self.truncates_on_fetch)

    def _truncated(self, log: UnifiedLog, state: PartitionFetchState, *, is_settled: bool) -> None:
        topic_partition = log.topic_partition
        state.fetch_offset = log.log_end_offset
        latest_epoch = log.latest_epoch
        state.last_fetched_epoch = NO_EPOCH if latest_epoch is None else latest_epoch
        if is_settled:
            state.move(FETCHING)
            self._unsettled.pop(topic_partition, None)
        self._changed[topic_partition] = None
        self._manager.partition_changed(topic_partition)

    def _settle(self) -> bool:
        """Ask the leader about partitions that cannot be fetched yet; return whether a request was sent."""
        due = {
            topic_partition: self._states[topic_partition]
            for topic_partition in self._unsettled
            if topic_partition not in self._delayed
        }
        truncating = {topic_partition for topic_partition, state in due.items() if state.state == TRUNCATING}
        if truncating:
            self._send_epochs_request(truncating)
        elif due:
            self._send_list_offsets_request(due)
        return bool(due)

    def _log_of(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        partition = self._manager.partition(topic_partition)
        return None if partition is None else partition.log

    def _send_epochs_request(self, partitions: Iterable[TopicPartition]) -> None:
        asked = {each: self._states[each].current_leader_epoch for each in sorted(partitions)}
        wanted = []
        for topic_partition, current_leader_epoch in asked.items():
            log = self._log_of(topic_partition)
            epoch = None if log is None else log.latest_epoch
            partition = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=topic_partition.partition,
                current_leader_epoch=current_leader_epoch,
                leader_epoch=NO_EPOCH if epoch is None else epoch,
            )
            wanted.append((topic_partition.topic, partition))
        topics = [
            OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=topic, partitions=of_topic)
            for topic, of_topic in grouped(wanted).items()
        ]
        request = OffsetForLeaderEpochRequest(replica_id=self._broker.id, topics=topics)
        self._send(request, lambda response: self._handle_epochs_response(response, asked))

    def _handle_epochs_response(self, response: ClientResponse, asked: Mapping[TopicPartition, int]) -> None:
        body = response.response_body
        if not isinstance(body, OffsetForLeaderEpochResponse):
            self._rest("no answer")
            return
        for topic in body.topics:
            for end in topic.partitions:
                topic_partition = TopicPartition(topic.topic, end.partition)
                state = self._states.get(topic_partition)
                log = self._log_of(topic_partition)
                if state is None or log is None or state.state != TRUNCATING:
                    continue
                if asked.get(topic_partition) != state.current_leader_epoch:
                    continue
                if end.error_code:
                    self._handle_partition_error(topic_partition, state, end.error_code)
                elif end.end_offset < 0:
                    # The leader does not know that epoch: only committed records are sure to be equal.
                    self._truncate(log, state, -1, log.high_watermark)
                else:
                    self._truncate(log, state, end.leader_epoch, end.end_offset)
        self._manager.complete_delayed()

    # --- offsets out of range ----------------------------------------------------------------------------------------

    def _send_list_offsets_request(self, asked: Mapping[TopicPartition, PartitionFetchState]) -> None:
        wanted = grouped(
            (
                topic,
                ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=index,
                    current_leader_epoch=state.current_leader_epoch,
                    timestamp=LATEST_TIMESTAMP if state.leader_end_offset is None else EARLIEST_TIMESTAMP,
                ),
            )
            for (topic, index), state in asked.items()
        )
        topics = [ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=found) for topic, found in wanted.items()]
        request = ListOffsetsRequest(replica_id=self._broker.id, topics=topics)
        self._send(request, lambda response: self._handle_list_offsets_response(response, asked))

    def _handle_list_offsets_response(
        self, response: ClientResponse, asked: Mapping[TopicPartition, PartitionFetchState]
    ) -> None:
        body = response.response_body
        if not isinstance(body, ListOffsetsResponse):
            self._rest("no answer")
            return
        for topic in body.topics:
            for answer in topic.partitions:
                topic_partition = TopicPartition(topic.name, answer.partition_index)
                state = self._states.get(topic_partition)
                log = self._log_of(topic_partition)
                if state is None or log is None or asked.get(topic_partition) is not state:
                    continue
                if answer.error_code:
                    self._handle_partition_error(topic_partition, state, answer.error_code)
                    continue
                try:
                    self._fetch_offset_and_truncate(log, state, answer.offset)
                except errors.BrokerError as error:
                    self._delay(topic_partition, error)
        self._manager.complete_delayed()

    def _fetch_offset_and_truncate(self, log: UnifiedLog, state: PartitionFetchState, offset: int) -> None:
        """Return to the leader's range, first by its end and, if that is beyond this log's end, by its start.

        A leader with a shorter log was elected uncleanly. A leader that begins later has deleted the records missing
        here.
        """
        if state.leader_end_offset is None:
            if offset >= log.log_end_offset:
                state.leader_end_offset = offset
                return
            self._log.warning("The leader's log ends with %d, before this %r", offset, log)
            log.truncate_to(offset)
        elif offset > log.log_end_offset:
            log.truncate_fully_and_start_at(offset)
        state.leader_end_offset = None
        self._truncated(log, state, is_settled=True)


def offset_truncation_state(log: UnifiedLog, leader_epoch: int, leader_end_offset: int) -> tuple[int, bool]:
    """Return where to truncate a log, and whether that is final.

    The leader's ``leader_epoch`` ends at ``leader_end_offset``. If this log does not have that epoch, the follower must
    ask about its own last epoch before it (KIP-101, KIP-279).
    """
    end = log.log_end_offset
    if leader_epoch < 0:
        return min(leader_end_offset, end), True
    own = log.end_offset_for_epoch(leader_epoch)
    if own is None:
        return min(leader_end_offset, end), True
    if own.leader_epoch != leader_epoch:
        return min(own.offset, end), False
    return min(own.offset, leader_end_offset, end), True


class InitialFetchState(NamedTuple):
    """The starting point of a follower. ``init_offset`` is its high watermark, for logs without leader epochs."""

    topic_id: UUID
    leader: Node
    current_leader_epoch: int
    init_offset: int


class ReplicaFetcherManager:
    """Assigns each followed partition to the fetcher of its leader. Thread: loop."""

    def __init__(self, broker: BrokerContext, manager: ReplicaHost) -> None:
        self._broker = broker
        self._manager = manager
        self._fetchers: dict[int, ReplicaFetcherThread] = {}

    def add_fetcher_for_partitions(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Start to follow partitions that are not followed."""
        for leader, initials in grouped((each[1].leader, each) for each in partitions.items()).items():
            if leader.id not in self._fetchers:
                self._fetchers[leader.id] = ReplicaFetcherThread(self._broker, self._manager, leader)
            self._fetchers[leader.id].add_partitions(dict(initials))
        for leader_id, fetcher in list(self._fetchers.items()):
            if not fetcher.partition_count:
                fetcher.shutdown()
                del self._fetchers[leader_id]

    def remove_fetcher_for_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop following partitions."""
        partitions = list(partitions)
        for fetcher in self._fetchers.values():
            fetcher.remove_partitions(partitions)

    def fetcher(self, leader_id: int) -> ReplicaFetcherThread | None:
        """Return the fetcher that reads from a broker, if there is one."""
        return self._fetchers.get(leader_id)

    def shutdown(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.shutdown()
        self._fetchers.clear()
