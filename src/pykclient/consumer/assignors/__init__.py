"""How the leader of a group divides the partitions among its members."""
