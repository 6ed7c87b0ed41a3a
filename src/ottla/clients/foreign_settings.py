"""Settings of other clients by their names there, and their names here.

Only the error about an unknown setting uses this table. `docs/clients-moving.md` contains it too.
"""

from __future__ import annotations

from typing import NamedTuple


class Elsewhere(NamedTuple):
    """The setting `name` of `clients` is called `here` ("": it does not exist here); `note` has details."""

    name: str
    clients: str
    here: str
    note: str = ""


_RD, _PY, _AIO, _JAVA = "librdkafka", "kafka-python", "aiokafka", "Java"
_BOTH = f"{_PY}, {_AIO}"
_BY_SYSTEM = "the system sizes the buffers of sockets"
_BY_VERSION = "versions are agreed on with each broker"
_BY_LOGGING = "set the level of the logger ottla.clients"

TABLE = (
    Elsewhere("metadata.broker.list", _RD, "bootstrap.servers"),
    Elsewhere("queue.buffering.max.kbytes", _RD, "buffer.memory", "in bytes, not KiB"),
    Elsewhere("queue.buffering.max.messages", _RD, "buffer.memory", "in bytes, not records"),
    Elsewhere("queue.buffering.max.ms", _RD, "linger.ms"),
    Elsewhere("message.max.bytes", _RD, "max.request.size"),
    Elsewhere("message.timeout.ms", _RD, "delivery.timeout.ms"),
    Elsewhere("message.send.max.retries", _RD, "retries"),
    Elsewhere("batch.num.messages", _RD, "batch.size", "in bytes, not records"),
    Elsewhere("compression.codec", _RD, "compression.type"),
    Elsewhere("compression.level", _RD, "compression.zstd.level", "or compression.gzip.level, compression.lz4.level"),
    Elsewhere("request.required.acks", _RD, "acks"),
    Elsewhere("max.in.flight", _RD, "max.in.flight.requests.per.connection"),
    Elsewhere("topic.metadata.refresh.interval.ms", _RD, "metadata.max.age.ms"),
    Elsewhere("socket.timeout.ms", _RD, "request.timeout.ms"),
    Elsewhere("fetch.message.max.bytes", _RD, "max.partition.fetch.bytes"),
    Elsewhere("fetch.wait.max.ms", _RD, "fetch.max.wait.ms"),
    Elsewhere("queued.max.messages.kbytes", _RD, "queued.max.bytes", "in bytes, not KiB"),
    Elsewhere("queued.min.messages", _RD, "queued.max.bytes", "in bytes, not records"),
    Elsewhere("enable.partition.eof", _RD, "", "compare position() with end_offsets()"),
    Elsewhere("stats_cb", _RD, "on.event", "with statistics.interval.ms; StatisticsReported events"),
    Elsewhere("error_cb", _RD, "on.event", "Problem events"),
    Elsewhere("throttle_cb", _RD, "on.event", "Throttled events"),
    Elsewhere("oauth_cb", _RD, "sasl.oauth.token.provider"),
    Elsewhere("api.version.request", _RD, "", _BY_VERSION),
    Elsewhere("socket.keepalive.enable", _RD, "", "idle connections are closed after connections.max.idle.ms"),
    Elsewhere("broker.address.family", _RD, "", "all addresses of a name are tried"),
    Elsewhere("on_delivery", _RD, "", "pass callback to send()"),
    Elsewhere("on_commit", _RD, "", "pass callback to commit_async()"),
    Elsewhere("log_level", _RD, "", _BY_LOGGING),
    Elsewhere("debug", _RD, "", _BY_LOGGING),
    Elsewhere("logger", _RD, "", "the loggers are under ottla.clients"),
    Elsewhere("loop", _AIO, "", "the running loop is used"),
    Elsewhere("api_version", _BOTH, "", _BY_VERSION),
    Elsewhere("consumer_timeout_ms", _BOTH, "", "poll(timeout_s) returns an empty list"),
    Elsewhere("max_batch_size", _AIO, "batch.size"),
    Elsewhere("rebalance_timeout_ms", _AIO, "max.poll.interval.ms"),
    Elsewhere("ssl_cafile", _PY, "ssl.truststore.location"),
    Elsewhere("ssl_certfile", _PY, "ssl.certificate.location"),
    Elsewhere("ssl_keyfile", _PY, "ssl.key.location"),
    Elsewhere("ssl_password", _PY, "ssl.key.password"),
    Elsewhere("ssl_check_hostname", _PY, "ssl.endpoint.identification.algorithm", "https or none, not true or false"),
    Elsewhere("sasl_plain_username", _BOTH, "sasl.username"),
    Elsewhere("sasl_plain_password", _BOTH, "sasl.password"),
    Elsewhere("receive.buffer.bytes", f"{_JAVA}, {_PY}", "", _BY_SYSTEM),
    Elsewhere("send.buffer.bytes", f"{_JAVA}, {_PY}", "", _BY_SYSTEM),
    Elsewhere("interceptor.classes", _JAVA, "", "wrap the client, or give it a serializer"),
)


def find(name: str) -> Elsewhere | None:
    """Return the row of a setting by its name with dots or underscores; None if no client has it."""
    wanted = name.lower().replace("_", ".")
    return next((row for row in TABLE if row.name.replace("_", ".") == wanted), None)


def message(name: str, row: Elsewhere, *, is_known: bool) -> str:
    if not row.here:
        return f"There is no setting {name!r} here: {row.note}"
    meant = row.here.replace(".", "_") if "_" in name else row.here
    text = f"There is no setting {name!r} here; {meant!r} replaces the setting of {row.clients}" + (
        f" ({row.note})" if row.note else ""
    )
    return text if is_known else f"{text}, which this client does not have"
