"""Metrics as text over HTTP: the common parts of all endpoints.

Read `family` (what a metric is), `exposition` (the two text formats), and `http` (the endpoint and its limits). The
caller has a table of metrics, collects their samples, and runs the event loop.
"""
