"""The transaction coordinator, and what partition leaders do for transactions (Java: kafka.coordinator.transaction).

- ``transaction_coordinator``, ``transaction_metadata``: the coordinator, and the state of transactional ids
- ``transaction_marker_channel_manager``: markers to partition leaders
- ``add_partitions_to_txn_manager``: requests of partition leaders
"""
