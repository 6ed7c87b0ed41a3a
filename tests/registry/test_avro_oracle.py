"""Thousands of random Avro schemas, compared with the answers of Confluent's Java classes.

The oracle has Apache Avro 1.11. Ottla follows version 1.12, which newer registries have and which accepts more: a type
before its definition, and a default of any branch of a union. Paths in a writer's union are longer since then. Where
Confluent's normalization fails or moves a type to another namespace, there is no comparison.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.schemas.avro.schema import AvroSchema
from ottla.schemas.model import InvalidSchema
from tests.peers.cache import in_ci, missing_for_confluent
from tests.peers.confluent_schemas import SchemaOracle
from tests.registry.avro_schemas import Generator

pytestmark = [pytest.mark.jvm, pytest.mark.xdist_group("confluent")]
PAIRS = 2000
NEWER = ("Invalid default for field", "Undefined name: ", "is not a defined name")
KIND = '{"type": "enum", "name": "Kind", "symbols": ["X"]}'
ADDRESS = f'{{"type": "record", "name": "a.Address", "fields": [{{"name": "kind", "type": {KIND}}}]}}'
COUNTRY = '{"type": "enum", "name": "geo.Country", "symbols": ["AT", "FR"]}'
CITY = '{"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "in", "type": "Country"}]}'


@pytest.fixture(scope="module")
def oracle() -> Iterator[SchemaOracle]:
    missing = missing_for_confluent()
    if missing is not None:
        (pytest.fail if in_ci() else pytest.skip)(missing)
    with SchemaOracle() as found:
        yield found


def parsed(text: str) -> AvroSchema | None:
    try:
        return AvroSchema(text)
    except InvalidSchema:
        return None


def question(op: str, text: str, **more: Any) -> dict[str, Any]:
    return {"op": op, "type": "AVRO", "schema": text, **more}


def assert_same_validity(text: str, schema: AvroSchema | None, answer: dict[str, Any]) -> None:
    message = str(answer.get("message"))
    if schema is not None and any(each in message for each in NEWER):
        return
    assert (schema is not None) is ("error" not in answer), f"{text}\n{answer}"


@pytest.mark.parametrize("seed", range(3))
def test_random_schemas_have_confluents_forms_and_validity(oracle: SchemaOracle, seed: int) -> None:
    generator = Generator(seed)
    drawn = [generator.schema() if index % 2 else generator.defective() for index in range(PAIRS)]
    texts = [json.dumps(each, ensure_ascii=bool(index % 3)) for index, each in enumerate(drawn)]
    canonical = oracle.ask(question("canonical", text) for text in texts)
    normalized = oracle.ask(question("normalize", text) for text in texts)
    valid = 0
    for text, answer, normal in zip(texts, canonical, normalized, strict=True):
        schema = parsed(text)
        assert_same_validity(text, schema, answer)
        if schema is None or "error" in answer:
            continue
        valid += 1
        assert schema.canonical == answer["result"], text
        if "result" in normal and '"namespace":""' not in schema.canonical:
            assert schema.normalized() == normal["result"], text
    assert PAIRS * 0.6 < valid < PAIRS * 0.8


@pytest.mark.parametrize("seed", range(10, 13))
def test_random_pairs_have_confluents_compatibility_in_both_directions(oracle: SchemaOracle, seed: int) -> None:
    generator = Generator(seed)
    pairs = []
    for _ in range(PAIRS):
        old = generator.schema()
        pairs.append((json.dumps(old), json.dumps(generator.changed(old))))
    both = pairs + [(new, old) for old, new in pairs]
    answers = oracle.ask(question("compatible", reader, previous={"schema": writer}) for reader, writer in both)
    compatible = 0
    for (reader_text, writer_text), answer in zip(both, answers, strict=True):
        reader, writer = parsed(reader_text), parsed(writer_text)
        if reader is None or writer is None or "error" in answer:
            continue
        assert "incompatibilities" in answer, answer
        found = reader.incompatibilities(writer)
        expected = answer["incompatibilities"]
        compatible += not expected
        told = f"{reader_text}\n{writer_text}\n{found}\n{expected}"
        assert [(each.kind, each.details) for each in found] == [(kind, info) for kind, _, info in expected], told
        for each, (_, path, _) in zip(found, expected, strict=True):
            assert each.path.endswith(path.rstrip("/")), told
    assert PAIRS * 0.6 < compatible < PAIRS * 1.4


@pytest.mark.parametrize(
    ("text", "references"),
    [
        ('{"type": "record", "name": "R", "namespace": "a", "fields": [{"name": "f", "type": "Address"}]}', [ADDRESS]),
        ('{"type": "record", "name": "b.R", "fields": [{"name": "f", "type": "a.Address"}]}', [ADDRESS]),
        ('{"type": "record", "name": "b.R", "fields": [{"name": "f", "type": "a.Kind"}]}', [ADDRESS]),
        ('["null", "a.Address", "a.Kind"]', [ADDRESS]),
        ('{"type": "array", "items": "geo.City"}', [COUNTRY, CITY]),
        ('{"type": "map", "values": ["geo.City", "geo.Country"]}', [COUNTRY, CITY]),
        ('"geo.Country"', [COUNTRY]),
        ('{"type": "array", "items": "geo.City"}', [CITY]),
        ('{"type": "enum", "name": "geo.Country", "symbols": ["IT"]}', [COUNTRY]),
    ],
)
def test_types_of_references_are_written_as_confluent_writes_them(
    oracle: SchemaOracle, text: str, references: list[str]
) -> None:
    given = [{"name": str(index), "schema": each} for index, each in enumerate(references)]
    canonical, normal = oracle.ask(question(op, text, references=given) for op in ("canonical", "normalize"))
    if "error" in canonical:
        with pytest.raises(InvalidSchema):
            AvroSchema(text, references)
        return
    schema = AvroSchema(text, references)
    assert schema.canonical == canonical["result"]
    if "result" in normal:
        assert schema.normalized() == normal["result"]
