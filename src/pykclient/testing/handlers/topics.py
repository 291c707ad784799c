"""Topics and their partitions: create, delete, reassign, elect leaders, and describe log directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykclient import errors
from pykclient.protocol.api_keys import ApiKeys
from pykclient.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from pykclient.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from pykclient.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from pykclient.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from pykclient.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from pykclient.protocol.wire import ZERO_UUID
from pykclient.testing import acls
from pykclient.testing.broker import Broker
from pykclient.testing.controller.admin_manager import TopicOutcome
from pykclient.testing.controller.config_manager import topic_entries
from pykclient.testing.controller.state_machines import PREFERRED, UNCLEAN
from pykclient.testing.handlers import by_topic, serves
from pykclient.testing.inter_broker_requests import grouped
from pykclient.testing.request_channel import Request
from pykclient.types import TopicPartition

# --- CreateTopics ----------------------------------------------------------------------------------------------------

_FIRST_VERSION_WITH_CONFIGS = 5

_CreateTopicsResult = CreateTopicsResponse.CreatableTopicResult


@serves(ApiKeys.CREATE_TOPICS, (0, 7))
def handle_create_topics(broker: Broker, request: Request, body: CreateTopicsRequest) -> None:
    """Respond once this broker knows leaders for all partitions, or time is up."""
    auth = broker.auth
    names = {topic.name for topic in body.topics}
    authorized = names
    if not auth.authorize(request, acls.CREATE, acls.CLUSTER, acls.CLUSTER_NAME):
        authorized = auth.filter(request, acls.CREATE, acls.TOPIC, names)

    def respond(outcomes: Mapping[str, TopicOutcome]) -> None:
        denied = dict.fromkeys(
            names - authorized, TopicOutcome(errors.TopicAuthorizationError("Authorization failed."))
        )
        results = [_result(broker, request, name, outcome) for name, outcome in {**outcomes, **denied}.items()]
        request.respond(CreateTopicsResponse(topics=results))

    topics = [topic for topic in body.topics if topic.name in authorized]
    create = broker.controller.admin_manager.create_topics
    broker.controller.handle(request, lambda: create(body.timeout_ms, body.validate_only, topics, respond))


def _result(broker: Broker, request: Request, name: str, outcome: TopicOutcome) -> _CreateTopicsResult:
    if outcome.error is not None:
        return _CreateTopicsResult(name=name, error_code=outcome.error.code, error_message=str(outcome.error))
    result = _CreateTopicsResult(name=name, topic_id=outcome.topic_id, error_message=None)
    if not broker.auth.authorize(request, acls.DESCRIBE_CONFIGS, acls.TOPIC, name):
        result.num_partitions = result.replication_factor = -1
        if request.api_version >= _FIRST_VERSION_WITH_CONFIGS:
            result.topic_config_error_code = errors.TopicAuthorizationError.code
            result.configs = None
        return result
    result.num_partitions = outcome.num_partitions
    result.replication_factor = outcome.replication_factor
    if request.api_version >= _FIRST_VERSION_WITH_CONFIGS:
        dynamic = broker.controller.config_manager.dynamic_defaults
        result.configs = [
            CreateTopicsResponse.CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.read_only,
                config_source=entry.config_source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in topic_entries(broker.config, outcome.config or {}, dynamic)
        ]
    return result


# --- DeleteTopics ----------------------------------------------------------------------------------------------------

#: Earlier versions have no error code for it.
_FIRST_VERSION_WITH_DELETION_DISABLED = 3

_DeleteTopicsResult = DeleteTopicsResponse.DeletableTopicResult


def refuse_delete_topics(body: DeleteTopicsRequest, code: int, message: str | None = None) -> DeleteTopicsResponse:
    states = body.topics or [DeleteTopicsRequest.DeleteTopicState(name=name) for name in body.topic_names]
    return DeleteTopicsResponse(
        responses=[
            _DeleteTopicsResult(name=state.name, topic_id=state.topic_id, error_code=code, error_message=message)
            for state in states
        ]
    )


@serves(ApiKeys.DELETE_TOPICS, (0, 6), refuse=refuse_delete_topics)
def handle_delete_topics(broker: Broker, request: Request, body: DeleteTopicsRequest) -> None:
    """Respond once the topics are completely deleted, or time is up."""
    states = body.topics or [DeleteTopicsRequest.DeleteTopicState(name=name) for name in body.topic_names]
    auth = broker.auth
    results: list[_DeleteTopicsResult] = []
    ids = {}
    for index, state in enumerate(states):
        if state in states[:index]:
            continue  # the first occurrence was rejected for both
        try:
            name = _name(broker, state, states)
            auth.check_topic(request, acls.DELETE, name)
            ids[name] = state.topic_id
        except errors.TopicAuthorizationError as error:
            # By id, the response does not tell the name of a topic that the client may not describe.
            may_see = state.name is not None or auth.authorize(request, acls.DESCRIBE, acls.TOPIC, name)
            results.append(_failed(name if may_see else None, error, state))
        except errors.BrokerError as error:
            results.append(_failed(state.name, error, state))

    def respond(outcomes: Mapping[str, TopicOutcome]) -> None:
        for name, outcome in outcomes.items():
            error = outcome.error
            if error is None:
                results.append(_DeleteTopicsResult(name=name, topic_id=outcome.topic_id))
                continue
            is_old = request.api_version < _FIRST_VERSION_WITH_DELETION_DISABLED
            if is_old and isinstance(error, errors.TopicDeletionDisabledError):
                error = errors.InvalidRequestError("Topic deletion is disabled.")
            results.append(_failed(name, error, DeleteTopicsRequest.DeleteTopicState(name=name, topic_id=ids[name])))
        request.respond(DeleteTopicsResponse(responses=results))

    delete = broker.controller.admin_manager.delete_topics
    broker.controller.handle(request, lambda: delete(body.timeout_ms, list(ids), respond))


def _name(
    broker: Broker, state: DeleteTopicsRequest.DeleteTopicState, states: list[DeleteTopicsRequest.DeleteTopicState]
) -> str:
    """Return the topic's name.

    Raises:
        InvalidRequestError, UnknownTopicIdError: the request is contradictory, or the id is unknown.
    """
    if states.count(state) > 1:
        kind = "name" if state.name is not None else "id"
        raise errors.InvalidRequestError(f"Duplicate topic {kind}.")
    if state.name is not None:
        if state.topic_id != ZERO_UUID:
            raise errors.InvalidRequestError("You may not specify both topic name and topic id.")
        return state.name
    if state.topic_id == ZERO_UUID:
        raise errors.InvalidRequestError("Neither topic name nor id were specified.")
    name = broker.metadata_cache.topic_name(state.topic_id)
    if name is None:
        raise errors.UnknownTopicIdError("This server does not host this topic ID.")
    return name


def _failed(
    name: str | None, error: errors.BrokerError, state: DeleteTopicsRequest.DeleteTopicState
) -> _DeleteTopicsResult:
    return _DeleteTopicsResult(name=name, topic_id=state.topic_id, error_code=error.code, error_message=str(error))


# --- CreatePartitions ------------------------------------------------------------------------------------------------

_CreatePartitionsResult = CreatePartitionsResponse.CreatePartitionsTopicResult


@serves(ApiKeys.CREATE_PARTITIONS, CreatePartitionsRequest.VERSIONS)
def handle_create_partitions(broker: Broker, request: Request, body: CreatePartitionsRequest) -> None:
    """Respond once this broker knows leaders for all partitions, or time is up."""

    authorized = broker.auth.filter(request, acls.ALTER, acls.TOPIC, (topic.name for topic in body.topics))

    def respond(outcomes: Mapping[str, TopicOutcome]) -> None:
        results = []
        for name, outcome in outcomes.items():
            if outcome.error is None:
                results.append(_CreatePartitionsResult(name=name, error_message=None))
            else:
                # Like Kafka, which has no text for a missing topic.
                unknown = isinstance(outcome.error, errors.UnknownTopicOrPartitionError)
                message = None if unknown else str(outcome.error)
                results.append(_CreatePartitionsResult(name=name, error_code=outcome.error.code, error_message=message))
        results += [
            _CreatePartitionsResult(name=name, error_code=errors.TopicAuthorizationError.code, error_message=None)
            for name in dict.fromkeys(topic.name for topic in body.topics)
            if name not in authorized
        ]
        request.respond(CreatePartitionsResponse(results=results))

    topics = [topic for topic in body.topics if topic.name in authorized]
    create = broker.controller.admin_manager.create_partitions
    broker.controller.handle(request, lambda: create(body.timeout_ms, body.validate_only, topics, respond))


# --- AlterPartitionReassignments -------------------------------------------------------------------------------------

_AlterPartitionReassignmentsResult = AlterPartitionReassignmentsResponse.ReassignablePartitionResponse


@serves(ApiKeys.ALTER_PARTITION_REASSIGNMENTS, AlterPartitionReassignmentsRequest.VERSIONS, everywhere=True)
def handle_alter_partition_reassignments(
    broker: Broker, request: Request, body: AlterPartitionReassignmentsRequest
) -> None:
    """Respond, from the controller, once the moves are stored. They complete later."""
    broker.auth.check_cluster(request, acls.ALTER)
    wanted: dict[TopicPartition, Sequence[int] | None] = {
        TopicPartition(topic.name, partition.partition_index): partition.replicas
        for topic in body.topics
        for partition in topic.partitions
    }

    def process() -> None:
        outcomes = broker.controller.reassigner.alter_partition_reassignments(
            wanted, body.allow_replication_factor_change
        )
        results = (
            (topic, _AlterPartitionReassignmentsResult(partition_index=index, error_code=code, error_message=message))
            for (topic, index), (code, message) in outcomes.items()
        )
        request.respond(
            AlterPartitionReassignmentsResponse(
                allow_replication_factor_change=body.allow_replication_factor_change,
                error_message=None,
                responses=by_topic(AlterPartitionReassignmentsResponse.ReassignableTopicResponse, results),
            )
        )

    broker.controller.handle(request, process)


# --- ListPartitionReassignments --------------------------------------------------------------------------------------


@serves(ApiKeys.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest.VERSIONS)
def handle_list_partition_reassignments(
    broker: Broker, request: Request, body: ListPartitionReassignmentsRequest
) -> None:
    """Respond, from the controller."""
    broker.auth.check_cluster(request, acls.DESCRIBE)
    if not broker.controller.is_active:
        raise errors.NotControllerError
    wanted = None
    if body.topics is not None:
        wanted = {TopicPartition(topic.name, index) for topic in body.topics for index in topic.partition_indexes}
    response_class = ListPartitionReassignmentsResponse
    ongoing = (
        (
            topic,
            response_class.OngoingPartitionReassignment(
                partition_index=index,
                replicas=assignment.replicas,
                adding_replicas=assignment.adding_replicas,
                removing_replicas=assignment.removing_replicas,
            ),
        )
        for (topic, index), assignment in broker.controller.reassigner.in_progress(wanted).items()
    )
    topics = by_topic(response_class.OngoingTopicReassignment, ongoing)
    request.respond(response_class(error_message=None, topics=topics))


# --- ElectLeaders ----------------------------------------------------------------------------------------------------

_FIRST_VERSION_WITH_ERROR_AT_THE_TOP = 1

_ElectLeadersResult = ElectLeadersResponse.PartitionResult


def refuse_elect_leaders(body: ElectLeadersRequest, code: int, message: str | None = None) -> ElectLeadersResponse:
    """Return the error for each partition, or at the top level if all were requested and the version allows it."""
    return ElectLeadersResponse(
        error_code=0 if body.topic_partitions else code,
        replica_election_results=[
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    _ElectLeadersResult(partition_id=index, error_code=code, error_message=message)
                    for index in topic.partitions
                ],
            )
            for topic in body.topic_partitions or ()
        ],
    )


@serves(ApiKeys.ELECT_LEADERS, ElectLeadersRequest.VERSIONS, refuse=refuse_elect_leaders)
def handle_elect_leaders(broker: Broker, request: Request, body: ElectLeadersRequest) -> None:
    """Respond, from the controller, with the result of each partition."""
    broker.auth.check_cluster(request, acls.ALTER)
    if body.election_type not in (PREFERRED, UNCLEAN):
        raise errors.InvalidRequestError(f"Unknown election type {body.election_type}")

    partitions = None
    if body.topic_partitions is not None:
        partitions = [
            TopicPartition(topic.topic, index) for topic in body.topic_partitions for index in topic.partitions
        ]

    def process() -> None:
        outcomes = broker.controller.elector.elect_leaders(partitions, body.election_type)
        topics = grouped(
            (topic, _ElectLeadersResult(partition_id=index, error_code=error_code, error_message=message))
            for (topic, index), (error_code, message) in outcomes.items()
        )
        # If all partitions were requested, only those with an attempted election are reported.
        left_out = errors.ElectionNotNeededError.code if body.topic_partitions is None else None
        results = [
            ElectLeadersResponse.ReplicaElectionResult(
                topic=topic, partition_result=[result for result in found if result.error_code != left_out]
            )
            for topic, found in topics.items()
        ]
        request.respond(ElectLeadersResponse(replica_election_results=results))

    def refuse() -> None:
        response = refuse_elect_leaders(body, errors.NotControllerError.code)
        has_error_at_the_top = request.api_version >= _FIRST_VERSION_WITH_ERROR_AT_THE_TOP
        response.error_code = errors.NotControllerError.code if has_error_at_the_top else 0
        request.respond(response)

    broker.controller.put_if_active("ReplicaLeaderElection", process, refuse)


# --- DescribeLogDirs -------------------------------------------------------------------------------------------------


def refuse_describe_log_dirs(
    body: DescribeLogDirsRequest, code: int, message: str | None = None
) -> DescribeLogDirsResponse:
    # Before version 3, the error only fits into a directory.
    return DescribeLogDirsResponse(
        error_code=code, results=[DescribeLogDirsResponse.DescribeLogDirsResult(error_code=code)]
    )


@serves(ApiKeys.DESCRIBE_LOG_DIRS, (0, 5), refuse=refuse_describe_log_dirs)
def handle_describe_log_dirs(broker: Broker, request: Request, body: DescribeLogDirsRequest) -> None:
    """Respond with one directory. Its free space is what remains of the cluster's memory limit."""
    broker.auth.check_cluster(request, acls.DESCRIBE)
    disk = broker.disk
    result = DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=f"/memory/broker-{broker.id}")
    if disk.offline:
        result.error_code = errors.KafkaStorageError.code
    else:
        result.topics = _topics(broker, body)
        if request.api_version >= 4:
            result.total_bytes = disk.budget.limit_bytes
            result.usable_bytes = max(0, disk.budget.limit_bytes - disk.budget.held_bytes)
    request.respond(DescribeLogDirsResponse(results=[result]))


def _topics(broker: Broker, body: DescribeLogDirsRequest) -> list[DescribeLogDirsResponse.DescribeLogDirsTopic]:
    wanted = None
    if body.topics is not None:
        wanted = {TopicPartition(topic.topic, index) for topic in body.topics for index in topic.partitions}
    found = (
        (
            log.topic_partition.topic,
            DescribeLogDirsResponse.DescribeLogDirsPartition(
                partition_index=log.topic_partition.partition,
                partition_size=log.size,
                offset_lag=max(0, log.high_watermark - log.log_end_offset),
            ),
        )
        for log in broker.log_manager.all_logs
        if wanted is None or log.topic_partition in wanted
    )
    return by_topic(DescribeLogDirsResponse.DescribeLogDirsTopic, found)
