"""Protobuf schemas against Confluent's Java classes: canonical strings, validity, compatibility, descriptors.

The classes have version 7.0.16. Ottla has the rules of version 8: `NEWER` and `_has_newer_rule` say where they differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from random import Random
from typing import Any, Final

import pytest

from ottla.schemas.model import InvalidSchema, Schema, SchemaType
from ottla.schemas.protobuf.elements import ProtoFile
from ottla.schemas.protobuf.schema import ProtobufSchema, parse_protobuf
from ottla.schemas.protobuf.writer import write_file
from tests.peers.cache import in_ci, missing_for_confluent
from tests.peers.confluent_schemas import SchemaOracle
from tests.unit.schemas.protobuf.corpus import INVALID, VALID
from tests.unit.schemas.protobuf.generated import CHANGED_REFERENCE, REFERENCED, random_pair, schema_of

MISSING = missing_for_confluent()
pytestmark = [
    pytest.mark.jvm,
    pytest.mark.skipif(MISSING is not None and not in_ci(), reason=MISSING or ""),
]

PAIRS: Final = 600
DIFFERENCE: Final = re.compile(r"fullPath='(?P<path>[^']*)', type=(?P<kind>\w+)")
# Syntax that 7.0.16 reads otherwise: weak imports, odd paths, options of a oneof, spaces in a type, nested `extend`.
NEWER: Final = {
    "imports",
    "import paths",
    "options in oneof and extensions",
    "type with spaces around dots",
    "extensions",
}
# Normalized by version 8 only: options by full names and merged, extensions one by one, numbers, ranges of one number.
NEWER_NORMALIZED: Final = NEWER | {"reserved", "defaults", "custom options", "confluent meta", "numbers"}
# Limits that Confluent does not have, and a word that 7.0.16 takes for a path.
STRICTER: Final = {"too many options", "too many option statements", "package with too many parts"} | {
    "nested too deeply",
    "import without quotes",
}
# Not in descriptors: groups, the form of numbers, and for 7.0.16 newer options and the tags of metadata.
NOT_IN_DESCRIPTORS: Final = NEWER | {
    "groups",
    "numbers",
    "defaults",
    "custom options",
    "field options",
    "confluent meta",
}


@pytest.fixture(scope="module")
def oracle() -> Iterator[SchemaOracle]:
    with SchemaOracle() as running:
        yield running


def parsed(text: str, *, is_new: bool = True) -> ProtobufSchema:
    return parse_protobuf(Schema(SchemaType.PROTOBUF, text), {}, is_new=is_new)


def question(op: str, text: str, reference: str | None = None) -> dict[str, Any]:
    return {"op": op, "type": "PROTOBUF", "schema": text, "references": _references(reference)}


def _references(text: str | None) -> list[dict[str, Any]]:
    return [] if text is None else [{"name": "ref.proto", "schema": text, "version": 1 if text == REFERENCED else 2}]


@pytest.mark.parametrize(
    ("op", "newer"), [("canonical", NEWER), ("normalize", NEWER_NORMALIZED)], ids=["canonical", "normalized"]
)
def test_strings_of_the_corpus_are_equal(oracle: SchemaOracle, op: str, newer: set[str]) -> None:
    answers = oracle.ask(question(op, text) for text in VALID.values())
    different = set()
    for (name, text), answer in zip(VALID.items(), answers, strict=True):
        schema = parsed(text)
        if answer.get("result") != (schema.canonical if op == "canonical" else schema.normalized()):
            different.add(name)
    assert different <= newer
    # The list of differences must not hide equal strings.
    assert len(different) >= len(newer) - 1


def test_syntax_that_confluent_rejects_is_invalid(oracle: SchemaOracle) -> None:
    answers = oracle.ask(question("valid", text) for text, _ in INVALID.values())
    for (name, (text, _)), answer in zip(INVALID.items(), answers, strict=True):
        if "error" not in answer and name not in STRICTER:
            # Confluent's registry does not look for duplicates and reserved numbers, so a stored schema may have them.
            assert parsed(text, is_new=False).canonical, name
        with pytest.raises(InvalidSchema):
            parsed(text)


def test_random_schemas_and_changes_have_equal_verdicts(oracle: SchemaOracle) -> None:
    random = Random(20)
    pairs = [random_pair(random) for _ in range(PAIRS)]
    references = [(REFERENCED, random.choice([REFERENCED, REFERENCED, CHANGED_REFERENCE])) for _ in pairs]
    questions = []
    for (writer, reader), (old, new) in zip(pairs, references, strict=True):
        previous = {"schema": write_file(writer), "references": _references(old)}
        questions += [
            {**question("compatible", write_file(reader), new), "previous": previous},
            question("canonical", write_file(reader), new),
            question("normalize", write_file(reader), new),
        ]
    answers = oracle.ask(questions)
    compared = incompatible = 0
    for index, ((writer, reader), (old, new)) in enumerate(zip(pairs, references, strict=True)):
        verdict, canonical, normalized = answers[3 * index : 3 * index + 3]
        schema = parse_protobuf(*schema_of(reader, new))
        assert schema.canonical == canonical["result"]
        assert schema.normalized() == normalized["result"]
        own = {(each.kind, each.path) for each in schema.incompatibilities(parse_protobuf(*schema_of(writer, old)))}
        theirs = {(found["kind"], found["path"]) for each in verdict["result"] if (found := DIFFERENCE.search(each))}
        if _has_newer_rule(writer, reader):
            continue
        assert own == theirs, (write_file(writer), write_file(reader))
        compared += 1
        incompatible += bool(own)
    assert compared > PAIRS / 2
    assert PAIRS / 8 < incompatible < compared


def _has_newer_rule(writer: ProtoFile, reader: ProtoFile) -> bool:
    """Whether fields went into, out of or with a oneof, which version 8 judges by other rules than 7.0.16."""
    return _oneofs(writer) != _oneofs(reader)


def _oneofs(file: ProtoFile) -> dict[str, dict[str, set[int]]]:
    found: dict[str, dict[str, set[int]]] = {}
    waiting = [(each.name, each) for each in file.types]
    while waiting:
        name, each = waiting.pop()
        found[name] = {oneof.name: {field.number for field in oneof.fields} for oneof in getattr(each, "oneofs", ())}
        waiting += [(f"{name}.{nested.name}", nested) for nested in getattr(each, "types", ())]
    return {name: oneofs for name, oneofs in found.items() if oneofs}


def test_descriptors_are_the_same_schema_for_both(oracle: SchemaOracle) -> None:
    names = [each for each in VALID if each not in NOT_IN_DESCRIPTORS]
    answers = oracle.ask(question("descriptor", VALID[name]) for name in names)
    for name, answer in zip(names, answers, strict=True):
        own = parsed(VALID[name])
        assert parsed(answer["result"], is_new=False).normalized() == own.normalized(), name
    own_descriptors = [parsed(VALID[name]).formatted("serialized") for name in names]
    answers = oracle.ask(question("canonical", text) for text in own_descriptors)
    for name, text, answer in zip(names, own_descriptors, answers, strict=True):
        assert parsed(text).canonical == answer["result"], name
