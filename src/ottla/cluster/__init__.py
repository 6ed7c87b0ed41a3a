"""One node as a member of its cluster: the metadata log and its quorum, and the node's relation to the controller.

Contract: the published `MetadataImage` contains committed records only, and images are published in their order. Every
request to the controller has a deadline. Nothing here knows partitions, coordinators or clients.

Reading order: `metadata/` (the log on disk, snapshots, the published image), `quorum/` (Raft on this disk and network),
`controller_channel` and `control/` (requests between brokers and the active controller), `node/` (registration,
settings, addresses).
"""
