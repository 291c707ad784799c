"""The text of ``KafkaConsumer.explain`` and ``KafkaShareConsumer.explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.values import READ_COMMITTED
from pykclient.explanation import counted, page, shown_duration
from pykclient.network.failures import shown_node

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.consumer.consumer_components import ConsumerComponents
    from pykclient.consumer.coordinator.consumer_coordinator import ConsumerCoordinator
    from pykclient.consumer.share.share_consumer import ShareConsumerComponents
    from pykclient.consumer.share.share_coordinator import ShareCoordinator

#: The most partitions that are listed, those with the largest lag.
_MOST_PARTITIONS = 20


def explain_consumer(name: str, components: ConsumerComponents) -> str:
    """Return a report of a consumer's state. Thread: any."""
    assigned = components.subscriptions.num_assigned_partitions()
    keys = ("max.poll.records", "enable.auto.commit", "auto.offset.reset", "isolation.level")
    protocol = f"protocol {components.config['group.protocol']}"
    return _explained(name, components, protocol, assigned, _partitions(components), keys)


def explain_share_consumer(name: str, components: ShareConsumerComponents) -> str:
    """Return a report of a share consumer's state. Thread: any."""
    assigned = sorted(str(tp) for tp, _ in components.subscriptions.states())
    keys = ("max.poll.records", "share.acknowledgement.mode", "share.acquire.mode")
    partitions = ", ".join(assigned[:_MOST_PARTITIONS]) or "none"
    return _explained(name, components, "a share group", len(assigned), partitions, keys)


def _explained(
    name: str,
    components: ConsumerComponents | ShareConsumerComponents,
    protocol: str,
    num_assigned: int,
    partitions: str | list[str],
    keys: Iterable[str],
) -> str:
    now_ms = components.clock.now_ms()
    coordinator = components.coordinator
    sections: list[tuple[str, str | list[str]]] = [("Now", _present_call(components))]
    if coordinator is not None:
        sections.append(("Group", _group(coordinator, protocol, now_ms)))
    sections += [
        ("Subscription", str(components.subscriptions)),
        (f"Assignment, {counted(num_assigned, 'partition')}", partitions),
        ("Metadata", components.metadata.explain(now_ms)),
        ("Brokers", components.client.explain(now_ms)),
        ("Settings", ", ".join(f"{key}={components.config[key]}" for key in keys)),
    ]
    return page(name, sections, components.log_context.problems)


def _present_call(components: ConsumerComponents | ShareConsumerComponents) -> str:
    call = components.guard.present_call
    return "no call of the application is in progress" if call is None else f"in {call}"


def _group(coordinator: ConsumerCoordinator | ShareCoordinator, protocol: str, now_ms: int) -> list[str]:
    config, membership = coordinator.config, coordinator.membership
    generation, state = membership.snapshot()
    node = coordinator.lookup.node
    line = f"{config.group_id}, {protocol}: {state}, {generation}"
    lines = [line, "coordinator: " + ("not known" if node is None else shown_node(node))]
    timing = f"last poll {shown_duration(now_ms - membership.last_poll_ms)} ago"
    timing += f" (max.poll.interval.ms={config.rebalance_timeout_ms})"
    sent_ms = membership.last_send_ms
    timing += "; no heartbeat yet" if sent_ms is None else f"; last heartbeat {shown_duration(now_ms - sent_ms)} ago"
    ended_ms = membership.last_rebalance_end_ms
    if ended_ms is not None:
        timing += f"; last rebalance {shown_duration(now_ms - ended_ms)} ago"
    lines.append(timing)
    if membership.lost_because is not None:
        lines.append(f"the last membership ended because {membership.lost_because}")
    return lines


def _because(why: str | None) -> str:
    return "" if why is None else f": {why}"


def _partitions(components: ConsumerComponents) -> list[str]:
    """Return a line for each assigned partition, those without a position and those with the largest lag first."""
    is_committed = components.fetch_config.isolation_level == READ_COMMITTED
    lines: list[tuple[float, str]] = []
    for tp, state in components.subscriptions.states():
        position = state.position
        if position is None:
            lines.append((float("inf"), f"{tp}: no position yet ({state.fetch_state})"))
            continue
        end = state.last_stable_offset if is_committed else state.high_watermark
        lag = "lag unknown, as nothing has been fetched" if end is None else f"lag {max(end - position.offset, 0):,}"
        leader = position.current_leader.leader
        line = f"{tp}: position {position.offset:,}, {lag}"
        if state.paused:
            line += ", paused"
        elif leader is None:
            line += f", the leader is unknown{_because(components.metadata.why_leader_is_unknown(tp))}"
        elif not state.is_fetchable:
            line += f", not fetched ({state.fetch_state})"
        else:
            line += f", fetched from broker {state.fetch_node_id}"
        lines.append((0 if end is None else end - position.offset, line))
    lines.sort(key=lambda line: -line[0])
    texts = [text for _, text in lines[:_MOST_PARTITIONS]]
    if len(lines) > _MOST_PARTITIONS:
        texts.append(f"and {len(lines) - _MOST_PARTITIONS} more")
    return texts or ["none"]
