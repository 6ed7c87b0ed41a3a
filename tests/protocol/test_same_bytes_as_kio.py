"""Every API and version, request and response, byte for byte against kio, which reads Kafka's own schemas."""

from __future__ import annotations

import dataclasses
import datetime as dt
import importlib
import io
from functools import cache
from typing import Any, get_args

import pytest
from hypothesis import given
from kio.serial import entity_reader, entity_writer

from ottla.protocol import consumer_protocol, control_records
from ottla.protocol.message import Message, Struct
from ottla.protocol.plans import plans_of
from ottla.protocol.registry import API, request_class, response_class

from .protocol_strategies import bounded, carried, structs, versions_of

MESSAGES = [
    *(request_class(key) for key in API),
    *(response_class(key) for key in API),
]
DATA: list[type[Message]] = [
    consumer_protocol.ConsumerProtocolSubscription,
    consumer_protocol.ConsumerProtocolAssignment,
    control_records.EndTxnMarker,
    control_records.LeaderChangeMessage,
    control_records.SnapshotHeaderRecord,
    control_records.SnapshotFooterRecord,
    control_records.KRaftVersionRecord,
    control_records.VotersRecord,
]
DATA_MODULES = {"KRaftVersionRecord": "k_raft_version_record"}


@cache
def entity_of(cls: type[Message], version: int) -> Any:
    """kio's class for one version."""
    name = cls.__name__
    if cls in DATA:
        snake = "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
        path = f"{DATA_MODULES.get(name, snake)}.v{version}.data"
    else:
        kind = "request" if name.endswith("Request") else "response"
        path = f"{cls.__module__.rpartition('.')[2]}.v{version}.{kind}"
    return getattr(importlib.import_module(f"kio.schema.{path}"), name)


@cache
def oracle(cls: type[Message], version: int) -> tuple[Any, Any]:
    """The reader and the writer of kio's class."""
    entity = entity_of(cls, version)
    return entity_reader(entity), entity_writer(entity)


@pytest.mark.parametrize("cls", MESSAGES + DATA, ids=lambda cls: cls.__name__)
def test_every_version_has_kafkas_bytes(cls: type[Message]) -> None:
    @bounded
    @given(structs(cls))
    def check(message: Any) -> None:
        for version in versions_of(cls):
            expected = carried(message, version)
            encoded = expected.encode(version)
            reader, writer = oracle(cls, version)
            entity, size = reader(encoded, 0)
            assert size == len(encoded), f"version {version}"
            rewritten = io.BytesIO()
            writer(rewritten, entity)
            assert rewritten.getvalue() == encoded, f"version {version}"
            assert cls.decode(encoded, version) == expected, f"version {version}"
            assert cls.decode_from(memoryview(b"ab" + encoded + b"c"), 2, version) == (expected, size + 2)

    check()


def plain(value: Any) -> Any:
    """kio's default in our terms."""
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, dt.timedelta):
        return round(value.total_seconds() * 1000)
    return value


def check_defaults(ours: type[Struct], theirs: Any, version: int, place: str) -> None:
    """Fields stand in the same order on both sides; names may differ."""
    made = ours()
    plans = [plan for plan in plans_of(ours) if plan.exists(version)]
    for plan, entry in zip(plans, dataclasses.fields(theirs), strict=True):
        where = f"{place}.{plan.name} version {version}"
        has_null = type(None) in get_args(entry.type)
        if plan.kind != "Uuid" and "datetime" not in entry.metadata.get("kafka_type", ""):
            assert plan.may_be_null(version) == has_null, where
        if plan.struct is not None:
            inner = next(part for part in walk(entry.type) if dataclasses.is_dataclass(part))
            check_defaults(plan.struct, inner, version, where)
        elif entry.default is not dataclasses.MISSING and plan.kind != "Uuid":
            default = plain(entry.default)
            if not isinstance(default, dt.datetime) and "datetime" not in entry.metadata.get("kafka_type", ""):
                assert getattr(made, plan.name) == default, where
        elif not has_null and plan.kind != "Uuid":
            assert not getattr(made, plan.name), f"{where}: without a default in the schema it is zero or empty"


def walk(annotation: Any) -> list[Any]:
    return [annotation, *(part for inner in get_args(annotation) for part in walk(inner))]


@pytest.mark.parametrize("cls", MESSAGES + DATA, ids=lambda cls: cls.__name__)
def test_defaults_and_nullability_are_kafkas(cls: type[Message]) -> None:
    for version in versions_of(cls):
        check_defaults(cls, entity_of(cls, version), version, cls.__name__)


def test_registry_agrees_with_the_declarations() -> None:
    for info in API.values():
        for cls in (request_class(info.key), response_class(info.key)):
            assert (
                info.key,
                info.min_version,
                info.max_version,
                info.flexible_from,
            ) == (cls.API_KEY, cls.MIN_VERSION, cls.MAX_VERSION, cls.FLEXIBLE_FROM)
