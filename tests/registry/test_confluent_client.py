"""Every method of confluent-kafka's SchemaRegistryClient against a real registry on a real broker."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from tests.ottla_process import ForkedOttla
from tests.registry_process import RegistryProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # authlib, which confluent-kafka imports, warns of its own httpx module
    from confluent_kafka.schema_registry import (
        ConfigCompatibilityLevel,
        Metadata,
        MetadataProperties,
        Rule,
        RuleKind,
        RuleMode,
        RuleParams,
        RuleSet,
        Schema,
        SchemaReference,
        SchemaRegistryClient,
        ServerConfig,
    )
    from confluent_kafka.schema_registry.error import SchemaRegistryError

pytestmark = pytest.mark.timeout(120)
NUMBERS = count()
BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a registry."""
    directory = tmp_path_factory.mktemp("registry")
    with (
        ForkedOttla(directory / "broker", BROKER) as broker,
        RegistryProcess(directory / "node", broker.bootstrap) as node,
    ):
        yield node.url


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    """A client without anything in its caches."""
    with SchemaRegistryClient({"url": url}) as made:
        yield made


@pytest.fixture
def subject() -> str:
    """A subject of this test."""
    return f"subject-{next(NUMBERS)}"


def avro(*fields: str, optional: str = "", name: str = "R") -> Schema:
    """An Avro schema of its own: its name has a number."""
    named: list[dict[str, Any]] = [{"name": field, "type": "string"} for field in fields]
    named += [{"name": optional, "type": "string", "default": ""}] if optional else []
    return Schema(json.dumps({"type": "record", "name": name, "fields": named}), "AVRO")


def error_of(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    """The status and the error code."""
    return error.value.http_status_code, error.value.error_code


def test_register_and_get(client: SchemaRegistryClient, subject: str) -> None:
    schema = avro("a", name=f"N{subject[8:]}")
    schema_id = client.register_schema(subject, schema)
    full = client.register_schema_full_response(subject, schema, normalize_schemas=True)
    assert (full.schema_id, full.version) == (schema_id, 1)
    assert json.loads(client.get_schema(schema_id).schema_str or "") == json.loads(schema.schema_str or "")
    assert client.get_schema(schema_id, subject_name=subject, reference_format="qualified").schema_type == "AVRO"
    found = client.lookup_schema(subject, schema)
    assert (found.schema_id, found.version, found.subject) == (schema_id, 1, subject)
    assert found.guid is not None
    assert client.get_schema_by_guid(found.guid).schema_type == "AVRO"
    assert client.get_subjects_by_schema_id(schema_id) == [subject]
    assert [(item.subject, item.version) for item in client.get_schema_versions(schema_id)] == [(subject, 1)]


def test_types_subjects_and_contexts(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(f":.mine:{subject}", avro("a"))
    client.register_schema(subject, avro("a"))
    assert sorted(client.get_schema_types()) == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_subjects(subject_prefix=subject) == [subject]
    assert f":.mine:{subject}" in client.get_subjects()
    assert client.get_contexts() == [".", ".mine"]
    assert client.get_contexts(offset=1, limit=1) == [".mine"]


def test_versions_and_deletes(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, avro("a"))
    client.register_schema(subject, avro("a", optional="b"))
    assert client.get_versions(subject) == [1, 2]
    assert client.get_latest_version(subject).version == 2
    assert client.get_version(subject, 1).version == 1
    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]
    assert client.get_versions(subject, deleted=True) == [1, 2]
    # The client sends a name that no registry knows: Confluent's parameter is deletedOnly.
    assert client.get_versions(subject, deleted_only=True) == [2]
    assert client.get_version(subject, 1, deleted=True).version == 1
    assert client.delete_version(subject, 1, permanent=True) == 1
    assert client.delete_subject(subject) == [2]
    assert client.delete_subject(subject, permanent=True) == [2]
    assert client.get_subjects(subject_prefix=subject, deleted=True) == []
    with pytest.raises(SchemaRegistryError) as error:
        client.get_version(subject, 1)
    assert error_of(error) == (404, 40401)


def test_references(client: SchemaRegistryClient, subject: str) -> None:
    base = f"{subject}-base"
    client.register_schema(base, avro("a", name="Base"))
    text = json.dumps({"type": "record", "name": "User", "fields": [{"name": "r", "type": "Base"}]})
    user = client.register_schema(subject, Schema(text, "AVRO", [SchemaReference("Base", base, 1)]))
    assert client.get_referenced_by(base, 1) == [user]
    found = client.get_schema(user)
    assert [(item.name, item.subject, item.version) for item in found.references or []] == [("Base", base, 1)]
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_subject(base)
    assert error_of(error) == (422, 42206)


def test_metadata_and_rules(client: SchemaRegistryClient, subject: str) -> None:
    rule = Rule("r", "", RuleKind.CONDITION, RuleMode.WRITE, "CEL", [], RuleParams({}), "true", "NONE", "ERROR", False)
    metadata = Metadata(None, MetadataProperties({"owner": "ann"}), None)
    text = avro("a").schema_str
    client.register_schema(subject, Schema(text, "AVRO", [], metadata, RuleSet([], [rule])))
    found = client.get_latest_with_metadata(subject, {"owner": "ann"})
    assert found.schema.metadata is not None
    assert found.schema.metadata.properties == MetadataProperties({"owner": "ann"})
    assert found.schema.rule_set is not None
    assert found.schema.rule_set.domain_rules is not None
    assert found.schema.rule_set.domain_rules[0].expr == "true"
    with pytest.raises(SchemaRegistryError) as error:
        client.get_latest_with_metadata(subject, {"owner": "bob"})
    assert error_of(error) == (404, 40403)


def test_compatibility(client: SchemaRegistryClient, subject: str) -> None:
    client.register_schema(subject, avro("a"))
    assert client.test_compatibility(subject, avro("a", optional="b"))
    assert not client.test_compatibility(subject, avro("a", "b"), version=1)
    assert not client.test_compatibility_all_versions(subject, avro("a", "b"))
    with pytest.raises(SchemaRegistryError) as error:
        client.register_schema(subject, avro("a", "b"))
    assert error.value.http_status_code == 409
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    assert client.get_compatibility() == "BACKWARD"
    client.register_schema(subject, avro("a", "b"))


def test_settings(client: SchemaRegistryClient, subject: str) -> None:
    config = ServerConfig(compatibility=ConfigCompatibilityLevel.FULL, compatibility_group="app")
    changed: Any = client.set_config(subject, config)
    assert changed == {"compatibility": "FULL", "compatibilityGroup": "app"}
    found = client.get_config(subject)
    assert (found.compatibility_level, found.compatibility_group) == ("FULL", "app")
    client.delete_config(subject)
    with pytest.raises(SchemaRegistryError) as error:
        client.get_config(subject)
    assert error_of(error) == (404, 40408)


def test_modes(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_global_mode() == "READWRITE"
    assert client.update_global_mode("READWRITE") == "READWRITE"
    assert client.update_mode(subject, "IMPORT", force=True) == "IMPORT"
    assert client.get_mode(subject) == "IMPORT"
    assert client.delete_mode(subject) == "IMPORT"
    with pytest.raises(SchemaRegistryError) as error:
        client.get_mode(subject)
    assert error_of(error) == (404, 40409)


def test_associations_do_not_exist_as_in_older_releases(client: SchemaRegistryClient) -> None:
    with pytest.raises(SchemaRegistryError) as error:
        client.delete_associations("resource")
    assert error.value.http_status_code == 404


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("JSON", '{"type":"object","properties":{"a":{"type":"integer"}}}'),
        ("PROTOBUF", 'syntax = "proto3";\nmessage M {\n  string a = 1;\n}\n'),
    ],
)
def test_other_types(client: SchemaRegistryClient, subject: str, kind: str, text: str) -> None:
    schema_id = client.register_schema(subject, Schema(text, kind))
    client.clear_caches()
    assert client.get_schema(schema_id).schema_type == kind
    assert client.lookup_schema(subject, Schema(text, kind)).version == 1
