"""The broker: wires the rooms together and answers requests.

Reading order: `dispatch` (a frame becomes a request), `handlers/` (one file per API), `partition` and `partitions`
(what a node keeps of each log), `fetching` (long polls and fetch sessions), `broker` (the parts of one node),
`server` (start and stop).
"""
