"""The settings of connectors that are Spark queries. Does not import Spark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingError,
    SettingType,
    between,
    non_empty,
    one_of,
)

OPTION: Final = "spark.option."
CONF: Final = "spark.conf."
AVAILABLE_NOW: Final = "available-now"
_STRING, _LIST, _LOW = SettingType.STRING, SettingType.LIST, Importance.LOW
_INTERVAL: Final = re.compile(r"\s*(\d+)\s*(second|minute|hour|day|millisecond)s?\s*")
_UNIT_MS: Final = {"millisecond": 1, "second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_BATCH_FORMATS: Final = frozenset({"jdbc"})
"""Formats that Spark neither reads nor writes as streams."""


def interval_ms(name: str, text: str) -> int:
    """Return an interval such as `1 minute` in ms. Raises SettingError."""
    found = _INTERVAL.fullmatch(text.lower())
    if found is None:
        raise SettingError(f"Invalid value {text} for configuration {name}: an interval such as 30 seconds or 1 minute")
    return int(found[1]) * _UNIT_MS[found[2]]


def _interval(name: str, value: Any) -> None:
    if value and value != AVAILABLE_NOW:
        interval_ms(name, value)


COMMON: Final = (
    Setting("spark.checkpoint.dir", _STRING, "The directory of checkpoints; this connector's is NAME in it. Other "
            "workers continue the query only if they see the same directory.", importance=Importance.HIGH,
            validator=non_empty),
    Setting("spark.master", _STRING, "The Spark master URL; default: the worker's, else local[*].", "", _LOW),
    Setting("spark.trigger", _STRING, "How often a micro-batch starts: an interval such as 1 minute, available-now, "
            "or empty: as soon as the previous one has ended.", "", validator=_interval),
    Setting("ottla.direction", _STRING, "source or sink; default: a sink if there are topics.", "", _LOW,
            one_of("", "source", "sink")),
)  # fmt: skip
_FORMAT: Final = (
    Setting("spark.mode", _STRING, "stream: a streaming query; batch: Spark has the format only for batches. Default: "
            "batch for jdbc, else stream.", "", _LOW, one_of("", "stream", "batch")),
    Setting("spark.select", _STRING, "The columns to write, as in SQL's SELECT.", ""),
    Setting("spark.key.schema", _STRING, "The fields of JSON keys as DDL, such as id BIGINT, name STRING.", ""),
    Setting("spark.value.schema", _STRING, "The fields of JSON values as DDL.", ""),
)  # fmt: skip
SINK: Final = ConfigDef(
    [
        *COMMON,
        *_FORMAT,
        Setting("spark.partition.by", _LIST, "The columns that divide the output into directories.", []),
    ]
)
SOURCE: Final = ConfigDef(
    [
        Setting("topic", _STRING, "The topic to write to.", importance=Importance.HIGH, validator=non_empty),
        *COMMON,
        *_FORMAT,
        Setting("spark.schema", _STRING, "The columns of the source as DDL; streams of files need it.", ""),
        Setting("spark.key", _LIST, "The columns of the key.", []),
        Setting("spark.repeat", _STRING, "How often a batch is read again, such as 1 hour; empty: once.", "",
                validator=_interval),
    ]
)  # fmt: skip
FUNCTION: Final = (
    *COMMON,
    Setting("spark.calls.per.batch", SettingType.INT, "How often a micro-batch calls a source for each of its parts, "
            "until it returns no rows.", 10, _LOW, between(1)),
)  # fmt: skip


@dataclass(frozen=True)
class SparkSettings:
    """The parsed settings of a connector."""

    name: str
    format: str
    """The Spark format; empty for a function."""
    checkpoint: str
    master: str
    trigger: str
    is_batch: bool
    topics: tuple[str, ...]
    pattern: str
    topic: str
    select: str
    partition_by: tuple[str, ...]
    key: tuple[str, ...]
    schema: str
    repeat_ms: int | None
    options: Mapping[str, str] = field(repr=False)
    """Options of the format; some may be secret."""
    conf: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, given: Mapping[str, str], worker: Mapping[str, str]) -> SparkSettings:
        """Parse the settings of a connector; `worker` has defaults of spark.master and spark.conf.*.

        Raises SettingError.
        """
        values = {**SOURCE.plus(SINK).plus([_OPTIONAL_TOPIC]).parse(given)}
        plain = given.get("connector.class", "")
        name = plain.removeprefix("spark:") if plain.startswith("spark:") else ""
        mode, repeat = values["spark.mode"], values["spark.repeat"]
        return cls(
            name=given["name"],
            format=name,
            checkpoint=checkpoint_of(given),
            master=values["spark.master"] or worker.get("spark.master", ""),
            trigger=values["spark.trigger"],
            is_batch=mode == "batch" if mode else name in _BATCH_FORMATS,
            topics=_listed(given.get("topics", "")),
            pattern=given.get("topics.regex", "").strip(),
            topic=values["topic"],
            select=values["spark.select"],
            partition_by=tuple(values["spark.partition.by"]),
            key=tuple(values["spark.key"]),
            schema=values["spark.schema"],
            repeat_ms=interval_ms("spark.repeat", repeat) if repeat else None,
            options=_below(given, OPTION),
            conf={**_below(worker, CONF), **_below(given, CONF)},
        )


_OPTIONAL_TOPIC: Final = Setting("topic", _STRING, "", "")


def checkpoint_of(given: Mapping[str, str]) -> str:
    """Return the directory of a connector's checkpoint."""
    return f"{given['spark.checkpoint.dir'].rstrip('/')}/{given['name']}"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))


def _below(given: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): value for name, value in given.items() if name.startswith(prefix)}
