"""The data that brokers and the controller keep in the coordination service, as typed calls (Java: KafkaZkClient)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from pykclient.errors import ControllerMovedError, TopicExistsError
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_errors import BadVersionError, NodeExistsError, NoNodeError
from pykclient.testing.coordination.coordination_service import Check, Create, Delete, Operation, SetData
from pykclient.testing.coordination.znodes import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicAssignment
from pykclient.types import Node, TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.coordination.coordination_client import CoordinationClient

#: The number of producer ids in a block (Java: ProducerIdsBlock.PRODUCER_ID_BLOCK_SIZE).
PRODUCER_ID_BLOCK_SIZE: Final = 1000

#: The number of notifications of changed settings that are kept.
MAX_CONFIG_CHANGES: Final = 100


class KafkaCoordinationClient:
    """Typed access to the coordination service.

    Each call reads or writes at once. The calls with ``epoch_version`` are the controller's. They fail with
    ControllerMovedError if another controller was elected since, which the version of ``/controller_epoch`` shows.

    Raises ConnectionLossError and SessionExpiredError as the client does. Thread: loop.
    """

    def __init__(self, client: CoordinationClient) -> None:
        self.client = client

    # --- brokers and their controller ------------------------------------------------------------------------------

    def register_broker(self, node: Node, wall_ms: int) -> int:
        """Create the broker's ephemeral node; return the broker's epoch."""
        _, stat = self.client.create(
            znodes.broker_id_path(node.id), znodes.encode_broker(node, wall_ms), ephemeral=True
        )
        return stat.czxid

    def all_broker_and_epochs(self) -> dict[int, tuple[Node, int]]:
        brokers = {}
        for name in self.client.get_children(znodes.BROKER_IDS):
            broker_id = int(name)
            data, stat = self.client.get_data(znodes.broker_id_path(broker_id))
            brokers[broker_id] = znodes.decode_broker(broker_id, data), stat.czxid
        return brokers

    def controller_id(self) -> int | None:
        try:
            return znodes.decode_controller(self.client.get_data(znodes.CONTROLLER)[0])
        except NoNodeError:
            return None

    def register_controller_and_increment_controller_epoch(self, broker_id: int, wall_ms: int) -> tuple[int, int]:
        """Become the controller; return its epoch and the version of the epoch's node.

        Raises:
            ControllerMovedError: another broker was faster.
        """
        if self.client.exists(znodes.CONTROLLER_EPOCH) is None:
            self.client.create(znodes.CONTROLLER_EPOCH, b"0")
        data, stat = self.client.get_data(znodes.CONTROLLER_EPOCH)
        epoch = int(data) + 1
        try:
            self.client.multi(
                [
                    Create(znodes.CONTROLLER, znodes.encode_controller(broker_id, wall_ms), ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), stat.version),
                ]
            )
        except (NodeExistsError, BadVersionError) as error:
            raise ControllerMovedError(f"another broker was elected as the controller before {broker_id}") from error
        return epoch, stat.version + 1

    def delete_controller(self, epoch_version: int) -> None:
        """Resign. Do nothing if another broker is the controller by now."""
        try:
            self.client.multi([Check(znodes.CONTROLLER_EPOCH, epoch_version), Delete(znodes.CONTROLLER)])
        except (BadVersionError, NoNodeError):
            return

    def _fenced(self, operations: list[Operation], epoch_version: int) -> list[str | None]:
        check = Check(znodes.CONTROLLER_EPOCH, epoch_version)
        try:
            return self.client.multi([check, *operations])[1:]
        except BadVersionError as error:
            if self.client.get_data(znodes.CONTROLLER_EPOCH)[1].version != epoch_version:
                raise ControllerMovedError("another controller was elected since") from error
            raise

    # --- topics ----------------------------------------------------------------------------------------------------

    def all_topics(self) -> list[str]:
        return self.client.get_children(znodes.BROKER_TOPICS)

    def topic_exists(self, topic: str) -> bool:
        return self.client.exists(znodes.topic_path(topic)) is not None

    def topic_assignment(self, topic: str) -> TopicAssignment | None:
        try:
            return znodes.decode_topic(self.client.get_data(znodes.topic_path(topic))[0])
        except NoNodeError:
            return None

    def create_topic(self, topic: str, assignment: TopicAssignment, config: dict[str, str]) -> None:
        """Create a topic.

        Raises:
            TopicExistsError: the topic exists.
        """
        operations: list[Operation] = [Create(znodes.topic_path(topic), znodes.encode_topic(assignment))]
        path = znodes.topic_config_path(topic)
        # If the controller died while it deleted a topic of this name, the old configuration may still exist.
        if self.client.exists(path) is None:
            operations.insert(0, Create(path, znodes.encode_config(config)))
        else:
            operations.insert(0, SetData(path, znodes.encode_config(config)))
        try:
            self.client.multi(operations)
        except NodeExistsError:
            raise TopicExistsError(f"Topic '{topic}' already exists.") from None

    def set_topic_assignment(self, topic: str, assignment: TopicAssignment, epoch_version: int | None = None) -> None:
        operation = SetData(znodes.topic_path(topic), znodes.encode_topic(assignment))
        if epoch_version is None:
            self.client.multi([operation])
        else:
            self._fenced([operation], epoch_version)

    def partition_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Return the states of partitions that have one."""
        states = {}
        for topic_partition in partitions:
            try:
                data, stat = self.client.get_data(znodes.topic_partition_state_path(topic_partition))
            except NoNodeError:
                continue
            states[topic_partition] = znodes.decode_partition_state(data, stat.version)
        return states

    def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], epoch_version: int
    ) -> set[TopicPartition]:
        """Create states; return the partitions whose state was created. Existing states are kept."""
        made = set()
        for topic_partition, state in states.items():
            parents = (
                znodes.topic_partitions_path(topic_partition.topic),
                znodes.topic_partition_path(topic_partition),
            )
            operations: list[Operation] = [Create(path) for path in parents if self.client.exists(path) is None]
            data = znodes.encode_partition_state(state.leader_and_isr, state.controller_epoch)
            operations.append(Create(znodes.topic_partition_state_path(topic_partition), data))
            try:
                self._fenced(operations, epoch_version)
            except (NodeExistsError, NoNodeError):
                continue
            made.add(topic_partition)
        return made

    def update_leader_and_isr(
        self, states: Mapping[TopicPartition, LeaderAndIsr], controller_epoch: int, epoch_version: int
    ) -> tuple[dict[TopicPartition, LeaderAndIsr], list[TopicPartition]]:
        """Update states.

        Return the states with their new partition epochs, and the partitions whose state another writer changed or
        deleted.
        """
        updated, refused = {}, []
        for topic_partition, state in states.items():
            data = znodes.encode_partition_state(state, controller_epoch)
            path = znodes.topic_partition_state_path(topic_partition)
            try:
                self._fenced([SetData(path, data, state.partition_epoch)], epoch_version)
            except (BadVersionError, NoNodeError):
                refused.append(topic_partition)
            else:
                updated[topic_partition] = state._replace(partition_epoch=state.partition_epoch + 1)
        return updated, refused

    # --- deletion --------------------------------------------------------------------------------------------------

    def topic_deletions(self) -> list[str]:
        return self.client.get_children(znodes.DELETE_TOPICS)

    def create_delete_topic(self, topic: str) -> None:
        """Mark a topic for deletion by the controller. Do nothing if it is marked already."""
        try:
            self.client.create(znodes.delete_topic_path(topic))
        except NodeExistsError:
            return

    def delete_topic_deletion(self, topic: str, epoch_version: int) -> None:
        self._fenced([Delete(znodes.delete_topic_path(topic))], epoch_version)

    def delete_topic(self, topic: str, epoch_version: int) -> None:
        """Remove everything about a topic, the deletion mark last."""
        operations: list[Operation] = []
        partitions_path = znodes.topic_partitions_path(topic)
        if self.client.exists(partitions_path) is not None:
            for name in self.client.get_children(partitions_path):
                state_path = znodes.topic_partition_state_path(TopicPartition(topic, int(name)))
                operations += [Delete(state_path), Delete(f"{partitions_path}/{name}")]
            operations.append(Delete(partitions_path))
        for path in (znodes.topic_path(topic), znodes.topic_config_path(topic), znodes.delete_topic_path(topic)):
            if self.client.exists(path) is not None:
                operations.append(Delete(path))
        self._fenced(operations, epoch_version)

    # --- configuration ---------------------------------------------------------------------------------------------

    def config(self, path: str) -> dict[str, str]:
        """Return the settings of a topic or broker, possibly none."""
        try:
            return znodes.decode_config(self.client.get_data(path)[0])
        except NoNodeError:
            return {}

    def topic_config(self, topic: str) -> dict[str, str]:
        return self.config(znodes.topic_config_path(topic))

    def set_config(self, path: str, config: dict[str, str]) -> None:
        """Write settings, and notify all brokers."""
        data = znodes.encode_config(config)
        if self.client.exists(path) is None:
            self.client.create(path, data)
        else:
            self.client.set_data(path, data)
        change = znodes.encode_config_change(path.removeprefix("/config/"))
        self.client.create(znodes.CONFIG_CHANGE_PREFIX, change, sequential=True)
        changes = self.client.get_children(znodes.CONFIG_CHANGES)
        if len(changes) > MAX_CONFIG_CHANGES:
            # A broker that misses these reads all settings when it returns.
            self.client.multi([Delete(f"{znodes.CONFIG_CHANGES}/{name}") for name in changes[: len(changes) // 2]])

    # --- producer ids ----------------------------------------------------------------------------------------------

    def allocate_producer_ids(self, broker_id: int) -> tuple[int, int]:
        """Return the first id of a new block of producer ids, and the block's length."""
        data, stat = self.client.get_data(znodes.PRODUCER_ID_BLOCK)
        first = znodes.decode_producer_id_block_end(data) + 1 if data else 0
        block = znodes.encode_producer_id_block(broker_id, first, first + PRODUCER_ID_BLOCK_SIZE - 1)
        self.client.set_data(znodes.PRODUCER_ID_BLOCK, block, stat.version)
        return first, PRODUCER_ID_BLOCK_SIZE
