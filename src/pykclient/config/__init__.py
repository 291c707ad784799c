"""What can be configured: one table of keys per client, and the objects that hold checked values."""
