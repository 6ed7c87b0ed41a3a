"""Avro schemas as Confluent's registry treats them: with the rules of Apache Avro for Java, version 1.12.

Read `types` (the graph of a schema), `parser` (from JSON to the graph), `defaults` (which default values are valid),
`canonical` (the canonical and the normalized string), `compatibility` (what a reader's schema can read), and `schema`,
which joins them as `AvroSchema`. A graph may have cycles, because records can contain themselves.

The parser of `ottla.serde` is another one for another purpose: it makes plans for columns, so that it drops names,
documentation and attributes and rejects recursive types, all of which a registry must keep.
"""
