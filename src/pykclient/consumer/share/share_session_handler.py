"""A share session with one broker (Java: ShareSessionHandler).

The first request of a session has epoch 0 and names all partitions. Later ones name only what has changed. The last one
has epoch -1; the broker then releases the locks of all records that it has delivered in the session. If the epochs of
both sides do not match, a new session begins.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from pykclient.consumer.share.share_fetch import BATCH_OPTIMIZED, RECORD_LIMIT
from pykclient.errors import (
    InvalidShareSessionEpochError,
    ShareSessionLimitReachedError,
    ShareSessionNotFoundError,
)
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.share_acknowledge import ShareAcknowledgeRequest
from pykclient.protocol.messages.share_fetch import ShareFetchRequest

if TYPE_CHECKING:
    from uuid import UUID

    from pykclient.consumer.share.acknowledgements import Acknowledgements
    from pykclient.consumer.share.share_fetch import ShareFetchConfig
    from pykclient.errors import KafkaError
    from pykclient.log_context import LogContext
    from pykclient.types import TopicIdPartition, TopicPartition

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1

#: The version that can renew locks (KIP-1222) and limit the number of records (KIP-1206).
_RENEWALS_AND_LIMITS = 2

_SESSION_LOST = (ShareSessionNotFoundError, InvalidShareSessionEpochError, ShareSessionLimitReachedError)

#: Acknowledgements by partition.
AcknowledgementMap = Mapping["TopicIdPartition", "Acknowledgements"]


class ShareSessionHandler:
    """The client's side of one session.

    After each request, call ``handle_response`` or ``handle_error`` before you build the next.

    Thread: owner.
    """

    __slots__ = ("_group_id", "_log", "_member_id", "_node_id", "_partitions", "epoch")

    def __init__(self, log_context: LogContext, node_id: int, group_id: str, member_id: str) -> None:
        self._log = log_context.logger(__name__)
        self._node_id = node_id
        self._group_id = group_id
        self._member_id = member_id
        self.epoch = INITIAL_EPOCH  # of the next request
        self._partitions: dict[TopicPartition, TopicIdPartition] = {}

    @property
    def is_new(self) -> bool:
        """True if the next request begins a session. It cannot have acknowledgements."""
        return self.epoch == INITIAL_EPOCH

    @property
    def partitions(self) -> Collection[TopicIdPartition]:
        """The partitions of the session."""
        return self._partitions.values()

    def build_fetch(
        self,
        wanted: Collection[TopicIdPartition],
        acknowledgements: AcknowledgementMap,
        config: ShareFetchConfig,
        *,
        takes_records: bool = True,
    ) -> RequestBuilder | None:
        """Return a request that sets the session's partitions to exactly ``wanted``.

        Without ``takes_records`` it asks for no records, and if there is nothing to say, the result is None. A request
        that renews locks asks for no records either, because the broker would hold it back.
        """
        present = {} if self.is_new else self._partitions
        after = {partition.topic_partition: partition for partition in wanted}
        added = [partition for tp, partition in after.items() if present.get(tp) != partition]
        removed = [partition for tp, partition in present.items() if after.get(tp) != partition]
        if not takes_records and not added and not removed and not acknowledgements:
            return None
        self._partitions = after
        renews = _renews(acknowledgements)
        topics: dict[UUID, ShareFetchRequest.FetchTopic] = {}
        for partition in dict.fromkeys((*added, *acknowledgements)):
            topic = topics.setdefault(partition.topic_id, ShareFetchRequest.FetchTopic(topic_id=partition.topic_id))
            data = ShareFetchRequest.FetchPartition(partition_index=partition.partition)
            if partition in acknowledgements:
                data.acknowledgement_batches = [
                    ShareFetchRequest.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=types
                    )
                    for first, last, types in acknowledgements[partition].batches()
                ]
            topic.partitions.append(data)
        forgotten: dict[UUID, ShareFetchRequest.ForgottenTopic] = {}
        for partition in removed:
            forgotten.setdefault(
                partition.topic_id, ShareFetchRequest.ForgottenTopic(topic_id=partition.topic_id)
            ).partitions.append(partition.partition)
        request = ShareFetchRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            max_bytes=0,
            share_acquire_mode=config.acquire_mode,
            is_renew_ack=renews,
            topics=topics.values(),
            forgotten_topics_data=forgotten.values(),
        )
        if takes_records and not renews:
            request.max_wait_ms = config.max_wait_ms
            request.min_bytes = config.min_bytes
            request.max_bytes = config.max_bytes
            request.max_records = request.batch_size = config.max_poll_records
        self._log.debug(
            "Share fetch from broker %d in epoch %d: %d partitions added, %d removed, %d acknowledged",
            self._node_id,
            self.epoch,
            len(added),
            len(removed),
            len(acknowledgements),
        )
        return RequestBuilder(request, _min_version(renews, config.acquire_mode))

    def build_acknowledge(self, acknowledgements: AcknowledgementMap, *, is_last: bool = False) -> RequestBuilder:
        """Return a request that only acknowledges; ``is_last`` ends the session. The session must not be new."""
        if is_last:
            self.epoch = FINAL_EPOCH
        renews = _renews(acknowledgements)
        topics: dict[UUID, ShareAcknowledgeRequest.AcknowledgeTopic] = {}
        for partition, each in acknowledgements.items():
            topic = topics.setdefault(
                partition.topic_id, ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=partition.topic_id)
            )
            topic.partitions.append(
                ShareAcknowledgeRequest.AcknowledgePartition(
                    partition_index=partition.partition,
                    acknowledgement_batches=[
                        ShareAcknowledgeRequest.AcknowledgementBatch(
                            first_offset=first, last_offset=last, acknowledge_types=types
                        )
                        for first, last, types in each.batches()
                    ],
                )
            )
        request = ShareAcknowledgeRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            share_session_epoch=self.epoch,
            is_renew_ack=renews,
            topics=topics.values(),
        )
        return RequestBuilder(request, _min_version(renews, BATCH_OPTIMIZED))

    def handle_response(self, error: KafkaError | None) -> None:
        """Advance to the next epoch, or begin a new session if the top-level ``error`` requires it."""
        if error is not None:
            self._log.info("Broker %d refused a share request in epoch %d: %s", self._node_id, self.epoch, error)
        if isinstance(error, _SESSION_LOST):
            self._begin_anew()
        elif self.epoch != FINAL_EPOCH:
            self.epoch = 1 if self.epoch == _MAX_EPOCH else self.epoch + 1

    def handle_error(self, error: Exception) -> None:
        """Begin a new session: the request has failed or got no answer, so the broker's state is unknown."""
        # Only debug: the network client logs lost connections, once for each outage.
        self._log.debug("A share request to broker %d in epoch %d failed: %s", self._node_id, self.epoch, error)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.epoch = INITIAL_EPOCH
        self._partitions = {}


def _renews(acknowledgements: AcknowledgementMap) -> bool:
    return any(each.has_renewals for each in acknowledgements.values())


def _min_version(renews: bool, acquire_mode: int) -> int | None:
    return _RENEWALS_AND_LIMITS if renews or acquire_mode == RECORD_LIMIT else None
