"""DeserializingConsumer under confluent-kafka's module name."""

from __future__ import annotations

from pykclient.confluent.serializing import DeserializingConsumer as DeserializingConsumer
