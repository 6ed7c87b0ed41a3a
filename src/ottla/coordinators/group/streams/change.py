"""The change of a streams group by one request: the records to write, and the next state of the member."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.coordinators.events import Moment
from ottla.coordinators.group.core import Core
from ottla.coordinators.group.modern import metadata_hash
from ottla.coordinators.group.modern.change import ModernChange
from ottla.coordinators.group.modern.settings import group_setting
from ottla.coordinators.group.streams import records as encode
from ottla.coordinators.group.streams.assignor import MemberSpec, StreamsSpec, SubtopologySpec, assign_stickily
from ottla.coordinators.group.streams.group import StreamsGroup
from ottla.coordinators.group.streams.member import MemberState, StreamsMember
from ottla.coordinators.group.streams.reconciliation import Goal, reconcile
from ottla.coordinators.group.streams.tasks import NOTHING, Tasks
from ottla.coordinators.group.streams.topics import ConfiguredTopology, Status, configure
from ottla.coordinators.group.streams.topology import StreamsTopology
from ottla.coordinators.group.timer_keys import Kind
from ottla.protocol.messages import streams_group_heartbeat as h

ASSIGNMENT_INTERVAL = "streams.assignment.interval.ms"
STANDBY_REPLICAS = "num.standby.replicas"
NOT_VALIDATED = -1


class Change(ModernChange[StreamsGroup]):
    """Records, log lines and statuses of one request for `group`, at the time `now`."""

    def __init__(self, core: Core, group: StreamsGroup, now: Moment) -> None:
        super().__init__(core, group, now)
        self.statuses: list[h.Status] = []
        self.has_compared = False
        """Whether the topics were compared with the topology."""

    def add_status(self, status: Status, detail: str) -> None:
        """Report a status to the member."""
        self.statuses.append(h.Status(status_code=status, status_detail=detail))

    def update_member(self, before: StreamsMember, after: StreamsMember) -> bool:
        """Write what a member says of itself; returns whether it is new or differs."""
        if before == after and after.member_id in self.group.members:
            return False
        self.records.append(encode.member_record(self.group.group_id, after))
        return True

    def configured(self, topology: StreamsTopology) -> tuple[ConfiguredTopology, int, bool]:
        """Return the topology with its topics, the hash of the topics, and whether the hash is new."""
        core, group, state = self.core, self.group, self.group.state
        topics_hash, is_new = state.metadata_hash, False
        if group.topology is None or group.configured is None or state.must_compare_topics(self.now):
            self.has_compared = True
            topics_hash = metadata_hash(topology.required_topics, core.topics)
            is_new = topics_hash != state.metadata_hash
            if is_new or group.configured is None or group.topology is None:
                group.configured = configure(topology, core.topics)
                group.endpoints.clear()
        return group.configured, topics_hash, is_new

    def next_epoch(self, topics_hash: int, validated: int, settings: Mapping[str, str]) -> None:
        """Write the group's next epoch."""
        self.epoch = self.group.epoch + 1
        self.records.append(encode.epoch_record(self.group, self.epoch, topics_hash, validated, settings))
        text = "Bumped streams group epoch to %d with metadata hash %d and validated topic epoch %d."
        self.log(text, self.epoch, topics_hash, validated)

    def settings(self) -> dict[str, str]:
        """The present settings of the assignor."""
        core = self.core
        default = core.config.streams.num_standby_replicas
        overrides = core.overrides(self.group.group_id)
        return {STANDBY_REPLICAS: str(group_setting(overrides, "streams.num.standby.replicas", default))}

    def advance(
        self,
        after: StreamsMember,
        reported: Tasks | None,
        configured: ConfiguredTopology,
        settings: Mapping[str, str],
    ) -> StreamsMember:
        """Assign tasks for the group's epoch if it is time, and bring the member closer to its target."""
        group = self.group
        target_epoch, target = group.target.epoch, group.target_of(after.member_id)
        interval_ms = self.core.config.streams.assignment_interval_ms
        if self.core.timers.deadline((Kind.ASSIGNMENT, group.group_id, "")) is not None:
            detail = "Assignment delayed due to the configured initial rebalance delay."
            self.add_status(Status.ASSIGNMENT_DELAYED, detail)
            target = NOTHING
        elif self.epoch > target_epoch and self.may_assign(ASSIGNMENT_INTERVAL, interval_ms):
            target_epoch, targets = self.epoch, self.assign(after, configured, settings)
            target = targets[after.member_id]
        elif self.epoch > target_epoch:
            detail = "Assignment delayed due to the configured assignment interval."
            self.add_status(Status.ASSIGNMENT_DELAYED, detail)
        if after.is_reconciled(target_epoch):
            return after
        moved = reconcile(after, Goal(group, target_epoch, target, reported))
        if moved != after:
            self.records.append(encode.current_record(group.group_id, moved))
            self._watch_revocation(moved)
        return moved

    def assign(
        self, after: StreamsMember | None, configured: ConfiguredTopology, settings: Mapping[str, str]
    ) -> dict[str, Tasks]:
        """Compute and write the target assignment of the group's epoch; no tasks if the topics are not as needed."""
        group = self.group
        members = {**group.members, **({} if after is None else {after.member_id: after})}
        targets = dict.fromkeys(members, NOTHING)
        if configured.is_ready and configured.subtopologies is not None:
            specs = {name: MemberSpec(m.process_id, group.target_of(name)) for name, m in members.items()}
            rows = configured.subtopologies.items()
            subtopologies = {name: SubtopologySpec(row.tasks, bool(row.changelogs)) for name, row in rows}
            replicas = int(settings.get(STANDBY_REPLICAS, "0"))
            targets = assign_stickily(StreamsSpec(specs, subtopologies, replicas))
        for name, target in targets.items():
            if target != group.targets.get(name):
                self.records.append(encode.target_record(group.group_id, name, target))
        self.records.append(encode.TYPES.target_epoch_record(group.group_id, self.epoch, self.now.wall_ms))
        self.log("Computed a new target assignment for epoch %d with 'sticky' assignor.", self.epoch)
        return targets

    def _watch_revocation(self, member: StreamsMember) -> None:
        """Limit the time that a member has for giving up tasks."""
        key = (Kind.REBALANCE, self.group.group_id, member.member_id)
        if member.state is MemberState.UNREVOKED_TASKS:
            self.core.timers.set(key, self.now.monotonic_ms + member.rebalance_timeout_ms)
        else:
            self.core.timers.cancel(key)
