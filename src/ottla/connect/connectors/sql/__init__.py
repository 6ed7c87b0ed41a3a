"""Tables as sources and sinks, with the settings of Confluent's JDBC connectors: SQLite, PostgreSQL, MariaDB, MySQL.

Reading order: `urls`, `columns` (types of tables as schemas), `database` with `sqlite`, `postgresql` and `mysql`;
`queries` and `source`; `encoding`, `offsets`, `writing` and `sink`; `settings` and `connector`.
"""
