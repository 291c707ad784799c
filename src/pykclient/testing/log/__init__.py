"""The storage of records on brokers: logs of segments in memory, on disks that outlive the broker."""
