"""The coordinators of one node: they run the cores of `ottla.coordinators` on the partitions of their topics.

Contract: a coordinator's state changes only by the replay of its records; a response is sent when its record is
committed. A request for a partition that another node leads fails with NOT_COORDINATOR.

Reading order: `internal_topic` (the topic of a coordinator), `shards` and `runtime` (run shards of any kind),
`loading`, `ports` (the parts of the node that they use), `coordinators` (which exist on this node), then
`group_runtime`, `transactions/`, `shares/`, and `peers/` (requests to the coordinators and leaders on other nodes).
"""
