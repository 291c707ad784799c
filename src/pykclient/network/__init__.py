"""Connections, frames, nodes and metadata; nothing specific to producing or consuming."""
