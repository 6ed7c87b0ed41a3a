"""Events of Debezium and of our connectors, in a form that can be compared."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.connect.converters.json import JsonConverter
from ottla.connect.records import SourceRecord
from tests.peers.cache import in_ci, missing_for_debezium
from tests.peers.debezium import Event


def require_debezium() -> None:
    """Skip the test without Debezium; in CI it fails."""
    missing = missing_for_debezium()
    if missing is not None:
        if in_ci():
            pytest.fail(missing)
        pytest.skip(missing)


def ours(records: list[SourceRecord]) -> list[Event]:
    """Convert records with JsonConverter."""
    keys, values = JsonConverter(), JsonConverter()
    keys.configure({}, is_key=True)
    values.configure({}, is_key=False)
    return [
        Event(
            each.topic,
            json.loads(keys.from_connect(each.topic, each.key_schema, each.key) or b"null"),
            json.loads(values.from_connect(each.topic, each.value_schema, each.value) or b"null"),
        )
        for each in records
    ]


def without(value: Any, names: frozenset[str]) -> Any:
    if isinstance(value, dict):
        return {name: without(each, names) for name, each in value.items() if name not in names}
    if isinstance(value, list):
        return [without(each, names) for each in value]
    return value


def differences(theirs: Any, own: Any, path: str = "") -> list[str]:
    """Name the fields that differ."""
    if isinstance(theirs, dict) and isinstance(own, dict):
        return [
            text
            for name in sorted(theirs.keys() | own.keys())
            for text in differences(theirs.get(name), own.get(name), f"{path}.{name}")
        ]
    if isinstance(theirs, list) and isinstance(own, list) and len(theirs) == len(own):
        pairs = enumerate(zip(theirs, own, strict=True))
        return [text for number, (a, b) in pairs for text in differences(a, b, f"{path}[{number}]")]
    return [] if theirs == own else [f"{path}: {theirs!r} is {own!r}"]
