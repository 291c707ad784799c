"""Errors of groups, with what to do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import FencedInstanceIdError, GroupAuthorizationError

if TYPE_CHECKING:
    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig


def group_authorization_error(group_id: str) -> GroupAuthorizationError:
    return GroupAuthorizationError(f"not authorized for group {group_id!r}: the principal needs READ on the group")


def fenced_error(config: GroupRebalanceConfig) -> FencedInstanceIdError:
    return FencedInstanceIdError(
        f"another consumer of group {config.group_id!r} has taken over group.instance.id="
        f"{config.group_instance_id!r}; instance ids must be unique among the members that run"
    )
