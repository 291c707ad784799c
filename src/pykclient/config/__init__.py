"""Configuration: one table of keys per client, and the objects that hold validated values."""
