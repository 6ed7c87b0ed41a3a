"""Common parts of the changes of consumer and share groups: their log lines, and the group's epochs.

A change collects the records and log lines of one request in their order. The group itself changes when the records
are replayed. Each type of group encodes its own records.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from ottla.coordinators.events import Effects, Moment, RecordBytes, log_line
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.modern.settings import group_setting
from ottla.coordinators.group.modern.state import ModernGroup
from ottla.coordinators.group.modern.subscriptions import TopicCounts
from ottla.coordinators.group.modern.target import may_assign_again
from ottla.coordinators.group.modern.topics import metadata_hash
from ottla.metadata.image import BROKER

G = TypeVar("G", bound=ModernGroup[Any])


class ModernChange(Generic[G]):
    """Records and log lines of one request for `group`, at the time `now`."""

    def __init__(self, core: Core, group: G, now: Moment) -> None:
        self.core = core
        self.group = group
        self.now = now
        self.records: list[RecordBytes] = []
        self.lines: Effects = []
        self.epoch = group.epoch
        """The group's epoch after the change."""

    def log(self, message: str, *arguments: object) -> None:
        """Add a line to the broker's log, about the group."""
        self.lines.append(log_line(f"[GroupId %s] {message}", self.group.group_id, *arguments))

    def begin_epoch(self, topics: TopicCounts, *, only_if_topics_changed: bool) -> int | None:
        """Begin the group's next epoch; returns the hash of its topics for the record, or None if there is no epoch."""
        state = self.group.state
        topics_hash = metadata_hash(topics, self.core.topics)
        is_new = not only_if_topics_changed or topics_hash != state.metadata_hash
        if is_new:
            self.epoch = state.epoch + 1
            self.log("Bumped group epoch to %d with metadata hash %d.", self.epoch, topics_hash)
        state.compared_topics(self.now, self.epoch)
        return topics_hash if is_new else None

    def may_assign(self, setting: str, default_ms: int) -> bool:
        """Whether the interval since the last assignment, the group's `setting`, has elapsed."""
        core = self.core
        default_ms = group_setting(core.image.config(BROKER, ""), f"group.{setting}", default_ms)
        interval_ms = group_setting(core.overrides(self.group.group_id), setting, default_ms)
        return may_assign_again(self.group.target.timestamp_ms, interval_ms, self.now.wall_ms)
