"""Membership in a consumer group by either protocol, commits and committed offsets.

- ``consumer_coordinator``: a consumer's side of its group, for the application's calls
- ``commit_request_manager``, ``committed_offsets_request_manager``: commits, and reading committed offsets
- ``classic_membership_manager``, ``classic_membership``, ``heartbeat_request_manager``: the classic protocol
- ``consumer_membership_manager``, ``consumer_membership``, ``consumer_heartbeat_request_manager``: KIP-848's protocol
- ``group_member``, ``membership``, ``member_state``: what both protocols have in common
- ``coordinator_request_manager``, ``group_requests``: the coordinator, and the requests to it
"""
