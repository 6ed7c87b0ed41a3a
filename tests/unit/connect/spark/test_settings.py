"""The settings of connectors on Spark, the plugins that they choose, values by converters, errors and progress."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.connect import plugins
from ottla.connect.api import Kind
from ottla.connect.config.definition import SettingError
from ottla.connect.errors import BadRequestError, ConnectError, DataError, NotFoundError, RetriableError
from ottla.connect.herder.installed_plugins import InstalledPlugins
from ottla.connect.spark import checkpoints
from ottla.connect.spark.failures import translated
from ottla.connect.spark.progress import end_offset, facts_of, wait_of
from ottla.connect.spark.settings import SparkSettings
from ottla.connect.spark.values import Form, part_of
from ottla.connect.worker.settings import WorkerSettings

GIVEN = {"name": "n", "connector.class": "spark:parquet", "spark.checkpoint.dir": "/c/"}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"connector.class": "spark:parquet", "topics": "t"}, Kind.SINK),
        ({"connector.class": "spark:parquet", "topics.regex": "t.*"}, Kind.SINK),
        ({"connector.class": "spark:jdbc", "topic": "t"}, Kind.SOURCE),
        ({"connector.class": "spark:ottla", "topics": "t", "ottla.direction": "source"}, Kind.SOURCE),
    ],
)
def test_direction_follows_from_the_topics(config: dict[str, str], kind: Kind) -> None:
    name = plugins.plugin_name(config)
    assert plugins.connector_class(name).kind is kind
    assert plugins.connector_class(name) is plugins.connector_class(name)
    assert InstalledPlugins().connector(name).kind == str(kind)


@pytest.mark.parametrize("name", ["spark:", "spark:json#sideways"])
def test_name_without_format_or_direction_is_unknown(name: str) -> None:
    with pytest.raises(NotFoundError, match="is not spark:FORMAT"):
        plugins.connector_class(name)


def test_other_connectors_keep_their_name() -> None:
    assert plugins.plugin_name({"connector.class": "FileStreamSink", "topics": "t"}) == "FileStreamSink"
    assert plugins.plugin_name({}) == ""


def test_options_and_settings_of_the_session() -> None:
    given = GIVEN | {"spark.option.path": "/p", "spark.conf.a": "own", "topics": "a, b,a"}
    settings = SparkSettings.read(given, {"spark.conf.a": "worker", "spark.conf.b": "2", "spark.master": "local[3]"})
    assert settings.options == {"path": "/p"}
    assert settings.conf == {"a": "own", "b": "2"}
    assert (settings.master, settings.checkpoint, settings.topics) == ("local[3]", "/c/n", ("a", "b"))
    assert not settings.is_batch
    assert SparkSettings.read(given | {"connector.class": "spark:jdbc", "spark.repeat": "2 hours"}, {}).is_batch


@pytest.mark.parametrize(
    ("name", "text"), [("spark.trigger", "often"), ("spark.repeat", "1 year"), ("spark.mode", "x")]
)
def test_invalid_settings_are_refused(name: str, text: str) -> None:
    with pytest.raises(SettingError, match=name):
        SparkSettings.read(GIVEN | {name: text}, {})


def worker(**given: str) -> WorkerSettings:
    return WorkerSettings.read({name.replace("_", "."): text for name, text in given.items()})


def test_forms_of_converters() -> None:
    json_text = {"value.converter": "JsonConverter", "value.converter.schemas.enable": "false"}
    assert part_of("value", worker(), {"value.converter": "StringConverter"}, reads=True).form is Form.TEXT
    assert part_of("value", worker(), json_text, reads=True).read_options() == {}
    fields = json_text | {"spark.value.schema": "a INT"}
    expected = {"value.format": "json", "value.schema": "a INT"}
    assert part_of("value", worker(), fields, reads=True).read_options() == expected
    envelope = part_of("value", worker(), {"spark.value.schema": "a INT"}, reads=True)
    assert envelope.read_options()["value.schema"] == "payload STRUCT<a INT>"
    avro = {
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": "http://r",
    }
    part = part_of("value", worker(), avro, reads=False)
    assert part.write_options() == {"value.format": "registry", "schema.registry.url": "http://r"}


def test_values_with_schemas_need_fields() -> None:
    with pytest.raises(ConnectError, match=r"spark\.value\.schema is missing"):
        part_of("value", worker(), {}, reads=True)
    assert part_of("value", worker(), {}, reads=False).form is Form.ENVELOPE
    with pytest.raises(ConnectError, match="LongConverter has no format in Spark"):
        part_of("key", worker(), {"key.converter": "LongConverter"}, reads=True)


@pytest.mark.parametrize(
    ("text", "kind", "reason"),
    [
        (
            "x\nottla.connect.errors.ConnectError: a\nottla.connect.errors.DataError: bad t-0@1\n",
            DataError,
            "bad t-0@1",
        ),
        ("ottla.connect.errors.RetriableError: busy\n", RetriableError, "busy"),
        ("ottla.spark.format_errors.FormatError: Topic 't', offset 2\n", DataError, "Topic 't', offset 2"),
        ("ottla.clients.errors.BrokerUnavailable: no broker\n", RetriableError, "no broker"),
        ("Traceback\nValueError: odd\n", ConnectError, "ValueError: odd"),
    ],
)
def test_spark_errors_keep_their_kind(text: str, kind: type[ConnectError], reason: str) -> None:
    found = translated(RuntimeError(text))
    assert type(found) is kind
    assert str(found) == reason


def report(**sources: Any) -> dict[str, Any]:
    durations = {"addBatch": 40, "walCommit": 5, "triggerExecution": 50}
    return {"batchId": 3, "batchDuration": 50, "numInputRows": 10, "durationMs": durations, "sources": [sources]}


def test_facts_of_a_micro_batch() -> None:
    found = facts_of(report(endOffset={"t": {"0": 5}}, latestOffset={"t": {"0": 8, "1": 2}}))
    assert (found["lag"], found["rows per second"], found["slowest phase"]) == (3, 200.0, "addBatch: 40 ms")
    assert "lag" not in facts_of(report(endOffset=7, latestOffset=8))
    assert json.loads(end_offset(report(endOffset={"a": 1}))) == {"a": 1}
    assert wait_of({"isTriggerActive": True, "isDataAvailable": True, "message": "Processing new data"}) == ""
    assert "waits for records" in wait_of({"isTriggerActive": False, "isDataAvailable": False})


def test_checkpoints_are_moved_aside_and_kept(tmp_path: Path) -> None:
    place = tmp_path / "n"
    for number in (1, 2):
        place.mkdir()
        (place / str(number)).touch()
        checkpoints.move_aside(str(place))
        assert (tmp_path / f"n.reset-{number}" / str(number)).exists()
        assert not place.exists()
    checkpoints.move_aside(str(place))
    with pytest.raises(BadRequestError, match="not in a directory of this machine"):
        checkpoints.move_aside("s3a://bucket/n")
