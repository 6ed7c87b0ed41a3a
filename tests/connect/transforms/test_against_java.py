"""Each transformation and predicate makes of each record what Kafka Connect 4.3's own class makes of it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ottla.connect.config.definition import SettingError
from ottla.connect.converters.json import JsonConverter
from ottla.connect.errors import ConnectError
from ottla.connect.plugins import predicate_class, transformation_class
from ottla.connect.records import ConnectRecord, Header, SinkRecord, SourceRecord
from tests.peers.cache import DEBEZIUM, missing_for_debezium
from tests.peers.kafka import java

pytestmark = pytest.mark.jvm
ORACLE = Path(__file__).parents[2] / "peers" / "TransformOracle.java"
TIMEOUT_S = 120
P = "org.apache.kafka.connect.transforms"


def typed(schema: Mapping[str, Any], payload: Any) -> str:
    return json.dumps({"schema": schema, "payload": payload})


def plain(payload: Any) -> str:
    return json.dumps({"schema": None, "payload": payload})


def of(kind: str, field: str | None = None, **more: Any) -> dict[str, Any]:
    named = {} if field is None else {"field": field}
    return {"type": kind, "optional": False, **named, **more}


LOGICAL = "org.apache.kafka.connect.data."
NESTED = of("struct", "in", optional=True, fields=[of("string", "b"), of("int32", "c", optional=True, default=9)])
ROW = of(
    "struct",
    name="row",
    version=2,
    doc="A row.",
    fields=[
        of("int8", "i8"),
        of("int32", "id"),
        of("int64", "at"),
        of("float", "f"),
        of("double", "d", optional=True),
        of("boolean", "ok"),
        of("string", "text", optional=True, default="none"),
        of("bytes", "raw"),
        of("array", "list", items=of("int32")),
        of("int32", "day", name=f"{LOGICAL}Date", version=1),
        of("int32", "clock", name=f"{LOGICAL}Time", version=1),
        of("int64", "moment", name=f"{LOGICAL}Timestamp", version=1, optional=True),
        of("bytes", "price", name=f"{LOGICAL}Decimal", version=1, parameters={"scale": "2"}),
        NESTED,
    ],
)
VALUES = {
    "i8": 5, "id": -3, "at": 1_700_000_000_123, "f": 1.1, "d": 1e10, "ok": True, "text": "12", "raw": "AAEC",
    "list": [1, 2], "day": 19_000, "clock": 3_723_004, "moment": 1_700_000_000_123, "price": "MDk=",
    "in": {"b": "x", "c": None},
}  # fmt: skip
MAP = of("map", keys=of("string"), values=of("int32"))
JSON_VALUES = {
    "id": 7,
    "d": 0.1,
    "ok": False,
    "text": "2024-05-06",
    "none": None,
    "list": [1],
    "in": {"b": {"c": 1}, "": 2},
}
RECORDS = {
    "row": typed(ROW, VALUES),
    "row of nulls": typed(
        ROW, {**VALUES, "d": None, "text": None, "moment": None, "in": None, "id": 300, "f": -2.5e-5}
    ),
    "no row": typed({**ROW, "optional": True}, None),
    "map of a schema": typed(MAP, {"a": 1}),
    "row with a map": typed(
        of("struct", fields=[of("map", "m", keys=of("string"), values=of("int32"))]), {"m": {"a": 1}}
    ),
    "integer": typed(of("int32"), 65_601),
    "long": typed(of("int64", optional=True, default=3), 1_700_000_000_999),
    "text": typed(of("string"), "17"),
    "double": typed(of("double"), 3.99),
    "moment": typed(of("int64", name=f"{LOGICAL}Timestamp", version=1), 1_700_000_000_123),
    "json": plain(JSON_VALUES),
    "json text": plain("2024-05-06"),
    "json number": plain(1_700_000_000_123),
    "json list": plain([1, 2]),
    "null": None,
}
CONFIGS: dict[str, list[dict[str, str]]] = {
    f"{P}.Cast$Value": [
        {"spec": spec}
        for spec in (
            "int8",
            "int64",
            "float32",
            "float64",
            "boolean",
            "string",
            "id:int8,text:int64",
            "at:int32,f:string",
            "d:string,ok:string,raw:string",
            "day:string,clock:string,moment:string",
            "price:string",
            "moment:int64,day:int32,i8:boolean",
            "d:int32,f:int8,id:float64",
            "text:boolean",
            "raw:int8",
            "list:string",
            "in:string",
            "",
            "id:nothing",
            "a:b:int8",
            "int8,int16",
            "none:int8",
            "text:float32",
            "ok:int64",
            "id:bytes",
        )
    ],
    f"{P}.ExtractField$Value": [
        {"field": "id"},
        {"field": "text"},
        {"field": "in.b"},
        {"field": "in.b", "field.syntax.version": "V2"},
        {"field": "in.c", "field.syntax.version": "V2"},
        {"field": "in.b.c", "field.syntax.version": "V2"},
        {"field": "`in`.b", "field.syntax.version": "v2"},
        {"field": "`in.b", "field.syntax.version": "V2"},
        {"field": "text", "replace.null.with.default": "false"},
        {"field": "absent"},
        {},
        {"field": "id", "field.syntax.version": "V3"},
    ],
    f"{P}.HoistField$Value": [{"field": "x"}, {}],
    f"{P}.InsertField$Value": [
        {"topic.field": "t!", "partition.field": "p", "offset.field": "o?", "timestamp.field": "when"},
        {"static.field": "s", "static.value": "v"},
        {"static.field": "s"},
        {"static.field": "s!", "static.value": "v"},
        {},
        {"topic.field": "t", "replace.null.with.default": "false"},
        {"timestamp.field": "when!"},
    ],
    f"{P}.MaskField$Value": [
        {"fields": "id,text"},
        {"fields": "i8,at,f,d,ok,list,day,clock,moment,price"},
        {"fields": "in"},
        {"fields": "id,text", "replacement": "7"},
        {"fields": "id", "replacement": "x"},
        {"fields": "i8", "replacement": "300"},
        {"fields": "ok", "replacement": "true"},
        {"fields": ""},
        {"fields": "absent"},
        {"fields": "id", "replacement": ""},
        {"fields": "d,price", "replacement": "1.5"},
        {"fields": "raw"},
        {"fields": "none"},
    ],
    f"{P}.ReplaceField$Value": [
        {"exclude": "id"},
        {"include": "id,text"},
        {"include": "id,text", "exclude": "id"},
        {"renames": "id:ID,text:in2"},
        {"renames": "id"},
        {"renames": "a:b:c"},
        {},
        {"include": "text", "replace.null.with.default": "false"},
    ],
    f"{P}.Flatten$Value": [{}, {"delimiter": "_"}],
    f"{P}.HeaderFrom$Value": [
        {"fields": "id,text", "headers": "h1,h2", "operation": "move"},
        {"fields": "id", "headers": "h", "operation": "copy"},
        {"fields": "in", "headers": "h", "operation": "move"},
        {"fields": "absent", "headers": "h", "operation": "copy"},
        {"fields": "id,text", "headers": "h", "operation": "copy"},
        {"fields": "id", "headers": "h", "operation": "steal"},
        {"fields": "text", "headers": "h", "operation": "move", "replace.null.with.default": "false"},
    ],
    f"{P}.SetSchemaMetadata$Value": [
        {"schema.name": "n"},
        {"schema.version": "3"},
        {"schema.name": "n", "schema.version": "x"},
        {},
        {"schema.name": ""},
    ],
    f"{P}.TimestampConverter$Value": [
        {"target.type": kind, "field": field, "format": "yyyy-MM-dd", "unix.precision": precision}
        for kind in ("string", "unix", "Date", "Time", "Timestamp")
        for field in ("", "at", "moment", "day", "clock", "text", "absent")
        for precision in ("milliseconds",)
    ]
    + [
        {"target.type": "unix", "field": "moment", "unix.precision": unit}
        for unit in ("seconds", "microseconds", "nanoseconds")
    ]
    + [
        {"target.type": "Timestamp", "field": "at", "unix.precision": "seconds"},
        {"target.type": "string"},
        {"target.type": "other"},
        {"target.type": "string", "format": "bad'"},
        {"target.type": "string", "field": "at", "format": "EEE, d MMM yyyy h:mm:ss a z 'o''clock' SSS"},
        {"target.type": "string", "field": "moment", "format": "yy/M/dd'T'HH:mm:ss.SSSXXX Z D u F w W k K MMMM EEEE"},
    ],
    f"{P}.ValueToKey": [{"fields": "id"}, {"fields": "id,text"}, {"fields": "absent"}, {"fields": ""}, {}],
    f"{P}.DropHeaders": [{"headers": "a"}, {"headers": "b,c"}, {}],
    f"{P}.InsertHeader": [{"header": "h", "value.literal": text} for text in ("x", "12", "1.5", "null")]
    + [{"header": "h"}],
    f"{P}.RegexRouter": [
        {"regex": "t(.*)", "replacement": "u$1"},
        {"regex": "(?<n>t).*", "replacement": "${n}-x"},
        {"regex": "z", "replacement": ""},
        {"regex": "(", "replacement": ""},
        {"regex": ".*", "replacement": "a\\$b"},
        {"regex": ".*"},
    ],
    f"{P}.TimestampRouter": [
        {},
        {"topic.format": "a-${timestamp}", "timestamp.format": "yyyy.MM"},
        {"timestamp.format": "q"},
    ],
    f"{P}.Filter": [{}],
    f"{P}.predicates.HasHeaderKey": [{"name": "a"}, {"name": "z"}, {"name": ""}, {}],
    f"{P}.predicates.RecordIsTombstone": [{}],
    f"{P}.predicates.TopicNameMatches": [{"pattern": "t.*"}, {"pattern": "x"}, {"pattern": "("}, {}],
}
HEADERS = [["a", typed(of("string"), "one")], ["b", plain(2)]]


class Question(NamedTuple):
    type: str
    config: Mapping[str, str]
    record: str
    sink: bool
    timestamp: int | None

    def as_json(self) -> dict[str, Any]:
        contents = RECORDS[self.record]
        key = contents if "$Key" in self.type else None
        value = None if "$Key" in self.type else contents
        return {
            "type": self.type, "config": self.config, "topic": "topic", "timestamp": self.timestamp, "sink": self.sink,
            "key": key, "value": value, "headers": HEADERS,
        }  # fmt: skip


def questions() -> Iterator[Question]:
    for name, configs in CONFIGS.items():
        for config in configs:
            for record in RECORDS:
                yield Question(name, config, record, sink=True, timestamp=1_700_000_000_123)
    for name in CONFIGS:
        if name.endswith("$Value"):
            yield Question(name.replace("$Value", "$Key"), CONFIGS[name][0], "row", sink=False, timestamp=None)
    for name in (f"{P}.InsertField$Value", f"{P}.TimestampRouter"):
        yield Question(name, CONFIGS[name][0], "row", sink=False, timestamp=None)
        yield Question(name, CONFIGS[name][0], "json", sink=False, timestamp=5)


LITERALS = (
    "x", "12", "1.5", "true", "[1,2]", '{"a":1}', "2024-05-06", "null", "", "300", "70000", "5000000000", "-5", "1e3",
    "99999999999999999999", "0.1", "1.7976931348623157E308", "NaN", "TRUE", "[]", '["a",1]', '["a","b"]', "[1.5,2]",
    '{"a":"b"}', "{1:2}", '"quoted"', "2024-05-06T07:08:09.123Z", "07:08:09.123Z", "[1,", "{a:b}", "  12 ", "'x'",
    "[true,false]", "[[1],[2]]", '{"a":[1]}', "127", "128", "1.50", "0x10", "[null,1]", '{"a":null}', "[1,,2]",
    "12 13", "1.5f", "2024-05-06T07:08:09.123+0200", "2024-13-06", "1.0", ".5", "5.", "+7", "[300,1]", "[1, 2 ]",
)  # fmt: skip
QUESTIONS = [
    *questions(),
    *(Question(f"{P}.InsertHeader", {"header": "h", "value.literal": each}, "null", True, 5) for each in LITERALS),
]
CONVERTER = JsonConverter()
CONVERTER.configure({"schemas.enable": "true", "replace.null.with.default": "false"}, is_key=False)


@pytest.fixture(scope="module")
def answers() -> list[dict[str, Any]]:
    """Java's answers."""
    return _answers(java(str(ORACLE)), [each.as_json() for each in QUESTIONS])


def _answers(command: list[str], questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    text = "".join(f"{json.dumps(each)}\n" for each in questions)
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]  # among lines of logs
    assert len(found) == len(questions), done.stderr
    return found


def ours(question: Mapping[str, Any]) -> dict[str, Any]:
    """Ottla's answer to a question."""

    def data(text: str | None) -> tuple[Any, Any]:
        return (None, None) if text is None else CONVERTER.to_connect("t", text.encode())

    def text(schema: Any, value: Any) -> Any:
        if schema is None and value is None:
            return None
        made = CONVERTER.from_connect("t", schema, value)
        return None if made is None else made.decode()

    (key_schema, key), (value_schema, value) = data(question["key"]), data(question["value"])
    headers = [Header(name, data(each)[1], data(each)[0]) for name, each in question["headers"]]
    common = (question["topic"], 3, key_schema, key, value_schema, value, question["timestamp"], headers)
    record: ConnectRecord = SinkRecord(*common, offset=7) if question["sink"] else SourceRecord(*common)
    name = question["type"]
    try:
        if ".predicates." in name:
            predicate = predicate_class(name)()
            predicate.configure(question["config"])
            return {"test": predicate.test(record)}
        transformation = transformation_class(name)()
        transformation.configure(question["config"])
        changed = transformation.apply(record)
        if changed is None:
            return {"dropped": True}
        return {
            "topic": changed.topic,
            "partition": changed.partition,
            "timestamp": changed.timestamp,
            "key": text(changed.key_schema, changed.key),
            "value": text(changed.value_schema, changed.value),
            "headers": [[each.key, text(each.schema, each.value)] for each in changed.headers],
        }
    except (ConnectError, SettingError) as error:
        return {"error": type(error).__name__, "message": str(error)}


def comparable(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        return "error"

    def parsed(text: str | None) -> Any:
        # Java 17 writes more digits of a 32-bit float than it has.
        return None if text is None else json.loads(text, parse_float=lambda digits: f"{float(digits):.6g}")

    if "topic" not in answer:
        return answer
    headers = [[name, parsed(each)] for name, each in answer["headers"]]
    return {**answer, "key": parsed(answer["key"]), "value": parsed(answer["value"]), "headers": headers}


_WORKS_HERE = re.compile(
    "Cannot list fields on non-struct type|Decimal value has mismatching scale|type STRUCT: class java.lang.String|"
    "Invalid type for STRUCT: class java.lang.String",
    re.ASCII,
)
"""Errors of Java's where Ottla has a result: a new name for a simple type, a mask for a Decimal, and the text of a JSON
payload with numbers of more than 64 bits."""


DEBEZIUM_ROW = [
    of("int32", "id"),
    of("string", "name", optional=True),
    of("int64", "at", name="io.debezium.time.MicroTimestamp", version=1, optional=True),
]
ENVELOPE = of(
    "struct",
    name="p.s.t.Envelope",
    version=2,
    fields=[
        of("struct", "before", optional=True, name="p.s.t.Value", fields=DEBEZIUM_ROW),
        of("struct", "after", optional=True, name="p.s.t.Value", fields=DEBEZIUM_ROW),
        of(
            "struct",
            "source",
            name="Source",
            version=1,
            fields=[of("string", "table"), of("int64", "lsn", optional=True)],
        ),
        of("string", "op"),
        of("int64", "ts_ms", optional=True),
        of("struct", "transaction", optional=True, name="event.block", version=1, fields=[of("string", "id")]),
    ],
)
OLD, NEW = {"id": 1, "name": "z", "at": None}, {"id": 1, "name": None, "at": 5}


def event(op: str, before: Any, after: Any, transaction: Any = None) -> str:
    source = {"table": "t", "lsn": 99}
    rest = {"op": op, "ts_ms": 8, "source": source, "transaction": transaction}
    return typed(ENVELOPE, {"before": before, "after": after, **rest})


EVENTS = {
    "create": event("c", None, NEW),
    "update": event("u", OLD, NEW, {"id": "x"}),
    "delete": event("d", OLD, None),
    "truncate": event("t", None, None),
    "tombstone": None,
    "other": typed(of("struct", name="foo", fields=[of("int32", "a")]), {"a": 1}),
    "json": plain({"a": 1}),
}
ADDED = {"add.fields": "op,table,source.lsn,ts_ms:when,transaction.id,absent", "add.headers": "op,source.lsn,id"}
EXTRACTIONS: list[dict[str, str]] = [
    {},
    *(
        {"delete.tombstone.handling.mode": mode, **added}
        for mode in ("tombstone", "drop", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
        for added in ({}, ADDED)
    ),
    {"delete.tombstone.handling.mode": "x"},
    {"add.fields": "op", "add.fields.prefix": ""},
    {"route.by.field": "name"},
]


@pytest.mark.skipif(missing_for_debezium() is not None, reason=str(missing_for_debezium()))
def test_rows_of_change_events_are_debeziums() -> None:
    name = "io.debezium.transforms.ExtractNewRecordState"
    key = typed(of("struct", name="p.s.t.Key", fields=[of("int32", "id")]), {"id": 1})
    asked = [
        {"type": name, "config": config, "topic": "p.s.t", "timestamp": 5, "sink": False, "key": key, "value": value,
         "headers": HEADERS}
        for config in EXTRACTIONS for value in EVENTS.values()
    ]  # fmt: skip
    command = ["java", "-cp", f"{DEBEZIUM}/*", str(ORACLE)]
    for question, answer in zip(asked, _answers(command, asked), strict=True):
        assert comparable(ours(question)) == comparable(answer), question


OUTBOX_ROW = of(
    "struct",
    optional=True,
    name="p.s.outbox.Value",
    fields=[
        of("string", "id"),
        of("string", "aggregatetype", optional=True),
        of("string", "aggregateid"),
        of("string", "type", optional=True, default="created"),
        of("string", "payload", optional=True),
        of("int32", "version", optional=True),
        of("int64", "at", name="io.debezium.time.MicroTimestamp", version=1, optional=True),
        of("int64", "plain"),
    ],
)
OUTBOX_ENVELOPE = of(
    "struct",
    name="p.s.outbox.Envelope",
    fields=[
        {**OUTBOX_ROW, "field": "before"},
        {**OUTBOX_ROW, "field": "after"},
        of("struct", "source", name="Source", fields=[of("string", "connector")]),
        of("string", "op"),
        of("int64", "ts_ms", optional=True),
    ],
)
OUTBOX = {
    "id": "e1", "aggregatetype": "order", "aggregateid": "7", "type": None, "payload": '{"a": 1}', "version": 3,
    "at": 5_000_123, "plain": 1,
}  # fmt: skip


def outbox(op: str, **changes: Any) -> str:
    row = {**OUTBOX, **changes}
    before, after = (row, None) if op == "d" else (None, row)
    source = {"connector": "postgresql"}
    return typed(OUTBOX_ENVELOPE, {"before": before, "after": after, "source": source, "op": op, "ts_ms": 8})


JSON_TEXTS = (
    '{"a": 1, "b-c": {"d": [1, 2], "e": null}, "f": 1.5, "g": true, "h": 3000000000, "i": [], "1": "x", "_u": 1}',
    '{"rows": [{"a": 1}, {"b": "x", "a": 2}], "nested": [[1], [2]], "none": [null, "x"]}',
    '{"mixed": [1, "x"]}', '{"mixed": [1, 3000000000]}', '{"nulls": [null]}', "{", "text", "{}",
    '{"rows": [{"a": null}, {"a": 2}]}', '{"big": 99999999999999999999}',
)  # fmt: skip
OUTBOX_EVENTS = {
    "create": outbox("c"),
    "read": outbox("r", payload="", version=None, at=None),
    "null payload": outbox("c", payload=None),
    "before 1970": outbox("c", at=-1_500),
    "update": outbox("u"),
    "delete": outbox("d"),
    "no route": outbox("c", aggregatetype=None),
    **{text: outbox("c", payload=text) for text in JSON_TEXTS},
    **EVENTS,
}
PLACED = "table.fields.additional.placement"
EXPANDED = {"table.expand.json.payload": "true"}
OUTBOX_CONFIGS: list[dict[str, str]] = [
    {},
    {"route.topic.replacement": "x.${routedByValue}", "route.by.field": "type"},
    {"route.topic.regex": "or(.*)", "route.topic.replacement": "$1"},
    {"route.topic.regex": "nothing", "route.tombstone.on.empty.payload": "true"},
    {"route.topic.regex": "("},
    {"table.op.invalid.behavior": "fatal"},
    {"table.op.invalid.behavior": "error"},
    {"table.op.invalid.behavior": "x"},
    {"table.field.event.id": "absent"},
    {"table.field.event.key": "version"},
    {"table.field.event.key": "absent"},
    {"table.field.event.payload": "absent"},
    {"table.field.event.payload": "version"},
    {"table.field.event.timestamp": "at"},
    {"table.field.event.timestamp": "plain"},
    {"table.field.event.timestamp": "type"},
    {"table.field.event.timestamp": "absent"},
    {PLACED: "type:header,version:header:v"},
    {PLACED: "type:envelope,version:envelope:v,version:partition"},
    {PLACED: "type:envelope", "table.field.event.schema.version": "version"},
    {PLACED: "type:envelope", "route.tombstone.on.empty.payload": "true", **EXPANDED},
    {PLACED: "absent:header"},
    {PLACED: "absent:envelope"},
    {PLACED: "absent:envelope,absent:header", "table.field.additional.missing": "ignore"},
    {PLACED: "type"},
    {PLACED: "type:a:b:c"},
    {PLACED: "id:partition"},
    EXPANDED,
    {**EXPANDED, "table.json.payload.null.behavior": "optional_bytes"},
    {**EXPANDED, "field.name.adjustment.mode": "avro"},
    {**EXPANDED, "field.name.adjustment.mode": "avro_unicode"},
]
TABLE_CONFIGS: list[dict[str, str]] = [
    {"topic.regex": "p[.](.*)", "topic.replacement": "all-$1"},
    {"topic.regex": "p[.](.*)", "topic.replacement": "1$1-é", "schema.name.adjustment.mode": "avro"},
    {"topic.regex": "p[.](.*)", "topic.replacement": "1$1-é_", "schema.name.adjustment.mode": "avro_unicode"},
    {"topic.regex": "p[.](.*)", "topic.replacement": "-$1", "schema.name.adjustment.mode": "avro"},
    {"topic.regex": "p[.](.*)", "topic.replacement": ".$1", "schema.name.adjustment.mode": "avro_unicode"},
    {"topic.regex": "p[.](.*)", "topic.replacement": "all", "key.enforce.uniqueness": "false"},
    {"topic.regex": ".*", "topic.replacement": "all", "key.field.name": "table",
     "key.field.regex": ".*[.](.*)", "key.field.replacement": "$1"},
    {"topic.regex": ".*", "topic.replacement": "all", "key.field.regex": "x", "key.field.replacement": "$0"},
    {"topic.regex": ".*", "topic.replacement": "all", "key.field.regex": "x"},
    {"topic.regex": "nothing", "topic.replacement": "all"},
    {"topic.regex": "p[.](.*)", "topic.replacement": ""},
    {"topic.regex": "(", "topic.replacement": "x"},
    {"topic.regex": "x"},
    {},
]  # fmt: skip


@pytest.mark.skipif(missing_for_debezium() is not None, reason=str(missing_for_debezium()))
def test_routes_of_change_events_are_debeziums() -> None:
    keys = [typed(of("struct", name="p.s.t.Key", fields=[of("int32", "id")]), {"id": 1}), None, plain({"id": 1})]
    router, tables = "io.debezium.transforms.outbox.EventRouter", "io.debezium.transforms.ByLogicalTableRouter"
    asked = [
        {"type": name, "config": config, "topic": "p.s.t", "timestamp": 5, "sink": False, "key": key, "value": value,
         "headers": HEADERS}
        for name, configs, values in ((router, OUTBOX_CONFIGS, OUTBOX_EVENTS), (tables, TABLE_CONFIGS, EVENTS))
        for config in configs for value in values.values() for key in (keys if name == tables else keys[:1])
    ]  # fmt: skip
    command = ["java", "-cp", f"{DEBEZIUM}/*", str(ORACLE)]
    differences = [
        f"{question}\n  Ottla {ours(question)}\n  Debezium {answer}"
        for question, answer in zip(asked, _answers(command, asked), strict=True)
        if not _WORKS_HERE.search(answer.get("message", "")) and comparable(ours(question)) != comparable(answer)
    ]
    assert not differences, f"{len(differences)} of {len(asked)}\n" + "\n".join(differences[:20])


def test_transformations_answer_as_connects_own(answers: list[dict[str, Any]]) -> None:
    differences = []
    for question, java_answer in zip(QUESTIONS, answers, strict=True):
        own = ours(question.as_json())
        if _WORKS_HERE.search(java_answer.get("message", "")):
            continue
        if own.get("message", "").endswith("is outside of the years 1 to 9999"):
            continue  # Java's dates have no end
        if comparable(own) != comparable(java_answer):
            differences.append(
                f"{question.type} {question.config} {question.record}\n  Ottla {own}\n  Kafka {java_answer}"
            )
    assert not differences, f"{len(differences)} of {len(QUESTIONS)}\n" + "\n".join(differences[:40])
