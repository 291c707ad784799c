"""Names of aiokafka's ``aiokafka.coordinator``, for programs written for it."""
