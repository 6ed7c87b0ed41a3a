"""The parameter `format`."""

from __future__ import annotations

import base64
import json

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from tests.unit.registry.support import Api, record

PROTO = 'syntax = "proto3";\npackage shop;\nmessage Order {\n  string id = 1;\n}\n'
USER = {
    "schema": json.dumps({"type": "record", "name": "User", "fields": [{"name": "r", "type": "Base"}]}),
    "references": [{"name": "Base", "subject": "base", "version": 1}],
}
RESOLVED = {"type": "record", "name": "User", "fields": [{"name": "r", "type": record("Base", "a")}]}


@pytest.fixture
def api() -> Api:
    """A Protobuf schema, and an Avro schema with a reference."""
    api = Api()
    api.post("/subjects/proto/versions", {"schema": PROTO, "schemaType": "PROTOBUF"})
    api.register("base", record("Base", "a"))
    assert api.post("/subjects/user/versions", USER).status == 200
    return api


@pytest.mark.parametrize("path", ["/schemas/ids/1", "/subjects/proto/versions/1"])
def test_protobuf_as_a_descriptor(api: Api, path: str) -> None:
    found = api.get(f"{path}?format=serialized").json
    descriptor = FileDescriptorProto.FromString(base64.b64decode(found["schema"]))
    assert [message.name for message in descriptor.message_type] == ["Order"]
    assert found["guid"] == api.get(path).json["guid"]


def test_avro_with_the_types_of_its_references(api: Api) -> None:
    assert json.loads(api.get("/schemas/ids/3?format=resolved").json["schema"]) == RESOLVED
    assert json.loads(api.get("/schemas/ids/3/schema?format=resolved").body) == RESOLVED
    assert json.loads(api.post("/subjects/user?format=resolved", USER).json["schema"]) == RESOLVED
    guid = api.get("/schemas/ids/3").json["guid"]
    assert json.loads(api.get(f"/schemas/guids/{guid}?format=resolved").json["schema"]) == RESOLVED


def test_a_schema_with_all_references_resolved_finds_the_one_with_references(api: Api) -> None:
    body = {"schema": json.dumps(RESOLVED)}
    assert api.post("/subjects/user", body).json["id"] == 3
    assert api.post("/subjects/user/versions", body).json["id"] == 3


@pytest.mark.parametrize("schema_id", [1, 2, 3])
def test_a_format_that_a_type_does_not_have_is_ignored(api: Api, schema_id: int) -> None:
    plain = api.get(f"/schemas/ids/{schema_id}").body
    assert api.get(f"/schemas/ids/{schema_id}?format=unknown").body == plain
    assert api.get(f"/schemas/ids/{schema_id}?format=").body == plain
