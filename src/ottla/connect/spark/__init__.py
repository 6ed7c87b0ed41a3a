"""Connectors as Spark queries: Spark formats, and functions of `ottla.connect.functions` on large data.

Reading order: `settings` and `connectors` (what a configuration says; they do not import Spark), `life` (a task from
its start to its end), `queries` and `passes` (how a format is read or written), `sink_rows`, `source_rows` and `values`
(from records to columns and back), `function_source` and `function_sink` (functions in the Spark tasks), `sessions`,
`checkpoints`, `failures` and `progress`.

A Spark connector has one task for the worker; Spark divides its work. Queries continue from their checkpoints.
"""
