"""A server of the Model Context Protocol: read-only tools over a cluster and its registry, for assistants.

It acts as the user of its client settings, so the brokers' ACLs decide. The tools are the pages of the console as data,
with their limits and masks; no tool changes anything. Needs the extra `mcp`.

Read `tools` (the table of tools, one call), `answers` (limits on the size of answers), and `serving` (the protocol).
"""
