"""The push of a client's metrics to brokers that ask for them (KIP-714)."""
