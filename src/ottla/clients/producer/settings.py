"""The producer's settings, with Kafka's names, units and defaults.

One default differs: batch.size is 128 KiB instead of 16 KiB. A batch that is not full takes no more memory, and only
linger.ms decides how long a record waits. Full batches are fewer, which saves work in the client and in the brokers.
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
        "acks", "str", "all", "Which replicas must have a record before it is acknowledged: 0, 1, all.",
        choices=("0", "1", "all", "-1"),
    ),
    Option("enable.idempotence", "bool", None, "Write each record once and in order despite retries; default true."),
    Option("batch.size", "int", 131_072, "Most bytes of records in one batch.", low=0, high=INT_MAX),
    Option("linger.ms", "float", 5, "How long a batch waits for more records.", low=0),
    Option("buffer.memory", "int", 33_554_432, "Most bytes of unacknowledged records; send() waits for memory.", low=1),
    Option("max.block.ms", "int", 60_000, "How long send() waits for memory, or for the metadata of a topic.", low=0),
    Option("max.request.size", "int", 1_048_576, "Most bytes in one request.", low=1, high=INT_MAX),
    Option(
        "max.in.flight.requests.per.connection", "int", 5, "Requests to a broker that may wait for responses.",
        low=1, high=INT_MAX,
    ),
    Option("compression.type", "str", "none", "How batches are compressed.",
           choices=("none", "gzip", "snappy", "lz4", "zstd")),
    Option("compression.gzip.level", "int", -1, "From 1 (quick) to 9 (small); -1 is 6.", low=-1, high=9),
    Option("compression.lz4.level", "int", 9, "From 1 (quick) to 17 (small).", low=1, high=17),
    Option("compression.zstd.level", "int", 3, "From -131072 (quick) to 22 (small).", low=-131_072, high=22),
    Option("delivery.timeout.ms", "int", 120_000, "When an unacknowledged record fails.", low=1, high=INT_MAX),
    Option("retries", "int", INT_MAX, "How often a batch is sent again; delivery.timeout.ms is the better limit.",
           low=0, high=INT_MAX),
    Option("allow.auto.create.topics", "bool", True, "Let brokers create missing topics if they are allowed to."),
    Option(
        "partitioner", "object", None,
        "murmur2_random (default, as in Java), consistent_random (as in librdkafka), murmur2, consistent, fnv1a, "
        "fnv1a_random, random, or a callable of topic, key, value, partition count.",
    ),
    Option("transactional.id", "str", None, "Enables transactions; each producer that runs needs its own id."),
    Option("transaction.timeout.ms", "int", 60_000, "When the broker aborts an open transaction.", low=1, high=INT_MAX),
    Option("key.serializer", "object", None, 'Serializes keys: a function, or "string", "json", "int64" ...'),
    Option("value.serializer", "object", None, 'Serializes values: a function, or "string", "json", "int64" ...'),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProducerSettings:
    """The settings of core and sender; times in ms, sizes in bytes."""

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
    transactional_id: str | None = None
    transaction_timeout_ms: int = 60_000


def read_settings(given: Mapping[str, object]) -> tuple[dict[str, Any], ProducerSettings]:
    """All options by their Python names, and the core's settings. Raises ConfigurationError for contradictions."""
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
    idempotent = _is_idempotent(options["enable_idempotence"], acks, in_flight, options["retries"])
    if options["transactional_id"] is not None and not idempotent:
        raise ConfigurationError(
            "transactional.id needs enable.idempotence=true, acks=all, retries above 0, and "
            "max.in.flight.requests.per.connection of at most 5"
        )
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
        idempotent=idempotent,
        delivery_timeout_ms=timeout,
        request_timeout_ms=request,
        retries=options["retries"],
        retry_backoff_ms=options["retry_backoff_ms"],
        retry_backoff_max_ms=options["retry_backoff_max_ms"],
        metadata_max_age_ms=options["metadata_max_age_ms"],
        codec=codec,
        level=level,
        transactional_id=options["transactional_id"],
        transaction_timeout_ms=options["transaction_timeout_ms"],
    )


def _is_idempotent(given: bool | None, acks: int, in_flight: int, retries: int) -> bool:
    """As in Kafka: true unless another setting forbids it. Setting both explicitly is an error."""
    against = []
    if acks != -1:
        against.append(f"acks={acks} (it needs acks=all)")
    if in_flight > 5:
        against.append(f"max.in.flight.requests.per.connection={in_flight} (it needs at most 5)")
    if retries == 0:
        against.append("retries=0")
    if given and against:
        raise ConfigurationError(f"enable.idempotence=true does not go with {' and '.join(against)}")
    return not against if given is None else given
