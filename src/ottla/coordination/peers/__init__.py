"""Requests of this broker to other brokers: transaction markers, partitions of transactions, share state, offsets.

`PeerRequests` joins the parts. Each kind of request has a connection of its own to each broker, because a broker
answers the requests of one connection in their order. Reading order: `channels`, `batching`, then one file per kind.
"""
