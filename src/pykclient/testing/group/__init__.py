"""Consumer groups on the broker: members, committed offsets, and their storage."""
