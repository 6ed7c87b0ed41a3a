"""Server-sent events: GET /topics/TOPIC/events streams the records of a topic to `curl -N` or an EventSource.

Read `positions` (where a stream starts, and the ids of events), `rows` (a record as an event), then `stream` and
`routes`.
"""
