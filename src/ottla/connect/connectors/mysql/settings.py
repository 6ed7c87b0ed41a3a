"""The settings of the connector: names, defaults and meanings are Debezium's; most are shared with PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from ottla.connect.config.definition import ConfigDef, Importance, Setting, SettingType, between, one_of
from ottla.connect.connectors.capture import settings as shared
from ottla.connect.connectors.capture.settings import INT, LIST, STRING, Options, required

SNAPSHOT_MODES: Final = ("initial", "initial_only", "no_data", "schema_only", "never", "always", "when_needed")
MEDIUM: Final = Importance.MEDIUM

_OWN: Final = (
    required("database.hostname", STRING, "Host of the MariaDB or MySQL server."),
    Setting("database.port", INT, "Port of the server.", 3306, Importance.HIGH, between(1, 65535)),
    required("database.user", STRING, "User; needs SELECT, RELOAD, REPLICATION SLAVE and REPLICATION CLIENT."),
    Setting("database.password", SettingType.PASSWORD, "Password of the user.", None, Importance.HIGH),
    Setting(
        "database.server.id",
        SettingType.LONG,
        "Number of this reader; no other replica of the server may have it.",
        importance=Importance.HIGH,
        validator=between(1, (1 << 32) - 1),
    ),
    required("topic.prefix", STRING, "First part of all topic names; also the source partition of the offsets."),
    Setting("database.include.list", LIST, "Regular expressions of the databases to capture.", []),
    Setting("database.exclude.list", LIST, "Regular expressions of the databases not to capture.", []),
    Setting("connect.timeout.ms", INT, "How long a connection may take.", 30_000, MEDIUM, between(1000)),
    Setting("database.ssl.ca", STRING, "File of the root certificates; TLS is used if it is set.", None),
    Setting(
        "snapshot.mode",
        STRING,
        f"When tables are read: {', '.join(SNAPSHOT_MODES)}.",
        "initial",
        Importance.HIGH,
        one_of(*SNAPSHOT_MODES),
    ),
    Setting(
        "snapshot.locking.mode",
        STRING,
        "minimal locks all tables until the snapshot has begun; none takes MariaDB's own position of a snapshot, which "
        "is exact for InnoDB.",
        "minimal",
        MEDIUM,
        one_of("minimal", "none"),
    ),
    Setting(
        "time.precision.mode",
        STRING,
        "Times by the column's precision, or as Connect's types.",
        "adaptive_time_microseconds",
        MEDIUM,
        one_of("adaptive_time_microseconds", "connect"),
    ),
    Setting(
        "bigint.unsigned.handling.mode",
        STRING,
        "Unsigned BIGINT as a 64-bit number (long), or as Decimal (precise).",
        "long",
        MEDIUM,
        one_of("long", "precise"),
    ),
    Setting("skipped.operations", LIST, "Operations without events: c, u, d, or none.", ["t"]),
)
CONFIG: Final = ConfigDef([*_OWN, *shared.TABLES, *shared.EVENTS, *shared.SNAPSHOTS, *shared.WORK])
_UNSUPPORTED: Final = {
    "converters": "custom converters are Java classes",
    "post.processors": "post processors are Java classes",
    "signal.data.collection": "ad-hoc snapshots are not implemented; reset the offsets to read the tables again",
    "gtid.source.includes": "the stream goes on at files and positions",
    "gtid.source.excludes": "the stream goes on at files and positions",
    "snapshot.select.statement.overrides": "tables are read as a whole",
}


def unsupported(config: Mapping[str, str]) -> dict[str, str]:
    """Return a sentence for each given setting that would change events, but is not implemented."""
    found = {name: f"{name} is not supported: {why}." for name, why in _UNSUPPORTED.items() if config.get(name)}
    if config.get("provide.transaction.metadata", "false").strip().lower() == "true":
        found["provide.transaction.metadata"] = "provide.transaction.metadata is not supported: set it to false."
    if "t" not in [each.strip() for each in config.get("skipped.operations", "t").split(",")]:
        found["skipped.operations"] = "Events of TRUNCATE are not supported: add t to skipped.operations."
    return found


def options_of(config: Mapping[str, str]) -> Options:
    """Parse a configuration; databases are the schemas of the shared filters. Raises SettingError."""
    values: dict[str, Any] = CONFIG.parse(config)
    empty: list[str] = []
    for each in ("message.prefix.include.list", "message.prefix.exclude.list"):
        values[each] = empty
    values["column.propagate.source.type"] = values["datatype.propagate.source.type"] = empty
    values["schema.include.list"] = values["database.include.list"]
    values["schema.exclude.list"] = values["database.exclude.list"]
    values["signal.data.collection"] = None
    return Options(values, dict(config))


def snapshot_mode(options: Options) -> str:
    """Return the snapshot mode; `schema_only` and `never` are old names of `no_data`."""
    mode = options.text("snapshot.mode")
    return "no_data" if mode in ("schema_only", "never") else mode
