"""Assignors, with which a group's leader distributes partitions among the members."""
