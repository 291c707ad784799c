"""Detection of positions that must be validated with their leader's log (KIP-320; Java: PositionsValidator)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.consumer.offsets_for_leader_epoch_utils import can_validate

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pykclient.consumer.fetch_context import FetchContext
    from pykclient.consumer.fetch_state import FetchPosition
    from pykclient.types import TopicPartition


class PositionsValidator:
    """Compares positions with new metadata, and keeps a validation's error for the next poll. Thread: application."""

    def __init__(self, context: FetchContext) -> None:
        self._log = context.log_context.logger(__name__)
        self._clock = context.clock
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._api_versions = context.api_versions
        #: The metadata that positions were compared with last.
        self.metadata_version = -1
        self._error: Exception | None = None
        #: What ``take_recreated`` would return.
        self.recreated: set[TopicPartition] = set()

    def refresh_and_get_partitions_to_validate(self) -> dict[TopicPartition, FetchPosition]:
        """Return the positions whose leader has changed, except those in backoff.

        Raises:
            KafkaError: an earlier validation failed.
        """
        self.maybe_throw_error()
        self.validate_positions_on_metadata_change()
        if not self._subscriptions.without_position:
            return {}
        return self._subscriptions.partitions_needing_validation(self._clock.now_ms())

    def validate_positions_on_metadata_change(self) -> None:
        """Compare all positions with the topic ids and leaders in the metadata, once per update."""
        version = self._metadata.update_version
        if version == self.metadata_version:
            return
        self.metadata_version = version
        snapshot = self._metadata.fetch_metadata_snapshot()
        recreated: dict[str, dict[TopicPartition, FetchPosition]] = {}
        for tp in self._subscriptions.assigned_partitions_list():
            topic_id = snapshot.topic_ids.get(tp.topic)
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
        """Return the partitions that were reset because their topic was created again, once."""
        recreated, self.recreated = self.recreated, set()
        return recreated

    def can_skip_update_fetch_positions(self) -> bool:
        """Return whether there is nothing to reset, validate or initialize.

        Raises:
            KafkaError: a validation failed.
        """
        if self._error is not None:
            self.maybe_throw_error()
        return self.metadata_version == self._metadata.update_version and not self._subscriptions.without_position

    def maybe_set_error(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        else:
            self._log.error("Another error is raised first, so this one of validating positions is lost: %s", error)

    def maybe_throw_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error
