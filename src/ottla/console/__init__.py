"""A web console for Ottla and stock Kafka: topics, records, groups, access, nodes, schemas, connectors, dead letters.

Pages are HTML that the server renders; the same address answers programs with JSON. Needs the extra `console`.

Read `settings`, then `server` (listeners, routes), `calls` (one request: session, form, answer), `sessions` (sign-in),
`protection` (headers, hosts, forged requests), `view` (parts of pages as data), `records` and `masking`, and `pages/`.
"""
