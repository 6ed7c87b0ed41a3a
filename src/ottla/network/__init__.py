"""Connections: sockets in, frames out. Knows the framing of the protocol, and none of its messages.

Reading order: `frame_reader` and `write_queue` (no I/O), `connection` joins them with a transport, `server` owns the
listeners and the limits that all connections share (`receive_memory`, `frame_quota`, `limits`). `client` is the other
side of a connection.
"""
