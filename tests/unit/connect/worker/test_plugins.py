"""Connectors, converters and transformations are found by each of their names."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from ottla.connect import plugins
from ottla.connect.connectors.file_stream import FileStreamSinkConnector, FileStreamSourceConnector
from ottla.connect.converters.json import JsonConverter
from ottla.connect.errors import ConnectError, NotFoundError


@pytest.mark.parametrize(
    "name",
    [
        "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "FileStreamSourceConnector",
        "FileStreamSource",
        "file-stream-source",
        "ottla.connect.connectors.file_stream:FileStreamSourceConnector",
    ],
)
def test_connector_has_five_names(name: str) -> None:
    assert plugins.connector_class(name) is FileStreamSourceConnector


@pytest.mark.parametrize("name", ["org.apache.kafka.connect.json.JsonConverter", "JsonConverter", "Json"])
def test_converter_has_its_java_name_and_alias(name: str) -> None:
    assert plugins.converter_class(name) is JsonConverter
    assert plugins.header_converter_class(name) is JsonConverter


def test_unknown_connector_error_names_the_known_ones() -> None:
    with pytest.raises(NotFoundError, match=r"name matches Nothing, available connectors are: .*file-stream-sink"):
        plugins.connector_class("Nothing")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("no_such_module_1:X", "There is no module no_such_module_1"),
        ("ottla.connect.plugins:Nothing", "has no attribute Nothing"),
        ("ottla.connect.plugins:Plugin", "is not a Connector"),
    ],
)
def test_wrong_module_or_attribute_is_named(name: str, message: str) -> None:
    with pytest.raises(NotFoundError, match=message):
        plugins.connector_class(name)


def test_each_delivered_plugin_can_be_imported() -> None:
    found = plugins.plugins()
    assert {each.name for each in found} >= {"org.apache.kafka.connect.file.FileStreamSinkConnector"}
    for each in found:
        assert each.load() is not None
    assert plugins.connector_class("FileStreamSink") is FileStreamSinkConnector


class WithoutKind(FileStreamSourceConnector):
    kind = "sauce"  # type: ignore[assignment]


class WithoutDefinition(FileStreamSourceConnector):
    config_def = None  # type: ignore[assignment]


@pytest.mark.parametrize(("name", "reason"), [("WithoutKind", "sauce"), ("WithoutDefinition", "not a ConfigDef")])
def test_installed_connector_with_invalid_attributes_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, reason: str
) -> None:
    entry = EntryPoint("wrong", f"{__name__}:{name}", plugins.ENTRY_POINTS)
    monkeypatch.setattr(plugins, "entry_points", lambda **_: [entry])
    plugins._installed.cache_clear()
    try:
        assert all(each.short_name != "wrong" for each in plugins.plugins())
    finally:
        plugins._installed.cache_clear()
    assert "Skipping the connector wrong, which cannot be loaded" in caplog.text
    assert reason in caplog.text
    with pytest.raises(ConnectError, match=reason):
        plugins.connector_class("wrong")
