"""The producer's settings: Kafka's names, units and defaults.

Defaults differ from Kafka's in one: batch.size is 128 KiB instead of 16. A batch that is not full does not take more
memory, and linger.ms alone decides how long a record waits; but full batches are fewer, for us and for the brokers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, INT_MAX, Option, read_options
from ottla.records.batch import Codec

PRODUCER_OPTIONS = (
    *COMMON_OPTIONS,
    Option(
        "acks", "str", "all", "Who must have a record before it is acknowledged: 0, 1, all.",
        choices=("0", "1", "all", "-1"),
    ),
    Option("enable.idempotence", "bool", None, "Each record once and in order, whatever is sent twice; default true."),
    Option("batch.size", "int", 131_072, "Most bytes of records in one batch.", low=0, high=INT_MAX),
    Option("linger.ms", "float", 5, "How long a batch waits for more records.", low=0),
    Option("buffer.memory", "int", 33_554_432, "Most bytes of records without an end; send() waits for room.", low=1),
    Option("max.block.ms", "int", 60_000, "How long send() waits for room, or for a topic to be known.", low=0),
    Option("max.request.size", "int", 1_048_576, "Most bytes in one request.", low=1, high=INT_MAX),
    Option(
        "max.in.flight.requests.per.connection", "int", 5, "Requests to a broker that may wait for answers.",
        low=1, high=INT_MAX,
    ),
    Option("compression.type", "str", "none", "How batches are compressed.",
           choices=("none", "gzip", "snappy", "lz4", "zstd")),
    Option("compression.gzip.level", "int", -1, "From 1 (quick) to 9 (small); -1 is 6.", low=-1, high=9),
    Option("compression.lz4.level", "int", 9, "From 1 (quick) to 17 (small).", low=1, high=17),
    Option("compression.zstd.level", "int", 3, "From -131072 (quick) to 22 (small).", low=-131_072, high=22),
    Option("delivery.timeout.ms", "int", 120_000, "A record has its end after so long.", low=1, high=INT_MAX),
    Option("retries", "int", INT_MAX, "How often a batch is sent again; delivery.timeout.ms is the better bound.",
           low=0, high=INT_MAX),
    Option("allow.auto.create.topics", "bool", True, "Let brokers that may do so make a topic that is not there."),
    Option(
        "partitioner", "object", None,
        "murmur2_random (default, as in Java), consistent_random (as in librdkafka), murmur2, consistent, fnv1a, "
        "fnv1a_random, random, or a callable of topic, key, value, partition count.",
    ),
    Option("key.serializer", "object", None, 'Makes bytes of a key: a function, or "string", "json", "int64" ...'),
    Option("value.serializer", "object", None, 'Makes bytes of a value: a function, or "string", "json", "int64" ...'),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """What the core and the sender go by; times in ms, sizes in bytes."""

    batch_size: int = 131_072
    linger_ms: float = 5
    buffer_memory: int = 33_554_432
    max_block_ms: int = 60_000
    max_request_size: int = 1_048_576
    max_in_flight: int = 5
    acks: int = -1
    idempotent: bool = True
    delivery_timeout_ms: int = 120_000
    request_timeout_ms: int = 30_000
    retries: int = INT_MAX
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    codec: Codec = Codec.NONE
    level: int | None = None


def read_settings(given: Mapping[str, object]) -> tuple[dict[str, Any], ProducerSettings]:
    """All options by Pythonic name, and those of the core; raises ConfigurationError where they contradict."""
    options = read_options(PRODUCER_OPTIONS, given)
    acks = -1 if options["acks"] in {"all", "-1"} else int(options["acks"])
    in_flight = options["max_in_flight_requests_per_connection"]
    timeout, linger, request = (options[f"{n}_ms"] for n in ("delivery_timeout", "linger", "request_timeout"))
    if timeout < linger + request:
        if "delivery.timeout.ms" in given or "delivery_timeout_ms" in given:
            raise ConfigurationError(
                f"delivery.timeout.ms is {timeout}; it must be at least linger.ms + request.timeout.ms "
                f"({linger + request:g}), or no record gets a second attempt"
            )
        timeout = int(linger + request)
    codec = Codec[options["compression_type"].upper()]
    level = options.get(f"compression_{codec.name.lower()}_level")
    return options, ProducerSettings(
        batch_size=options["batch_size"],
        linger_ms=linger,
        buffer_memory=options["buffer_memory"],
        max_block_ms=options["max_block_ms"],
        max_request_size=options["max_request_size"],
        max_in_flight=in_flight,
        acks=acks,
        idempotent=_is_idempotent(options["enable_idempotence"], acks, in_flight, options["retries"]),
        delivery_timeout_ms=timeout,
        request_timeout_ms=request,
        retries=options["retries"],
        retry_backoff_ms=options["retry_backoff_ms"],
        retry_backoff_max_ms=options["retry_backoff_max_ms"],
        metadata_max_age_ms=options["metadata_max_age_ms"],
        codec=codec,
        level=level,
    )


def _is_idempotent(wish: bool | None, acks: int, in_flight: int, retries: int) -> bool:
    """As in Kafka: on unless another setting forbids it; asked for together with such a setting, an error."""
    against = []
    if acks != -1:
        against.append(f"acks={acks} (it needs acks=all)")
    if in_flight > 5:
        against.append(f"max.in.flight.requests.per.connection={in_flight} (it needs at most 5)")
    if retries == 0:
        against.append("retries=0")
    if wish and against:
        raise ConfigurationError(f"enable.idempotence=true does not go with {' and '.join(against)}")
    return not against if wish is None else wish
