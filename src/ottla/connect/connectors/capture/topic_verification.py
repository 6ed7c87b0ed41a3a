"""Compares tables with their topics on a cluster, with the converters of the connector. See `verification`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

from ottla.clients.consumer.blocking import Consumer
from ottla.clients.errors import UnknownTopicOrPartition
from ottla.common.ids import TopicPartition
from ottla.connect import plugins
from ottla.connect.api import Finding
from ottla.connect.connectors.capture.naming import Names
from ottla.connect.connectors.capture.settings import Options
from ottla.connect.connectors.capture.verification import Difference, Progress, Rows, TableName, Tables, verify
from ottla.connect.converters.api import Converter
from ottla.connect.errors import ConnectError

_POLL_S: Final = 0.5
_OFFSETS_S: Final = 30.0
_JSON: Final = "org.apache.kafka.connect.json.JsonConverter"


def verify_tables(
    config: Mapping[str, str], options: Options, tables: Tables, clients: Mapping[str, Any]
) -> Iterator[Finding]:
    """Compare each captured table with its topic. `clients` are settings of the consumer. Raises ConnectError."""
    for name in tables.names():
        notes: list[str] = []
        try:
            found = verify_topic(config, options, tables, name, progress=notes.append, **clients)
        except ConnectError as error:
            yield Finding(f"{name}: {error}", is_difference=True)
            continue
        for note in notes:
            yield Finding(note)
        for keys, text in (
            (found.missing, "is not in the topic"),
            (found.unexpected, "is in the topic, but not in the table"),
            (found.changed, "has other values in the topic"),
        ):
            for key in keys:
                yield Finding(f"{name}: the row {key} {text}", is_difference=True)
        if found.equal:
            yield Finding(f"{name}: the {found.rows} rows of the table are in the topic, and no others")


def verify_topic(
    config: Mapping[str, str],
    options: Options,
    tables: Tables,
    name: TableName,
    *,
    rounds: int = 3,
    progress: Progress = lambda _: None,
    **client_settings: Any,
) -> Difference:
    """Compare a table with its topic.

    `client_settings` are settings of Ottla's consumer (`bootstrap_servers`, security). Raises ConnectError and
    ClientError.
    """
    topic = Names(options).topic(*name)
    with ExitStack() as opened:
        converters = _converter("key.converter", config, opened), _converter("value.converter", config, opened)

        def converted(key: tuple[Any, Any], row: tuple[Any, Any]) -> tuple[Any, Any]:
            """Convert a key and a row as the records in the topic were, without a new schema in a registry."""
            found = [each.round_trip(topic, *pair) for each, pair in zip(converters, (key, row), strict=True)]
            return found[0], found[1]

        def table_rows() -> Rows:
            return tables.rows(name, converted)

        def topic_rows() -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
            return _records(topic, converters, client_settings)

        return verify(name, table_rows, topic_rows, rounds=rounds, progress=progress)


def _converter(name: str, config: Mapping[str, str], opened: ExitStack) -> Converter:
    converter = plugins.converter_class(config.get(name) or _JSON)()
    own = {each.removeprefix(f"{name}."): value for each, value in config.items() if each.startswith(f"{name}.")}
    kind = name.partition(".")[0]
    converter.configure({**own, "converter.type": kind}, is_key=kind == "key")
    opened.callback(converter.close)
    return converter


def _records(
    topic: str, converters: tuple[Converter, Converter], settings: Mapping[str, Any]
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any] | None]]:
    key_of, value_of = (each.to_connect for each in converters)
    plain = {name.replace(".", "_"): value for name, value in settings.items()}
    own = {"isolation_level": "read_committed", "auto_offset_reset": "earliest", "enable_auto_commit": False}
    consumer: Consumer[Any, Any] = Consumer(**{**plain, **own})
    try:
        try:
            partitions = [TopicPartition(topic, each) for each in consumer.partitions_of(topic, _OFFSETS_S)]
        except UnknownTopicOrPartition:
            return  # no row was captured yet
        ends = consumer.end_offsets(partitions, _OFFSETS_S)
        consumer.assign(partitions)
        behind = [tp for tp in partitions if ends[tp] > 0]
        while behind := [tp for tp in behind if consumer.position(tp, _OFFSETS_S) < ends[tp]]:
            for record in consumer.poll(_POLL_S):
                key, value = key_of(topic, record.key).value, value_of(topic, record.value).value
                yield key, value
    finally:
        consumer.close()
