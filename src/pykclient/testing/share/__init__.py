"""Share groups: the records in delivery, their state in a log, and the sessions of share consumers (KIP-932).

- ``share_partition``, ``in_flight_records``: a partition of a share group, and its records in delivery
- ``share_partition_manager``: share sessions, and fetches that wait
- ``share_coordinator``, ``persister``: the stored state, and the requests for it
- ``group_config``: the settings of share groups
"""
