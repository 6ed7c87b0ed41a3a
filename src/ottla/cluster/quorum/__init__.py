"""One replica of the metadata quorum: `ottla.raft` on this node's disk and network (KIP-595, KIP-630, KIP-853).

Reading order: transport, sender (requests to other nodes); requests (requests of other nodes); flusher, fetched (the
disk); timer, leader_watch; replica (executes the effects of the core); replay (the image from committed records).
`../metadata/log.py` joins the replica with the controller.
"""
