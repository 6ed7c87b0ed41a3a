"""The levels of compatibility, and the messages of a verbose answer."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from ottla.schemas.avro.schema import AvroSchema
from ottla.schemas.compatibility import Level, Version, check, messages


def record(*fields: str, name: str = "a.R") -> AvroSchema:
    """A record with fields of type int; a field with a question mark has a default."""
    given = [{"name": each.rstrip("?"), "type": "int", **({"default": 0} if "?" in each else {})} for each in fields]
    return AvroSchema(json.dumps({"type": "record", "name": name, "fields": given}))


OLD, MORE, MORE_OPTIONAL = record("x"), record("x", "y"), record("x", "y?")


@pytest.mark.parametrize(
    ("level", "new", "versions", "is_compatible"),
    [
        (Level.NONE, MORE, [OLD], True),
        (Level.BACKWARD, MORE, [OLD], False),
        (Level.BACKWARD, OLD, [MORE], True),
        (Level.BACKWARD, MORE, [MORE, OLD], True),
        (Level.BACKWARD_TRANSITIVE, MORE, [MORE, OLD], False),
        (Level.FORWARD, MORE, [OLD], True),
        (Level.FORWARD, OLD, [MORE], False),
        (Level.FORWARD, OLD, [OLD, MORE], True),
        (Level.FORWARD_TRANSITIVE, OLD, [OLD, MORE], False),
        (Level.FULL, MORE, [OLD], False),
        (Level.FULL, OLD, [MORE], False),
        (Level.FULL, MORE_OPTIONAL, [OLD], True),
        (Level.FULL, MORE_OPTIONAL, [OLD, record("x", "z")], True),
        (Level.FULL_TRANSITIVE, MORE_OPTIONAL, [OLD, record("x", "z")], False),
        (Level.BACKWARD, MORE, [], True),
    ],
)
def test_level_decides_which_versions_and_directions_count(
    level: Level, new: AvroSchema, versions: list[AvroSchema], is_compatible: bool
) -> None:
    given = [Version(index, each) for index, each in enumerate(versions)]
    assert (check(level, new, given) is None) is is_compatible


def test_check_takes_only_the_versions_that_it_needs() -> None:
    def versions() -> Iterator[Version]:
        yield Version(2, MORE)
        raise AssertionError("an older version was taken")

    assert check(Level.BACKWARD, OLD, versions()) is None


def test_messages_have_the_form_of_confluents_answer() -> None:
    conflict = check(Level.BACKWARD, MORE, [Version(3, OLD)])
    reason = (
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'y' at path '/fields/1' in the new "
        "schema has no default value and is missing in the old schema', additionalInfo:'y'}"
    )
    assert messages(Level.BACKWARD, conflict) == [
        reason,
        "{oldSchemaVersion: 3}",
        "{oldSchema: '" + OLD.canonical + "'}",
        "{validateFields: 'false', compatibility: 'BACKWARD'}",
    ]


def test_messages_name_the_old_schema_as_reader_in_the_forward_direction() -> None:
    conflict = check(Level.FULL_TRANSITIVE, record("x", "z"), [Version(None, MORE)])
    found = messages(Level.FULL_TRANSITIVE, conflict, validate_fields=True)
    assert "'y' at path '/fields/1' in the old schema has no default" in found[0]
    assert "'z' at path '/fields/1' in the new schema has no default" in found[1]
    assert found[2:] == [
        "{oldSchema: '" + MORE.canonical + "'}",
        "{validateFields: 'true', compatibility: 'FULL_TRANSITIVE'}",
    ]


def test_text_of_a_large_old_schema_is_truncated() -> None:
    old = record(*(f"field{index}" for index in range(500)))
    found = messages(Level.FORWARD, check(Level.FORWARD, MORE, [Version(1, old)]))
    assert found[-2] == "{oldSchema: <truncated> '" + old.canonical[:10240] + "...'}"


def test_compatible_schemas_have_no_messages() -> None:
    assert messages(Level.FULL, check(Level.FULL, OLD, [Version(1, OLD)])) == []
