"""Rows of the table of mutations for Avro and JSON Schema, and for compatibility."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

UNIT = "tests/unit/schemas"
ANY_TEXT = f"{UNIT}/test_any_text.py"
AVRO = f"{UNIT}/avro/test_schema.py"
AVRO_INVALID = f"{AVRO}::test_invalid_schema_is_reported_with_its_place"
JSON = f"{UNIT}/json_schema/test_schema.py"
COMPARISON = f"{UNIT}/json_schema/test_comparison.py"

ROWS: tuple[Row, ...] = (
    (
        "Deeply nested JSON of a schema is invalid, and no recursion error",
        "schemas/json_text.py",
        '    if text.count("[") + text.count("{") > DEEPEST and _depth(found) > DEEPEST:',
        "    if _depth(found) > 1_000_000:",
        (f"{ANY_TEXT}::test_deep_nesting_is_an_error_not_a_recursion",),
    ),
    (
        "A schema with half of a surrogate pair is invalid, since it has no UTF-8",
        "schemas/json_text.py",
        "    if _SURROGATE_ESCAPE.search(text) and",
        "    if not text and",
        (f"{UNIT}/test_json_text.py::test_half_of_a_surrogate_pair_is_invalid",),
    ),
    (
        "Avro types that nest deeply by their names are invalid, and no recursion error",
        "schemas/avro/canonical.py",
        "        if depth > _DEEPEST:",
        "        if depth > 1_000_000:",
        (f"{ANY_TEXT}::test_canonical_string_that_nests_too_deeply_is_invalid",),
    ),
    (
        "Incompatibilities of an Avro type do not multiply with its uses",
        "schemas/avro/compatibility.py",
        "end.value[:_MOST]",
        "end.value",
        (f"{ANY_TEXT}::test_repeated_uses_of_a_type_do_not_multiply_the_incompatibilities",),
    ),
    (
        "The defaults of a new Avro schema have their types",
        "schemas/avro/parser.py",
        "        if not is_valid:",
        "        if not is_valid and not record:",
        (AVRO_INVALID,),
    ),
    (
        "A name of an Avro schema has one definition",
        "schemas/avro/parser.py",
        "        if canonical_text(previous, ()) != canonical_text(node, ()):",
        "        if previous.kind != node.kind:",
        (AVRO_INVALID,),
    ),
    (
        "A name of an Avro schema is defined",
        "schemas/avro/parser.py",
        "        for name, place in self._undefined.items():",
        "        for name, place in dict[str, str]().items():",
        (AVRO_INVALID,),
    ),
    (
        "An Avro schema that another registry accepted can be read",
        "schemas/avro/parser.py",
        "_NEW_NAME if is_new else _STORED_NAME",
        "_NEW_NAME",
        (f"{AVRO}::test_stored_schema_is_read_with_older_rules",),
    ),
    (
        "The canonical string keeps an Avro type out of the namespace around it",
        "schemas/avro/canonical.py",
        "        if node.space != space:",
        "        if node.space and node.space != space:",
        (f"{AVRO}::test_type_without_namespace_inside_of_one_is_marked",),
    ),
    (
        "A new JSON Schema fits its meta-schema",
        "schemas/json_schema/schema.py",
        "        if is_new:\n",
        "        if is_new and not text:\n",
        (f"{JSON}::test_invalid_schema_is_reported_with_its_place",),
    ),
    (
        "A reference of a JSON Schema that leads back to itself is invalid",
        "schemas/json_schema/loader.py",
        "        _check_ends(references)\n",
        "        assert root is not None\n",
        (f"{ANY_TEXT}::test_reference_to_itself_is_invalid",),
    ),
    (
        "The comparison of two JSON Schemas ends",
        "schemas/json_schema/comparison.py",
        "        if self._questions > _MOST_QUESTIONS or len(self._nodes) > _MOST_PAIRS:",
        "        if self._questions < 0:",
        (f"{ANY_TEXT}::test_comparison_of_many_alternatives_ends",),
    ),
    (
        "A recursive JSON Schema does not hide an incompatible part",
        "schemas/json_schema/comparison.py",
        "                    again |= self._askers[pair]",
        "                    again |= set()",
        (f"{COMPARISON}::test_recursive_schemas_are_compared_to_their_end",),
    ),
    (
        "Data that is valid for a writer's JSON Schema stays valid for each compatible reader",
        "schemas/json_schema/object_rules.py",
        '            comparison.add("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL")',
        "            assert name",
        (f"{UNIT}/json_schema/test_model.py::test_valid_values_stay_valid_for_compatible_readers",),
    ),
    (
        "A transitive level compares all versions",
        "schemas/compatibility.py",
        "        if not level.is_transitive:",
        "        if new is not None:",
        (f"{UNIT}/test_compatibility.py::test_level_decides_which_versions_and_directions_count",),
    ),
)
