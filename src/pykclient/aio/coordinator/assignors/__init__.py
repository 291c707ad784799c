"""The assignors under aiokafka's names."""
