"""Share groups on one node (KIP-932): the share coordinator, the share partitions that this node leads, share sessions.

Reading order: `groups` (joins the parts), `coordinator` (durable share state), `partition` and `partitions` (records in
flight), `fetching` and `acknowledging` (the requests of members), `effects` (what a share group asks of the node).
"""
