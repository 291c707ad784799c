"""A Kafka client."""
