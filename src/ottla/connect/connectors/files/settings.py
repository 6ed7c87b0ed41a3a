"""The settings of the file connectors."""

from __future__ import annotations

from typing import Final

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
from ottla.connect.connectors.files.storage import S3_SETTINGS

_STRING, _LONG, _INT, _BOOLEAN = SettingType.STRING, SettingType.LONG, SettingType.INT, SettingType.BOOLEAN
_HIGH, _LOW = Importance.HIGH, Importance.LOW


def _one_character(name: str, value: object) -> None:
    if not isinstance(value, str) or len(value) != 1:
        raise SettingError(f"Invalid value {value} for configuration {name}: it must be one character")


SOURCE: Final = ConfigDef(
    [
        Setting(
            "path",
            _STRING,
            "Directory, glob (`*`, `?`, `[...]`, `**`) or `s3://bucket/glob` of the files.",
            importance=_HIGH,
            validator=non_empty,
        ),
        Setting("topic", _STRING, "The topic to write to.", importance=_HIGH, validator=non_empty),
        Setting(
            "format",
            _STRING,
            "`text`: lines; `jsonl`: a JSON value per line; `csv`; `parquet`.",
            "text",
            _HIGH,
            one_of("text", "jsonl", "csv", "parquet"),
        ),
        Setting("csv.delimiter", _STRING, "The character between fields of CSV.", ",", _LOW, _one_character),
        Setting("batch.size", _INT, "Most records of one poll.", 2000, _LOW, between(1)),
        Setting("max.line.bytes", _INT, "A longer line stops the task.", 16 << 20, _LOW, between(1)),
        Setting("scan.interval.ms", _LONG, "How often to look for new files.", 1000, _LOW, between(1)),
        Setting(
            "after.commit",
            _STRING,
            "What to do with a finished file after its records are committed: `keep`, `delete` or `move`.",
            "keep",
            validator=one_of("keep", "delete", "move"),
        ),
        Setting("move.to", _STRING, "Directory for `after.commit=move`, below the directory of the files.", "done"),
        Setting(
            "finished.after.ms",
            _LONG,
            "A local file without changes for this time is finished. An object of S3 is always finished.",
            60_000,
            _LOW,
            between(0),
        ),
        *S3_SETTINGS,
    ]
)

SINK: Final = ConfigDef(
    [
        Setting("path", _STRING, "Directory or `s3://bucket/prefix`.", importance=_HIGH, validator=non_empty),
        Setting("format", _STRING, "`jsonl` or `parquet`.", "jsonl", _HIGH, one_of("jsonl", "parquet")),
        Setting(
            "partition.by.time",
            _STRING,
            "Directories by the record's time in UTC, as strftime has it: `date=%Y-%m-%d/hour=%H`; empty: none.",
            "",
        ),
        Setting("flush.size", _INT, "A file is complete after this number of records.", 100_000, _HIGH, between(1)),
        Setting("rotate.bytes", _LONG, "... or this size before compression.", 64 << 20, validator=between(1)),
        Setting("rotate.interval.ms", _LONG, "... or this time after its first record.", 60_000, validator=between(1)),
        Setting("buffer.bytes", _LONG, "Most memory of a task for open files.", 256 << 20, _LOW, between(1)),
        Setting(
            "compression",
            _STRING,
            "`zstd`, `snappy` or `none` (Parquet); `gzip` or `none` (JSON lines); `default`: zstd and none.",
            "default",
            validator=one_of("default", "none", "gzip", "zstd", "snappy"),
        ),
        Setting(
            "behavior.on.null.values",
            _STRING,
            "A record without a value: `fail` rejects it (dead letter topic, or stop), `ignore` skips it.",
            "fail",
            validator=one_of("fail", "ignore"),
        ),
        Setting(
            "include.kafka.metadata",
            _BOOLEAN,
            "Add the field `_kafka` with topic, partition, offset, timestamp and key.",
            False,
        ),
        *S3_SETTINGS,
    ]
)
