"""TLS below the frames."""
