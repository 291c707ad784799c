"""Connections through a SOCKS5 or HTTP proxy."""
