"""JsonConverter against Kafka's own: random schemas and values, byte by byte, in both directions.

Without -0.0, which Java reads as 0.0.
"""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from ottla.connect.converters.json import JsonConverter
from ottla.connect.errors import ConnectError
from tests.connect.worker.json_values import random_schema, random_value
from tests.peers.cache import in_ci, missing_for_jvm
from tests.peers.kafka import java

pytestmark = [pytest.mark.jvm]
ORACLE = Path(__file__).parents[2] / "peers" / "JsonConverterOracle.java"
SCHEMAS = 400


def ask(questions: list[tuple[str, bytes]]) -> list[bytes | str]:
    """Return the bytes that Java writes for each question, or its error."""
    text = "".join(f"{kind} {base64.b64encode(data).decode()}\n" for kind, data in questions)
    done = subprocess.run(java(str(ORACLE)), input=text, capture_output=True, text=True, timeout=100, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(questions), done.stderr
    return [each[1:] if each.startswith("!") else base64.b64decode(each) for each in answers]


def floats_as_numbers(data: bytes) -> Any:
    """Java before 19 prints some numbers with a digit too many; they are the same numbers."""
    return json.loads(data, parse_float=float)


@pytest.fixture(autouse=True)
def _needs_java() -> None:
    missing = missing_for_jvm()
    if missing is not None:
        (pytest.fail if in_ci() else pytest.skip)(missing)


def test_java_reads_and_writes_the_same_bytes() -> None:
    random, questions, rows = Random(11), [], []
    for decimal_format in ("BASE64", "NUMERIC"):
        ours = JsonConverter()
        ours.configure({"decimal.format": decimal_format}, is_key=False)
        for _ in range(SCHEMAS):
            schema = random_schema(random)
            for _ in range(3):
                written = ours.from_connect("t", schema, random_value(random, schema))
                assert written is not None
                questions.append((decimal_format, written))
                rows.append((ours, schema))
    differing = 0
    for (_, written), (ours, schema), answer in zip(questions, rows, ask(questions), strict=True):
        assert isinstance(answer, bytes), (written, answer)
        if answer != written:
            differing += 1
            assert floats_as_numbers(answer) == floats_as_numbers(written), (written, answer)
        assert repr(ours.to_connect("t", answer)) == repr(ours.to_connect("t", written))
        assert ours.to_connect("t", answer).schema == schema
    assert differing <= len(questions) // 50, f"{differing} of {len(questions)} differ"


ROW = {
    "type": "struct",
    "optional": True,
    "fields": [
        {"type": "int32", "optional": False, "field": "id"},
        {"type": "string", "optional": True, "default": "none", "field": "name"},
        {"type": "bytes", "optional": True, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
         "parameters": {"scale": "2"}, "field": "price"},
    ],
}  # fmt: skip
CONTENTS = [
    *((json.dumps(ROW), text) for text in (
        '{"id":1}', '{"id":1,"name":"x","price":1.25}', '{"id":1,"other":2}', "null", "", "{", "[]", '{"name":"x"}',
        json.dumps({"schema": ROW, "payload": {"id": 1}}),
    )),
    *((schema, '{"schema":{"type":"int32"},"payload":5}') for schema in (" ", "{", '{"type":"x"}', "null")),
    ('{"type":"array","items":{"type":"int8"}}', "[1,2]"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "text"), CONTENTS)
def test_schema_content_is_the_schema_of_all_records(schema: str, text: str, contents: list[bytes | str]) -> None:
    answer = contents[CONTENTS.index((schema, text))]
    ours = JsonConverter()
    try:
        ours.configure({"schema.content": schema}, is_key=False)
        found = ours.to_connect("t", text.encode())
        own: bytes | str = ours.from_connect("t", *found) or b"null"
    except ConnectError as error:
        own = str(error)
    if isinstance(answer, str):
        assert isinstance(own, str), answer
    else:
        assert own == answer


@pytest.fixture(scope="module")
def contents() -> list[bytes | str]:
    return ask([(f"content:{base64.b64encode(a.encode()).decode()}", b.encode()) for a, b in CONTENTS])
