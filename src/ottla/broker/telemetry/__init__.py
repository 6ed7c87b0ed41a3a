"""Client metrics (KIP-714): clients push them in OTLP's format, a scrape of this node exposes them.

Read `subscriptions` (what the resources of client metrics ask of a client), then `instances` (the clients of this node:
subscription ids, intervals), `series` (the pushed values), and `receiver`, which joins them for the handlers. All state
is in memory: after a restart a client gets UNKNOWN_SUBSCRIPTION_ID only if its subscription changed meanwhile.
"""
