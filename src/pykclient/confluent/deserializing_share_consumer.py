"""DeserializingShareConsumer under confluent-kafka's module name."""

from __future__ import annotations

from pykclient.confluent.share_consumer import DeserializingShareConsumer as DeserializingShareConsumer
