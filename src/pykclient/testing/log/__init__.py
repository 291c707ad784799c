"""The storage of records on brokers: logs of segments in memory, on disks that outlive the broker.

- ``unified_log``, ``log_segment``: the log of a partition, and a segment
- ``log_validator``, ``producer_state_manager``: checks of records, and of producers' sequence numbers
- ``log_cleaner``, ``log_config``: compaction, and the settings of a topic
- ``log_manager``, ``broker_disk``: all logs of a broker, and its disk
"""
