"""The share consumer's settings: Kafka's names, units and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.cluster import Backoff
from ottla.clients.consumer.settings import CONSUMER_OPTIONS, GroupSettings
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, Option, read_options

_SHARED: Final = frozenset(
    {
        "group.id", "max.poll.interval.ms", "fetch.min.bytes", "fetch.max.wait.ms", "fetch.max.bytes",
        "max.poll.records", "check.crcs", "client.rack", "key.deserializer", "value.deserializer",
        "on.deserialization.error",
    }
)  # fmt: skip
"""The settings that mean the same as for a consumer."""

SHARE_OPTIONS: Final[tuple[Option, ...]] = (
    *COMMON_OPTIONS,
    *(option for option in CONSUMER_OPTIONS if option.name in _SHARED),
    Option(
        "share.acknowledgement.mode", "str", "implicit",
        "implicit: the next poll accepts all records of the previous one; explicit: each needs acknowledge().",
        choices=("implicit", "explicit"),
    ),
    Option(
        "share.acquire.mode", "str", "batch_optimized",
        "batch_optimized: whole batches are acquired; record_limit: at most max.poll.records records (Kafka 4.2).",
        choices=("batch_optimized", "record_limit"),
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class AcquireSettings:
    """How records are acquired; times in ms, sizes in bytes."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int
    max_records: int
    is_strict: bool
    """Whether `max_records` is a strict limit, which may split batches."""
    check_crcs: bool
    request_timeout_ms: int


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Everything that the share consumer's own code reads; times in ms."""

    group: GroupSettings
    acquire: AcquireSettings
    is_explicit: bool
    api_timeout_ms: int
    skip_deserialization_errors: bool

    allow_auto_create_topics = False
    raise_problems = False

    @property
    def group_id(self) -> str | None:
        """The group's id."""
        return self.group.group_id

    @property
    def request_timeout_ms(self) -> int:
        """How long a broker may take to answer."""
        return self.acquire.request_timeout_ms


def read_share_settings(given: Mapping[str, object]) -> tuple[dict[str, Any], ShareSettings]:
    """Return all options by Pythonic name, and the typed settings. Raises ConfigurationError."""
    options = read_options(SHARE_OPTIONS, given)
    if not options["group_id"]:
        raise ConfigurationError("group.id is missing: the share group whose members share the records")
    return options, ShareSettings(
        group=GroupSettings(
            group_id=options["group_id"],
            assignors=(),
            backoff=Backoff(options["retry_backoff_ms"], options["retry_backoff_max_ms"]),
            max_poll_interval_ms=options["max_poll_interval_ms"],
            auto_commit_interval_ms=None,
            rack=options["client_rack"],
            is_broker_assigned=True,
        ),
        acquire=AcquireSettings(
            min_bytes=options["fetch_min_bytes"],
            max_wait_ms=options["fetch_max_wait_ms"],
            max_bytes=options["fetch_max_bytes"],
            max_records=options["max_poll_records"],
            is_strict=options["share_acquire_mode"] == "record_limit",
            check_crcs=options["check_crcs"],
            request_timeout_ms=options["request_timeout_ms"],
        ),
        is_explicit=options["share_acknowledgement_mode"] == "explicit",
        api_timeout_ms=options["default_api_timeout_ms"],
        skip_deserialization_errors=options["on_deserialization_error"] == "skip",
    )
