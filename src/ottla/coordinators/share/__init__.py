"""Share groups (KIP-932): the records in flight of a share partition, and the coordinator that stores their state.

A share partition is one topic partition for one share group. `SharePartition` lives at the partition's leader. It knows
which member has acquired which records. The share coordinator stores the state that must survive a restart, one
`ShareCoordinatorShard` for each partition of `__share_group_state`.

Reading order: `state_batches`, `window`, `limits`, `acquisition`, `acknowledgement`, `partition`; then `events`,
`stored`, `shard`. KIP-932, KIP-1206, KIP-1222, KIP-1226.
"""
