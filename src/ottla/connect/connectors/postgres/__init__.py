"""Change data capture of PostgreSQL, with the settings and events of Debezium's PostgresConnector.

Reading order: `settings`; `pgoutput` (bytes to messages), `catalog`, `types`, `rows` (texts to values) and `events`
(values to records); `stream` and `positions` (exact offsets), `visibility` and `snapshots` (the border between tables
and stream), `reading`, `incremental` and `signals`; `replication`, `slots` and `task` (the connections); `connector`
and `checks`; `verification` compares a table with its topic.
"""
