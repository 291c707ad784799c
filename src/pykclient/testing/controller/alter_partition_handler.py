"""Leaders' requests to change their in-sync replicas (Java: KafkaController.tryProcessAlterPartition)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pykclient.errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidRequestError,
    InvalidUpdateVersionError,
    NotControllerError,
    OperationNotAttemptedError,
    StaleBrokerEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from pykclient.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from pykclient.testing.coordination.znodes import RECOVERED, RECOVERING, LeaderAndIsr, LeaderIsrAndControllerEpoch
from pykclient.types import TopicPartition

if TYPE_CHECKING:
    from pykclient.testing.broker import Broker
    from pykclient.testing.controller.kafka_controller import KafkaController

#: From this version on, requests identify topics by id.
_FIRST_VERSION_WITH_TOPIC_IDS = 2
_FIRST_VERSION_WITH_BROKER_EPOCHS = 3

Respond = Callable[[AlterPartitionResponse], None]


class AlterPartitionHandler:
    """Accepts a new ISR if it is from the current leader and based on the current state (KIP-497).

    Thread: loop.
    """

    def __init__(self, broker: Broker, controller: KafkaController) -> None:
        self._log = broker.log_context.logger(__name__)
        self._controller = controller

    def alter_partitions(self, request: AlterPartitionRequest, version: int, respond: Respond) -> None:
        """Handle a request; call ``respond`` with the response once the controller has processed it."""
        self._controller.put(
            "AlterPartitionReceived",
            lambda: self._process(request, version, respond),
            lambda: respond(AlterPartitionResponse(error_code=NotControllerError.code)),
        )

    def _process(self, request: AlterPartitionRequest, version: int, respond: Respond) -> None:
        controller = self._controller
        if not controller.is_active:
            respond(AlterPartitionResponse(error_code=NotControllerError.code))
            return
        context = controller.context
        if context.live_broker_epochs.get(request.broker_id) != request.broker_epoch:
            respond(AlterPartitionResponse(error_code=StaleBrokerEpochError.code))
            return
        response = AlterPartitionResponse()
        wanted = self._wanted(request, version, response)
        outcomes: dict[TopicPartition, LeaderAndIsr | int] = {}
        accepted: dict[TopicPartition, LeaderAndIsr] = {}
        for topic_partition, (state, epochs) in wanted.items():
            verdict = self._judge(topic_partition, state, epochs, version)
            if verdict is None:
                accepted[topic_partition] = state
            else:
                outcomes[topic_partition] = verdict
        updated, refused = controller.store.update_leader_and_isr(accepted, context.epoch, context.epoch_version)
        for topic_partition in refused:
            outcomes[topic_partition] = InvalidUpdateVersionError.code
        for topic_partition, state in updated.items():
            outcomes[topic_partition] = state
            context.leadership[topic_partition] = LeaderIsrAndControllerEpoch(state, context.epoch)
        # Also for rejected changes: the leader may have missed the state they should be based on.
        controller.send_update_metadata(context.live_or_shutting_down_broker_ids, wanted)
        self._fill(response, outcomes, version)
        respond(response)
        for topic_partition, outcome in outcomes.items():
            if isinstance(outcome, LeaderAndIsr):
                controller.reassigner.maybe_complete(topic_partition)

    def _wanted(
        self, request: AlterPartitionRequest, version: int, response: AlterPartitionResponse
    ) -> dict[TopicPartition, tuple[LeaderAndIsr, dict[int, int]]]:
        """Return the requested states with the broker epochs of their ISRs; unknown topics go into the response."""
        wanted = {}
        for topic in request.topics:
            if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
                name = self._controller.context.topic_names.get(topic.topic_id)
            else:
                name = topic.topic_name
            if name is None:
                unknown = [
                    AlterPartitionResponse.PartitionData(
                        partition_index=partition.partition_index, error_code=UnknownTopicIdError.code
                    )
                    for partition in topic.partitions
                ]
                response.topics.append(AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=unknown))
                continue
            for partition in topic.partitions:
                if version >= _FIRST_VERSION_WITH_BROKER_EPOCHS:
                    epochs = {member.broker_id: member.broker_epoch for member in partition.new_isr_with_epochs}
                else:
                    epochs = dict.fromkeys(partition.new_isr, -1)
                wanted[TopicPartition(name, partition.partition_index)] = (
                    LeaderAndIsr(
                        request.broker_id,
                        partition.leader_epoch,
                        tuple(epochs),
                        partition.leader_recovery_state,
                        partition.partition_epoch,
                    ),
                    epochs,
                )
        return wanted

    def _judge(
        self, topic_partition: TopicPartition, state: LeaderAndIsr, epochs: dict[int, int], version: int
    ) -> LeaderAndIsr | int | None:
        """Judge a requested state: None to write it, the current state if both are equal, else an error code."""
        context = self._controller.context
        info = context.leadership.get(topic_partition)
        if info is None or context.is_topic_queued_up_for_deletion(topic_partition.topic):
            return UnknownTopicOrPartitionError.code
        current = info.leader_and_isr
        if state.partition_epoch > current.partition_epoch or state.leader_epoch > current.leader_epoch:
            # The leader knows more than this controller, so this controller was replaced.
            return NotControllerError.code
        if state.leader_epoch < current.leader_epoch:
            return FencedLeaderEpochError.code
        if state.equals_allow_stale_partition_epoch(current):
            return current
        if state.partition_epoch < current.partition_epoch:
            return InvalidUpdateVersionError.code
        if state.leader_recovery_state == RECOVERING and (
            len(state.isr) > 1 or current.leader_recovery_state == RECOVERED
        ):
            return InvalidRequestError.code
        ineligible = [
            id
            for id in state.isr
            if not context.is_live_broker(id) or epochs[id] not in (-1, context.live_broker_epochs[id])
        ]
        if ineligible:
            self._log.info(
                "Controller: refused the ISR %s of %s, as %s are not eligible", state.isr, topic_partition, ineligible
            )
            if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
                return IneligibleReplicaError.code
            return OperationNotAttemptedError.code
        return None

    def _fill(
        self, response: AlterPartitionResponse, outcomes: dict[TopicPartition, LeaderAndIsr | int], version: int
    ) -> None:
        topics: dict[str, AlterPartitionResponse.TopicData] = {}
        for (name, index), outcome in outcomes.items():
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = AlterPartitionResponse.TopicData()
                if version >= _FIRST_VERSION_WITH_TOPIC_IDS:
                    topic.topic_id = self._controller.context.topic_id(name)
                else:
                    topic.topic_name = name
                response.topics.append(topic)
            if isinstance(outcome, int):
                partition = AlterPartitionResponse.PartitionData(partition_index=index, error_code=outcome)
            else:
                partition = AlterPartitionResponse.PartitionData(
                    partition_index=index,
                    leader_id=outcome.leader,
                    leader_epoch=outcome.leader_epoch,
                    isr=outcome.isr,
                    leader_recovery_state=outcome.leader_recovery_state,
                    partition_epoch=outcome.partition_epoch,
                )
            topic.partitions.append(partition)
