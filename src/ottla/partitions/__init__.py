"""The partitions of one node: their logs, their leaders and followers, and the fetches that wait for them.

Contract: a partition is changed only on the event loop, by the calls of its class; it follows the metadata image that
`Partitions.publish` receives. Nothing here knows requests of groups, transactions or shares.

Reading order: `reading` (isolation levels, epochs), `partition` (the leader of one log) with `flush` (its flushes),
`replication/followed` (a follower), `partitions` (all of them, by name and id) with `pending` (their work for later),
`fetch_session` and `fetching` (long polls of consumers and followers), `replication/` (fetchers, changes of in-sync
replicas, moves between log directories).
"""
