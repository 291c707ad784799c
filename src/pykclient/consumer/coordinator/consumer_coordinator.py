"""A consumer's side of its group (Java: ConsumerCoordinator)."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

from pykclient.clock import FOREVER_MS, Clock, Timer
from pykclient.consumer.application_events import ApplicationEvents
from pykclient.consumer.assignors.consumer_partition_assignor import (
    COOPERATIVE,
    EAGER,
    Assignment,
    ConsumerPartitionAssignor,
    Subscription,
)
from pykclient.consumer.consumer_network_client import ConsumerNetworkClient
from pykclient.consumer.coordinator import consumer_protocol
from pykclient.consumer.coordinator.abstract_coordinator import DEFAULT, METRIC_PREFIX, AbstractCoordinator
from pykclient.consumer.coordinator.commit_request_manager import CommitRequestManager, OffsetCommitCallback, shown
from pykclient.consumer.coordinator.committed_offsets_request_manager import (
    CommittedOffsets,
    CommittedOffsetsRequestManager,
)
from pykclient.consumer.coordinator.consumer_parts import ConsumerParts, Offsets
from pykclient.consumer.coordinator.coordinator_metrics import ConsumerCoordinatorMetrics, RebalanceCallbackMetrics
from pykclient.consumer.coordinator.group_rebalance_config import GroupRebalanceConfig
from pykclient.consumer.coordinator.member_state import NO_GENERATION, Generation
from pykclient.consumer.coordinator.partition_snapshot import PartitionSnapshot
from pykclient.consumer.coordinator.rebalance_listener_invoker import RebalanceListenerInvoker, names
from pykclient.consumer.request_future import RequestFuture
from pykclient.errors import (
    ConfigError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RemoteProtocolError,
    WakeupError,
)
from pykclient.log_context import LogContext
from pykclient.metrics.metrics import Metrics
from pykclient.network.cluster import Cluster
from pykclient.network.environment import SYSTEM_ENVIRONMENT, Environment
from pykclient.protocol.messages.join_group import JoinGroupResponse
from pykclient.types import ConsumerGroupMetadata, TopicPartition

#: Assignors that assign only subscribed topics.
_ASSIGN_FROM_SUBSCRIBED = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
#: This assignor itself prevents partitions from having two owners.
_COOPERATIVE_STICKY = "cooperative-sticky"


class ConsumerCoordinator(AbstractCoordinator):
    """Subscribes to the group's topics, assigns partitions as the leader, applies assignments, and commits.

    Thread: application.
    """

    def __init__(
        self,
        config: GroupRebalanceConfig,
        log_context: LogContext,
        client: ConsumerNetworkClient,
        metrics: Metrics,
        clock: Clock,
        parts: ConsumerParts,
        rng: random.Random | None = None,
        environment: Environment = SYSTEM_ENVIRONMENT,
    ) -> None:
        super().__init__(config, log_context, client, metrics, clock, parts.metadata, rng, environment)
        self._assignors = parts.assignors
        self._metadata = parts.metadata
        self._subscriptions = parts.subscriptions
        self._protocol = _common_protocol(parts.assignors)
        self.is_leader = False
        self._joined_subscription: frozenset[str] | None = None
        self._metadata_snapshot = PartitionSnapshot(
            config.rack_id, self._subscriptions.metadata_topics(), self._metadata.fetch(), self._metadata.update_version
        )
        self._assignment_snapshot: PartitionSnapshot | None = None
        self._group_metadata = ConsumerGroupMetadata(config.group_id, group_instance_id=config.group_instance_id)
        self._auto_commit_future: RequestFuture[None] | None = None
        self._join_prepare_timer: Timer | None = None
        sensors = ConsumerCoordinatorMetrics(metrics, METRIC_PREFIX, self._subscriptions.num_assigned_partitions)
        self.events = ApplicationEvents(parts.application_code)
        self._commits = CommitRequestManager(
            config,
            log_context,
            client,
            self.membership,
            self.finder,
            clock,
            self.retry_backoff,
            parts,
            self.events,
            sensors.commit,
        )
        self._committed = CommittedOffsetsRequestManager(
            config.group_id, log_context, client, self.membership, self.finder, clock, self.retry_backoff, parts
        )
        # Before the coordinator's manager, so that it knows in the same round that they need the coordinator.
        client.managers.add(self._commits, self._committed, self.heartbeats, self.finder)
        self._listeners = RebalanceListenerInvoker(
            log_context,
            self._subscriptions,
            clock,
            RebalanceCallbackMetrics(metrics, METRIC_PREFIX),
            parts.application_code,
        )
        self._metadata.request_update(True)

    # --- each poll ---------------------------------------------------------------------------------------------------

    def poll(self, timer: Timer, wait_for_join_group: bool = True) -> bool:
        """Stay a member of the group, commit automatically and run callbacks.

        Return False if the timer expires first. Without ``wait_for_join_group`` a rebalance is advanced, but not waited
        for; if the timer is 0 as well, this never waits. Raises errors that are not retriable, and KafkaError if the
        rebalance listener raised.
        """
        is_member = self._subscriptions.has_auto_assigned_partitions()
        if is_member:
            if self._protocol is None:
                raise IllegalStateError(
                    "partition.assignment.strategy is empty, so subscribe() cannot work; use assign()"
                )
            # Whatever else happens, the application is alive.
            self.poll_heartbeat(timer.now_ms)
        self.maybe_update_subscription_metadata()
        self.run_commit_callbacks()
        if is_member:
            if not self._poll_group(timer, wait_for_join_group):
                return False
        else:
            # With manual assignment, the coordinator is only looked up when needed. If no node is ready, a fetch cannot
            # block either, and the caller would spin.
            if self._metadata.update_requested and not self.client.has_ready_nodes(timer.now_ms):
                self.client.await_metadata_update(timer)
            self.client.poll_no_wakeup()
        if self._commits.maybe_auto_commit_async(timer.now_ms):
            self.client.poll_no_wakeup()
        return True

    def _poll_group(self, timer: Timer, wait_for_join_group: bool) -> bool:
        if self.coordinator_unknown and not self.ensure_coordinator_ready(timer):
            return False
        if not self.rejoin_needed_or_pending():
            return True
        if self._subscriptions.has_pattern_subscription():
            # Members see a new topic at different times, and each would rebalance the group. Checking the metadata
            # first makes one rebalance enough. It must have been matched once before joining anyway.
            if self._metadata.time_to_allow_update(timer.now_ms) == 0:
                self._metadata.request_update(True)
            if not self.client.ensure_fresh_metadata(timer):
                return False
            self.maybe_update_subscription_metadata()
        joined = self.ensure_active_group(timer if wait_for_join_group else Timer(self.clock, 0))
        timer.update()
        return joined

    def time_to_next_poll(self, now_ms: int) -> int:
        """Return the milliseconds that a wait for records may take before ``poll`` must be called again.

        During a rebalance nothing is committed automatically, so that an overdue commit does not end the wait: the poll
        would spin until the other members have joined.
        """
        wait_ms = FOREVER_MS
        if self._subscriptions.has_auto_assigned_partitions():
            wait_ms = min(wait_ms, self.backoff_ms(now_ms))
        if self._commits.auto_commit_enabled and not self.rejoin_needed_or_pending():
            wait_ms = min(wait_ms, self._commits.time_to_next_auto_commit())
        return wait_ms

    # --- metadata ----------------------------------------------------------------------------------------------------

    def maybe_update_subscription_metadata(self) -> None:
        """Process metadata that arrived since the last call."""
        version = self._metadata.update_version
        if version <= self._metadata_snapshot.version:
            return
        cluster = self._metadata.fetch()
        if cluster.is_bootstrap_configured:
            # All nodes were lost, and the client starts again from the bootstrap servers (KIP-899). Without this check
            # the leader would consider all topics deleted: it would rebalance the group, and a pattern would match
            # nothing.
            return
        if self._subscriptions.has_pattern_subscription():
            self.update_pattern_subscription(cluster)
        self._metadata_snapshot = PartitionSnapshot(
            self.config.rack_id, self._subscriptions.metadata_topics(), cluster, version
        )

    def update_pattern_subscription(self, cluster: Cluster) -> None:
        """Subscribe to the topics that match the pattern now."""
        matches = [topic for topic in cluster.topics if self._subscriptions.matches_subscribed_pattern(topic)]
        if self._subscriptions.subscribe_from_pattern(matches):
            self._metadata.request_update_for_new_topics()

    def rejoin_needed_or_pending(self) -> bool:
        if not self._subscriptions.has_auto_assigned_partitions():
            return False
        snapshot = self._assignment_snapshot
        if snapshot is not None and not snapshot.matches(self._metadata_snapshot):
            self.membership.request_rejoin_if_necessary(
                "cached metadata has changed",
                f"the assignment was made from {snapshot}, there is {self._metadata_snapshot} now",
            )
            return True
        if snapshot is not None:
            # Both have the same partitions, and the next check can skip comparing them.
            self._assignment_snapshot = self._metadata_snapshot
        joined, subscription = self._joined_subscription, self._subscriptions.subscription()
        if joined is not None and joined != subscription:
            self.membership.request_rejoin_if_necessary(
                "subscription has changed", f"the subscription was {sorted(joined)}, it is {sorted(subscription)} now"
            )
            return True
        return super().rejoin_needed_or_pending()

    # --- the group protocol ------------------------------------------------------------------------------------------

    @property
    def protocol_type(self) -> str:
        return consumer_protocol.PROTOCOL_TYPE

    def metadata(self) -> Sequence[tuple[str, bytes]]:
        topics = self._joined_subscription = self._subscriptions.subscription()
        owned = self._subscriptions.assigned_partitions_list()
        generation_id = self.membership.generation.generation_id
        offers = []
        for assignor in self._assignors:
            user_data = assignor.subscription_user_data(topics)
            subscription = Subscription(sorted(topics), user_data, owned, generation_id, self.config.rack_id)
            offers.append((assignor.name, consumer_protocol.serialize_subscription(subscription)))
        return offers

    def _assignor(self, name: str) -> ConsumerPartitionAssignor:
        for assignor in self._assignors:
            if assignor.name == name:
                return assignor
        raise IllegalStateError(f"the coordinator chose the assignor {name!r}, which this member did not offer")

    def on_leader_elected(
        self, protocol_name: str, members: Sequence[JoinGroupResponse.JoinGroupResponseMember], skip_assignment: bool
    ) -> Mapping[str, bytes]:
        assignor = self._assignor(protocol_name)
        subscriptions: dict[str, Subscription] = {}
        topics: set[str] = set()
        for member in members:
            subscription = consumer_protocol.deserialize_subscription(member.metadata)
            subscription.group_instance_id = member.group_instance_id
            subscriptions[member.member_id] = subscription
            topics.update(subscription.topics)
        # The leader watches the topics of all members: any change in them makes it rebalance.
        self._update_group_subscription(topics)
        self.is_leader = True
        if skip_assignment:
            self._log.info("This static member is the leader again; keeping the current assignment")
            self._assignment_snapshot = self._metadata_snapshot
            return {}
        assignments = assignor.assign(self._metadata.fetch(), subscriptions)
        if strangers := assignments.keys() - subscriptions.keys():
            self._log.warning(
                "Assignor %s assigned partitions to %s, which are not members of the group; ignoring these",
                assignor.name,
                ", ".join(sorted(strangers)),
            )
            assignments = {member_id: given for member_id, given in assignments.items() if member_id in subscriptions}
        if self._protocol == COOPERATIVE and assignor.name != _COOPERATIVE_STICKY:
            _validate_cooperative_assignment(subscriptions, assignments)
        if assignor.name not in _ASSIGN_FROM_SUBSCRIBED:
            self._take_note_of_other_topics(topics, assignments)
        # After the metadata that may have been fetched for it.
        self._assignment_snapshot = self._metadata_snapshot
        self._log.info(
            "Assigned as leader by %s: %s",
            assignor.name,
            "; ".join(f"{member_id}: {names(given.partitions)}" for member_id, given in sorted(assignments.items())),
        )
        # Members that the assignor left out get an empty assignment: Java members cannot decode zero bytes.
        return {
            member_id: consumer_protocol.serialize_assignment(assignments.get(member_id) or Assignment(()))
            for member_id in subscriptions
        }

    def _update_group_subscription(self, topics: Collection[str]) -> None:
        if self._subscriptions.group_subscribe(topics):
            self._metadata.request_update_for_new_topics()
        timer = Timer(self.clock, self.config.rebalance_timeout_ms)
        if not self.client.ensure_fresh_metadata(timer):
            raise KafkaTimeoutError(
                f"as leader of group {self.config.group_id!r}, no metadata of its topics within {timer.timeout_ms} ms: "
                f"{self.client.connection_report() or 'no broker answered'}"
            )
        self.maybe_update_subscription_metadata()

    def _take_note_of_other_topics(self, topics: set[str], assignments: Mapping[str, Assignment]) -> None:
        """Watch topics that no member has subscribed to, which an application's assignor may assign."""
        assigned = {tp.topic for assignment in assignments.values() for tp in assignment.partitions}
        if left_out := topics - assigned:
            self._log.warning("No partitions were assigned of the topics %s", ", ".join(sorted(left_out)))
        if added := assigned - topics:
            self._log.info("The assignor assigned topics that no member subscribes to: %s", ", ".join(sorted(added)))
            self._update_group_subscription(topics | added)

    def on_join_complete(self, generation: Generation, assignment: bytes) -> None:
        if not self.is_leader:  # only the leader watches the metadata
            self._assignment_snapshot = None
        assignor = self._assignor(generation.protocol_name or "")
        self._group_metadata = ConsumerGroupMetadata(
            self.config.group_id, generation.generation_id, generation.member_id, self.config.group_instance_id
        )
        try:
            # No bytes: the leader's assignor left this member out.
            given = consumer_protocol.deserialize_assignment(assignment) if assignment else Assignment(())
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"the leader sent an assignment that cannot be read: {error}") from error
        assigned = sorted(given.partitions)
        if not self._subscriptions.check_assignment_matched_subscription(assigned):
            self.request_rejoin(
                "received assignment does not match the current subscription",
                f"the assignment ({names(assigned)}) is for an older subscription than {self._subscriptions}",
            )
            return
        self._take_assignment(assignor, Assignment(assigned, given.user_data))

    def _take_assignment(self, assignor: ConsumerPartitionAssignor, assignment: Assignment) -> None:
        owned = self._subscriptions.assigned_partitions()
        added = [tp for tp in assignment.partitions if tp not in owned]
        failures: list[Exception | None] = []
        if self._protocol == COOPERATIVE:
            revoked = owned.difference(assignment.partitions)
            if revoked:
                # The state changes after the application was notified.
                failures.append(self._listeners.invoke_partitions_revoked(revoked))
                self.request_rejoin("need to revoke partitions and re-join", f"given back: {names(revoked)}")
        self._maybe_update_joined_subscription(assignment.partitions)
        try:
            assignor.on_assignment(assignment, self._group_metadata)
        except Exception as error:  # noqa: BLE001 - the application's code; raised below, when the state is right
            failures.append(error)
        self._commits.reschedule_auto_commit()
        self._subscriptions.assign_from_subscribed(assignment.partitions)
        failures.append(self._listeners.invoke_partitions_assigned(added))
        _raise_first(failures)

    def _maybe_update_joined_subscription(self, partitions: Collection[TopicPartition]) -> None:
        """Extend the joined subscription.

        The leader may know more topics that match the pattern than this member did when it joined.
        """
        joined = self._joined_subscription
        if joined is None or not self._subscriptions.has_pattern_subscription():
            return
        added = {tp.topic for tp in partitions} - joined
        if added:
            if self._subscriptions.subscribe_from_pattern(self._subscriptions.subscription() | added):
                self._metadata.request_update_for_new_topics()
            self._joined_subscription = joined | added

    # --- giving partitions back --------------------------------------------------------------------------------------

    def on_join_prepare(self, timer: Timer, generation: Generation) -> bool:
        if self._join_prepare_timer is None:
            # The member must join within the rebalance timeout, whatever becomes of the commit.
            self._join_prepare_timer = Timer(self.clock, self.config.rebalance_timeout_ms)
        self._join_prepare_timer.update()
        try:
            if not self._commit_before_joining(timer, self._join_prepare_timer):
                return False
        except BaseException:
            # Woken up or interrupted, or an error other than the commit's. The application was not notified yet, and a
            # commit that was sent continues: the next poll comes here again and awaits it.
            self.membership.need_join_prepare()
            raise
        # From here on this is not repeated, even if the listener raises: the next rebalance has its own time.
        self._join_prepare_timer = None
        self._auto_commit_future = None
        owned = self._subscriptions.assigned_partitions()
        failure: Exception | None = None
        if generation.generation_id == NO_GENERATION.generation_id or not generation.has_member_id:
            if owned:
                self._log.info("The membership has ended, so other members may own these partitions already")
                failure = self._listeners.invoke_partitions_lost(owned)
                self._subscriptions.assign_from_subscribed(())
        elif self._protocol == EAGER:
            failure = self._listeners.invoke_partitions_revoked(owned)
            self._subscriptions.assign_from_subscribed(())
        else:
            subscription = self._subscriptions.subscription()
            revoked = {tp for tp in owned if tp.topic not in subscription}
            if revoked:
                failure = self._listeners.invoke_partitions_revoked(revoked)
                self._subscriptions.assign_from_subscribed(owned - revoked)
        self.is_leader = False
        self._subscriptions.reset_group_subscription()
        timer.update()
        _raise_first([failure])
        return True

    def _commit_before_joining(self, timer: Timer, limit: Timer) -> bool:
        """Commit the partitions to be revoked; return False while the commit is in flight or must be repeated."""
        if self._auto_commit_future is None:
            if not self._commits.auto_commit_enabled:
                return True
            if self._protocol == EAGER:
                # No more records are returned from here on: they would be after the committed position.
                self._subscriptions.mark_pending_revocation(self._subscriptions.assigned_partitions())
            self._auto_commit_future = self._commits.auto_commit_async()
            self.client.poll_no_wakeup()
        future = self._auto_commit_future
        wait = timer if timer.remaining_ms < limit.remaining_ms else limit
        self.client.poll_future(future, wait)
        limit.update()
        again = not future.is_done or (future.failed and future.is_retriable)
        if future.is_done:
            self._auto_commit_future = None
        if limit.expired:
            self._log.error("Joining without a commit, which took longer than max.poll.interval.ms")
            return True
        if again:
            wait.sleep_ms(min(wait.remaining_ms, self.config.retry_backoff_ms))
            timer.update()
            return False
        if future.failed:
            self._log.error("Joining without a commit, which failed: %s", future.exception)
        return True

    def on_leave_prepare(self) -> None:
        """Revoke all partitions, as this member is about to leave. Raises the listener's error as KafkaError."""
        generation = self.membership.generation  # the heartbeat thread may change it at any time
        owned = self._subscriptions.assigned_partitions()
        if not owned or not self._subscriptions.has_auto_assigned_partitions():
            return
        if (
            generation.generation_id == NO_GENERATION.generation_id
            or not generation.has_member_id
            or self.membership.rebalance_in_progress
        ):
            failure = self._listeners.invoke_partitions_lost(owned)
        else:
            failure = self._listeners.invoke_partitions_revoked(owned)
        self._subscriptions.assign_from_subscribed(())
        _raise_first([failure])

    # --- offsets -----------------------------------------------------------------------------------------------------

    @property
    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member's place in the group, as of the last completed join."""
        return self._group_metadata

    @property
    def last_error(self) -> Exception | None:
        """The error of the last offset fetch or coordinator lookup."""
        return self._committed.last_error or self.finder.last_error

    def commit_sync(self, offsets: Offsets, timer: Timer) -> None:
        """Commit, and wait until it is done. Callbacks of earlier asynchronous commits have run when this returns.

        Raises:
            KafkaTimeoutError: the timer has expired first.
            WakeupError: ``wakeup`` was called.
            KafkaError: the commit failed, and no retry will help.
        """
        self.run_commit_callbacks()
        self._committed.forget()
        future = self._commits.commit_sync(offsets, timer.remaining_ms)
        try:
            while not future.is_done or self.events:
                self.driver.run_until(lambda: future.is_done or bool(self.events), Timer(self.clock, FOREVER_MS))
                self._run_events()  # earlier commits are reported first
        finally:
            if not future.is_done:
                future.give_up(WakeupError("the call that waited for the commit has ended"))
        if future.failed:
            raise future.exception

    def commit_async(self, offsets: Offsets, callback: OffsetCommitCallback | None = None) -> RequestFuture[None]:
        """Commit without waiting. Callbacks of earlier commits run first."""
        self._run_events()
        self._committed.forget()
        future = self._commits.commit_async(offsets, callback)
        # Give it a chance to be sent: the application may not poll for a while.
        self.client.poll_no_wakeup()
        return future

    @property
    def has_pending_async_commits(self) -> bool:
        """True while an asynchronous commit is in flight, or its callback has not run yet."""
        return self._commits.awaits_answers or bool(self.events)

    def run_commit_callbacks(self) -> None:
        """Run the callbacks of asynchronous commits that were answered.

        While records are buffered, ``poll`` does not wait for the network, so this reads the responses itself.

        Raises:
            FencedInstanceIdError: a commit was fenced.
        """
        if self._commits.awaits_answers:
            self.client.poll_no_wakeup()
        self._run_events()

    def _run_events(self) -> None:
        self._commits.raise_if_fenced()
        self.events.run()

    def auto_commit_now(self) -> None:
        """Commit automatically now, as partitions are about to be given up."""
        if self._commits.auto_commit_enabled:
            self._run_events()
            self._commits.auto_commit_async()
            self.client.poll_no_wakeup()

    def committed(self, partitions: Collection[TopicPartition], timer: Timer) -> CommittedOffsets:
        """Return the group's committed offsets.

        Raises:
            KafkaTimeoutError: the timer has expired first.
            WakeupError: ``wakeup`` was called.
            KafkaError: they cannot be looked up, and no retry will help.
        """
        return self.driver.result(self._committed.fetch(partitions, timer.remaining_ms))

    def start_new_partitions(self) -> bool:
        """Start new partitions at their committed offsets; return False while these are not known."""
        return self._committed.start_new_partitions()

    # --- closing -----------------------------------------------------------------------------------------------------

    def close(self, timer: Timer, operation: str = DEFAULT, *, auto_commit: bool = True) -> None:
        """Commit a last time, if commits are automatic and ``auto_commit`` is set; then leave."""
        self.client.disable_wakeups()
        try:
            if auto_commit and self._commits.auto_commit_enabled:
                self._auto_commit_last(timer)
            self.driver.run_until(lambda: not self._commits.awaits_coordinator, timer)
        except (KeyboardInterrupt, SystemExit):
            timer.reset(0)  # still send LeaveGroup, but do not wait for the response
            raise
        finally:
            super().close(timer, operation)
        self._run_events()

    def _auto_commit_last(self, timer: Timer) -> None:
        """Commit the consumed offsets, and wait. Raises nothing but a callback's WakeupError."""
        offsets = self._commits.consumed()
        try:
            self.commit_sync(offsets, timer)
        except WakeupError:
            raise
        except KafkaTimeoutError as error:
            why = error.__cause__ or "no answer"
            self._log.warning("Not committed in the time there was: %s (%s)", shown(offsets), why)
        except KafkaError as error:
            self._log.warning("The last automatic commit of %s failed: %s", shown(offsets), error)


def _common_protocol(assignors: Sequence[ConsumerPartitionAssignor]) -> int | None:
    """Return the highest rebalance protocol that all assignors support; None without assignors."""
    if not assignors:
        return None
    common = set.intersection(*(set(assignor.supported_protocols) for assignor in assignors))
    if not common:
        offered = ", ".join(assignor.name for assignor in assignors)
        raise ConfigError(f"partition.assignment.strategy: {offered} have no rebalance protocol in common")
    return max(common)


def _validate_cooperative_assignment(
    subscriptions: Mapping[str, Subscription], assignments: Mapping[str, Assignment]
) -> None:
    """Check that no partition moves directly from one member to another, as its owner still reads it (KIP-429)."""
    added: set[TopicPartition] = set()
    revoked: set[TopicPartition] = set()
    for member_id, assignment in assignments.items():
        owned = set(subscriptions[member_id].owned_partitions)
        added |= set(assignment.partitions) - owned
        revoked |= owned.difference(assignment.partitions)
    if added & revoked:
        raise IllegalStateError(
            f"the assignor supports COOPERATIVE but gives partitions away that still have an owner: "
            f"{names(added & revoked)}"
        )


def _raise_first(failures: Sequence[Exception | None]) -> None:
    for failure in failures:
        if isinstance(failure, KafkaError):
            raise failure
        if failure is not None:
            raise KafkaError(f"the rebalance listener or assignor failed: {failure!r}") from failure
