"""Ids, versions, references, metadata and imports."""

from __future__ import annotations

import json
from typing import Any

from ottla.registry.records import Record, SchemaKey, SchemaValue, encode_key, encode_schema
from ottla.schemas.model import Reference, Schema, SchemaType
from tests.unit.registry.support import Api, MemoryRegistry, record

INT, LONG = {"schema": '"int"'}, {"schema": '"long"'}


def reference(name: str, subject: str, version: int) -> dict[str, Any]:
    """A reference of a request."""
    return {"name": name, "subject": subject, "version": version}


def user_of(name: str, subject: str, version: int = 1) -> dict[str, Any]:
    """A schema that uses another one."""
    fields = [{"name": "r", "type": name}]
    text = json.dumps({"type": "record", "name": f"User{name}", "fields": fields})
    return {"schema": text, "references": [reference(name, subject, version)]}


def test_equal_schemas_have_one_id_across_subjects() -> None:
    api = Api()
    assert [api.register(subject, "int") for subject in ("a", "b")] == [1, 1]
    assert api.register("b", "long") == 2
    assert api.get("/schemas/ids/1/subjects").json == ["a", "b"]


def test_texts_that_differ_in_form_only_are_equal() -> None:
    api = Api()
    first = api.post("/subjects/a/versions", {"schema": '{"type": "int"}'}).json
    second = api.post("/subjects/a/versions", {"schema": ' "int" '}).json
    assert first == second
    assert first["schema"] == '"int"'


def test_ids_are_not_used_again_after_permanent_deletes_and_a_compaction() -> None:
    api = Api()
    api.register("s", "int")
    api.delete("/subjects/s")
    api.delete("/subjects/s?permanent=true")
    last = {item.key: item for item in api.registry.written}
    compacted = [item for item in last.values() if item.value is not None]
    assert Api(MemoryRegistry(compacted)).register("s", "long") == 2


def test_each_context_has_ids_of_its_own() -> None:
    api = Api()
    assert [api.register("s", "int"), api.register(":.c:s", "long"), api.register(":.c:t", "int")] == [1, 1, 2]
    assert api.get("/schemas/ids/1?subject=:.c:").json["schema"] == '"long"'
    assert api.get("/schemas/ids/1").json["schema"] == '"int"'


def test_a_soft_deleted_schema_is_registered_again_with_its_id_and_a_new_version() -> None:
    api = Api()
    api.register("s", "int")
    api.delete("/subjects/s")
    assert api.get("/schemas/ids/1").status == 200
    again = api.post("/subjects/s/versions", INT).json
    assert (again["id"], again["version"]) == (1, 2)
    assert api.get("/subjects/s/versions?deleted=true").json == [2]


def test_versions_are_not_used_again_while_deleted_ones_exist() -> None:
    api = Api()
    api.register("s", "int")
    api.register("s", "long")
    api.delete("/subjects/s/versions/2")
    assert api.post("/subjects/s/versions", {"schema": '"float"'}).json["version"] == 3
    assert api.get("/subjects/s/versions").json == [1, 3]
    assert api.get("/subjects/s/versions?deletedOnly=true").json == [2]
    assert api.get("/subjects/s/versions?deletedAsNegative=true").json == [1, -2, 3]


def test_the_last_permanent_delete_of_a_subject_deletes_its_settings() -> None:
    api = Api()
    api.register("s", "int")
    api.put("/config/s", {"compatibility": "NONE"})
    api.delete("/subjects/s/versions/1")
    api.delete("/subjects/s/versions/1?permanent=true")
    assert api.get("/config/s").error == (404, 40408)


def test_a_referenced_schema_cannot_be_deleted() -> None:
    api = Api()
    api.register("base", record("Base", "a"))
    assert api.post("/subjects/user/versions", user_of("Base", "base")).status == 200
    assert api.get("/subjects/base/versions/1/referencedby").json == [2]
    assert api.delete("/subjects/base/versions/1").error == (422, 42206)
    api.delete("/subjects/user")
    assert api.get("/subjects/base/versions/1/referencedby").json == []
    assert api.get("/subjects/base/versions/1/referencedby?deleted=true").json == [2]
    assert api.delete("/subjects/base").status == 200
    assert api.delete("/subjects/base?permanent=true").error == (422, 42206)
    api.delete("/subjects/user?permanent=true")
    assert api.delete("/subjects/base?permanent=true").status == 200


def test_references_are_relative_to_the_context() -> None:
    api = Api()
    api.register(":.c:base", record("Base", "a"))
    body = user_of("Base", "base")
    assert api.post("/subjects/user/versions", body).error == (422, 42201)
    assert api.post("/contexts/.c/subjects/user/versions", body).status == 200
    found = api.get("/subjects/:.c:user/versions/1?referenceFormat=qualified").json
    assert found["references"] == [reference("Base", ":.c:base", 1)]
    assert api.get("/subjects/:.c:user/versions/1").json["references"] == [reference("Base", "base", 1)]


def test_a_reference_to_the_latest_version_is_stored_with_its_number() -> None:
    api = Api()
    api.register("base", record("Base", "a"))
    found = api.post("/subjects/user/versions", user_of("Base", "base", -1)).json
    assert found["references"] == [reference("Base", "base", 1)]


def test_a_parsed_schema_is_forgotten_when_its_reference_is_replaced() -> None:
    api = Api()
    api.put("/config", {"compatibility": "NONE"})
    api.register("base", record("Base", "a"))
    body = user_of("Base", "base")
    assert api.post("/compatibility/subjects/user/versions/latest", body).json == {"is_compatible": True}
    api.delete("/subjects/base")
    api.delete("/subjects/base?permanent=true")
    api.register("base", record("Other", "a"))
    assert api.post("/compatibility/subjects/user/versions/latest", body).error == (422, 42201)


def test_metadata_and_rules_are_part_of_the_identity_and_returned() -> None:
    api = Api()
    rules = {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}]}
    metadata = {"properties": {"b": "2", "a": 1}, "tags": {"x": ["PII", "A"]}, "sensitive": []}
    assert api.register("s", "int") == 1
    assert api.register("s", "int", metadata=metadata, ruleSet=rules) == 2
    found = api.get("/schemas/ids/2").json
    assert found["metadata"] == {"tags": {"x": ["A", "PII"]}, "properties": {"a": "1", "b": "2"}}
    assert found["ruleSet"]["domainRules"][0] == {**rules["domainRules"][0], "disabled": False}


def test_a_new_version_inherits_metadata_and_a_lookup_finds_it_without() -> None:
    api = Api()
    api.register("s", "int", metadata={"properties": {"owner": "ann"}})
    api.register("s", "long")
    assert api.get("/subjects/s/versions/2").json["metadata"] == {"properties": {"owner": "ann"}}
    assert api.post("/subjects/s", LONG).json["version"] == 2


def test_settings_add_metadata_and_rules() -> None:
    api = Api()
    api.put(
        "/config/s", {"defaultMetadata": {"properties": {"a": "1"}}, "overrideMetadata": {"properties": {"b": "2"}}}
    )
    api.register("s", "int", metadata={"properties": {"b": "0", "c": "3"}})
    assert api.get("/subjects/s/versions/1").json["metadata"] == {"properties": {"a": "1", "b": "2", "c": "3"}}


def test_the_latest_version_with_metadata() -> None:
    api = Api()
    for number, stage in enumerate(("1", "1", "2"), 1):
        api.register("s", record("R", "a", optional=[f"f{number}"]), metadata={"properties": {"stage": stage}})
    assert api.get("/subjects/s/metadata?key=stage&value=1").json["version"] == 2


def test_version_minus_one_adds_the_property_confluent_version() -> None:
    api = Api()
    first = api.post("/subjects/s/versions", {**INT, "version": -1}).json
    assert first["metadata"] == {"properties": {"confluent:version": "1"}}
    assert api.post("/subjects/s", INT).json["version"] == 1
    assert api.post("/subjects/s/versions", INT).json["id"] == first["id"]


def test_an_import_keeps_ids_and_versions_and_does_not_overwrite() -> None:
    api = Api()
    assert api.put("/mode", {"mode": "IMPORT"}).status == 200
    assert api.post("/subjects/s/versions", {**INT, "id": 100, "version": 7}).json["version"] == 7
    assert api.get("/schemas/ids/100").status == 200
    assert api.post("/subjects/t/versions", {**LONG, "id": 100}).error == (422, 42205)
    assert api.post("/subjects/t/versions", LONG).error == (422, 42205)
    api.put("/mode", {"mode": "READWRITE"})
    assert api.post("/subjects/t/versions", LONG).json["id"] == 101


def test_an_import_empties_soft_deleted_subjects() -> None:
    api = Api()
    api.register("s", "int")
    api.delete("/subjects/s")
    assert api.put("/mode/s", {"mode": "IMPORT"}).status == 200
    assert api.get("/subjects?deleted=true").json == []


def test_normalization_by_parameter_and_by_setting() -> None:
    api = Api()
    text = '{"type":"record","name":"R","namespace":"n","fields":[{"type":"string","name":"a","doc":"d"}]}'
    api.post("/subjects/s/versions?normalize=true", {"schema": text})
    found = api.get("/subjects/s/versions/1").json
    assert api.post("/subjects/s?normalize=true", {"schema": text}).json["id"] == found["id"]
    api.put("/config/t", {"normalize": True})
    api.post("/subjects/t/versions", {"schema": text})
    assert api.get("/subjects/t/versions/1").json["id"] == found["id"]


def test_compatibility_groups_compare_only_their_schemas() -> None:
    api = Api()
    api.put("/config/s", {"compatibilityGroup": "app"})
    api.register("s", "int", metadata={"properties": {"app": "1"}})
    assert api.post("/subjects/s/versions", {"schema": '"string"'}).status == 409
    body = {"schema": '"string"', "metadata": {"properties": {"app": "2"}}}
    assert api.post("/subjects/s/versions", body).status == 200


def test_guids_find_schemas_in_all_contexts() -> None:
    api = Api()
    api.register(":.c:s", "long")
    api.register(":.c:s", "double")
    api.register("s", "double")
    guid = api.get("/schemas/ids/1").json["guid"]
    assert api.get(f"/schemas/guids/{guid}").json["schema"] == '"double"'
    assert api.get(f"/schemas/guids/{guid.replace('-', '')}").status == 200
    assert api.get(f"/schemas/guids/{guid}/ids").json == [{"context": ".", "id": 1}, {"context": ".c", "id": 2}]


def test_references_that_are_nested_too_deeply_are_an_error() -> None:
    api = Api()
    for number in range(1, 1000):
        uses = (Reference(f"T{number - 1}", f"s{number - 1}", 1),) if number > 1 else ()
        key = encode_key(SchemaKey(f"s{number}", 1))
        value = encode_schema(f"s{number}", 1, SchemaValue(number, Schema(SchemaType.AVRO, f'"T{number}"', uses)))
        api.registry.append([Record(key, value)])
    assert api.post("/subjects/user/versions", user_of("Base", "s999")).error == (422, 42201)


def test_a_new_schema_cannot_reference_a_deleted_one() -> None:
    api = Api()
    api.register("base", record("Base", "a"))
    body = user_of("Base", "base")
    assert api.post("/compatibility/subjects/user/versions", body).json == {"is_compatible": True}
    api.delete("/subjects/base")
    assert api.post("/subjects/user/versions", body).error == (422, 42201)
    assert api.post("/compatibility/subjects/user/versions", body).error == (422, 42201)


def test_ids_and_versions_end_before_they_exceed_32_bits() -> None:
    api = Api()
    api.put("/mode", {"mode": "IMPORT"})
    assert api.post("/subjects/s/versions", {**INT, "id": 2**31 - 1, "version": 2**31 - 1}).status == 200
    api.put("/mode", {"mode": "READWRITE"})
    assert api.post("/subjects/s/versions", LONG).error == (422, 42201)
    assert api.post("/subjects/t/versions", LONG).error == (500, 50001)
    assert api.get("/subjects/s/versions/2147483647").status == 200
    assert not api.registry.state.skipped
