"""Share groups (KIP-932) in the group coordinator: members, epochs, assignments, and which partitions have share state.

Members share partitions, so that a member takes over its target assignment at once. A partition is assigned only after
the share coordinator has its state: the shard records the partition as initializing, asks for the state by an effect
(`events.InitializeShares`), and records the outcome.

Reading order: `config`, `group`, `states`, `records`, `replay`, `events`, `change`, `heartbeat`, `initialization`,
`admin`, `offsets`.
"""
