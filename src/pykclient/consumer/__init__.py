"""Reading from Kafka: subscriptions, groups, fetching."""
