"""aiokafka's package of this name."""
