"""Assignors under kafka-python's module names. Their home is pykclient.consumer.assignors."""
