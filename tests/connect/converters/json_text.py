"""Connect's data as the JSON of JsonConverter, and Confluent's converters in a JVM, which take and return it."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from ottla.connect.converters.json import JsonConverter
from tests.peers.confluent_schemas import java

L = "org.apache.kafka.connect.data."
TIMEOUT_S = 120
TEXT = JsonConverter()
TEXT.configure({"schemas.enable": "true", "replace.null.with.default": "false"}, is_key=False)


def of(kind: str, field: str | None = None, **more: Any) -> dict[str, Any]:
    """The JSON of a schema."""
    named = {} if field is None else {"field": field}
    return {"type": kind, "optional": False, **named, **more}


def ask(questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answers of tests/peers/confluent/ConverterOracle.java."""
    text = "".join(f"{json.dumps(each)}\n" for each in questions)
    done = subprocess.run(
        java("ConverterOracle"), input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == len(questions), done.stderr
    return found
