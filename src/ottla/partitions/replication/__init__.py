"""Replication between the brokers: what executes the decisions of `ottla.replication`.

- `followed`: a partition that this node follows, and the roles of which others are notified.
- `fetcher`: one connection to one leader, its fetch session, and what it does with the answers.
- `fetchers`: which fetcher follows which partition.
- `alter_partitions`: the changes of in-sync replicas on their way to the controller.
"""
