"""Heartbeats of a share group's member, which join, keep and leave the group (Java: ShareHeartbeatRequestManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pykclient import errors
from pykclient.consumer.coordinator.consumer_heartbeat_request_manager import (
    ConsumerHeartbeatRequestManager,
    SentFields,
)
from pykclient.errors import UnsupportedVersionError
from pykclient.network.authorization_errors import group_denied
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.consumer_membership import Beat
    from pykclient.errors import KafkaError


class ShareHeartbeatRequestManager(ConsumerHeartbeatRequestManager):
    """Sends heartbeats, and watches how long the application has been silent.

    Members do not report which partitions they have, because several members have the same ones. Thread: the holder of
    the I/O lease.
    """

    request_name = "ShareGroupHeartbeat"

    def _builder(self, beat: Beat) -> RequestBuilder:
        """Return a request with the fields that have changed since the last one; with all, if the member joins."""
        if beat.is_joining:
            self._sent = SentFields()
        fields: dict[str, Any] = {}
        if not beat.is_leaving:
            subscription = self._subscriptions.subscription()
            if self._sent.subscription is None:
                fields["rack_id"] = self._config.rack_id
            if subscription != self._sent.subscription:
                fields["subscribed_topic_names"] = sorted(subscription)
                self._sent.subscription = subscription
        request = ShareGroupHeartbeatRequest(
            group_id=self._config.group_id, member_id=beat.member_id, member_epoch=beat.member_epoch, **fields
        )
        return RequestBuilder(request)

    def _lost_because(self, beat: Beat, error: errors.BrokerError) -> str:
        if isinstance(error, errors.UnknownMemberIdError):
            return (
                "the coordinator had removed it, most likely as it heard no heartbeat for the group's session timeout "
                "(share.session.timeout.ms; the process was paused, starved of CPU or of the GIL, or cut off)"
            )
        return super()._lost_because(beat, error)

    def _translated(self, error: errors.BrokerError) -> KafkaError:
        """Return an error that says what to do."""
        group_id = self._config.group_id
        if isinstance(error, errors.GroupAuthorizationError):
            return group_denied(self._log.principal, group_id)
        if isinstance(error, errors.GroupMaxSizeReachedError):
            return errors.GroupMaxSizeReachedError(
                f"share group {group_id!r} has as many members as the brokers allow (group.share.max.size)"
            )
        if isinstance(error, errors.GroupIdNotFoundError):
            return errors.GroupIdNotFoundError(
                f"group {group_id!r} is not a share group: {error}. Choose another group.id, or delete that group"
            )
        if isinstance(error, UnsupportedVersionError):
            return UnsupportedVersionError(
                f"the brokers do not serve share groups: {error}. They need Kafka 4.1 or later with the feature "
                "share.version at 1 (kafka-features.sh upgrade --feature share.version=1)"
            )
        return error
