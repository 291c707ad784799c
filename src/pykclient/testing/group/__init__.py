"""Consumer groups on the broker: members, committed offsets, and their storage.

- ``group_coordinator``, ``group_metadata``, ``group_rebalance``: groups of the classic protocol
- ``modern_groups``, ``consumer_group_manager``, ``share_group_manager``, ``server_assignors``: groups with server-side
  assignment
- ``group_metadata_manager``, ``group_records``: storage, and the records of __consumer_offsets
"""
