"""The memberships by group protocol, as ``group.protocol`` chooses it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.coordinator.classic_member import ClassicMember
from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
from pykclient.consumer.coordinator.consumer_membership_manager import ConsumerMembershipManager
from pykclient.consumer.coordinator.group_membership import GroupMembership

if TYPE_CHECKING:
    import random

    from pykclient.clock import Clock
    from pykclient.consumer.coordinator.commit_request_manager import CommitRequestManager
    from pykclient.consumer.coordinator.group_member import GroupMember
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.consumer.coordinator.member_context import MemberContext
    from pykclient.log_context import LogContext
    from pykclient.network.exponential_backoff import ExponentialBackoff

#: The value of ``group.protocol`` for the protocol of KIP-848; ``classic`` is the other one.
CONSUMER = "consumer"


def new_membership(
    config: GroupRebalanceConfig,
    log_context: LogContext,
    clock: Clock,
    retry_backoff: ExponentialBackoff,
    rng: random.Random | None,
) -> GroupMembership | ConsumerMembership:
    """Return the state of a member that has not joined yet."""
    if config.group_protocol == CONSUMER:
        return ConsumerMembership(config, log_context, clock, retry_backoff, rng)
    return GroupMembership(config, log_context, clock, retry_backoff)


def new_member(
    context: MemberContext, membership: GroupMembership | ConsumerMembership, commits: CommitRequestManager
) -> GroupMember:
    """Return the managers of a membership."""
    if isinstance(membership, ConsumerMembership):
        return ConsumerMembershipManager(context, membership, commits)
    return ClassicMember(context, membership, commits)
