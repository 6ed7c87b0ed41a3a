"""The schema registry: Confluent's REST API on the topic `_schemas`. Needs the extra `registry`.

Read `records` (the records of the topic, in Confluent's format), then `state` (what they add up to: subjects, versions,
ids, modes), then `changes` (requests that change the state, as records to write), then `log` (reads the topic, and
appends to it while this node is the primary), then `election` (which node is the primary), then `routes/` (HTTP).
`state` and `changes` have no I/O.
"""
