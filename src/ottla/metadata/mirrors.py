"""The state and names of mirrored topics in the metadata, and the generations of their leader epochs. KIP-1279.

FAILBACK waits until the controller has compared the topic with its source. MIRRORING copies. STOPPING removes the
producers of the source from the log. STOPPED is open to clients. Topics in the first three are read-only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

MIRROR_SETTING: Final = "ottla.mirror"
STATE_SETTING: Final = "ottla.mirror.state"
PREFIX_SETTING: Final = "topic.prefix"
"""The setting of a mirror: the names of its topics here begin with it."""
SOURCE_PREFIX_SETTING: Final = "source.topic.prefix"
"""The setting of a mirror: the names of its topics at the source begin with it."""
COPY_SETTING: Final = "copy"
"""The setting of a mirror: what it copies besides records, settings and offsets."""
ACLS: Final = "acls"
RATE_SETTING: Final = "replication.throttled.rate"
"""The setting of a mirror: the bytes per second that each broker fetches."""
FAILBACK: Final = "FAILBACK"
MIRRORING: Final = "MIRRORING"
STOPPING: Final = "STOPPING"
STOPPED: Final = "STOPPED"
PAUSED: Final = "PAUSED"
"""The state of a mirror that copies nothing."""
_GENERATION_BITS: Final = 20
UNHANDLED: Final = "An unhandled error occurred"
"""Begins the problems in reports that are defects of Ottla, not of the source or of the link to it."""


def is_read_only(settings: Mapping[str, object]) -> bool:
    """Whether clients must not write to a topic with these settings."""
    return is_read_only_state(settings.get(STATE_SETTING, ""))


def is_read_only_state(state: object) -> bool:
    """Whether clients must not write to a topic in this state."""
    return state not in ("", STOPPED)


class TopicNames(NamedTuple):
    """The names that topics of a mirror have at the source and here: one begins with a prefix, the other does not."""

    prefix: str = ""
    source_prefix: str = ""

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> TopicNames:
        """The names by the settings of a mirror."""
        return cls(str(settings.get(PREFIX_SETTING, "")), str(settings.get(SOURCE_PREFIX_SETTING, "")))

    def local(self, source_name: str) -> str | None:
        """The name that a topic of the source has here; None if the mirror does not copy such names."""
        if not source_name.startswith(self.source_prefix):
            return None
        return self.prefix + source_name.removeprefix(self.source_prefix)

    def at_source(self, local_name: str) -> str:
        """The name that a topic of the mirror has at the source."""
        return self.source_prefix + local_name.removeprefix(self.prefix)


def generation_start(leader_epoch: int) -> int:
    """The first leader epoch of a generation; copied records have earlier epochs."""
    return leader_epoch >> _GENERATION_BITS << _GENERATION_BITS


def next_generation(leader_epochs: Iterable[int]) -> int:
    """The first leader epoch of the generation after all of `leader_epochs`."""
    return (max((0, *leader_epochs)) >> _GENERATION_BITS) + 1 << _GENERATION_BITS
