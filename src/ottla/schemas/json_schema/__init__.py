"""JSON Schema as Confluent's registry treats it: drafts 4, 6, 7, 2019-09 and 2020-12.

Read `nodes` (a schema as values of few kinds), `documents` (texts by URI, and what a `$ref` means), `loader` (from JSON
to nodes), `comparison` with `object_rules` and `array_rules` (what a reader's schema can read), `sentences` (the
reasons in words), and `schema`, which joins them as `JsonSchema`. A schema without `$schema` is of draft 7.

The rules compare keyword by keyword, as Confluent's do. They are not a proof: `if`, `contains`, `propertyNames`,
`format` and the patterns of `patternProperties` are not compared.
"""
