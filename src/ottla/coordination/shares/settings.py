"""The settings of a share group: its own, which may change at any time, or the broker's defaults. KIP-932, KIP-1240."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from ottla.config import BrokerConfig
from ottla.coordinators.share.limits import ShareLimits
from ottla.partitions.reading import READ_COMMITTED

READ_UNCOMMITTED = 0
_BY_DURATION = "by_duration:"
_DURATION = re.compile(
    r"\+?P(?:\+?(\d+)D)?(?:T(?:\+?(\d+)H)?(?:\+?(\d+)M)?(?:\+?(\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE
)


class ShareSettings(NamedTuple):
    """The settings that the leaders of a share group's partitions obey."""

    limits: ShareLimits
    isolation_level: int
    offset_reset: str
    """share.auto.offset.reset"""


def share_settings(own: Mapping[str, str], broker: BrokerConfig) -> ShareSettings:
    """The settings of a group with `own` dynamic settings."""

    def number(name: str) -> int:
        value = own.get(name)
        return broker.int(f"group.{name}") if value is None else int(value)

    isolation = own.get("share.isolation.level", "read_uncommitted")
    limits = ShareLimits(
        lock_duration_ms=number("share.record.lock.duration.ms"),
        max_delivery_count=number("share.delivery.count.limit"),
        max_record_locks=number("share.partition.max.record.locks"),
        is_renewal_enabled=own.get("share.renew.acknowledge.enable", "true").lower() == "true",
    )
    return ShareSettings(
        limits,
        READ_COMMITTED if isolation == "read_committed" else READ_UNCOMMITTED,
        own.get("share.auto.offset.reset", "latest"),
    )


def reset_timestamp_ms(offset_reset: str, now_ms: int) -> int | None:
    """Where `by_duration:PnDTnHnMn.nS` starts, as a timestamp; None for "latest" and "earliest"."""
    if not offset_reset.startswith(_BY_DURATION):
        return None
    match = _DURATION.fullmatch(offset_reset.removeprefix(_BY_DURATION))
    if match is None:
        return None
    days, hours, minutes, seconds, fraction = match.groups()
    whole = (int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)
    return max(0, now_ms - (whole * 60 + int(seconds or 0)) * 1000 - int(f"{fraction or '':0<3.3}"))
