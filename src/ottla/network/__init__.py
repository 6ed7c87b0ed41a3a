"""Connections: sockets in, frames out. Knows the framing of the protocol, nothing of its messages."""
