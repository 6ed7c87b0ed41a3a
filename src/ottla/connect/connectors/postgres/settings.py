"""The settings of the PostgreSQL connector: names, defaults and meanings are Debezium's, except where a text says more.

`CONFIG` declares them; `Options` is what the other modules read. Settings that would change events, but that are not
implemented, are refused by `unsupported`, one sentence each; settings without any effect on events are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ottla.connect.config.definition import ConfigDef, Importance, SettingType, between, non_empty, one_of
from ottla.connect.connectors.capture import settings as shared
from ottla.connect.connectors.capture.settings import BOOLEAN, INT, LIST, LONG, STRING, required, row

PASSWORD: Final = SettingType.PASSWORD

SNAPSHOT_MODES: Final = ("initial", "initial_only", "no_data", "never", "always", "when_needed")
UNAVAILABLE: Final = "__debezium_unavailable_value"


CONNECTION: Final = (
    required("database.hostname", STRING, "Host of the PostgreSQL server."),
    row("database.port", INT, 5432, "Port of the PostgreSQL server.", between(1, 65535), Importance.HIGH),
    required("database.user", STRING, "User of the database; needs the attribute REPLICATION."),
    row("database.password", PASSWORD, None, "Password of the user.", None, Importance.HIGH),
    required("database.dbname", STRING, "Database whose changes are captured."),
    required("topic.prefix", STRING, "First part of all topic names; also the source partition of the offsets."),
    row(
        "database.sslmode",
        STRING,
        "prefer",
        "TLS: disable, allow, prefer, require, verify-ca or verify-full.",
        one_of("disable", "allow", "prefer", "require", "verify-ca", "verify-full"),
    ),
    row("database.sslcert", STRING, None, "File of the client certificate."),
    row("database.sslkey", STRING, None, "File of the client's private key."),
    row("database.sslpassword", PASSWORD, None, "Password of the private key."),
    row("database.sslrootcert", STRING, None, "File of the root certificates."),
    row("database.tcpKeepAlive", BOOLEAN, True, "Whether the kernel checks idle connections."),
    row("database.initial.statements", STRING, None, "SQL to run on each new connection, but the replication one."),
    row("database.connect.timeout.ms", INT, 10_000, "How long a connection may take.", between(1000)),
)

REPLICATION: Final = (
    row("plugin.name", STRING, "pgoutput", "Logical decoding plug-in; only pgoutput.", one_of("pgoutput")),
    row("slot.name", STRING, "debezium", "Name of the replication slot.", non_empty, Importance.HIGH),
    row(
        "slot.drop.on.stop", BOOLEAN, False, "Drop the slot when the task stops: changes until the next start are lost."
    ),
    row("slot.failover", BOOLEAN, False, "Create the slot as a failover slot (PostgreSQL 17)."),
    row("publication.name", STRING, "dbz_publication", "Name of the publication.", non_empty, Importance.HIGH),
    row(
        "publication.autocreate.mode",
        STRING,
        "all_tables",
        "Create the publication if it is absent: all_tables, filtered (the captured tables, kept up to date), "
        "no_tables, or disabled.",
        one_of("all_tables", "filtered", "no_tables", "disabled"),
    ),
    row("publish.via.partition.root", BOOLEAN, False, "Publish changes of partitions under their root table."),
    row(
        "offset.mismatch.strategy",
        STRING,
        "trust_offset",
        "If the slot is ahead of the committed offset, changes are lost: trust_offset stops with a sentence, "
        "trust_slot and no_validation go on at the slot. (Debezium's default is no_validation.)",
        one_of("no_validation", "trust_offset", "trust_slot", "trust_greater_lsn"),
    ),
    row("status.update.interval.ms", INT, 10_000, "Interval of status updates to the server.", between(100)),
    row(
        "max.slot.lag",
        LONG,
        0,
        "Stop the task if the slot holds more bytes of the log than this; 0: no limit.",
        between(0),
    ),
    row("replica.identity.autoset.values", STRING, None, "Replica identities to set, as TABLE:FULL,TABLE:DEFAULT."),
    row("read.only", BOOLEAN, False, "Write nothing to the database: no publication, no heartbeat query."),
)

TABLES: Final = (
    *shared.TABLES,
    row("schema.include.list", LIST, [], "Regular expressions of the schemas to capture."),
    row("schema.exclude.list", LIST, [], "Regular expressions of the schemas not to capture."),
    row("column.propagate.source.type", LIST, [], "Columns whose database type is added to the schema's parameters."),
    row("datatype.propagate.source.type", LIST, [], "Types that are added to the schema's parameters."),
    row("message.prefix.include.list", LIST, [], "Regular expressions of prefixes of decoding messages to emit."),
    row("message.prefix.exclude.list", LIST, [], "Regular expressions of prefixes of decoding messages to skip."),
)

EVENTS: Final = (
    *shared.EVENTS,
    row("skipped.operations", LIST, ["t"], "Operations without events: c, u, d, t or none."),
    row("provide.transaction.metadata", BOOLEAN, False, "Emit BEGIN and END of transactions, and number their events."),
    row(
        "time.precision.mode",
        STRING,
        "adaptive",
        "Times by the column's precision (adaptive), in microseconds, nanoseconds, as Connect's types, or ISO strings.",
        one_of("adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
    ),
    row("hstore.handling.mode", STRING, "json", "hstore as JSON, or as map.", one_of("json", "map")),
    row(
        "interval.handling.mode",
        STRING,
        "numeric",
        "interval in microseconds, or as string.",
        one_of("numeric", "string"),
    ),
    row("money.fraction.digits", INT, 2, "Digits after the point of money.", between(0, 10)),
    row("include.unknown.datatypes", BOOLEAN, False, "Emit values of unknown types as bytes, instead of no field."),
    row(
        "unavailable.value.placeholder", STRING, UNAVAILABLE, "The value of unchanged large columns that are not sent."
    ),
    row("flatten", BOOLEAN, False, "Emit rows instead of envelopes, as the transform ExtractNewRecordState does."),
    row(
        "event.processing.failure.handling.mode",
        STRING,
        "fail",
        "An event that cannot be converted: fail, or warn or skip, which lose it.",
        one_of("fail", "warn", "skip"),
    ),
)

SNAPSHOTS: Final = (
    *shared.SNAPSHOTS,
    row(
        "snapshot.mode",
        STRING,
        "initial",
        "When tables are read: " + ", ".join(SNAPSHOT_MODES) + ".",
        one_of(*SNAPSHOT_MODES),
        Importance.HIGH,
    ),
    row("snapshot.max.threads", INT, 1, "Connections that read tables at once, all from one snapshot.", between(1, 64)),
    row(
        "snapshot.select.statement.overrides",
        LIST,
        [],
        "Tables that are read by a SELECT of their own, in the setting with .TABLE at the end.",
    ),
    row("signal.data.collection", STRING, None, "SCHEMA.TABLE of signals for ad-hoc snapshots."),
    row("signal.enabled.channels", LIST, ["source"], "Channels of signals; only source."),
    row("incremental.snapshot.chunk.size", INT, 1024, "Rows of one chunk of an incremental snapshot.", between(1)),
)


CONFIG: Final = ConfigDef([*CONNECTION, *REPLICATION, *TABLES, *EVENTS, *SNAPSHOTS, *shared.WORK])

_UNSUPPORTED: Final = {
    "converters": "custom converters are Java classes",
    "post.processors": "post processors are Java classes",
    "topic.naming.strategy": "only the default naming is implemented; use the transform RegexRouter",
    "sourceinfo.struct.maker": "only the default source block is implemented",
    "transaction.metadata.factory": "only the default transaction block is implemented",
    "snapshot.mode.custom.name": "custom snapshot modes are Java classes",
    "slot.stream.params": "parameters of pgoutput are chosen by the connector",
    "table.ignore.builtin": "system tables are never captured",
}
_DEFAULTS: Final = {
    "topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy",
    "sourceinfo.struct.maker": "io.debezium.connector.postgresql.PostgresSourceInfoStructMaker",
    "transaction.metadata.factory": "io.debezium.pipeline.txmetadata.DefaultTransactionMetadataFactory",
    "table.ignore.builtin": "true",
}


def unsupported(config: Mapping[str, str]) -> dict[str, str]:
    """Return a sentence for each given setting that would change events, but is not implemented."""
    found = {
        name: f"{name} is not supported: {reason}."
        for name, reason in _UNSUPPORTED.items()
        if config.get(name) and config[name] != _DEFAULTS.get(name)
    }
    channels = [each.strip() for each in config.get("signal.enabled.channels", "source").split(",") if each.strip()]
    for each in channels:
        if each != "source":
            found["signal.enabled.channels"] = f"Signals by {each} are not supported: use source."
    return found


class Options(shared.Options):
    """The settings of this connector."""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> Options:
        """Parse a configuration. Raises SettingError."""
        return cls(CONFIG.parse(config), dict(config))

    @property
    def slot(self) -> str:
        """The name of the slot."""
        return self.text("slot.name")

    @property
    def publication(self) -> str:
        """The name of the publication."""
        return self.text("publication.name")

    @property
    def snapshot_mode(self) -> str:
        """The snapshot mode; `never` is the old name of `no_data`."""
        mode = self.text("snapshot.mode")
        return "no_data" if mode == "never" else mode
