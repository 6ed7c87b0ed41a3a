"""Schemas as values: parsed, in canonical form, normalized, and compared for compatibility.

Read `model` (a schema as a registry stores it), `parsing` (from text to a `ParsedSchema`), `compatibility` (the
levels BACKWARD, FORWARD, FULL and their transitive forms), then one package for each type: `avro`, `json_schema`,
`protobuf`. The canonical forms are Confluent's, because the identity of a schema depends on them. The package has no
I/O, no clock and no state: the texts of referenced schemas are arguments.
"""
