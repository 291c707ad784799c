"""The consumer of share groups (KIP-932), whose members take single records instead of whole partitions.

- ``kafka_share_consumer``, ``share_consumer``: the public class, and the consumer behind it
- ``share_consume_request_manager``: fetching and acknowledging, by broker
- ``share_fetch``, ``acknowledgements``: acquired records, from the response to their acknowledgement
- ``share_coordinator``: the group and its heartbeats
"""
