"""Membership in a consumer group by either protocol, commits and committed offsets.

- ``consumer_coordinator``: a consumer's side of its group, for the application's calls
- ``commit_request_manager``: commits, and reading committed offsets
- ``classic_rebalance``, ``classic_membership``: the classic protocol
- ``consumer_rebalance``, ``consumer_membership``: KIP-848's protocol
- ``group_member``, ``membership``: what both protocols have in common
- ``coordinator_request_manager``, ``group_requests``: the coordinator, and the requests to it
"""
