"""The broker settings that supply the defaults of topics and groups. The first that is set in a layer wins."""

from __future__ import annotations

from ottla.common.values import value
from ottla.config.settings import GROUP_SETTINGS, TOPIC_SETTINGS


@value
class BrokerSynonym:
    """A broker setting; `factor` converts its unit to the topic setting's."""

    name: str
    factor: int = 1


_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000
_LOG = {
    "cleanup.policy": "log.cleanup.policy",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
}
_SAME = (
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "min.insync.replicas",
    "unclean.leader.election.enable",
)

TOPIC_SYNONYMS: dict[str, tuple[BrokerSynonym, ...]] = {
    **{name: (BrokerSynonym(broker_name),) for name, broker_name in _LOG.items()},
    **{name: (BrokerSynonym(name),) for name in _SAME},
    "flush.ms": (BrokerSynonym("log.flush.interval.ms"), BrokerSynonym("log.flush.scheduler.interval.ms")),
    "retention.ms": (
        BrokerSynonym("log.retention.ms"),
        BrokerSynonym("log.retention.minutes", _MINUTE_MS),
        BrokerSynonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.ms": (BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _HOUR_MS)),
    "segment.jitter.ms": (BrokerSynonym("log.roll.jitter.ms"), BrokerSynonym("log.roll.jitter.hours", _HOUR_MS)),
}
if not TOPIC_SYNONYMS.keys() <= TOPIC_SETTINGS.keys():
    raise AssertionError(f"not topic settings: {TOPIC_SYNONYMS.keys() - TOPIC_SETTINGS.keys()}")

# Families of synonyms among a broker's own settings: each member is a synonym of the others.
BROKER_FAMILIES: dict[str, tuple[str, ...]] = {
    synonym.name: tuple(each.name for each in family)
    for family in TOPIC_SYNONYMS.values()
    if len(family) > 1
    for synonym in family
}

_GROUP_ONLY = {"share.auto.offset.reset", "share.isolation.level", "share.renew.acknowledge.enable"}
GROUP_SYNONYMS: dict[str, str] = {name: f"group.{name}" for name in GROUP_SETTINGS if name not in _GROUP_ONLY}
