"""The common part of connectors that capture changes of databases in Debezium's format.

`settings` (shared settings and `Options`), `filters`, `naming`, `envelopes` (schemas of all events, heartbeats),
`verification` and `topic_verification` (tables compared with topics).
"""
