"""Several workers of one group: Connect's topics, membership, and who may write.

Read `keys` and `values` (the records of Connect's topics), then `config_state`, `status_state` and `offset_records`
(the states of the topics, without I/O), then `topics`, `topic_log`, `config_writer`, `status_writer` and `store` (the
topics on brokers). `protocol` and `assignor` divide the work, without I/O; `member` takes part in the group,
`signature` signs internal requests, and `membership` joins all of it for the herder. `settings` parses the
configuration of a worker.
"""
