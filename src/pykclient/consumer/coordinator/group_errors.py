"""Errors of groups, with what to do about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import FencedInstanceIdError, KafkaError, RetriableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig


class StaleMemberError(RetriableError):
    """A request had an epoch that the coordinator has replaced meanwhile. The next heartbeat brings the new one."""


def fenced_error(config: GroupRebalanceConfig) -> FencedInstanceIdError:
    return FencedInstanceIdError(
        f"another consumer of group {config.group_id!r} has taken over group.instance.id="
        f"{config.group_instance_id!r}; instance ids must be unique among the members that run"
    )


def raise_first(failures: Sequence[Exception | None]) -> None:
    """Raise the first of the errors of a rebalance listener or assignor, as a KafkaError."""
    for failure in failures:
        if isinstance(failure, KafkaError):
            raise failure
        if failure is not None:
            raise KafkaError(f"the rebalance listener or assignor failed: {failure!r}") from failure
