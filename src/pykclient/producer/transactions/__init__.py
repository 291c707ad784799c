"""The producer id, its sequence numbers, and transactions.

- ``transaction_state``: the states of a producer id and of its transaction, as a table
- ``producer_id_manager``: the id and epoch of an idempotent producer, and the sequence numbers of each partition
- ``transaction_manager``: the transaction of a producer with a ``transactional.id``: which request is next
- ``transaction_steps``: the requests to coordinators, and what each response leads to
- ``transactional_calls``, ``transactional_methods``: the application's calls: which are allowed, and their results
"""
