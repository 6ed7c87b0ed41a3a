"""The names of options as tables: the valid ones, and suggestions for unknown ones.

`options` defines what the options mean. Each setting of Kafka's Java clients is either supported, or accepted without
effect because it does not change the records that are read or written, or rejected with a reason.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from ottla.registry_client.settings import is_registry_setting

Side = Literal["source", "sink"]


class OptionError(ValueError):
    """An option of the data source is unknown, missing or invalid, or contradicts another."""


STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
STARTING: Final = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
FORMATS: Final = ("raw", "json", "avro", "protobuf", "registry")
FORMAT_NAMES: Final = (
    "key.format", "value.format", "key.schema", "value.schema", "key.avro.schema", "value.avro.schema",
    "key.avro.readerSchema", "value.avro.readerSchema", "key.avro.header", "value.avro.header",
    "key.protobuf.message", "value.protobuf.message", "key.protobuf.descriptors", "value.protobuf.descriptors", "mode",
    "key.subject", "value.subject", "key.schemaType", "value.schemaType", "use.latest.version", "auto.register.schemas",
)  # fmt: skip
TIME_NAMES: Final = ("value.time", "value.maxFuture")
TYPED_NAMES: Final = (*FORMAT_NAMES, *TIME_NAMES)
"""The options about keys and values with a format."""
SOURCE_NAMES: Final = (
    *STRATEGIES, *STARTING, *ENDING, "startingOffsetsByTimestampStrategy", "failOnDataLoss", "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "includeHeaders",
    "commitGroup", "kafkaConsumer.pollTimeoutMs", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs",
    "groupIdPrefix", "idleAfter", "includeErrors", "schema", *TYPED_NAMES,
)  # fmt: skip
STREAMS_ONLY: Final = ("idleAfter", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
"""These have no effect on a batch read. A batch read rejects commitGroup."""
EXACTLY_ONCE_NAMES: Final = ("exactlyOnce", "exactlyOnceId", "exactlyOnceName", "transactionalIdPrefix")
SINK_NAMES: Final = ("topic", "schema", "includeHeaders", *EXACTLY_ONCE_NAMES, *FORMAT_NAMES)
_SPARKS_OWN: Final = ("checkpointLocation", "queryName")  # Spark passes them to the writer of a stream with the options

_NO_EFFECT: Final = frozenset(
    {
        "auto.include.jmx.reporter", "client.dns.lookup", "group.id", "group.protocol",
        "group.remote.assignor", "internal.throw.on.fetch.stable.offset.unsupported", "metadata.max.idle.ms",
        "metadata.recovery.rebootstrap.trigger.ms", "metadata.recovery.strategy", "metric.reporters",
        "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms", "receive.buffer.bytes",
        "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds", "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms", "sasl.login.retry.backoff.ms", "send.buffer.bytes",
        "share.acknowledgement.mode", "share.acquire.mode", "socket.connection.setup.timeout.max.ms",
        # Brokers validate tokens; clients only send them.
        "sasl.oauthbearer.clock.skew.seconds", "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name", "sasl.oauthbearer.sub.claim.name",
    }
)  # fmt: skip
# A source is not a member of a group, and its ranges determine which records are read.
_NO_EFFECT_ON_SOURCE: Final = frozenset(
    {
        "allow.auto.create.topics", "auto.commit.interval.ms", "exclude.internal.topics", "group.instance.id",
        "heartbeat.interval.ms", "max.poll.interval.ms", "max.poll.records", "partition.assignment.strategy",
        "session.timeout.ms",
    }
)  # fmt: skip

_NO_CLASSES: Final = "JVM classes cannot run in Python"
_NO_KERBEROS: Final = (
    "Kerberos is not available; set sasl.mechanism to PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
)
_PYTHONS_TLS: Final = "Python's ssl module provides TLS, with the protocols and ciphers of this machine"
_CREDENTIALS: Final = "clients send tokens as they get them, and header fields of requests for tokens are URL-encoded"
_NO_OBJECTS: Final = "it is a Python object, but Spark options are strings"
_REFUSED: Final = {
    "interceptor.classes": _NO_CLASSES,
    "config.providers": "values are used literally; read files and variables in the program that sets the options",
    "sasl.client.callback.handler.class": _NO_CLASSES,
    "sasl.login.callback.handler.class": _NO_CLASSES,
    "sasl.login.class": _NO_CLASSES,
    "sasl.oauth.token.provider": _NO_OBJECTS,
    "security.providers": _NO_CLASSES,
    "ssl.context": _NO_OBJECTS,
    "ssl.engine.factory.class": _NO_CLASSES,
    **{
        f"sasl.kerberos.{name}": _NO_KERBEROS
        for name in (
            "kinit.cmd", "min.time.before.relogin", "service.name", "ticket.renew.jitter", "ticket.renew.window.factor",
        )
    },
    **{
        f"ssl.{name}": _PYTHONS_TLS
        for name in (
            "cipher.suites", "enabled.protocols", "keymanager.algorithm", "protocol", "provider",
            "secure.random.implementation", "trustmanager.algorithm",
        )
    },
    **{
        f"sasl.oauthbearer.{name}": _CREDENTIALS for name in ("header.urlencode", "jwt.validator.class")
    },
}  # fmt: skip
_REFUSED_BY: Final[Mapping[Side, Mapping[str, str]]] = {
    "source": _REFUSED
    | {
        "auto.offset.reset": "set startingOffsets instead; later runs start at the position in the checkpoint",
        "enable.auto.commit": "Spark's checkpoint has the positions; commitGroup commits them to a group too",
        "key.deserializer": "keys are bytes; convert them with key.format or Spark's functions",
        "value.deserializer": "values are bytes; convert them with value.format or Spark's functions",
        "on.corrupt.records": "failOnDataLoss=false skips corrupt records with a warning",
        "on.deserialization.error": "the option mode decides what happens to a value that does not match its format",
    },
    "sink": _REFUSED
    | {
        "key.serializer": "keys are bytes; convert columns with key.format or Spark's functions",
        "value.serializer": "values are bytes; convert columns with value.format or Spark's functions",
        "partitioner.class": "JVM classes cannot run in Python; add a column 'partition' with each row's partition",
        "partitioner.ignore.keys": "add a column 'partition' with each row's partition",
        "transactional.id": "set exactlyOnce=true; the ids begin with the option transactionalIdPrefix",
        "transaction.two.phase.commit.enable": "brokers do not serve two-phase commit; set exactlyOnce=true",
    },
}
_HINTS: Final = {
    "path": "load() and save() take no path",
    "topics": "did you mean 'subscribe'?",
    "servers": "did you mean 'kafka.bootstrap.servers'?",
    "bootstrapservers": "did you mean 'kafka.bootstrap.servers'?",
    "header": "did you mean 'includeHeaders'?",
    "headers": "did you mean 'includeHeaders'?",
    "group.id": "did you mean 'commitGroup', which commits processed offsets, or 'kafka.group.id'?",
    "isolationlevel": "did you mean 'kafka.isolation.level'?",
}


def with_effect(settings: Mapping[str, str], side: Side) -> dict[str, str]:
    """Return the client settings (without `kafka.`) that have an effect. Raises OptionError for a rejected one."""
    for name, why in _REFUSED_BY[side].items():
        if name in settings:
            raise OptionError(f"kafka.{name} is not supported: {why}")
    without = _NO_EFFECT | (_NO_EFFECT_ON_SOURCE if side == "source" else frozenset())
    return {name: value for name, value in settings.items() if name not in without}


def check_names(given: Iterable[str], settings: Collection[str], side: Side) -> None:
    """Raise OptionError for an unknown name (in lower case). `settings` are the names of our clients' settings."""
    own = {name.lower(): name for name in (*(SOURCE_NAMES if side == "source" else SINK_NAMES), *_SPARKS_OWN)}
    kafka = {f"kafka.{name}" for name in (*settings, *_NO_EFFECT, *_REFUSED_BY[side])}
    for name in given:
        if name not in own and name not in kafka and not is_registry_setting(name):
            raise OptionError(f"There is no option {name!r}; {_suggestion(name, own, kafka, side)}")


def _suggestion(name: str, own: Mapping[str, str], kafka: Collection[str], side: Side) -> str:
    other: Side = "sink" if side == "source" else "source"
    other_side = {each.lower(): each for each in (SINK_NAMES if side == "source" else SOURCE_NAMES)}
    if name == "topic" and side == "source":
        return "did you mean 'subscribe'?"
    if name in other_side:
        return f"{other_side[name]!r} is an option of the {other}"
    if name in _HINTS:
        return _HINTS[name]
    if f"kafka.{name}" in kafka:
        return f"did you mean 'kafka.{name}'?"
    if name.removeprefix("kafka.") in own:
        return f"did you mean {own[name.removeprefix('kafka.')]!r}?"
    found = difflib.get_close_matches(name, [*own, *kafka], 1, 0.75)
    if found:
        return f"did you mean {own.get(found[0], found[0])!r}?"
    if name.startswith("kafka."):
        return "the clients have no such setting"
    return f"the options of the {side} are {', '.join(sorted(own.values()))} and kafka.*"
