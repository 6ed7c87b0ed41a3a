"""Protobuf schemas: parsed from .proto texts and descriptors, in Confluent's canonical form, and compared.

`schema.parse_protobuf` is the entry. Read `elements` (what a text consists of), `tokens`, `option_parser` and `parser`
(from text to elements), `writer` (the canonical string), `names` (what a type name means), `validation`,
`normalization` and `differences`; then what needs the library `protobuf`: `descriptor_elements` (from a descriptor to
elements), `descriptors` (back) and `pool` (message classes). The library is imported when a schema first needs it.

Time is linear in the size of a schema, apart from sorting, whatever the schema has. Depths have limits.
"""
