"""Keys and values with a schema in the registry, as JSON in requests and answers.

JSON of Avro values is Avro's JSON encoding, as in Confluent's proxy: a union has the name of its branch
(`{"string": "x"}`), bytes are ISO 8859-1, logical types are their underlying types.

Read `codecs` (values of one schema), then `registry` (schemas by id or text, for the user of a request).
"""
