"""Records as Confluent's registry and Karapace write them."""

from __future__ import annotations

import pytest

from ottla.registry import records
from ottla.registry.records import SchemaKey, SchemaValue, encode_key, to_json
from ottla.registry.state import State
from ottla.schemas.model import Reference, Schema, SchemaType
from tests.unit.registry.support import Api, MemoryRegistry

AVRO = Schema(SchemaType.AVRO, '["null","Ä"]')
PROTOBUF = Schema(
    SchemaType.PROTOBUF,
    'syntax = "proto3";\n',
    (Reference("a.proto", "a", 1),),
    {"properties": {"owner": "ann"}},
    {"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "disabled": False}]},
)

PROTOBUF_VALUE = (
    '{"subject":"s","version":1,"id":7,"md5":"AAECAwQFBgcICQoLDA0ODw==","schemaType":"PROTOBUF",'
    '"references":[{"name":"a.proto","subject":"a","version":1}],"metadata":{"properties":{"owner":"ann"}},'
    '"ruleSet":{"domainRules":[{"name":"r","kind":"CONDITION","mode":"WRITE","type":"CEL","disabled":false}]},'
    '"schema":"syntax = \\"proto3\\";\\n","deleted":true}'
)


@pytest.mark.parametrize(
    ("key", "data"),
    [
        (SchemaKey("orders-value", 1), b'{"keytype":"SCHEMA","subject":"orders-value","version":1,"magic":1}'),
        (SchemaKey('a"b', 12), b'{"keytype":"SCHEMA","subject":"a\\"b","version":12,"magic":1}'),
        (records.ConfigKey(None), b'{"keytype":"CONFIG","subject":null,"magic":0}'),
        (records.ConfigKey("s"), b'{"keytype":"CONFIG","subject":"s","magic":0}'),
        (records.ModeKey(":.c:"), b'{"keytype":"MODE","subject":":.c:","magic":0}'),
        (records.DeleteSubjectKey("s"), b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}'),
        (records.ClearSubjectKey("s"), b'{"keytype":"CLEAR_SUBJECT","subject":"s","magic":0}'),
        (records.ContextKey(".c"), b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}'),
        (records.NoopKey(), b'{"keytype":"NOOP","magic":0}'),
    ],
)
def test_keys_have_the_bytes_of_confluents_registry(key: records.Key, data: bytes) -> None:
    assert records.encode_key(key) == data
    assert records.decode_key(data) == key


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (
            SchemaValue(1, AVRO),
            '{"subject":"s","version":1,"id":1,"schema":"[\\"null\\",\\"Ä\\"]","deleted":false}',
        ),
        (
            SchemaValue(7, PROTOBUF, deleted=True, md5=bytes(range(16))),
            PROTOBUF_VALUE,
        ),
    ],
)
def test_values_have_the_order_of_confluents_registry(value: SchemaValue, data: str) -> None:
    assert records.encode_schema("s", 1, value).decode() == data
    assert records.decode_schema(data.encode()) == value


def test_values_of_release_8_are_read() -> None:
    """They name the type AVRO and may have properties that are not known here."""
    data = b'{"subject":"s","version":1,"id":3,"schemaType":"AVRO","schema":"\\"int\\"","deleted":false,"new":{"a":1}}'
    assert records.decode_schema(data) == SchemaValue(3, Schema(SchemaType.AVRO, '"int"'))


KARAPACE = [
    (b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"NONE"}'),
    (
        b'{"subject":"s","version":1,"magic":1,"keytype":"SCHEMA"}',
        b'{"deleted": false, "id": 1, "schema": "\\"string\\"", "subject": "s", "version": 1}',
    ),
    (
        b'{"keytype":"SCHEMA","subject":"t","version":1,"magic":1}',
        b'{"subject":"t","version":1,"id":2,"schema":"\\"int\\"","deleted":false}',
    ),
    (b'{"keytype":"DELETE_SUBJECT","subject":"t","magic":0}', b'{"subject":"t","version":1}'),
]


def opened(found: list[tuple[bytes, bytes | None]]) -> Api:
    """The API over a topic with these records."""
    api = Api()
    api.registry.append([records.Record(*item) for item in found])
    return api


def test_a_topic_of_karapace_is_read() -> None:
    api = opened(list(KARAPACE))
    assert api.get("/config").json == {"compatibilityLevel": "NONE"}
    assert api.get("/subjects").json == ["s"]
    assert api.get("/subjects?deleted=true").json == ["s", "t"]
    assert api.get("/schemas/ids/2").json["schema"] == '"int"'


def test_a_delete_has_the_bytes_of_the_key_that_the_topic_has() -> None:
    """Compaction compares bytes: a tombstone with another order of fields would not delete the record."""
    api = opened(list(KARAPACE))
    api.delete("/subjects/s/versions/1")
    api.delete("/subjects/s/versions/1?permanent=true")
    old, new = b'{"subject":"s","version":1,"magic":1,"keytype":"SCHEMA"}', encode_key(SchemaKey("s", 1))
    assert [item.key for item in api.registry.written[len(KARAPACE) :]] == [old, old, new]
    assert api.registry.written[-2:] == [(old, None), (new, None)]


@pytest.mark.parametrize(
    ("kind", "stored", "asked"),
    [
        (
            "AVRO",
            '{"fields": [{"name": "a", "type": "int"}], "name": "R", "type": "record"}',
            '{"type":"record","name":"R","fields":[{"type":"int","name":"a"}]}',
        ),
        ("JSON", '{"additionalProperties": false, "type": "object"}', '{"type":"object","additionalProperties":false}'),
    ],
)
def test_a_schema_that_karapace_stored_with_sorted_keys_is_found(kind: str, stored: str, asked: str) -> None:
    value = to_json({"schema": stored, "schemaType": kind, "subject": "s", "version": 1, "id": 9})
    api = opened([(encode_key(SchemaKey("s", 1)), value)])
    body = {"schema": asked, "schemaType": kind}
    assert api.post("/subjects/s", body).json["id"] == 9
    assert api.post("/subjects/s/versions", body).json["id"] == 9
    assert api.post("/subjects/s", {**body, "schema": asked.replace("R", "S").replace("false", "true")}).status == 404


def test_global_settings_without_a_subject_keep_their_key() -> None:
    """Release 8 of Confluent's registry omits the subject that is null."""
    key = b'{"keytype":"CONFIG","magic":0}'
    api = opened([(key, b'{"compatibilityLevel":"FULL"}')])
    assert api.put("/config", {"compatibility": "NONE"}).status == 200
    assert api.registry.written[-1] == (key, b'{"compatibilityLevel":"NONE"}')


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"keytype":"ASSOC","tenant":"default","subject":"s","magic":0}', b'{"guid":"x"}'),
        (b"not json", b"{}"),
        (b"\xff", b"{}"),
        (b"[]", b"{}"),
        (b"[" * 100_000, b"{}"),
        (b'{"magic":0}', b"{}"),
        (b'{"keytype":["SCHEMA"],"magic":0}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":9}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":"x","magic":1}', b"{}"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b"{"),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1,"schema":"x","schemaType":"XML"}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1,"schema":"x","references":[1]}'),
        (b'{"keytype":"SCHEMA","subject":"s","version":1,"magic":1}', b'{"id":1,"schema":"\\ud800"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"UNKNOWN"}'),
        (b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":["READONLY"]}'),
        (b'{"keytype":"CONFIG","subject":"s","magic":0}', b'{"compatibilityLevel":"UNKNOWN"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"s","magic":0}', b'{"version":"x"}'),
        (None, b"{}"),
    ],
)
def test_records_that_are_not_known_are_skipped_and_counted(key: bytes | None, value: bytes) -> None:
    state = State()
    for offset in range(2):
        state.apply(key, value, offset)
    assert sum(state.skipped.values()) == 2
    assert state.next_offset == 2
    assert (list(state.subjects()), state.mode("s")) == ([], "READWRITE")


def test_a_record_that_reuses_an_id_is_skipped() -> None:
    api = opened(
        [
            (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"id":1,"schema":"\\"int\\""}'),
            (b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', b'{"id":1,"schema":"\\"long\\""}'),
        ]
    )
    assert api.get("/subjects").json == ["a"]
    assert api.get("/schemas/ids/1").json["schema"] == '"int"'


def test_md5_of_a_record_is_the_identity() -> None:
    api = opened(
        [
            (
                b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
                b'{"id":1,"md5":"AAECAwQFBgcICQoLDA0ODw==","schema":"\\"int\\""}',
            )
        ]
    )
    guid = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert api.get("/schemas/ids/1").json["guid"] == guid
    assert api.delete("/subjects/a/versions/1").status == 200
    compacted = api.registry.written[1:]
    assert Api(MemoryRegistry(compacted)).get("/schemas/ids/1").json["guid"] == guid


def test_the_reasons_for_skipped_records_are_bounded() -> None:
    state = State()
    for offset in range(1000):
        state.apply(b'{"keytype":"MODE","subject":"s","magic":0}', b'{"mode":"M%d"}' % offset, offset)
    assert len(state.skipped) <= 101
    assert sum(state.skipped.values()) == 1000
