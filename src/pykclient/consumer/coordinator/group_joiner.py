"""JoinGroup and SyncGroup, which lead to an assignment.

Java: the JoinGroup and SyncGroup handlers of AbstractCoordinator. KIP-394 (member ids), KIP-559 (protocol names),
KIP-800 (reasons), KIP-814 (a returning static leader does not assign).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pykclient import errors
from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
from pykclient.consumer.coordinator import group_requests
from pykclient.consumer.coordinator.coordinator_metrics import GroupCoordinatorMetrics
from pykclient.consumer.coordinator.coordinator_request_manager import (
    CoordinatorRequestManager,
    group_authorization_error,
)
from pykclient.consumer.coordinator.group_membership import GroupMembership
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.coordinator.member_state import Generation
from pykclient.consumer.coordinator.response_handler import handled
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import CoordinatorNotAvailableError, RetriableError
from pykclient.log_context import LogContext
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.protocol.messages.sync_group import SyncGroupResponse

#: The coordinator answers JoinGroup within the rebalance timeout; this is added for the network.
JOIN_GROUP_TIMEOUT_LAPSE_MS = 5000


class UnjoinedGroupError(RetriableError):
    """The member left the group while JoinGroup was in flight."""


class GroupProtocol(Protocol):
    """The interface of a kind of group member, such as a consumer. Thread: application."""

    @property
    def protocol_type(self) -> str:
        """The kind, which is equal for all members of a group."""

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        """Return the offered protocols (assignors) with their metadata, the preferred one first."""

    def on_leader_elected(
        self, protocol_name: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], skip_assignment: bool
    ) -> Mapping[str, bytes]:
        """Return each member's assignment, as the leader; nothing with ``skip_assignment``."""


class GroupJoiner:
    """Sends the two requests and processes their responses. Thread: application."""

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: ConsumerNetworkClient,
        membership: GroupMembership,
        finder: CoordinatorRequestManager,
        sensors: GroupCoordinatorMetrics,
        protocol: GroupProtocol,
    ) -> None:
        self._config = config
        self._log = log_context.logger(__name__)
        self._client = client
        self._membership = membership
        self._finder = finder
        self._sensors = sensors
        self._protocol = protocol
        self._offered: Sequence[str] = ()

    # --- JoinGroup ---------------------------------------------------------------------------------------------------

    def send_join_group_request(self) -> RequestFuture[bytes]:
        """Join and sync; the future's value is this member's assignment."""
        node = self._finder.check_and_get()
        if node is None:
            return RequestFuture.failure(CoordinatorNotAvailableError("the group coordinator is not known"))
        config = self._config
        sent, reason = self._membership.begin_rebalance()
        self._log.info("Joining the group%s", f": {reason}" if reason else "")
        protocols = self._protocol.metadata()
        self._offered = [name for name, _ in protocols]
        builder = group_requests.join_group(config, sent, self._protocol.protocol_type, protocols, reason)
        # The coordinator holds the response until all members have joined, or the rebalance timeout has passed.
        timeout_ms = max(
            self._client.default_request_timeout_ms, config.rebalance_timeout_ms + JOIN_GROUP_TIMEOUT_LAPSE_MS
        )
        return handled(
            self._finder,
            self._client.send(node, builder, min(timeout_ms, 2**31 - 1)),
            lambda response, future: self._handle_join(response, future, sent),
            self._sensors.join.record,
        )

    def _handle_join(self, response: JoinGroupResponse, future: RequestFuture[bytes], sent: Generation) -> None:
        error = errors.for_code(response.error_code)
        if error is not None:
            self._join_failed(error, response, future, sent)
            return
        if self._other_protocol_type(response.protocol_type):
            future.raise_error(self._inconsistent(f"is of type {response.protocol_type!r}"))
            return
        generation = Generation(response.generation_id, response.member_id, response.protocol_name)
        if not self._membership.joined(generation):
            future.raise_error(UnjoinedGroupError("the group was left before the answer to JoinGroup came"))
            return
        is_leader = response.leader == response.member_id
        self._log.info("Joined %s%s", generation, " as leader" if is_leader else "")
        assignments: Mapping[str, bytes] = {}
        if is_leader:
            try:
                assignments = self._protocol.on_leader_elected(
                    response.protocol_name or "", response.members, response.skip_assignment
                )
            except Exception as failure:  # noqa: BLE001 - the application's assignor may raise anything; poll() raises it
                future.raise_error(failure)
                return
        self._send_sync_group_request(generation, assignments).chain(future)

    def _join_failed(
        self, error: errors.BrokerError, response: JoinGroupResponse, future: RequestFuture[bytes], sent: Generation
    ) -> None:
        log = self._log
        if isinstance(error, errors.MemberIdRequiredError):
            log.debug("The coordinator gave the member id %s to join with", response.member_id)
            self._membership.member_id_assigned(response.member_id)
        elif isinstance(error, errors.UnknownMemberIdError):
            reason = "JoinGroup: the coordinator does not know the member id"
            self._membership.reset_if_unchanged(sent, reason, reset_member_id=True, lost_because=reason)
        elif isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
            self._finder.mark_unknown(f"JoinGroup: {error}")
        elif isinstance(error, errors.CoordinatorLoadInProgressError):
            log.info("The group coordinator is still loading the group")
        elif isinstance(error, errors.RebalanceInProgressError):
            log.info("The coordinator could not complete the rebalance (REBALANCE_IN_PROGRESS); joining again")
        elif isinstance(error, errors.FencedInstanceIdError):
            error = fenced_error(self._config)
            log.error("JoinGroup failed and is not retried: %s", error)
        elif isinstance(error, errors.GroupMaxSizeReachedError):
            error = errors.GroupMaxSizeReachedError(
                f"group {self._config.group_id!r} has as many members as the brokers allow (group.max.size)"
            )
        elif isinstance(error, errors.GroupAuthorizationError):
            error = group_authorization_error(self._config.group_id)
        elif isinstance(error, errors.InconsistentGroupProtocolError):
            error = self._inconsistent("has members that share no assignor with it")
            log.error("JoinGroup failed and is not retried: %s", error)
        elif isinstance(error, errors.InvalidSessionTimeoutError):
            error = errors.InvalidSessionTimeoutError(
                f"the brokers do not allow session.timeout.ms={self._config.session_timeout_ms}: they have limits "
                f"for it (group.min.session.timeout.ms, group.max.session.timeout.ms)"
            )
        elif not isinstance(error, (errors.InvalidGroupIdError, errors.UnsupportedVersionError)):
            future.raise_error(_unexpected("JoinGroup", error))
            return
        future.raise_error(error)

    # --- SyncGroup ---------------------------------------------------------------------------------------------------

    def _send_sync_group_request(self, sent: Generation, assignments: Mapping[str, bytes]) -> RequestFuture[bytes]:
        node = self._finder.check_and_get()
        if node is None:
            return RequestFuture.failure(CoordinatorNotAvailableError("the group coordinator is not known"))
        builder = group_requests.sync_group(self._config, sent, self._protocol.protocol_type, assignments)
        return handled(
            self._finder,
            self._client.send(node, builder),
            lambda response, future: self._handle_sync(response, future, sent),
            self._sensors.sync.record,
        )

    def _handle_sync(self, response: SyncGroupResponse, future: RequestFuture[bytes], sent: Generation) -> None:
        error = errors.for_code(response.error_code)
        if error is not None:
            self._sync_failed(error, future, sent)
            return
        if self._other_protocol_type(response.protocol_type):
            future.raise_error(self._inconsistent(f"is of type {response.protocol_type!r}"))
            return
        if response.protocol_name is not None and response.protocol_name != sent.protocol_name:
            future.raise_error(self._inconsistent(f"uses {response.protocol_name!r}, not {sent.protocol_name!r}"))
            return
        complete, duration_ms = self._membership.synced(sent)
        if not complete:
            # A heartbeat has meanwhile shown that the membership has ended. ILLEGAL_GENERATION makes the caller start
            # again at once.
            self._log.info("%s ended before the response to SyncGroup arrived; joining again", sent)
            future.raise_error(errors.IllegalGenerationError("the membership ended during the rebalance"))
            return
        self._log.info("The group is stable at %s", sent)
        self._sensors.successful_rebalance.record(duration_ms)
        future.complete(response.assignment)

    def _sync_failed(self, error: errors.BrokerError, future: RequestFuture[bytes], sent: Generation) -> None:
        if isinstance(error, errors.GroupAuthorizationError):
            error = group_authorization_error(self._config.group_id)
        elif isinstance(error, errors.RebalanceInProgressError):
            self._log.info("Another rebalance started before the response to SyncGroup arrived")
        elif isinstance(error, errors.FencedInstanceIdError):
            error = fenced_error(self._config)
            self._log.error("SyncGroup failed and is not retried: %s", error)
        elif isinstance(error, (errors.UnknownMemberIdError, errors.IllegalGenerationError)):
            # After ILLEGAL_GENERATION the coordinator may still know the member id.
            reset_member_id = isinstance(error, errors.UnknownMemberIdError)
            reason = f"SyncGroup: {error}"
            self._membership.reset_if_unchanged(sent, reason, reset_member_id=reset_member_id, lost_because=reason)
        elif isinstance(error, (errors.CoordinatorNotAvailableError, errors.NotCoordinatorError)):
            self._finder.mark_unknown(f"SyncGroup: {error}")
        else:
            future.raise_error(_unexpected("SyncGroup", error))
            return
        future.raise_error(error)

    def _other_protocol_type(self, protocol_type: str | None) -> bool:
        return protocol_type is not None and protocol_type != self._protocol.protocol_type

    def _inconsistent(self, what: str) -> errors.InconsistentGroupProtocolError:
        ours = self._protocol.protocol_type
        names = ", ".join(self._offered)
        return errors.InconsistentGroupProtocolError(
            f"group {self._config.group_id!r} {what}; this member is of type {ours!r} and offers {names or 'nothing'} "
            f"(partition.assignment.strategy)"
        )


def fenced_error(config: GroupRebalanceConfig) -> errors.FencedInstanceIdError:
    return errors.FencedInstanceIdError(
        f"another consumer of group {config.group_id!r} has taken over group.instance.id="
        f"{config.group_instance_id!r}; instance ids must be unique among the members that run"
    )


def _unexpected(api: str, error: errors.BrokerError) -> errors.KafkaError:
    wrapped = errors.KafkaError(f"unexpected error in the answer to {api}: {error}")
    wrapped.__cause__ = error
    return wrapped
