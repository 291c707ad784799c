"""Names that programs written for kafka-python import from this module. Fetching is in ``fetch_request_manager``."""

from __future__ import annotations

from pykclient.types import ConsumerRecord as ConsumerRecord
