"""The clients in confluent-kafka's shape: ``import pykclient.confluent as confluent_kafka``."""
