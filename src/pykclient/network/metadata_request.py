"""Builder of metadata requests (Java: MetadataRequest.Builder)."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pykclient.errors import UnsupportedVersionError
from pykclient.network.client_request import RequestBuilder
from pykclient.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from pykclient.protocol.message import Request

_Topic = MetadataRequest.MetadataRequestTopic


class MetadataRequestBuilder(RequestBuilder):
    """Asks for all topics (None), some by name, or some by id (KIP-516, v12 on). Thread: owner."""

    __slots__ = ("request",)

    def __init__(
        self, request: MetadataRequest, min_version: int | None = None, max_version: int | None = None
    ) -> None:
        super().__init__(request, min_version, max_version)
        self.request = request

    @classmethod
    def all_topics(cls) -> MetadataRequestBuilder:
        # This never creates topics; true is what versions before 4 mean by leaving the field out.
        return cls(MetadataRequest(topics=None, allow_auto_topic_creation=True))

    @classmethod
    def for_topic_names(cls, names: Iterable[str], allow_auto_topic_creation: bool) -> MetadataRequestBuilder:
        topics = [_Topic(name=name) for name in names]
        return cls(MetadataRequest(topics=topics, allow_auto_topic_creation=allow_auto_topic_creation))

    @classmethod
    def for_topic_ids(cls, topic_ids: Iterable[uuid.UUID]) -> MetadataRequestBuilder:
        topics = [_Topic(topic_id=topic_id, name=None) for topic_id in topic_ids]
        return cls(MetadataRequest(topics=topics, allow_auto_topic_creation=False))

    @property
    def is_all_topics(self) -> bool:
        return self.request.topics is None

    @property
    def topics(self) -> list[str]:
        """The names asked for; empty when all are."""
        return [topic.name for topic in self.request.topics or () if topic.name is not None]

    def build(self, version: int) -> Request:
        if version < 1:
            raise UnsupportedVersionError(
                "metadata requests older than version 1 are not supported (brokers before 0.10)"
            )
        if not self.request.allow_auto_topic_creation and version < 4:
            raise UnsupportedVersionError(
                f"metadata request version {version} cannot switch off the creation of topics (needs version 4)"
            )
        if version < 12 and any(topic.name is None for topic in self.request.topics or ()):
            raise UnsupportedVersionError(
                f"metadata request version {version} cannot ask by topic id (needs version 12)"
            )
        return self.request
