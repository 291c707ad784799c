"""Real Apache Kafka for the tests: fetched once by Maven, started on loopback ports, and removed without a trace."""
