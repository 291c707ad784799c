"""The methods of KafkaAdminClient for topics and partitions, as kafka-python has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from pykclient.admin import expect
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.operation import CallContext, Operation
from pykclient.admin.plain import is_answer, plain, with_operations
from pykclient.admin.results import Results
from pykclient.admin.topics import (
    all_metadata,
    creatable_topics,
    create_partitions,
    create_topics,
    delete_topics,
    describe_topics,
    new_partitions,
    topic_keys,
)
from pykclient.admin.values import ConfigSourceType, NewPartitions, NewTopic
from pykclient.errors import BrokerError, IllegalArgumentError, KafkaError, KafkaTimeoutError
from pykclient.protocol.messages.create_partitions import CreatePartitionsResponse
from pykclient.protocol.messages.create_topics import CreateTopicsResponse
from pykclient.protocol.messages.delete_topics import DeleteTopicsResponse

_Result = CreatePartitionsResponse.CreatePartitionsTopicResult

_WAIT_INTERVAL_MS = 100


def raise_first(results: Results[Any, Any], *, also_broker_errors: bool) -> None:
    """Raise the first error of an item.

    Errors that no broker has reported, such as a timeout, have no place in a response and are always raised; those of
    a broker only if they are asked for.

    Raises:
        KafkaError: the error.
    """
    for error in results.failed.values():
        if also_broker_errors or not is_answer(error):
            raise error


def error_fields(error: KafkaError) -> dict[str, Any]:
    """Return the fields of a response that an error was made from."""
    return {"error_code": error.code if isinstance(error, BrokerError) else -1, "error_message": str(error)}


class TopicCalls(AdminBase):
    """Topics and their partitions."""

    def create_topics(
        self,
        new_topics: Iterable[str | NewTopic] | Mapping[str, Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
        wait_for_metadata: bool = False,
    ) -> dict[str, Any]:
        """Create topics.

        ``new_topics`` is a list of names or NewTopic objects, or a dict of options by name: ``num_partitions`` and
        ``replication_factor`` (default: the brokers' defaults), ``assignments`` (broker ids by partition) and
        ``configs``. With ``validate_only``, the brokers only check the request. With ``wait_for_metadata``, wait until
        all partitions have leaders. ``timeout_ms`` is in milliseconds, by default ``default.api.timeout.ms``.

        Return ``{"topics": [...]}`` with a dict for each topic. With ``raise_errors=False``, the errors of topics are
        in these dicts.

        Raises:
            TopicExistsError: a topic exists already.
            PolicyViolationError: a policy of the brokers does not allow a topic.
            TopicAuthorizationError: not authorized to create a topic.
            KafkaTimeoutError: it was not done within ``timeout_ms``.
            IllegalArgumentError: an argument is wrong.
            KafkaError: any other error of a topic.
        """
        is_trial = expect.flag(validate_only, "validate_only")
        waits = expect.flag(wait_for_metadata, "wait_for_metadata")
        raises = expect.flag(raise_errors, "raise_errors")
        if is_trial and waits:
            raise IllegalArgumentError("with validate_only there is nothing to wait for: leave out wait_for_metadata")
        creatable = creatable_topics(new_topics)
        results = self._run("create_topics", timeout_ms, lambda context: create_topics(context, creatable, is_trial))
        raise_first(results, also_broker_errors=raises)
        if waits:
            self.wait_for_topics(list(creatable))
        found = []
        for name in creatable:
            if name in results.failed:
                topic = plain(CreateTopicsResponse.CreatableTopicResult(name=name, error_message=None))
                topic.update(error_fields(results.failed[name]))
            else:
                topic = plain(results.succeeded[name])
            configs = topic.pop("configs")
            if configs:
                topic["configs"] = {config.pop("name"): _with_source(config) for config in configs}
            found.append(topic)
        return {"topics": found}

    def wait_for_topics(self, topic_names: Iterable[str], timeout_ms: int = 10000) -> None:
        """Wait until all partitions of the topics have leaders.

        Raises:
            KafkaTimeoutError: they have not within ``timeout_ms``; the text tells what is missing.
        """
        names = expect.texts(topic_names, "topic_names")
        clock = self._components.clock
        end_ms = clock.now_ms() + expect.number(timeout_ms, "timeout_ms")
        while names:
            missing: dict[str, str] = {}
            found = self._run("wait_for_topics", timeout_ms, lambda context: describe_topics(context, names))
            for name in names:
                if name in found.failed:
                    missing[name] = str(found.failed[name])
                elif leaderless := [
                    partition.partition_index
                    for partition in found.succeeded[name].partitions
                    if partition.leader_id < 0 or partition.error_code
                ]:
                    missing[name] = f"no leader of partitions {leaderless}"
                elif not found.succeeded[name].partitions:
                    missing[name] = "no partitions yet"
            if not missing:
                return
            if clock.now_ms() >= end_ms:
                raise KafkaTimeoutError(f"topics are not ready after {timeout_ms} ms: {missing}")
            clock.sleep_ms(_WAIT_INTERVAL_MS)

    def delete_topics(
        self, topics: Iterable[str | UUID], timeout_ms: int | None = None, raise_errors: bool = True
    ) -> dict[str, Any]:
        """Delete topics, given by name or by id.

        Return ``{"topics": [...]}`` with a dict for each topic. With ``raise_errors=False``, the errors of topics are
        in these dicts.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            TopicAuthorizationError: not authorized to delete a topic.
            KafkaTimeoutError: it was not done within ``timeout_ms``.
            KafkaError: any other error of a topic.
        """
        keys = topic_keys(topics)
        raises = expect.flag(raise_errors, "raise_errors")
        results = self._run("delete_topics", timeout_ms, lambda context: delete_topics(context, keys))
        raise_first(results, also_broker_errors=raises)
        found = []
        for key in keys:
            if key in results.failed:
                topic = DeleteTopicsResponse.DeletableTopicResult(name=None, error_message=None)
                if isinstance(key, UUID):
                    topic.topic_id = key
                else:
                    topic.name = key
                found.append({**plain(topic), **error_fields(results.failed[key])})
            else:
                found.append(plain(results.succeeded[key]))
        return {"topics": found}

    def list_topics(self) -> list[str]:
        """Return the names of all topics that this client may describe."""
        response = self._run("list_topics", None, lambda context: all_metadata(context, "list_topics"))
        return [topic.name for topic in response.topics if topic.name is not None]

    def describe_topics(self, topics: Iterable[str | UUID] | None = None) -> list[dict[str, Any]]:
        """Return a dict for each topic, of those given by name or id, or of all. Errors of topics are in the dicts."""
        keys = None if topics is None else topic_keys(topics)
        response = self._run("describe_topics", None, lambda context: all_metadata(context, "describe_topics", keys))
        return [with_operations(plain(topic)) for topic in response.topics]

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        timeout_ms: int | None = None,
        validate_only: bool = False,
        raise_errors: bool = True,
    ) -> CreatePartitionsResponse:
        """Add partitions to topics.

        ``topic_partitions`` maps each topic to the number of partitions that it shall have, or to a NewPartitions, or
        to a dict with ``count`` and ``assignments``, the replicas of each new partition. With ``raise_errors=False``,
        the errors of topics are in the response.

        Raises:
            InvalidPartitionsError: a topic has as many partitions already.
            KafkaError: any other error of a topic.
        """
        wanted = new_partitions(topic_partitions)
        is_trial = expect.flag(validate_only, "validate_only")
        raises = expect.flag(raise_errors, "raise_errors")

        def begin(context: CallContext) -> Operation[Results[str, Any]]:
            return create_partitions(context, wanted, is_trial)

        results = self._run("create_partitions", timeout_ms, begin)
        raise_first(results, also_broker_errors=raises)
        return CreatePartitionsResponse(
            results=[
                results.succeeded[name]
                if name in results.succeeded
                else _Result(name=name, **error_fields(results.failed[name]))
                for name in wanted
            ]
        )


def _with_source(config: dict[str, Any]) -> dict[str, Any]:
    config["config_source"] = ConfigSourceType.build_from(config["config_source"]).name
    return config
