"""Moves frames and knows nodes; nothing of producing or consuming."""
