"""Metrics of one node for Prometheus: counted on the way of requests, read from the node's parts at a scrape.

Read `families` (the names and their meaning), then `node` (what a node with `ottla.metrics.listener` creates),
`meter` (the only code on the way of each request) with `requests`, `client_usage` and `slow_requests`, `collect` and
the `*_rows` modules (a scrape reads the parts of the node in slices). `ottla.metrics` has the two text formats and the
endpoint. Names are as in Kafka with the usual rules of the JMX exporter, see docs/metrics.md.
"""
