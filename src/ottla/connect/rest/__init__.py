"""The REST API of Kafka Connect 4.3.

Reading order: `requests` (one request, its body and parameters), `router` (paths and methods), `connectors`, `plugins`,
`loggers`, `root` and `internal` (the operations), `application` (joins them; errors, deadlines), `forwarding` (requests
for another worker), `settings` and `server` (listeners, credentials, start and stop).
"""
