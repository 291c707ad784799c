"""Membership in a consumer group with the classic protocol."""
