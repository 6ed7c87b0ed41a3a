"""Decides why a group makes no progress, from samples. Pure functions.

The protocol shows members, their assignments, committed offsets, and the ends of logs. It shows neither fetches nor
refused commits. A member whose position stays while it remains in the group may therefore not poll, work on one record
for long, or not commit. The texts say so instead of guessing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ottla.clients import admin as api
from ottla.clients.errors import NotAuthorized, TopicAuthorizationFailed
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.tools.why.model import Finding, GroupReport, PartitionRow, by_severity
from ottla.tools.why.samples import Observation

_REBALANCING: Final = (api.GroupState.PREPARING_REBALANCE, api.GroupState.COMPLETING_REBALANCE)
_AUTO_COMMIT_S: Final = 5.0
"""The default of auto.commit.interval.ms: a shorter observation may see no commit of a member that reads."""


@dataclass(frozen=True)
class Members:
    """The members over all samples. `changes` counts the samples whose members or epochs differ from the previous."""

    steady: frozenset[str]
    passing: tuple[api.GroupMember, ...]
    changes: int

    @classmethod
    def of(cls, descriptions: Sequence[api.GroupDescription]) -> Members:
        """Compare the members of all samples."""
        by_id = {member.member_id: member for each in descriptions for member in each.members}
        ids = [frozenset(member.member_id for member in each.members) for each in descriptions]
        steady = frozenset.intersection(*ids)
        changes = sum(
            before != after or one.epoch != other.epoch
            for (before, after), (one, other) in zip(pairwise(ids), pairwise(descriptions), strict=True)
        )
        return cls(steady, tuple(member for name, member in by_id.items() if name not in steady), changes)

    @property
    def are_looping(self) -> bool:
        """Whether members came and went repeatedly: one change may be a deployment."""
        return self.changes > 1 and bool(self.passing)

    def named(self) -> str:
        """The members that came or went, by client id and host."""
        places = sorted({f"{each.client_id} on {each.host.removeprefix('/')}" for each in self.passing})
        return ", ".join(places[:3]) + (f" and {len(places) - 3} more" if len(places) > 3 else "")


def explain(seen: Observation) -> GroupReport:
    """Return the report about a group."""
    members = Members.of(seen.descriptions)
    partitions = sorted({*seen.last.positions, *seen.last.ends, *seen.last.errors})
    drafts = [_draft(seen, partition) for partition in partitions]
    stuck = [each for each in drafts if each.unmoved_s is not None]
    rows, findings = [], _of_group(seen, members)
    for row in drafts:
        finding = _of_partition(seen, row, members, alone=len(stuck) == 1)
        rows.append(PartitionRow(**{**row.__dict__, "code": finding.code}))
        if finding.severity != "ok" and finding not in findings:
            findings.append(finding)
    if not findings:
        findings.append(_at_rest(seen))
    now = seen.descriptions[-1]
    watched_s = (seen.last.at_ms - seen.first.at_ms) / 1000
    return GroupReport(
        seen.group,
        now.type.value,
        now.state.value,
        len(now.members),
        watched_s,
        by_severity(findings),
        tuple(rows),
    )


def _at_rest(seen: Observation) -> Finding:
    """Return the finding about a group without trouble."""
    now = seen.descriptions[-1]
    if now.members:
        return Finding("ok", seen.group, "The group has read every record.", "", "ok")
    state = _stopped(now)
    cause = f"The group is {state}: it has no members, and no records to read."
    return Finding(f"group_{state}", seen.group, cause, "", "info")


def _stopped(group: api.GroupDescription) -> str:
    return "dead" if group.state is api.GroupState.DEAD else "empty"


def _draft(seen: Observation, partition: TopicPartition) -> PartitionRow:
    """Return the row of a partition without its cause."""
    first, last = seen.first, seen.last
    position, end = last.positions.get(partition), last.ends.get(partition)
    lag = max(0, end - position) if position is not None and end is not None else None
    lag = last.share_lags.get(partition, lag)
    seconds = (last.at_ms - first.at_ms) / 1000
    moved = _difference(first.positions, last.positions, partition)
    written = _difference(first.ends, last.ends, partition)
    is_unmoved = bool(lag) and moved == 0 and last.share_lags.get(partition) == first.share_lags.get(partition)
    reader = _reader(seen.descriptions[-1], partition)
    record = seen.records.get(partition)
    return PartitionRow(
        *partition,
        member=reader.member_id if reader else None,
        client=reader.client_id if reader else None,
        host=reader.host.removeprefix("/") if reader else None,
        position=position,
        start=last.starts.get(partition),
        end=end,
        stable_end=last.stable_ends.get(partition),
        lag=lag,
        lag_s=max(0.0, (last.at_ms - record.timestamp_ms) / 1000) if record and record.timestamp_ms >= 0 else None,
        read_per_s=moved / seconds if moved is not None and seconds > 0 else None,
        written_per_s=written / seconds if written is not None and seconds > 0 else None,
        unmoved_s=seconds if is_unmoved else None,
        record=record,
        code="",
    )


def _difference(
    first: Mapping[TopicPartition, int], last: Mapping[TopicPartition, int], partition: TopicPartition
) -> int | None:
    return last[partition] - first[partition] if partition in first and partition in last else None


def _reader(group: api.GroupDescription, partition: TopicPartition) -> api.GroupMember | None:
    if group.type is api.GroupType.SHARE:  # several members read a partition
        return None
    return next((each for each in group.members if partition in each.assignment), None)


def _of_group(seen: Observation, members: Members) -> list[Finding]:
    """Return the findings about the group as a whole."""
    now, name = seen.descriptions[-1], seen.group
    found = list(_fenced(seen))
    if members.are_looping and not found:
        epochs = [each.epoch for each in (seen.descriptions[0], now) if each.epoch is not None]
        grew = f" Its epoch grew from {epochs[0]} to {epochs[1]}." if len(epochs) == 2 else ""
        cause = (
            f"The group rebalances again and again: members changed in {members.changes} of "
            f"{len(seen.descriptions) - 1} samples.{grew} These come and go: {members.named()}."
        )
        step = "Read their logs: they crash, or exceed max.poll.interval.ms or session.timeout.ms."
        found.append(Finding("rebalance_loop", name, cause, step, "critical"))
    if len(seen.descriptions) > 1 and all(each.state in _REBALANCING for each in seen.descriptions):
        cause = "The rebalance does not complete: a member has not joined again, and the others wait for it."
        step = "It has until max.poll.interval.ms. A member that works on one record for long is the usual cause."
        found.append(Finding("rebalance_waits", name, cause, step, "critical"))
    return [*found, *_unreconciled(seen)]


def _fenced(seen: Observation) -> list[Finding]:
    """Find static members whose instance id two processes use: each fences the other."""
    ids: dict[str, list[api.GroupMember]] = {}
    for each in seen.descriptions:
        for member in each.members:
            if member.instance_id is not None:
                known = ids.setdefault(member.instance_id, [])
                if member.member_id not in [one.member_id for one in known]:
                    known.append(member)
    found = []
    for instance, members in ids.items():
        if len(members) > 2:
            hosts = ", ".join(sorted({f"{one.client_id} on {one.host.removeprefix('/')}" for one in members}))
            cause = f"{len(members)} members used group.instance.id {instance}, and each fenced the previous: {hosts}."
            step = "Give each process a group.instance.id of its own."
            found.append(Finding("fenced", seen.group, cause, step, "critical"))
    return found


def _unreconciled(seen: Observation) -> list[Finding]:
    """Find members that stay behind the epoch of their group: they do not give up partitions."""
    first, now = seen.descriptions[0], seen.descriptions[-1]
    if first is now or now.epoch is None or first.epoch != now.epoch:
        return []
    behind = {each.member_id for each in first.members if each.epoch is not None and each.epoch < now.epoch}
    found = []
    for member in now.members:
        if member.member_id in behind and member.epoch is not None and member.epoch < now.epoch:
            kept = sorted(set(member.assignment) - set(member.target or ()))
            what = f" It still has {', '.join(map(str, kept[:3]))}." if kept else ""
            place = f"{member.client_id} on {member.host.removeprefix('/')}"
            cause = f"{place} stays at epoch {member.epoch} while the group is at {now.epoch}.{what}"
            step = "It must poll to reconcile; after its rebalance timeout the broker fences it."
            found.append(Finding("reconciling", seen.group, cause, step, "warning"))
    return found


def _of_partition(seen: Observation, row: PartitionRow, members: Members, *, alone: bool) -> Finding:
    """Return the cause of one partition; `alone` if no other partition is stuck."""
    subject = f"{row.topic}-{row.partition}"
    for check in (_unreadable, _outside_the_log, _held_by_a_transaction, _without_member):
        if finding := check(seen, row, subject):
            return finding
    if not row.lag:
        return Finding("caught_up", subject, "Every record is read.", "", "ok")
    if row.unmoved_s is None:
        return _moving(row, subject)
    if seen.descriptions[-1].type is api.GroupType.SHARE:
        cause = f"No record was acknowledged for {row.unmoved_s:.0f} s, and {units.count(row.lag)} wait."
        step = "Members keep records locked, or release them again: read their logs."
        return Finding("not_acknowledged", subject, cause, step, "critical")
    if members.are_looping:
        return _in_a_loop(seen, row, members, alone=alone)
    return _not_polling(row, subject, members)


def _unreadable(seen: Observation, row: PartitionRow, subject: str) -> Finding | None:
    error = seen.last.errors.get(TopicPartition(row.topic, row.partition))
    if error is None:
        return None
    if isinstance(error, (NotAuthorized, TopicAuthorizationFailed)):
        cause = f"You may not describe the topic {row.topic}, so its ends are unknown."
        step = f"ottla security acl add USER topic:{row.topic} --operation describe"
        return Finding("not_authorized", subject, cause, step, "warning")
    cause = f"The partition cannot be read: {' '.join(str(error).split())}"
    step = f"ottla group delete {seen.group} --topic {row.topic} deletes offsets of a deleted topic."
    return Finding("partition_unreadable", subject, cause, step, "warning")


def _outside_the_log(seen: Observation, row: PartitionRow, subject: str) -> Finding | None:
    if row.position is None or row.start is None or row.end is None:
        return None
    if row.position < row.start:
        lost = units.count(row.start - row.position)
        cause = f"The position {row.position:,} is before the log's start {row.start:,}: {lost} records were deleted."
        step = (
            f"auto.offset.reset decides where members continue. Or choose: ottla group reset {seen.group} "
            f"--topic {row.topic}:{row.partition} --to-earliest --execute"
        )
        return Finding("behind_retention", subject, cause, step, "critical")
    if row.position > row.end:
        cause = f"The position {row.position:,} is after the log's end {row.end:,}: the topic was recreated or cut."
        step = f"ottla group reset {seen.group} --topic {row.topic}:{row.partition} --to-latest --execute"
        return Finding("beyond_the_end", subject, cause, step, "critical")
    return None


def _held_by_a_transaction(seen: Observation, row: PartitionRow, subject: str) -> Finding | None:
    partition = TopicPartition(row.topic, row.partition)
    held = row.stable_end is not None and row.end is not None and row.stable_end < row.end
    if not held or row.position != row.stable_end:
        return None
    holder = seen.transactions.get(partition)
    if holder is None:
        cause = f"An open transaction holds back readers with read_committed at {row.stable_end:,}."
        return Finding("open_transaction", subject, cause, f"ottla txn find-hanging {row.topic}", "warning")
    age = "" if holder.start_ms is None else f", open for {units.duration(max(0, seen.last.at_ms - holder.start_ms))}"
    whose = f"producer {holder.producer_id}"
    if holder.transactional_id is not None:
        whose = f"transactional id {holder.transactional_id} ({whose})"
    cause = f"An open transaction of {whose}{age} holds back readers with read_committed at {row.stable_end:,}."
    if holder.mirror is not None:
        cause = f"{cause} It belongs to the source of mirror {holder.mirror}, which copies its end, too."
        step = (
            f"End it at the source. ottla mirror promote {holder.mirror} {row.topic} aborts it here, and ends the copy."
        )
        return Finding("open_transaction", subject, cause, step, "warning")
    if holder.timeout_ms is None:
        step = f"ottla txn abort {row.topic}/{row.partition} --start-offset {row.stable_end} (it hangs: KIP-664)"
        return Finding("hanging_transaction", subject, cause, step, "critical")
    step = (
        f"Its coordinator aborts it {units.duration(holder.timeout_ms)} after its start. "
        f"At once: ottla txn abort --transactional-id {holder.transactional_id}"
    )
    return Finding("open_transaction", subject, cause, step, "critical")


def _without_member(seen: Observation, row: PartitionRow, subject: str) -> Finding | None:
    now = seen.descriptions[-1]
    if row.position is None and row.member is not None:
        cause = f"{row.client} on {row.host} is assigned, and has not committed an offset yet."
        step = "Wait for its first commit. auto.offset.reset decides where it starts."
        return Finding("nothing_committed", subject, cause, step, "info")
    if now.type is api.GroupType.SHARE and now.members and row.position is None:
        cause = "No member has acknowledged a record yet."
        return Finding("nothing_committed", subject, cause, "", "info")
    if not row.lag or now.members or Members.of(seen.descriptions).are_looping:
        return None
    cause = f"The group is {_stopped(now)}: no member reads the {units.count(row.lag)} records that wait."
    return Finding("no_member", subject, cause, "Start the group's consumers.", "critical")


def _moving(row: PartitionRow, subject: str) -> Finding:
    read, written = row.read_per_s or 0.0, row.written_per_s or 0.0
    rates = f"reads {units.rate(read)} records, and {units.rate(written)} are written"
    who = f"{row.client} on {row.host}" if row.member else "The group"
    if row.read_per_s is None:
        return Finding("started", subject, f"{who} has committed its first offset just now.", "", "info")
    if written > read:
        cause = f"{who} {rates}: the lag grows."
        step = "Add members, up to one for each partition, or make the processing of a record faster."
        return Finding("slower_than_input", subject, cause, step, "warning")
    left = f", {units.duration(1000 * (row.lag or 0) / (read - written))} remain" if read > written else ""
    return Finding("catching_up", subject, f"{who} {rates}{left}.", "", "info")


def _in_a_loop(seen: Observation, row: PartitionRow, members: Members, *, alone: bool) -> Finding:
    """Tell a record that its readers fail at from a group that rebalances too often to read."""
    subject = f"{row.topic}-{row.partition}"
    partition = TopicPartition(row.topic, row.partition)
    owners = {m.member_id for each in seen.descriptions for m in each.members if partition in m.assignment}
    if not alone or owners & members.steady:
        cause = f"The position stays at {row.position} while the group rebalances: {members.named()} come and go."
        return Finding("rebalance_loop", subject, cause, "Read the logs of these members.", "critical")
    cause = (
        f"The position stays at offset {row.position} while its members come and go ({members.named()}), and no other "
        "partition is stuck: they fail at this record, or need more than max.poll.interval.ms for it."
    )
    step = (
        f"Read their logs. To go on without the record: stop the members, then ottla group skip {seen.group} "
        f"{row.topic}/{row.partition}@{row.position} --to DLQ-TOPIC"
    )
    return Finding("poison_record", subject, cause, step, "critical")


def _not_polling(row: PartitionRow, subject: str, members: Members) -> Finding:
    if row.member is None:
        cause = f"The group has members, but none is assigned this partition; {units.count(row.lag)} records wait."
        step = "Subscribe a member to the topic, or delete the group's offsets for it."
        return Finding("not_assigned", subject, cause, step, "critical")
    seconds = row.unmoved_s or 0.0
    if row.member not in members.steady:
        cause = f"{row.client} on {row.host} was assigned during the observation, and has not committed yet."
        return Finding("rebalanced", subject, cause, "Observe again: --watch 30", "info")
    cause = (
        f"{row.client} on {row.host} stayed in the group with its heartbeats, but its position did not move for "
        f"{seconds:.0f} s: it does not poll, works on one record for long, or its commits fail. The protocol shows no "
        "fetches and no refused commits."
    )
    if seconds <= _AUTO_COMMIT_S:
        return Finding("not_moving", subject, cause, "Observe for longer than auto.commit.interval.ms (5 s).", "info")
    step = "Read the member's log, and take a stack dump of its process. It leaves the group at max.poll.interval.ms."
    return Finding("not_polling", subject, cause, step, "critical")
