"""Real Apache Kafka for the tests: fetched by Maven once, started on loopback ports, gone without a trace."""
