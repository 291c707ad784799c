"""Lookups of offsets, and resets and validations of positions (Java: OffsetsRequestManager).

Java: OffsetFetcherUtils and ListOffsetsRequest; for validation with the leader's log (KIP-320),
OffsetsForLeaderEpochUtils and PositionsValidator.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pykclient import errors
from pykclient.clock import FOREVER_MS
from pykclient.consumer.application_driver import NOTHING, PollResult, RequestFuture, TimedOperation, UnsentRequest
from pykclient.consumer.fetch_collector import MENDED_BY_METADATA
from pykclient.consumer.subscription_state import FetchPosition
from pykclient.consumer.values import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, READ_COMMITTED
from pykclient.errors import (
    InvalidMetadataError,
    KafkaError,
    LogTruncationError,
    RetriableError,
    TopicAuthorizationError,
)
from pykclient.network.client_request import RequestBuilder
from pykclient.network.failures import topics_denied
from pykclient.protocol.messages.list_offsets import ListOffsetsRequest
from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from pykclient.types import UNKNOWN_EPOCH, UNKNOWN_OFFSET, Node, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.fetch_collector import FetchContext
    from pykclient.consumer.subscription_state import LogTruncation
    from pykclient.consumer.values import AutoOffsetResetStrategy
    from pykclient.log_context import PrefixLogger
    from pykclient.network.client_request import ClientResponse
    from pykclient.network.cluster_connection_states import ApiVersions
    from pykclient.protocol.messages.list_offsets import ListOffsetsResponse
    from pykclient.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

#: After these errors a retry, or another leader, may succeed.
RETRIED = {code for code, level in MENDED_BY_METADATA.items() if level == logging.DEBUG} | {
    errors.UnknownLeaderEpochError.code
}
_CONSUMER_REPLICA_ID = -1


class ListOffsetResult(NamedTuple):
    """The offsets that were found, and the partitions to retry. Partitions in neither have no such offset."""

    fetched_offsets: dict[TopicPartition, OffsetAndTimestamp]
    partitions_to_retry: set[TopicPartition]


def list_offsets_builder(
    partitions: Mapping[TopicPartition, ListOffsetsRequest.ListOffsetsPartition],
    isolation_level: int,
    require_timestamps: bool,
    timeout_ms: int,
) -> RequestBuilder:
    """Return a request for one node, limited to versions that support its timestamps."""
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for tp, partition in partitions.items():
        topics.setdefault(tp.topic, ListOffsetsRequest.ListOffsetsTopic(name=tp.topic)).partitions.append(partition)
    oldest = ListOffsetsRequest.VERSIONS[0]
    if isolation_level == READ_COMMITTED:
        oldest = max(oldest, 2)
    elif require_timestamps:
        oldest = max(oldest, 1)
    request = ListOffsetsRequest(
        replica_id=_CONSUMER_REPLICA_ID,
        isolation_level=isolation_level,
        topics=topics.values(),
        timeout_ms=timeout_ms,
    )
    return RequestBuilder(request, min_version=oldest)


def _sorted_out(
    log: PrefixLogger, answers: Iterable[tuple[TopicPartition, Any]], what: str, *denied: str
) -> tuple[dict[TopicPartition, Any], set[TopicPartition]]:
    """Return the answers for partitions that have no error, and the partitions to retry.

    ``denied`` are the arguments of ``topics_denied`` after the topics.

    Raises:
        TopicAuthorizationError: the consumer may not use a topic.
    """
    found: dict[TopicPartition, Any] = {}
    retry: set[TopicPartition] = set()
    unauthorized: set[str] = set()
    for tp, answer in answers:
        code = answer.error_code
        if not code:
            found[tp] = answer
        elif code == errors.UnsupportedForMessageFormatError.code:
            # Messages from before Kafka 0.10 have no timestamps, so none matches.
            log.debug("Cannot search %s by timestamp: its messages have none", tp)
        elif code == TopicAuthorizationError.code:
            unauthorized.add(tp.topic)
        else:
            tell = log.debug if code in RETRIED else log.warning
            tell("The %s of %s will be retried: %s", what, tp, errors.for_code(code))
            retry.add(tp)
    if unauthorized:
        raise topics_denied(log.principal, unauthorized, *denied)
    return found, retry


def _list_offset_result(log: PrefixLogger, response: ListOffsetsResponse) -> ListOffsetResult:
    """Sort a response's partitions into found and to be retried.

    Raises:
        TopicAuthorizationError: the consumer may not describe a topic.
    """
    answers = (
        (TopicPartition(topic.name, partition.partition_index), partition)
        for topic in response.topics
        for partition in topic.partitions
    )
    found, retry = _sorted_out(log, answers, "offset lookup", "DESCRIBE", "to look up offsets")
    offsets = {
        tp: OffsetAndTimestamp(each.offset, each.timestamp, each.leader_epoch)
        for tp, each in found.items()
        if each.offset != UNKNOWN_OFFSET
    }
    return ListOffsetResult(offsets, retry)


#: From this version on (Kafka 2.3), permission to read a topic is enough. Before, a consumer could not use it.
_MIN_VERSION = 3


def can_validate(api_versions: ApiVersions, node: Node | None) -> bool:
    """Return whether ``node`` supports the request. It is assumed to if its API versions are unknown."""
    versions = None if node is None else api_versions.get(node.id_string)
    if versions is None:
        return True
    supported = versions.api_version(OffsetForLeaderEpochRequest.API_KEY)
    return supported is not None and supported.max_version >= _MIN_VERSION


def prepare_request(positions: Mapping[TopicPartition, FetchPosition]) -> RequestBuilder:
    """Return the request for all positions that have an epoch."""
    topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
    for tp, position in positions.items():
        if position.offset_epoch is None:
            continue
        topic = topics.setdefault(tp.topic, OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=tp.topic))
        current = position.current_leader.epoch
        topic.partitions.append(
            OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                partition=tp.partition,
                current_leader_epoch=UNKNOWN_EPOCH if current is None else current,
                leader_epoch=position.offset_epoch,
            )
        )
    # -1 is an ordinary consumer; the schema's default, -2, is a debugging one.
    return RequestBuilder(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics.values()), min_version=_MIN_VERSION)


class _Lookup(TimedOperation[Any]):
    """A request of the application for offsets, from its first attempt to its result. Thread: application.

    ``convert`` makes the result from what was found.
    """

    def __init__(
        self,
        timestamps: Mapping[TopicPartition, int],
        timeout_ms: int,
        convert: Callable[[dict[TopicPartition, OffsetAndTimestamp]], Any],
        *,
        require_timestamps: bool,
    ) -> None:
        super().__init__(timeout_ms)
        self.remaining = dict(timestamps)
        self.found: dict[TopicPartition, OffsetAndTimestamp] = {}
        self.convert = convert
        self.require_timestamps = require_timestamps
        self.metadata_version = -1  # the next attempt needs newer metadata than this


class OffsetsRequestManager:
    """Sends requests for offsets to the leaders.

    ``reset_positions_if_needed`` and ``validate_positions_if_needed`` start resets and validations, which end while the
    consumer polls. The next such call raises their permanent errors. The lookups return futures, which fail with
    KafkaTimeoutError if not all offsets arrive within ``timeout_ms`` from the next poll on. A future that is given up
    ends its lookup.

    Thread: application.
    """

    runs_in_background = False
    pending = True

    def __init__(
        self,
        context: FetchContext,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        isolation_level: int,
    ) -> None:
        self._log = context.log_context.logger(__name__)
        self._client = context.client
        self._metadata = context.metadata
        self._subscriptions = context.subscriptions
        self._clock = context.clock
        self._api_versions = context.api_versions
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._isolation_level = isolation_level
        #: The metadata that positions were compared with last.
        self.metadata_version = -1
        #: The result of the next ``take_recreated``.
        self.recreated: set[TopicPartition] = set()
        self._error: Exception | None = None  # of a reset or validation
        self._requests: list[UnsentRequest] = []  # for the next poll
        self._lookups: list[_Lookup] = []

    # --- request manager -------------------------------------------------------------------------------------------

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now, and fail lookups that have timed out."""
        if not self._requests and not self._lookups:
            return NOTHING
        wait_ms = min([self._advance(lookup, now_ms) for lookup in self._lookups.copy()], default=FOREVER_MS)
        requests, self._requests = self._requests, []
        return PollResult(wait_ms, requests)

    def reset(self) -> None:
        """Forget all requests and lookups, and let resets and validations start again after ``retry.backoff.ms``."""
        self._requests = []
        self._lookups = []
        self._metadata.clear_transient_topics()
        assigned = self._subscriptions.assigned_partitions_list()
        self._subscriptions.set_next_allowed_retry(assigned, self._clock.now_ms() + self._retry_backoff_ms)
        for tp in assigned:
            self._subscriptions.maybe_clear_partition_end_offset_requested(tp)

    # --- reset -----------------------------------------------------------------------------------------------------

    def reset_positions_if_needed(self) -> None:
        """Request the offsets of all partitions that wait for a reset.

        Raises:
            NoOffsetForPartitionError: a partition has no position, its reset policy is ``none``, and the error is not
                kept for a call that asks for the partition.
            KafkaError: an earlier reset failed.
        """
        self._raise_error()
        if not self._subscriptions.without_position:
            return
        strategies: dict[TopicPartition, AutoOffsetResetStrategy] = {}
        timestamps: dict[TopicPartition, int] = {}
        missing: list[TopicPartition] = []
        wall_ms = self._clock.wall_ms()
        for tp in self._subscriptions.partitions_needing_reset(self._clock.now_ms()):
            strategy = self._subscriptions.reset_strategy(tp)
            timestamp = None if strategy is None else strategy.timestamp(wall_ms)
            if strategy is None or timestamp is None:
                missing.append(tp)
            else:
                strategies[tp] = strategy
                timestamps[tp] = timestamp
        self._subscriptions.missing.add(missing)
        if timestamps:
            self._reset_positions_async(timestamps, strategies, {})

    def _reset_positions_async(
        self,
        timestamps: Mapping[TopicPartition, int],
        strategies: Mapping[TopicPartition, AutoOffsetResetStrategy],
        ends: Mapping[TopicPartition, OffsetAndTimestamp],
    ) -> None:
        """Request the offsets at ``timestamps``. For a partition without one, use its entry in ``ends``, if any."""
        topic_ids = self._metadata.topic_ids
        for node, partitions in self._group_by_leader(timestamps, set()).items():
            asked = {tp: timestamps[tp] for tp in partitions}
            self._send_reset(node, partitions).add_listener(
                partial(self._on_reset_response, asked, topic_ids, strategies, ends),
                partial(self._on_failure, partitions),
            )

    def _send_reset(
        self, node: Node, partitions: Mapping[TopicPartition, ListOffsetsRequest.ListOffsetsPartition]
    ) -> RequestFuture[ListOffsetResult]:
        self._subscriptions.set_next_allowed_retry(partitions, self._clock.now_ms() + self._request_timeout_ms)
        return self._send_list_offsets(node, partitions, False)

    def _on_reset_response(
        self,
        asked: Mapping[TopicPartition, int],
        topic_ids: Mapping[str, UUID],
        strategies: Mapping[TopicPartition, AutoOffsetResetStrategy],
        ends: Mapping[TopicPartition, OffsetAndTimestamp],
        result: ListOffsetResult,
    ) -> None:
        retry = result.partitions_to_retry | self._of_other_topics(asked, topic_ids)
        self._retry_later(retry)
        too_young: dict[TopicPartition, int] = {}
        for tp, timestamp in asked.items():
            if tp in retry:
                continue
            data = result.fetched_offsets.get(tp) or ends.get(tp)
            if data is not None:
                self._reset_position(tp, strategies.get(tp), data)
            elif self._subscriptions.is_assigned(tp) and self._subscriptions.is_offset_reset_needed(tp):
                too_young[tp] = timestamp
        if too_young:
            self._reset_to_end(too_young, strategies)

    def _of_other_topics(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, UUID]
    ) -> set[TopicPartition]:
        """Return the partitions whose topic had another id in ``topic_ids``, as it was deleted and created again."""
        now = self._metadata.topic_ids
        if now is topic_ids:
            return set()
        return {tp for tp in partitions if topic_ids.get(tp.topic) != now.get(tp.topic)}

    def _reset_to_end(
        self, timestamps: Mapping[TopicPartition, int], strategies: Mapping[TopicPartition, AutoOffsetResetStrategy]
    ) -> None:
        """Reset to the end, because no record is as late as ``by_duration`` asks for.

        A record may be written while the end is looked up, and must not be skipped. So once the end is known, the
        timestamp is looked up again: if there is still no such record, none lies before that end.
        """

        topic_ids = self._metadata.topic_ids

        def ask_again(result: ListOffsetResult) -> None:
            retry = result.partitions_to_retry | self._of_other_topics(result.fetched_offsets, topic_ids)
            self._retry_later(retry)
            ends = {tp: end for tp, end in result.fetched_offsets.items() if tp not in retry}
            again = {tp: timestamps[tp] for tp in ends if self._subscriptions.is_assigned(tp)}
            try:
                self._reset_positions_async(again, strategies, ends)
            except KafkaError as error:
                self._on_failure(again.keys(), error)

        try:
            by_leader = self._group_by_leader(dict.fromkeys(timestamps, LATEST_TIMESTAMP), set())
        except KafkaError as error:
            self._on_failure(timestamps.keys(), error)
            return
        for node, partitions in by_leader.items():
            self._send_reset(node, partitions).add_listener(ask_again, partial(self._on_failure, partitions))

    def _on_failure(self, partitions: Collection[TopicPartition], error: Exception) -> None:
        self._retry_later(partitions)
        if not isinstance(error, RetriableError):
            self._keep_error(error)

    def _keep_error(self, error: Exception) -> None:
        """Let the next poll raise ``error``."""
        if self._error is None:
            self._error = error
        else:
            self._log.error("Another error is raised first, so this one of looking up positions is lost: %s", error)

    def _raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _reset_position(
        self, tp: TopicPartition, strategy: AutoOffsetResetStrategy | None, data: OffsetAndTimestamp
    ) -> None:
        if data.leader_epoch != UNKNOWN_EPOCH:
            self._metadata.update_last_seen_epoch_if_newer(tp, data.leader_epoch)
        # Without an epoch there is nothing to validate: the offset comes from the current leader.
        topic_id = self._metadata.topic_ids.get(tp.topic)
        position = FetchPosition(data.offset, None, self._metadata.current_leader(tp), topic_id)
        self._subscriptions.maybe_seek_unvalidated(tp, position, strategy)

    def _retry_later(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._subscriptions.request_failed(partitions, self._clock.now_ms() + self._retry_backoff_ms)
            self._metadata.request_update(False)

    # --- validation (KIP-320) ----------------------------------------------------------------------------------------

    def can_skip_update_fetch_positions(self) -> bool:
        """Return whether every assigned partition has a valid position, as far as the metadata shows."""
        return (
            self._error is None
            and self.metadata_version == self._metadata.update_version
            and not self._subscriptions.without_position
        )

    def validate_positions_on_metadata_change(self) -> None:
        """Compare all positions with the topic ids and leaders in the metadata, once per update."""
        version = self._metadata.update_version
        if version == self.metadata_version:
            return
        self.metadata_version = version
        snapshot = self._metadata.fetch_metadata_snapshot()
        recreated: dict[str, dict[TopicPartition, FetchPosition]] = {}
        for tp in self._subscriptions.assigned_partitions_list():
            topic_id = snapshot.cluster.topic_ids.get(tp.topic)
            # A missing topic is not one without an id: it may be back in the next update.
            if topic_id is not None or snapshot.partition_metadata(tp) is not None:
                position = self._subscriptions.update_topic_id(tp, topic_id)
                if position is not None:
                    recreated.setdefault(tp.topic, {})[tp] = position
            leader = self._metadata.current_leader(tp)
            self._subscriptions.maybe_validate_position_for_current_leader(
                tp, leader, can_validate=can_validate(self._api_versions, leader.leader)
            )

        for topic, positions in recreated.items():
            self._warn_of_new_topic(topic, positions)
            self.recreated.update(positions)

    def _warn_of_new_topic(self, topic: str, positions: Mapping[TopicPartition, FetchPosition]) -> None:
        known = ", ".join(f"{tp}: {position.offset}" for tp, position in sorted(positions.items()))
        if self._subscriptions.has_default_offset_reset_policy():
            then = f"reading continues at auto.offset.reset={self._subscriptions.default_reset_strategy}"
        else:
            then = "poll() raises until seek() is called, as auto.offset.reset is 'none'"
        self._log.warning(
            "Topic %s was deleted and created again; the positions in the deleted topic (%s) are dropped, and %s",
            topic,
            known,
            then,
        )

    def take_recreated(self) -> set[TopicPartition]:
        """Return and clear the partitions that were reset because their topic was re-created."""
        recreated, self.recreated = self.recreated, set()
        return recreated

    def validate_positions_if_needed(self) -> None:
        """Ask new leaders whether their logs still have the consumed records, after a backoff where an attempt failed.

        Raises:
            KafkaError: an earlier reset or validation failed.
        """
        self._raise_error()
        self.validate_positions_on_metadata_change()
        if not self._subscriptions.without_position:
            return
        by_leader: dict[Node, dict[TopicPartition, FetchPosition]] = {}
        for tp, position in self._subscriptions.partitions_needing_validation(self._clock.now_ms()).items():
            if position.current_leader.leader is not None:
                by_leader.setdefault(position.current_leader.leader, {})[tp] = position
        for node, positions in by_leader.items():
            self._validate_positions_async(node, positions)

    def _validate_positions_async(self, node: Node, positions: dict[TopicPartition, FetchPosition]) -> None:
        if self._api_versions.get(node.id_string) is None:
            # Its API versions are known once it is connected.
            self._client.try_connect(node)
            return
        if not can_validate(self._api_versions, node):
            self._log.debug(
                "Broker %d is too old (before Kafka 2.3) to validate positions; they count as valid", node.id
            )
            for tp in positions:
                self._subscriptions.complete_validation(tp)
            return
        self._subscriptions.set_next_allowed_retry(positions, self._clock.now_ms() + self._request_timeout_ms)
        request = UnsentRequest(prepare_request(positions), node)
        request.future.add_listener(
            partial(self._on_validation_response, positions), partial(self._on_failure, positions)
        )
        self._requests.append(request)
        self._client.managers.poll_soon()

    def _on_validation_response(
        self, positions: Mapping[TopicPartition, FetchPosition], response: ClientResponse
    ) -> None:
        body: OffsetForLeaderEpochResponse = response.response_body
        answers = {
            TopicPartition(topic.topic, partition.partition): partition
            for topic in body.topics
            for partition in topic.partitions
        }
        for tp in answers.keys() - positions.keys():
            self._log.warning("Ignoring the end of a leader epoch of %s, which was not requested", tp)
            del answers[tp]
        try:
            found, _ = _sorted_out(self._log, answers.items(), "validation", "READ")
        except TopicAuthorizationError as error:
            self._on_failure(positions, error)
            return
        self._retry_later([tp for tp in positions if tp not in found])
        truncations = []
        for tp, end in found.items():
            truncation = self._subscriptions.maybe_complete_validation(
                tp, positions[tp], end.end_offset, end.leader_epoch
            )
            if truncation is not None:
                truncations.append(truncation)
        if truncations:
            self._keep_error(_log_truncation_error(truncations))

    # --- lookups for the application -------------------------------------------------------------------------------

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int], timeout_ms: int
    ) -> RequestFuture[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Look up the first offset at or after each timestamp (ms since the epoch); None if there is none."""
        missing = dict.fromkeys(timestamps)
        return self._look_up(
            _Lookup(timestamps, timeout_ms, lambda found: {**missing, **found}, require_timestamps=True)
        )

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> RequestFuture[dict[TopicPartition, int]]:
        """Look up the first offset of each partition."""
        wanted = dict.fromkeys(partitions, EARLIEST_TIMESTAMP)
        return self._look_up(_Lookup(wanted, timeout_ms, _offsets_only, require_timestamps=False))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> RequestFuture[dict[TopicPartition, int]]:
        """Look up the offset after the last record of each partition that the isolation level allows to read."""

        def convert(found: dict[TopicPartition, OffsetAndTimestamp]) -> dict[TopicPartition, int]:
            self._update_subscription_state(found)
            return _offsets_only(found)

        wanted = dict.fromkeys(partitions, LATEST_TIMESTAMP)
        return self._look_up(_Lookup(wanted, timeout_ms, convert, require_timestamps=False))

    def current_lag(self, tp: TopicPartition) -> int | None:
        """Return the number of records between position and end. If unknown, return None and request the end."""
        lag, _ = self._subscriptions.lag_and_lead(tp, self._isolation_level)
        if (
            lag is None
            and self._subscriptions.partition_end_offset(tp, self._isolation_level) is None
            and not self._subscriptions.partition_end_offset_requested(tp)
        ):
            self._log.debug("Requesting the end offset of %s to compute its lag", tp)
            self._subscriptions.request_partition_end_offset(tp)
            future = self._send_list_offsets_requests({tp: LATEST_TIMESTAMP}, False)
            future.add_listener(
                lambda result: self._on_end_offset(tp, result),
                lambda _error: self._subscriptions.maybe_clear_partition_end_offset_requested(tp),
            )
        return lag

    def _on_end_offset(self, tp: TopicPartition, result: ListOffsetResult) -> None:
        self._update_subscription_state(result.fetched_offsets)
        self._subscriptions.maybe_clear_partition_end_offset_requested(tp)

    def _look_up(self, lookup: _Lookup) -> RequestFuture[Any]:
        if not lookup.remaining:
            return RequestFuture.success(lookup.convert({}))
        self._metadata.add_transient_topics(tp.topic for tp in lookup.remaining)
        self._lookups.append(lookup)
        self._client.managers.poll_soon()
        lookup.future.add_listener(lambda _: self._end(lookup), lambda _: self._end(lookup))
        return lookup.future

    def _end(self, lookup: _Lookup) -> None:
        if lookup in self._lookups:
            self._lookups.remove(lookup)
        if not self._lookups:
            self._metadata.clear_transient_topics()

    def _advance(self, lookup: _Lookup, now_ms: int) -> int:
        """Start the lookup's next attempt if it is due; return the milliseconds until its time is over."""
        if lookup.is_over(now_ms):
            names = ", ".join(map(str, sorted(lookup.remaining)))
            reason = self._client.connection_report() or lookup.last_error or "no answer"
            lookup.time_out(f"no offsets of {names}", reason)
            return FOREVER_MS
        if not lookup.in_flight and self._metadata.update_version > lookup.metadata_version:
            lookup.in_flight = True
            try:
                future = self._send_list_offsets_requests(lookup.remaining, lookup.require_timestamps)
            except KafkaError as error:  # of a failed authentication
                future = RequestFuture.failure(error)
            future.add_listener(partial(self._on_found, lookup), partial(self._on_lookup_failure, lookup))
        return lookup.left_ms(now_ms)

    def _on_found(self, lookup: _Lookup, result: ListOffsetResult) -> None:
        lookup.found.update(result.fetched_offsets)
        lookup.remaining = {tp: lookup.remaining[tp] for tp in result.partitions_to_retry}
        if lookup.remaining:
            self._await_metadata(lookup)
        else:
            lookup.complete(lookup.convert(lookup.found))

    def _on_lookup_failure(self, lookup: _Lookup, error: Exception) -> None:
        lookup.last_error = error
        if isinstance(error, RetriableError):
            self._await_metadata(lookup)
        else:
            lookup.fail(error)

    def _await_metadata(self, lookup: _Lookup) -> None:
        """Delay the next attempt until newer metadata arrives: the leaders have moved or are unknown."""
        lookup.in_flight = False
        lookup.metadata_version = self._metadata.request_update(False)

    def _update_subscription_state(self, found: Mapping[TopicPartition, OffsetAndTimestamp]) -> None:
        """Store the looked-up end offsets, which also give the lag."""
        for tp, data in found.items():
            if self._isolation_level == READ_COMMITTED:
                self._subscriptions.try_updating_offsets(tp, last_stable_offset=data.offset)
            else:
                self._subscriptions.try_updating_offsets(tp, high_watermark=data.offset)

    # --- requests --------------------------------------------------------------------------------------------------

    def _send_list_offsets_requests(
        self, timestamps: Mapping[TopicPartition, int], require_timestamps: bool
    ) -> RequestFuture[ListOffsetResult]:
        """Send one request per leader. Return one future for all, which fails with the first that fails."""
        retry: set[TopicPartition] = set()
        by_node = self._group_by_leader(timestamps, retry)
        if not by_node:
            names = ", ".join(map(str, sorted(retry)))
            return RequestFuture.failure(InvalidMetadataError(f"no leader is known or reachable for {names}"))
        combined: RequestFuture[ListOffsetResult] = RequestFuture()
        total = ListOffsetResult({}, retry)
        missing = len(by_node)

        def on_success(result: ListOffsetResult) -> None:
            nonlocal missing
            missing -= 1
            total.fetched_offsets.update(result.fetched_offsets)
            total.partitions_to_retry.update(result.partitions_to_retry)
            if not missing and not combined.is_done:
                combined.complete(total)

        def on_failure(error: Exception) -> None:
            if not combined.is_done:
                combined.raise_error(error)

        for node, partitions in by_node.items():
            self._send_list_offsets(node, partitions, require_timestamps).add_listener(on_success, on_failure)
        return combined

    def _group_by_leader(
        self, timestamps: Mapping[TopicPartition, int], retry: set[TopicPartition]
    ) -> dict[Node, dict[TopicPartition, ListOffsetsRequest.ListOffsetsPartition]]:
        """Return the lookups by leader. Add partitions with an unknown or unavailable leader to ``retry``."""
        by_node: dict[Node, dict[TopicPartition, ListOffsetsRequest.ListOffsetsPartition]] = {}
        for tp, timestamp in timestamps.items():
            leader, epoch = self._metadata.current_leader(tp)
            if leader is None:
                self._log.debug("Requesting metadata, as the leader of %s is unknown", tp)
                self._metadata.request_update(True)
                retry.add(tp)
            elif self._client.is_unavailable(leader):
                self._client.maybe_throw_auth_failure(leader)
                retry.add(tp)
            else:
                by_node.setdefault(leader, {})[tp] = ListOffsetsRequest.ListOffsetsPartition(
                    partition_index=tp.partition,
                    timestamp=timestamp,
                    current_leader_epoch=UNKNOWN_EPOCH if epoch is None else epoch,
                )
        return by_node

    def _send_list_offsets(
        self,
        node: Node,
        partitions: Mapping[TopicPartition, ListOffsetsRequest.ListOffsetsPartition],
        require_timestamps: bool,
    ) -> RequestFuture[ListOffsetResult]:
        builder = list_offsets_builder(partitions, self._isolation_level, require_timestamps, self._request_timeout_ms)

        def on_success(response: ClientResponse, future: RequestFuture[ListOffsetResult]) -> None:
            try:
                result = _list_offset_result(self._log, response.response_body)
            except TopicAuthorizationError as error:
                future.raise_error(error)
            else:
                future.complete(result)

        request = UnsentRequest(builder, node)
        self._requests.append(request)
        self._client.managers.poll_soon()
        return request.future.compose(on_success)


def _offsets_only(found: Mapping[TopicPartition, OffsetAndTimestamp]) -> dict[TopicPartition, int]:
    return {tp: data.offset for tp, data in found.items()}


def _log_truncation_error(truncations: Iterable[LogTruncation]) -> KafkaError:
    divergent = {each.topic_partition: each.divergent_offset for each in truncations if each.divergent_offset}
    positions = {each.topic_partition: each.fetch_position.offset for each in truncations}
    names = ", ".join(
        f"{tp} (position {offset}, agrees up to {divergent[tp].offset if tp in divergent else 'an unknown offset'})"
        for tp, offset in sorted(positions.items())
    )
    return LogTruncationError(
        f"records that were read are no longer in the log of {names}; seek() to the offset to continue at",
        divergent,
        positions,
    )
