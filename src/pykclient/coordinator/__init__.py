"""Names of kafka-python's ``kafka.coordinator``, for programs written for it."""
