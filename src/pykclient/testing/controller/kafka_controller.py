"""The controller component of a broker, active or not (Java: KafkaController)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import ParamSpec

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.leader_and_isr import LeaderAndIsrResponse
from pykclient.protocol.messages.stop_replica import StopReplicaResponse
from pykclient.testing.broker_context import BrokerContext
from pykclient.testing.controller.admin_manager import AdminManager
from pykclient.testing.controller.config_manager import ConfigManager
from pykclient.testing.controller.controller_channel_manager import (
    ControllerBrokerRequestBatch,
    ControllerChannelManager,
)
from pykclient.testing.controller.controller_context import (
    ControllerContext,
    ControllerEventManager,
    PartitionAndReplica,
    PartitionState,
    ReplicaState,
)
from pykclient.testing.controller.partition_changes import (
    AlterPartitionHandler,
    PartitionReassigner,
    TopicDeletionManager,
)
from pykclient.testing.controller.state_machines import (
    PartitionStateMachine,
    ReplicaElector,
    ReplicaStateMachine,
    leader_for_controlled_shutdown,
    leader_for_offline,
)
from pykclient.testing.coordination import znodes
from pykclient.testing.coordination.coordination_client import CoordinationClient, KafkaCoordinationClient
from pykclient.testing.coordination.coordination_service import NODE_CREATED
from pykclient.testing.log.log_manager import LogManager
from pykclient.testing.metadata_cache import MetadataCache
from pykclient.testing.request_channel import Request
from pykclient.testing.share.group_config import GroupConfigManager
from pykclient.types import TopicPartition

P = ParamSpec("P")


def _do_nothing() -> None:
    pass


class KafkaController:
    """The part of a broker that can become the controller.

    It registers the broker, takes part in the election and, while it is the controller, reacts to changes in the
    cluster. All its actions are events in one queue. It reads its knowledge from the coordination service. Its writes
    there fail once another controller is elected. Brokers learn of its decisions from requests that carry its epoch.

    Thread: loop.
    """

    def __init__(
        self,
        broker: BrokerContext,
        coordination: CoordinationClient,
        metadata_cache: MetadataCache,
        log_manager: LogManager,
        group_configs: GroupConfigManager,
    ) -> None:
        self._broker = broker
        self._coordination = coordination
        self._log = broker.log_context.logger(__name__)
        self.active_controller_id = -1
        self.context = context = ControllerContext()
        self.store = store = KafkaCoordinationClient(coordination)
        self.event_manager = ControllerEventManager(broker, coordination, self._maybe_resign)
        self.channel_manager = ControllerChannelManager(broker)
        self.request_batch = request_batch = ControllerBrokerRequestBatch(
            broker,
            context,
            self.channel_manager,
            self._putter(self._process_leader_and_isr_response),
            self._putter(self._process_stop_replica_response),
        )
        base = broker, context, store, request_batch
        self.replica_state_machine = replicas = ReplicaStateMachine(*base)
        self.partition_state_machine = partitions = PartitionStateMachine(
            *base, leader_for_offline(self._unclean_election_enabled)
        )
        self.topic_deletion_manager = TopicDeletionManager(*base, partitions, replicas, self._on_topic_deleted)
        self.reassigner = PartitionReassigner(*base, partitions, replicas, self.topic_deletion_manager)
        self.elector = ReplicaElector(context, partitions)
        self.alter_partition_handler = AlterPartitionHandler(*base, self.reassigner)
        self.admin_manager = AdminManager(broker, context, store, metadata_cache)
        self.config_manager = ConfigManager(
            broker, coordination, store, metadata_cache, log_manager, group_configs, self.on_topic_config_change
        )

    # --- start and stop ----------------------------------------------------------------------------------------------

    def startup(self) -> None:
        """Register the broker, and take part in the election. The session with the coordination service must exist."""
        coordination = self._coordination
        coordination.before_new_session = self._before_new_session
        coordination.after_new_session = partial(self._put, "RegisterBrokerAndReelect", self._register_and_reelect)
        coordination.register_reconnect_listener(self.event_manager.resume)
        self.config_manager.startup()
        config = self._broker.config
        if config.get_bool("auto.leader.rebalance.enable"):
            interval_ms = config.get_int("leader.imbalance.check.interval.seconds") * 1000
            self._broker.every(interval_ms, self._putter(self.elector.rebalance))
        if coordination.connected:
            # Immediately, so that brokers that start together are all registered when one of them is elected.
            self._register_broker()
            self._put("Startup", self._process_startup)
        else:
            self._put("RegisterBrokerAndElect", self._register_and_reelect)

    def shutdown(self) -> None:
        """Stop at once. The session expires by itself, and with it this controller's election."""
        self.event_manager.close()
        self.admin_manager.shutdown()
        if self.is_active:
            self._on_controller_resignation()
        self.active_controller_id = -1

    @property
    def is_active(self) -> bool:
        """True if this broker is the controller, as far as it knows."""
        return self.active_controller_id == self._broker.id

    @property
    def epoch(self) -> int:
        return self.context.epoch

    def _put(self, name: str, process: Callable[[], None]) -> None:
        self.event_manager.put(name, process, _do_nothing)

    def put_if_active(self, name: str, process: Callable[[], None], refuse: Callable[[], None] = _do_nothing) -> None:
        """Queue ``process`` as one event; ``refuse`` is called instead if this broker is not the controller then."""
        self.event_manager.put(name, lambda: process() if self.is_active else refuse(), refuse)

    def handle(self, request: Request, process: Callable[[], None], *, on_any_broker: bool = False) -> None:
        """Queue the handling of a request as one event. ``process`` answers it now or later, or raises BrokerError.

        If this broker is not the controller then, it refuses the request; with ``on_any_broker``, only if its session
        ends first.
        """

        def refuse() -> None:
            request.respond_error(errors.NotControllerError("This is not the correct controller for this cluster."))

        def handle() -> None:
            try:
                process()
            except errors.ControllerMovedError:
                refuse()
                raise
            except errors.BrokerError as error:
                request.respond_error(error)

        put = self.event_manager.put if on_any_broker else self.put_if_active
        put(ApiKeys.name_of(request.api_key), handle, refuse)

    def _register_broker(self) -> None:
        self._broker.epoch = self.store.register_broker(self._broker.node)

    def _before_new_session(self) -> None:
        # After the expiry this broker is no longer the controller; no waiting event may run in the new session.
        self.event_manager.preempt_all()
        self.active_controller_id = -1
        self._on_controller_resignation()

    def _register_and_reelect(self) -> None:
        self._register_broker()
        self._process_startup()

    # --- election ----------------------------------------------------------------------------------------------------

    def _process_startup(self) -> None:
        self._coordination.register_node_change_handler_and_check_existence(
            znodes.CONTROLLER, self._on_controller_change
        )
        self._elect()

    def _on_controller_change(self, type: str) -> None:
        name = "ControllerChange" if type == NODE_CREATED else "Reelect"
        self._put(name, self._maybe_resign if type == NODE_CREATED else self._process_reelect)

    def _process_reelect(self) -> None:
        self._maybe_resign()
        self._elect()

    def _elect(self) -> None:
        """Become the controller, unless there is one.

        Raises:
            ControllerMovedError: another broker was faster.
        """
        broker = self._broker
        controller_id = self.store.controller_id()
        self.active_controller_id = -1 if controller_id is None else controller_id
        if controller_id is not None:
            return
        context = self.context
        context.epoch, context.epoch_version = self.store.register_controller_and_increment_controller_epoch(broker.id)
        self.active_controller_id = broker.id
        self._log.info("Elected as the controller, epoch %d", context.epoch)
        self._on_controller_failover()

    def _maybe_resign(self) -> None:
        """Check which broker is the controller; resign if it is another one."""
        was_active = self.is_active
        self._coordination.register_node_change_handler_and_check_existence(
            znodes.CONTROLLER, self._on_controller_change
        )
        controller_id = self.store.controller_id()
        self.active_controller_id = -1 if controller_id is None else controller_id
        if was_active and not self.is_active:
            self._on_controller_resignation()

    def resign(self) -> None:
        """Resign to cause a new election, which this broker may win again (fault injection)."""
        self._put("TriggerControllerMove", self._process_trigger_controller_move)

    def _process_trigger_controller_move(self) -> None:
        if self.is_active:
            self.active_controller_id = -1
            self._on_controller_resignation()
            self.store.delete_controller(self.context.epoch_version)

    def _on_controller_failover(self) -> None:
        """Take over: read everything, inform all brokers, and elect missing leaders."""
        coordination = self._coordination
        for path, process in (
            (znodes.BROKER_IDS, self._process_broker_change),
            (znodes.BROKER_TOPICS, self._process_topic_change),
            (znodes.DELETE_TOPICS, self._process_topic_deletion),
        ):
            coordination.register_child_change_handler(path, self._putter(process))
        self._initialize_controller_context()
        context = self.context
        marked = self.store.topic_deletions()
        if self._broker.config.get_bool("delete.topic.enable"):
            ineligible = [
                topic
                for topic in marked
                if any(
                    not context.is_replica_online(r.replica, r.topic_partition)
                    for r in context.replicas_for_topic(topic)
                )
                or any(topic == partition.topic for partition in context.partitions_being_reassigned)
            ]
            self.topic_deletion_manager.init([topic for topic in marked if topic in context.assignments], ineligible)
        # Brokers must know the live brokers before they can follow leaders.
        self.request_batch.send_update_metadata(context.live_or_shutting_down_broker_ids)
        self.replica_state_machine.startup()
        self.partition_state_machine.startup()
        self.reassigner.resume()
        self.topic_deletion_manager.resume_deletions()
        self._process_topic_deletion()

    def _putter(self, process: Callable[P, None]) -> Callable[P, None]:
        """Return the function that queues ``process`` as an event of the active controller."""

        def put(*args: P.args, **kwargs: P.kwargs) -> None:
            self.put_if_active(process.__name__.removeprefix("_process_"), partial(process, *args, **kwargs))

        return put

    def _on_controller_resignation(self) -> None:
        """Clear everything, and ignore further changes."""
        coordination = self._coordination
        for path in (znodes.BROKER_IDS, znodes.BROKER_TOPICS, znodes.DELETE_TOPICS):
            coordination.unregister_child_change_handler(path)
        for topic in self.context.all_topics:
            coordination.unregister_node_change_handler(znodes.topic_path(topic))
        self.channel_manager.shutdown()
        self.request_batch.clear()
        self.context.reset()

    def _initialize_controller_context(self) -> None:
        context, store = self.context, self.store
        context.reset()
        context.add_live_brokers(store.all_broker_and_epochs())
        for topic in store.all_topics():
            self._learn_topic(topic)
        context.leadership.update(store.partition_states(context.all_partitions()))
        for topic_partition in context.all_partitions():
            if context.assignment(topic_partition).is_being_reassigned:
                context.partitions_being_reassigned[topic_partition] = None
        for node in context.live_brokers.values():
            self.channel_manager.add_broker(node)

    def _learn_topic(self, topic: str) -> None:
        """Read a topic's assignment, and watch it."""

        def changed(type: str) -> None:  # noqa: ARG001 - whatever it was, the topic is looked at
            self.put_if_active("PartitionModifications", lambda: self._process_partition_modifications(topic))

        self._coordination.register_node_change_handler(znodes.topic_path(topic), changed)
        assignment = self.store.topic_assignment(topic)
        if assignment is not None:
            self.context.put_topic(topic, assignment)

    # --- brokers -----------------------------------------------------------------------------------------------------

    def _process_broker_change(self) -> None:
        context = self.context
        current = self.store.all_broker_and_epochs()
        known = context.live_broker_epochs
        new = {id: broker for id, broker in current.items() if id not in known}
        bounced = {id: broker for id, broker in current.items() if id in known and broker[1] > known[id]}
        dead = [id for id in known if id not in current]
        for id in (*bounced, *dead):
            self.channel_manager.remove_broker(id)
        for node, _ in (*new.values(), *bounced.values()):
            self.channel_manager.add_broker(node)
        if new:
            context.add_live_brokers(new)
            self._on_broker_startup(list(new))
        if bounced:
            context.remove_live_brokers(bounced)
            self._on_broker_failure(list(bounced))
            context.add_live_brokers(bounced)
            self._on_broker_startup(list(bounced))
        if dead:
            context.remove_live_brokers(dead)
            self._on_broker_failure(dead)

    def _on_broker_startup(self, new: Sequence[int]) -> None:
        self._log.info("Controller: brokers %s are here", new)
        context = self.context
        for id in new:
            context.replicas_on_offline_dirs.pop(id, None)
        self.request_batch.send_update_metadata(
            [id for id in context.live_or_shutting_down_broker_ids if id not in new]
        )
        self.request_batch.send_update_metadata(new, list(context.leadership))
        replicas = context.replicas_on_brokers(new)
        # A replica whose deletion has started or finished keeps its state.
        movable = [r for r in replicas if ReplicaState.ONLINE in ReplicaState.MOVES[context.replica_state(r)]]
        self.replica_state_machine.handle_state_changes(movable, ReplicaState.ONLINE, all_of=new)
        self.partition_state_machine.trigger_online_partition_state_change()
        self.reassigner.resume(new)
        self.topic_deletion_manager.resume_deletion_for_topics(
            dict.fromkeys(replica.topic_partition.topic for replica in replicas)
        )

    def _on_broker_failure(self, dead: Sequence[int]) -> None:
        self._log.info("Controller: brokers %s are gone", dead)
        context = self.context
        for id in dead:
            context.replicas_on_offline_dirs.pop(id, None)
            context.shutting_down_broker_ids.discard(id)
        self._on_replicas_become_offline(context.replicas_on_brokers(dead))

    def _on_replicas_become_offline(self, replicas: Collection[PartitionAndReplica]) -> None:
        context = self.context
        deleting = [r for r in replicas if context.is_topic_queued_up_for_deletion(r.topic_partition.topic)]
        others = [r for r in replicas if not context.is_topic_queued_up_for_deletion(r.topic_partition.topic)]
        self.partition_state_machine.handle_state_changes(
            context.partitions_with_offline_leader(), PartitionState.OFFLINE
        )
        outcomes = self.partition_state_machine.trigger_online_partition_state_change()
        self.replica_state_machine.handle_state_changes(others, ReplicaState.OFFLINE)
        if deleting:
            self.topic_deletion_manager.fail_replica_deletion(deleting)
        if not others and not any(isinstance(outcome, tuple) for outcome in outcomes.values()):
            # No partition caused a request, but brokers must learn which ones are gone.
            self.request_batch.send_update_metadata(context.live_or_shutting_down_broker_ids)

    def _process_leader_and_isr_response(self, id: int, response: LeaderAndIsrResponse) -> None:
        """Handle a broker's response. A broker that lost the disk of a replica lost the replica."""
        if id not in self.context.live_brokers:
            return
        if response.error_code:
            self._log.info("Controller: broker %d refused LEADER_AND_ISR: %s", id, errors.for_code(response.error_code))
            return
        offline = self.context.replicas_on_offline_dirs.setdefault(id, {})
        lost = []
        for topic in response.topics:
            name = self.context.topic_names.get(topic.topic_id)
            if name is None:
                continue
            for partition in topic.partition_errors:
                topic_partition = TopicPartition(name, partition.partition_index)
                if partition.error_code == 0:
                    offline.pop(topic_partition, None)
                elif partition.error_code == errors.KafkaStorageError.code and topic_partition not in offline:
                    offline[topic_partition] = None
                    lost.append(PartitionAndReplica(topic_partition, id))
        if lost:
            self._on_replicas_become_offline(lost)

    # --- topics ------------------------------------------------------------------------------------------------------

    def _process_topic_change(self) -> None:
        context = self.context
        new = [topic for topic in self.store.all_topics() if topic not in context.assignments]
        for topic in new:
            self._learn_topic(topic)
        self._on_new_partition_creation([tp for topic in new for tp in context.partitions_for_topic(topic)])

    def _process_partition_modifications(self, topic: str) -> None:
        if topic not in self.context.assignments:
            return
        assignment = self.store.topic_assignment(topic)
        if assignment is None or self.context.is_topic_queued_up_for_deletion(topic):
            return
        known = self.context.assignments[topic]
        added = {index: replicas for index, replicas in assignment.partitions.items() if index not in known}
        for index, replicas in added.items():
            self.context.put_assignment(TopicPartition(topic, index), replicas)
        self._on_new_partition_creation([TopicPartition(topic, index) for index in added])

    def _on_new_partition_creation(self, partitions: Sequence[TopicPartition]) -> None:
        replicas = self.context.replicas_for_partitions(partitions)
        self.partition_state_machine.handle_state_changes(partitions, PartitionState.NEW)
        self.replica_state_machine.handle_state_changes(replicas, ReplicaState.NEW)
        self.partition_state_machine.handle_state_changes(partitions, PartitionState.ONLINE)
        self.replica_state_machine.handle_state_changes(replicas, ReplicaState.ONLINE)

    def _process_topic_deletion(self) -> None:
        context = self.context
        marked = self.store.topic_deletions()
        enabled = self._broker.config.get_bool("delete.topic.enable")
        known = []
        for topic in marked:
            if topic in context.assignments and enabled:
                known.append(topic)
            else:
                self.store.delete_topic_deletion(topic, context.epoch_version)
        new = [topic for topic in known if not context.is_topic_queued_up_for_deletion(topic)]
        if new:
            reassigning = {partition.topic for partition in context.partitions_being_reassigned}
            self.topic_deletion_manager.init(new, [topic for topic in new if topic in reassigning])
            self.topic_deletion_manager.resume_deletions()

    def _process_stop_replica_response(
        self, id: int, response: StopReplicaResponse, deleted: Collection[TopicPartition]
    ) -> None:
        failed = {
            TopicPartition(partition.topic_name, partition.partition_index)
            for partition in response.partition_errors
            if partition.error_code
        }
        failed_replicas = [PartitionAndReplica(tp, id) for tp in deleted if response.error_code or tp in failed]
        self.topic_deletion_manager.fail_replica_deletion(failed_replicas)
        if len(failed_replicas) < len(deleted):
            self.topic_deletion_manager.complete_replica_deletion(
                PartitionAndReplica(tp, id) for tp in deleted if tp not in failed
            )

    def _on_topic_deleted(self, topic: str) -> None:
        self._coordination.unregister_node_change_handler(znodes.topic_path(topic))
        self.admin_manager.on_topic_deleted(topic)

    def _unclean_election_enabled(self, topic: str) -> bool:
        configured = self.store.topic_config(topic).get("unclean.leader.election.enable")
        if configured is None:
            return self._broker.config.get_bool("unclean.leader.election.enable")
        return configured.strip().lower() == "true"

    def on_topic_config_change(self, topic: str) -> None:
        """Handle a changed topic configuration, which may now allow unclean elections."""

        def process() -> None:
            if self._unclean_election_enabled(topic):
                self.partition_state_machine.trigger_online_partition_state_change([topic])

        self.put_if_active("TopicUncleanLeaderElectionEnable", process)

    # --- requests of brokers -----------------------------------------------------------------------------------------

    def controlled_shutdown(self, id: int, broker_epoch: int) -> Collection[TopicPartition]:
        """Move leaders away from a broker that will stop; return the partitions that it still leads.

        Raises:
            BrokerNotAvailableError, StaleBrokerEpochError: the broker is not registered, or has registered again.
        """
        context = self.context
        if id not in context.live_brokers:
            raise errors.BrokerNotAvailableError
        if -1 < broker_epoch < context.live_broker_epochs[id]:
            raise errors.StaleBrokerEpochError
        context.shutting_down_broker_ids.add(id)
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []
        for topic_partition, _ in context.replicas_on_brokers((id,)):
            leader = context.leader(topic_partition)
            if (
                leader is None
                or len(context.replicas(topic_partition)) < 2
                or context.is_topic_queued_up_for_deletion(topic_partition.topic)
            ):
                continue
            (led if leader == id else followed).append(topic_partition)
        self.partition_state_machine.handle_state_changes(led, PartitionState.ONLINE, leader_for_controlled_shutdown)
        # The replica state machine sends STOP_REPLICA to the broker, and ISRs without it to the leaders.
        self.replica_state_machine.handle_state_changes(
            [PartitionAndReplica(topic_partition, id) for topic_partition in followed], ReplicaState.OFFLINE
        )
        return context.partition_leaders_on_broker(id)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[int, int]:
        """Return the first id of a new block of producer ids, and the block's length.

        Raises:
            BrokerIdNotRegisteredError, StaleBrokerEpochError: the broker is not registered, or has registered again.
        """
        epoch = self.context.live_broker_epochs.get(broker_id)
        if epoch is None:
            raise errors.BrokerIdNotRegisteredError
        if epoch != broker_epoch:
            raise errors.StaleBrokerEpochError
        return self.store.allocate_producer_ids()
