"""Connections of a broker and of its clients: sockets in, frames out.

Reading order: `frame_reader` and `write_queue` (no I/O), `connection` joins them with a transport, `server` owns the
listeners and the limits that all connections share (`receive_memory`, `frame_quota`, `limits`). `client` is the other
side of a connection, with `response_reader` (no I/O) and `sasl`. The broker's side knows only the framing of the
protocol; the client's side also knows the messages of its handshake.
"""
