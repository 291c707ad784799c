"""The memberships by group protocol, as ``group.protocol`` chooses it. The modules of the other one are not loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.consumer.coordinator.group_rebalance_config import CONSUMER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from pykclient.clock import Clock
    from pykclient.consumer.coordinator.commit_request_manager import CommitRequestManager
    from pykclient.consumer.coordinator.group_member import GroupMember
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
    from pykclient.consumer.coordinator.member_context import MemberContext
    from pykclient.consumer.coordinator.membership import Membership
    from pykclient.log_context import LogContext
    from pykclient.network.exponential_backoff import ExponentialBackoff


class NewMember(NamedTuple):
    """A membership that has not begun, and what makes its managers."""

    membership: Membership
    managers: Callable[[MemberContext, CommitRequestManager], GroupMember]


def new_member(
    config: GroupRebalanceConfig,
    log_context: LogContext,
    clock: Clock,
    retry_backoff: ExponentialBackoff,
    rng: random.Random | None,
) -> NewMember:
    """Return a member that has not joined yet, by the protocol of ``config``."""
    if config.group_protocol == CONSUMER:
        from pykclient.consumer.coordinator.consumer_membership import ConsumerMembership
        from pykclient.consumer.coordinator.consumer_membership_manager import ConsumerMembershipManager

        membership = ConsumerMembership(config, log_context, clock, retry_backoff, rng)
        return NewMember(membership, lambda context, commits: ConsumerMembershipManager(context, membership, commits))
    from pykclient.consumer.coordinator.classic_member import ClassicMember
    from pykclient.consumer.coordinator.group_membership import GroupMembership

    classic = GroupMembership(config, log_context, clock, retry_backoff)
    return NewMember(classic, lambda context, commits: ClassicMember(context, classic, commits))
