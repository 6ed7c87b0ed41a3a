"""The broker: connects the packages below it and handles requests.

Reading order: `dispatch` (a frame becomes a request), `handlers/` (one file per API), `partition` and `partitions`
(the state of each log on this node), `fetching` (long polls and fetch sessions), `broker` (the parts of one node),
`server` (start and stop).
"""
