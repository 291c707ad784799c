"""The cluster's controller: the broker that decides which replica leads each partition, and tells the other brokers.

- ``kafka_controller``: the component of a broker
- ``controller_context``: its knowledge of the cluster, the tables of states, and its event queue
- ``state_machines``: the states of partitions and replicas, and elections
- ``partition_changes``: in-sync replicas, reassignment, deletion
- ``admin_manager``, ``config_manager``: the admin APIs of topics, and configurations
- ``controller_channel_manager``: the requests to other brokers
"""
