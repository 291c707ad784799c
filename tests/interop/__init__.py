"""Ours beside the others: what one client writes, every other one reads, on brokers old and new."""
