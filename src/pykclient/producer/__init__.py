"""The producer: records from the application to the brokers, in batches, in order, each once."""
