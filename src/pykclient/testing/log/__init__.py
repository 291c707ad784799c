"""Where brokers keep records: logs of segments in memory, on disks that outlive the broker."""
