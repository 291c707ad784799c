"""Membership of a consumer group: the classic protocol."""
