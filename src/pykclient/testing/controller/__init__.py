"""The cluster's controller: the broker that decides which replica leads each partition, and tells the other brokers."""
