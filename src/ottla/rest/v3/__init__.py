"""Confluent's API v3: the cluster as resources with links, and produce as a stream of JSON records.

Read `operations` (an operation and its row in the OpenAPI document), `resources` (links, kinds, collections), then one
module for each kind: `clusters`, `topics`, `configs`, `groups`, `acls`, `records`; `routes` joins their tables.
`/v3` has the same paths as `/kafka/v3`.
"""
