"""The cluster's controller: one broker that decides who leads which partition, and tells the others."""
