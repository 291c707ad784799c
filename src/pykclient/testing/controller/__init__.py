"""The cluster's controller: the broker that decides which replica leads each partition, and tells the other brokers.

- ``kafka_controller``, ``controller_context``: the component of a broker, and its knowledge of the cluster
- ``state_machines``, ``states``: the states of partitions and replicas, and elections
- ``partition_changes``: in-sync replicas, reassignment, deletion
- ``admin_manager``, ``config_manager``: the admin APIs of topics, and configurations
- ``controller_channel_manager``: the requests to other brokers
"""
