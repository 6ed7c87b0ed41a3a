"""Change data capture of MariaDB and MySQL by their binary logs, with Debezium's settings and events.

Reading order: `settings`; `columns` (types to schemas), `catalog` (definitions of tables); `events`
(rows to records); `positions` and `stream` (exact offsets), `binlog` (the connection); `snapshot`, `task`;
`verification`; `connector`.
"""
