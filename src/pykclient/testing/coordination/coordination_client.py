"""A broker's session with the coordination service, its watches, and the data there as typed calls.

Java: ZooKeeperClient, KafkaZkClient.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pykclient.errors import ControllerMovedError, TopicExistsError
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_service import (
    ANY_VERSION,
    NODE_CHILDREN_CHANGED,
    BadVersionError,
    Check,
    ConnectionLossError,
    CoordinationService,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    Operation,
    Session,
    SessionExpiredError,
    SetData,
    Stat,
    WatchedEvent,
)
from pykclient.testing.coordination.znodes import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicAssignment
from pykclient.testing.memory_network import LinkPolicy
from pykclient.types import Node, TopicPartition

#: The service's name as a party of links.
PARTY: Final = "coordination"


def _do_nothing() -> None:
    pass


class CoordinationClient:
    """A client with synchronous calls. They raise ConnectionLossError while the broker has no contact with the service.

    A session without contact for too long expires at the service. The client learns of it when contact returns, calls
    ``before_new_session``, begins a new session and calls ``after_new_session``. As everything runs on one loop,
    contact cannot be lost during a callback: code that finds ``connected`` true can finish its work.

    Thread: loop.
    """

    def __init__(self, broker: BrokerContext, service: CoordinationService, links: LinkPolicy) -> None:
        self._broker = broker
        self._service = service
        self._links = links
        self._session_timeout_ms = broker.config.get_int("zookeeper.session.timeout.ms")
        self._log = broker.log_context.logger(__name__)
        self._session: Session | None = None
        self._out_of_contact: set[str] = set()  # by reason
        self._node_handlers: dict[str, Callable[[str], None]] = {}
        self._child_handlers: dict[str, Callable[[], None]] = {}
        self.before_new_session: Callable[[], object] = _do_nothing
        self.after_new_session: Callable[[], object] = _do_nothing
        self._reconnect_listeners: list[Callable[[], None]] = []

    # --- the session -----------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Begin the session. A session left over from before a restart ends.

        Kafka would wait for the old session to expire before it registers again.
        """
        name = f"broker-{self._broker.id}"
        for session in self._service.sessions:
            if session.name == name:
                self._service.close_session(session)
        self._session = self._new_session()
        self._links.subscribe(self._links_changed)
        self._links_changed()

    def _new_session(self) -> Session:
        return self._service.create_session(
            f"broker-{self._broker.id}", self._session_timeout_ms, self._on_event, self._on_expired
        )

    def close(self) -> None:
        """End the session and so its ephemeral nodes. Without contact, they stay until the session expires."""
        if self._session is not None and not self._out_of_contact:
            self._service.close_session(self._session)
        self._session = None

    def _links_changed(self) -> None:
        links, party = self._links, self._broker.party
        if not self._broker.alive:
            links.unsubscribe(self._links_changed)
        elif links.is_cut(party, PARTY) or links.is_cut(PARTY, party):
            self.contact_lost("cut off")
        elif "cut off" in self._out_of_contact:
            self.contact_regained("cut off")

    @property
    def session_id(self) -> int:
        """The id of the current session, even without contact; 0 if there is none."""
        return self._session.id if self._session is not None else 0

    @property
    def connected(self) -> bool:
        """True if calls reach the service, with a live session."""
        return self._session is not None and self._session.alive and not self._out_of_contact

    def contact_lost(self, reason: str = "silent") -> None:
        """Record that the broker is cut off, paused or dead (``reason``). Several reasons may apply at once."""
        self._out_of_contact.add(reason)
        if self._session is not None:
            self._service.contact_lost(self._session)

    def contact_regained(self, reason: str = "silent") -> None:
        """Remove one reason. After the last, the session continues, or a new one begins."""
        self._out_of_contact.discard(reason)
        if self._session is None or self._out_of_contact:
            return
        if self._session.alive:
            self._service.contact_regained(self._session)
            for listener in list(self._reconnect_listeners):
                listener()
        else:
            self._reinitialize()

    def expire(self) -> None:
        """Make the service expire the session although it has contact (fault injection)."""
        if self._session is not None:
            self._service.expire_session(self._session)

    def _on_expired(self) -> None:
        if self._session is not None and not self._session.alive and not self._out_of_contact:
            self._reinitialize()

    def _reinitialize(self) -> None:
        self._log.info("The session with the coordination service has expired; a new one begins")
        self.before_new_session()
        self._session = self._new_session()
        self.after_new_session()
        for listener in list(self._reconnect_listeners):
            listener()

    def _ensure_session(self) -> Session:
        session = self._session
        if session is None or self._out_of_contact:
            raise ConnectionLossError(f"broker {self._broker.id} cannot reach the coordination service")
        if not session.alive:
            raise SessionExpiredError(f"the session of broker {self._broker.id} has expired")
        return session

    # --- handlers --------------------------------------------------------------------------------------------------

    def register_reconnect_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` each time the service becomes reachable again."""
        self._reconnect_listeners.append(listener)

    def register_node_change_handler(self, path: str, handler: Callable[[str], None]) -> None:
        """Call ``handler`` with the type of each change that a watch sees. Reading ``path`` sets the watch."""
        self._node_handlers[path] = handler

    def register_node_change_handler_and_check_existence(self, path: str, handler: Callable[[str], None]) -> bool:
        self._node_handlers[path] = handler
        return self.exists(path) is not None

    def unregister_node_change_handler(self, path: str) -> None:
        self._node_handlers.pop(path, None)

    def register_child_change_handler(self, path: str, handler: Callable[[], None]) -> None:
        """Call ``handler`` after a change among the children of ``path``. Reading them sets the watch."""
        self._child_handlers[path] = handler

    def unregister_child_change_handler(self, path: str) -> None:
        self._child_handlers.pop(path, None)

    def _on_event(self, event: WatchedEvent) -> None:
        if event.type == NODE_CHILDREN_CHANGED:
            child_handler = self._child_handlers.get(event.path)
            if child_handler is not None:
                child_handler()
            return
        handler = self._node_handlers.get(event.path)
        if handler is not None:
            handler(event.type)

    # --- calls -----------------------------------------------------------------------------------------------------

    def create(
        self, path: str, data: Any = None, *, ephemeral: bool = False, sequential: bool = False
    ) -> tuple[str, Stat]:
        """See ``CoordinationService.create``."""
        session = self._ensure_session()
        return self._service.create(path, data, session=session, ephemeral=ephemeral, sequential=sequential)

    def set_data(self, path: str, data: Any, version: int = ANY_VERSION) -> Stat:
        return self._service.set_data(path, data, version, session=self._ensure_session())

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._service.delete(path, version, session=self._ensure_session())

    def multi(self, operations: Sequence[Operation]) -> list[str | None]:
        return self._service.multi(operations, self._ensure_session())

    def get_data(self, path: str) -> tuple[Any, Stat]:
        session = self._ensure_session()
        return self._service.get_data(path, session if path in self._node_handlers else None)

    def exists(self, path: str) -> Stat | None:
        session = self._ensure_session()
        return self._service.exists(path, session if path in self._node_handlers else None)

    def get_children(self, path: str) -> list[str]:
        session = self._ensure_session()
        return self._service.get_children(path, session if path in self._child_handlers else None)


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

    def _value(self, path: str) -> Any:
        """Return the value in a node, None if it does not exist."""
        try:
            return self.client.get_data(path)[0]
        except NoNodeError:
            return None

    # --- brokers and their controller ------------------------------------------------------------------------------

    def register_broker(self, node: Node) -> int:
        """Create the broker's ephemeral node; return the broker's epoch."""
        return self.client.create(znodes.broker_id_path(node.id), node, ephemeral=True)[1].czxid

    def all_broker_and_epochs(self) -> dict[int, tuple[Node, int]]:
        brokers = {}
        for name in self.client.get_children(znodes.BROKER_IDS):
            node, stat = self.client.get_data(f"{znodes.BROKER_IDS}/{name}")
            brokers[node.id] = node, stat.czxid
        return brokers

    def controller_id(self) -> int | None:
        found: int | None = self._value(znodes.CONTROLLER)
        return found

    def register_controller_and_increment_controller_epoch(self, broker_id: int) -> tuple[int, int]:
        """Become the controller; return its epoch and the version of the epoch's node.

        Raises:
            ControllerMovedError: another broker was faster.
        """
        if self.client.exists(znodes.CONTROLLER_EPOCH) is None:
            self.client.create(znodes.CONTROLLER_EPOCH, 0)
        epoch, stat = self.client.get_data(znodes.CONTROLLER_EPOCH)
        epoch += 1
        try:
            self.client.multi(
                [
                    Create(znodes.CONTROLLER, broker_id, ephemeral=True),
                    SetData(znodes.CONTROLLER_EPOCH, epoch, stat.version),
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
        found: TopicAssignment | None = self._value(znodes.topic_path(topic))
        return found

    def create_topic(self, topic: str, assignment: TopicAssignment, config: dict[str, str]) -> None:
        """Create a topic.

        Raises:
            TopicExistsError: the topic exists.
        """
        operations: list[Operation] = [Create(znodes.topic_path(topic), assignment)]
        path = znodes.topic_config_path(topic)
        # If the controller died while it deleted a topic of this name, the old configuration may still exist.
        operations.insert(0, (Create if self.client.exists(path) is None else SetData)(path, config))
        try:
            self.client.multi(operations)
        except NodeExistsError:
            raise TopicExistsError(f"Topic '{topic}' already exists.") from None

    def set_topic_assignment(self, topic: str, assignment: TopicAssignment, epoch_version: int | None = None) -> None:
        operation = SetData(znodes.topic_path(topic), assignment)
        if epoch_version is None:
            self.client.multi([operation])
        else:
            self._fenced([operation], epoch_version)

    def partition_states(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
        """Return the states of partitions that have one."""
        found = {tp: self._value(znodes.topic_partition_state_path(tp)) for tp in partitions}
        return {tp: state for tp, state in found.items() if state is not None}

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
            operations.append(Create(znodes.topic_partition_state_path(topic_partition), state))
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
            new = state._replace(partition_epoch=state.partition_epoch + 1)
            data = LeaderIsrAndControllerEpoch(new, controller_epoch)
            path = znodes.topic_partition_state_path(topic_partition)
            try:
                self._fenced([SetData(path, data, state.partition_epoch)], epoch_version)
            except (BadVersionError, NoNodeError):
                refused.append(topic_partition)
            else:
                updated[topic_partition] = new
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
        return dict(self._value(path) or {})

    def topic_config(self, topic: str) -> dict[str, str]:
        return self.config(znodes.topic_config_path(topic))

    def set_config(self, path: str, config: dict[str, str]) -> None:
        """Write settings, and notify all brokers."""
        if self.client.exists(path) is None:
            self.client.create(path, config)
        else:
            self.client.set_data(path, config)
        self.client.create(znodes.CONFIG_CHANGE_PREFIX, path.removeprefix("/config/"), sequential=True)
        changes = self.client.get_children(znodes.CONFIG_CHANGES)
        if len(changes) > MAX_CONFIG_CHANGES:
            # A broker that misses these reads all settings when it returns.
            self.client.multi([Delete(f"{znodes.CONFIG_CHANGES}/{name}") for name in changes[: len(changes) // 2]])

    # --- producer ids ----------------------------------------------------------------------------------------------

    def allocate_producer_ids(self) -> tuple[int, int]:
        """Return the first id of a new block of producer ids, and the block's length."""
        next_id, stat = self.client.get_data(znodes.PRODUCER_ID_BLOCK)
        first = next_id or 0
        self.client.set_data(znodes.PRODUCER_ID_BLOCK, first + PRODUCER_ID_BLOCK_SIZE, stat.version)
        return first, PRODUCER_ID_BLOCK_SIZE
