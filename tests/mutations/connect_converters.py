"""Rows of the table of mutations for converters with a schema registry."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

RESOLVED = "tests/connect/converters/test_protobuf_resolved.py"
VERIFICATION = "tests/connect/converters/test_verification.py"
JSON = "tests/connect/converters/test_json_schema.py"
AVRO = "tests/connect/converters/test_avro.py"
CONVERTERS = "connect/converters"

ROWS: tuple[Row, ...] = (
    (
        "a protobuf converter writes the field numbers of the subject's latest schema",
        f"{CONVERTERS}/protobuf.py",
        "        fill = self._encoder_of(message_class)\n",
        "        fill = self._encoder_of(self._own)\n",
        (f"{RESOLVED}::test_fields_have_the_numbers_of_the_latest_schema",),
    ),
    (
        "a protobuf converter refuses a latest schema that would change values",
        f"{CONVERTERS}/protobuf.py",
        "        check_fields(descriptor, message_class.DESCRIPTOR)\n",
        "",
        (f"{RESOLVED}::test_schema_that_would_lose_or_change_a_value_is_refused",),
    ),
    (
        "a comparison of a table with its topic registers no schema",
        "connect/connectors/capture/topic_verification.py",
        "each.round_trip(topic, *pair)",
        "each.to_connect(topic, each.from_connect(topic, *pair)).value",
        (f"{VERIFICATION}::test_verify_finds_equal_rows_and_registers_nothing",),
    ),
    (
        "the depth of Avro schemas counts the levels of the types that they name",
        f"{CONVERTERS}/avro_schemas.py",
        "        self._reach(depth + self._heights.get(full, self._heights.get(name, 0)))\n",
        "",
        (f"{AVRO}::test_chain_of_names_has_at_most_a_hundred_levels",),
    ),
    (
        "the depth of a Connect schema is limited before an Avro schema is written",
        f"{CONVERTERS}/avro_schemas.py",
        "        self._depth += 1\n        _check_depth(self._depth)\n",
        "        self._depth += 1\n",
        (f"{AVRO}::test_chain_of_records_has_at_most_a_hundred_levels",),
    ),
    (
        "no setting of a converter that would change values is ignored",
        f"{CONVERTERS}/registry.py",
        'if value.lower() not in ("", "false"):',
        'if value.lower() == "refused":',
        (f"{JSON}::test_settings_that_would_change_values_are_refused",),
    ),
    (
        "no record is skipped because the schema registry denies access to a converter",
        f"{CONVERTERS}/registry.py",
        "_DENIED: Final = frozenset({401, 403, 407})",
        "_DENIED: Final = frozenset({402})",
        (f"{AVRO}::test_registry_that_denies_access_or_is_overloaded_does_not_blame_the_record",),
    ),
    (
        "a JSON Schema that is refused is read once",
        "clients/serializers/base.py",
        "                self._failures[key] = error, time.monotonic() + DEFERRED_S\n                raise\n",
        "                raise\n",
        (f"{JSON}::test_refused_schema_is_read_once",),
    ),
)
