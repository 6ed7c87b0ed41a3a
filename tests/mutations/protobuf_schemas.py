"""Rows of the table of mutations for Protobuf schemas."""

from __future__ import annotations

Row = tuple[str, str, str, str, tuple[str, ...]]

SCHEMA = "tests/unit/schemas/protobuf/test_schema.py"
DESCRIPTORS = "tests/unit/schemas/protobuf/test_descriptors.py"

ROWS: tuple[Row, ...] = (
    (
        "A Protobuf schema that is nested without end is invalid, and no recursion error",
        "schemas/protobuf/tokens.py",
        "        if self.depth > MAX_DEPTH:",
        "        if self.depth > 1_000_000:",
        (f"{SCHEMA}::test_depth_has_a_limit_and_deep_schemas_below_it_are_valid",),
    ),
    (
        "A Protobuf schema that uses a number twice is invalid",
        "schemas/protobuf/validation.py",
        "            if each.number in numbers:\n",
        "            if each.number in {}:\n",
        (f"{SCHEMA}::test_errors_name_line_and_reason[number used twice]",),
    ),
    (
        "A Protobuf schema that uses a reserved number is invalid",
        "schemas/protobuf/validation.py",
        '        if number in numbers:\n            self._fail(f"number {number} of {name}',
        '        if number in []:\n            self._fail(f"number {number} of {name}',
        (f"{SCHEMA}::test_errors_name_line_and_reason[reserved number]",),
    ),
    (
        "A Protobuf schema that another registry accepted can be read",
        "schemas/protobuf/schema.py",
        "    if is_new:\n",
        "    if is_new or schema.text:\n",
        (f"{SCHEMA}::test_stored_schema_needs_only_valid_syntax",),
    ),
    (
        "A Protobuf schema whose canonical string cannot be read is not registered",
        "schemas/protobuf/schema.py",
        "            parse_file(found.canonical)\n",
        "            parse_file(schema.text)\n",
        (f"{SCHEMA}::test_errors_name_line_and_reason[bytes that the canonical string cannot have]",),
    ),
    (
        "Messages of references that are nested without end are compared without a recursion error",
        "schemas/protobuf/differences.py",
        "            if self._shared.depth == _MAX_DEPTH:\n",
        "            if self._shared.depth == 1_000_000:\n",
        (f"{SCHEMA}::test_shared_messages_are_compared_once[1000]",),
    ),
    (
        "A text of a descriptor that is not UTF-8 is an invalid schema",
        "schemas/protobuf/descriptor_elements.py",
        "                if not isinstance(each, str):\n",
        "                if each is None:\n",
        (f"{DESCRIPTORS}::test_text_of_a_descriptor_must_be_utf_8",),
    ),
    (
        "The path of a Protobuf message has a limit",
        "clients/serializers/protobuf.py",
        "    if not 0 < count <= MAX_PATH:\n",
        "    if not 0 < abs(count):\n",
        ("tests/unit/clients/serializers/test_protobuf.py::test_path_has_a_limit",),
    ),
    (
        "Data of a writer parses with each schema that is compatible",
        "schemas/protobuf/differences.py",
        "        if old.kind != new.kind:\n",
        "        if old.kind == new.kind:\n",
        (f"{DESCRIPTORS}::test_a_compatible_reader_parses_what_the_writer_wrote",),
    ),
    (
        "A type without an import is in the descriptor pool",
        "schemas/protobuf/descriptors.py",
        "**dict.fromkeys(file.weak_imports), **self._used}",
        "**dict.fromkeys(file.weak_imports)}",
        (f"{DESCRIPTORS}::test_types_that_are_not_imported_become_dependencies",),
    ),
)
