"""The admin client with typed results (Java: Admin)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar
from uuid import UUID

from pykclient.admin import arguments, topics
from pykclient.admin.admin_base import AdminBase
from pykclient.admin.descriptions import CreatedTopic, TopicDescription, TopicListing
from pykclient.admin.results import Results
from pykclient.admin.values import NewPartitions, NewTopic

K = TypeVar("K")


class Admin(AdminBase):
    """The typed face of the admin client.

    Methods with many items return ``Results``: a value or an error for each item. Methods with one answer return it,
    or raise its error. ``timeout_ms`` is the time for the whole call in milliseconds, by default
    ``default.api.timeout.ms``. Raises: IllegalArgumentError if an argument is wrong, before anything is sent.

    Thread: any.
    """

    # --- topics ------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        new_topics: Iterable[str | NewTopic] | Mapping[str, Mapping[str, Any]],
        *,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Results[str, CreatedTopic]:
        """Create topics, given as for ``KafkaAdminClient.create_topics``.

        If a connection is lost before the response, the request is repeated. A topic that then exists counts as created
        if it is as it was asked for.
        """
        creatable = topics.creatable_topics(new_topics)
        is_trial = arguments.flag(validate_only, "validate_only")
        results = self._run("create_topics", timeout_ms, lambda it: topics.create_topics(it, creatable, is_trial))
        return results.map(topics.created_topic)

    def delete_topics(
        self, topics_or_ids: Iterable[str | UUID], *, timeout_ms: int | None = None
    ) -> Results[str | UUID, None]:
        """Delete topics, given by name or by id.

        If a connection is lost before the response, the request is repeated. A topic that is then gone counts as
        deleted.
        """
        keys = topics.topic_keys(topics_or_ids)
        results = self._run("delete_topics", timeout_ms, lambda it: topics.delete_topics(it, keys))
        return results.map(lambda _: None)

    def list_topics(self, *, timeout_ms: int | None = None, list_internal: bool = False) -> list[TopicListing]:
        """Return the topics that this client may describe; with ``list_internal``, also those of Kafka itself."""
        response = self._run("list_topics", timeout_ms, lambda it: topics.all_metadata(it, "list_topics"))
        return [
            TopicListing(topic.name, topics.topic_id_or_none(topic.topic_id), topic.is_internal)
            for topic in response.topics
            if topic.name is not None and (list_internal or not topic.is_internal)
        ]

    def describe_topics(
        self, topics_or_ids: Iterable[str | UUID], *, timeout_ms: int | None = None
    ) -> Results[str | UUID, TopicDescription]:
        """Describe topics, given by name or by id."""
        keys = topics.topic_keys(topics_or_ids)
        results = self._run("describe_topics", timeout_ms, lambda it: topics.describe_topics(it, keys))
        nodes = self._parts.metadata.fetch().node_by_id
        return results.map(lambda topic: topics.topic_description(topic, nodes))

    def create_partitions(
        self,
        topic_partitions: Mapping[str, int | NewPartitions | Mapping[str, Any]],
        *,
        timeout_ms: int | None = None,
        validate_only: bool = False,
    ) -> Results[str, None]:
        """Raise the numbers of partitions of topics, given as for ``KafkaAdminClient.create_partitions``."""
        wanted = topics.new_partitions(topic_partitions)
        is_trial = arguments.flag(validate_only, "validate_only")
        results = self._run("create_partitions", timeout_ms, lambda it: topics.create_partitions(it, wanted, is_trial))
        return results.map(lambda _: None)
