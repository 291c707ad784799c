"""TLS and SASL."""
