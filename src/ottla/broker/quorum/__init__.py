"""One replica of the metadata quorum: `ottla.raft` on this node's disk and network (KIP-595, KIP-630, KIP-853).

Reading order: settings (the configuration of the core); transport (requests to other nodes); flusher, replica_log,
fetched_snapshot (the disk); requests (requests of other nodes); replica (executes the effects of the core); replay
(the image from committed records). `../metadata_log.py` joins the replica with the controller.
"""
