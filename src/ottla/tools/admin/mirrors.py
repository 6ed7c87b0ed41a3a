"""The state of a mirror from the reports of all brokers: what is ready, and why something is not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ottla.common import units
from ottla.metadata.mirrors import UNHANDLED, is_read_only_state

UNKNOWN: Final = -1
STALE_MS: Final = 30_000
_LEADERLESS: Final = {
    "state": "FAILED",
    "lag": UNKNOWN,
    "problem": (
        "The partition has no leader in this cluster; `ottla cluster why` names the brokers to start or the log "
        "directories to repair"
    ),
}


class Finding(NamedTuple):
    """Why a mirror makes no progress, and what to do."""

    subject: str
    text: str
    next_step: str


class MirrorReport(NamedTuple):
    """A mirror: the rows of its partitions by topic and partition, and problems."""

    partitions: list[dict[str, Any]]
    problems: dict[int, str]
    """Of the connection to the source, by broker."""
    topics: dict[str, str]
    groups: dict[str, str]
    acls: dict[int, str]
    """Why access rules are not copied, by broker."""
    groups_age_ms: int
    """How long ago the slowest broker had copied the offsets of its groups; -1 if one of them has not yet."""
    groups_found: int = UNKNOWN
    """How many groups of the source are copied; -1 if no broker has listed them."""
    throttling: Mapping[int, Mapping[str, Any]] = MappingProxyType({})
    """The limit of each broker that has one, its rate, and whether it delays fetches."""

    @classmethod
    def of(cls, statuses: Mapping[int, Mapping[str, Any]]) -> MirrorReport:
        """Combine the reports of the brokers."""
        rows = [{**row, "leader": node} for node, each in statuses.items() for row in each["partitions"]]
        reported = {(row["topic"], row["partition"]) for row in rows}
        leaderless = {(topic, index) for each in statuses.values() for topic, index in each.get("leaderless", ())}
        rows += [{"topic": topic, "partition": index, **_LEADERLESS} for topic, index in leaderless - reported]
        ages = [each.get("groups_age_ms", UNKNOWN) for each in statuses.values()]
        return cls(
            sorted(rows, key=lambda row: (row["topic"], row["partition"])),
            {node: each["problem"] for node, each in statuses.items() if each.get("problem")},
            {name: text for each in statuses.values() for name, text in each["topics"].items()},
            {name: text for each in statuses.values() for name, text in each.get("group_errors", {}).items()},
            {node: each["acls"] for node, each in statuses.items() if each.get("acls")},
            UNKNOWN if UNKNOWN in ages else max(ages, default=UNKNOWN),
            max((each.get("groups_found", UNKNOWN) for each in statuses.values()), default=UNKNOWN),
            {node: each["throttling"] for node, each in statuses.items() if each.get("throttling")},
        )


def behind(rows: Iterable[Mapping[str, Any]], since_ms: int) -> list[Mapping[str, Any]]:
    """The partitions without all records of an answer of the source that is younger than `since_ms`.

    They must be committed: the next leader does not copy any more, and may lack the last records of this one.
    """

    def is_behind(row: Mapping[str, Any]) -> bool:
        is_complete = row["lag"] == 0 and row["committed"] == row["end"] and not row["problem"]
        return not is_complete or not 0 <= row.get("age_ms", UNKNOWN) <= since_ms

    return [row for row in rows if is_behind(row)]


def unready(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The partitions whose copy has not ended: with producers of the source, or uncommitted markers."""
    return [row for row in rows if row["state"] != "STOPPING" or row["producers"] or row["committed"] != row["end"]]


def named(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of partitions."""
    return [f"{row['topic']}-{row['partition']}" for row in rows]


def awaited(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of partitions for whose last records a promotion waits, and why."""
    return [f"{name}{_delay(row)}" for row in rows for name in named([row])]


def _delay(row: Mapping[str, Any]) -> str:
    if row["problem"]:
        return f" ({row['problem'].partition('; ')[0]})"
    return f" ({row['lag']} records behind)" if row["lag"] > 0 else ""


def unreported(partitions: Iterable[tuple[str, int]], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of partitions that no broker reports: they have no leader, or it has not followed yet."""
    seen = {(row["topic"], row["partition"]) for row in rows}
    return [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in seen]


def losses(rows: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """The records that an unplanned promotion loses: by partition, and together for those that had all records."""
    found, complete = [], []
    for row in rows:
        if row["lag"] or row.get("age_ms", UNKNOWN) < 0:
            found.append((f"{row['topic']}-{row['partition']}", _missing_records(row)))
        else:
            complete.append(row)
    if complete:
        age_ms = max(row["age_ms"] for row in complete)
        count = f"{len(complete)} {'other partitions' if found else 'partitions'}"
        found.append((count, f"no records were missing {age_ms / 1000:.1f} s ago; later ones are missing"))
    return found


def _missing_records(row: Mapping[str, Any]) -> str:
    age_ms = row.get("age_ms", UNKNOWN)
    if row["lag"] < 0 or age_ms < 0:
        return "the source has not answered its leader, so that the number of missing records is unknown"
    return f"{row['lag']} records are missing, and all of the last {age_ms / 1000:.1f} s"


class Missing(NamedTuple):
    """The records of the source that a partition does not have after an unplanned promotion."""

    topic: str
    partition: int
    records: int
    """How many the source had at its last answer; -1 if that is unknown."""
    offset: int
    """The offset of the first one at the source."""

    @property
    def text(self) -> str:
        """The loss in words."""
        if self.records == UNKNOWN:
            return f"records of the source from offset {self.offset} on are missing; their number is unknown"
        return f"{self.records} records are missing, from offset {self.offset} of the source on, and all later ones"


def missing(before: Iterable[Mapping[str, Any]], after: Iterable[Mapping[str, Any]]) -> list[Missing]:
    """The records that an unplanned promotion has lost, by partition; partitions without a known loss are omitted.

    `before` are the last reports of the copy, and `after` the reports of its end. A leader whose last records were not
    replicated may have been lost in between: the copy then ends before the end that it has reported. A new leader that
    the source has not answered knows less than an earlier report.
    """
    answered = (row for row in before if row.get("age_ms", UNKNOWN) >= 0 and row.get("source_end", UNKNOWN) >= 0)
    known, ends = _by_partition(answered), _by_partition(after)
    found = []
    for key, row in ends.items():
        end = row.get("copy_end", UNKNOWN)
        records = max(known[key]["source_end"] - end, 0) if key in known and end >= 0 else UNKNOWN
        if records:
            found.append(Missing(*key, records, end))
    return sorted(found)


def _by_partition(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, int], Mapping[str, Any]]:
    """The reports by topic and partition; of two leaders, the later one counts."""
    by_epoch = sorted(rows, key=lambda row: row.get("leader_epoch", UNKNOWN))
    return {(row["topic"], row["partition"]): row for row in by_epoch}


def explain(report: MirrorReport, mirror: str) -> list[Finding]:
    """Return why the mirror of this name makes no progress; empty if it does."""
    found = [_of_broker(node, text) for node, text in report.problems.items()]
    found += [
        _advised(f"topic {name}", text, "`ottla mirror alter --topics` excludes a topic that is not wanted")
        for name, text in report.topics.items()
    ]
    found += [
        _advised(
            f"group {name}",
            f"its offsets are not copied: {text}",
            "A group with members here is active here: its offsets are its own",
        )
        for name, text in report.groups.items()
    ]
    if not report.groups_found:
        text = "the source has no group that --groups matches, or its user has no right DESCRIBE on them"
        found.append(Finding("groups", text, f"`ottla mirror alter {mirror} --groups` changes the regular expression"))
    found += [
        _advised("access rules", text, "The copy needs DESCRIBE on the source's cluster; it is retried every minute")
        for text in report.acls.values()
    ]
    found += _throttled(report, mirror)
    found += _paused(report, mirror)
    found += _waiting_for_failback(report, mirror)
    for row in report.partitions:
        subject = f"{row['topic']}-{row['partition']}"
        if row["problem"]:
            found.append(_advised(subject, f"{row['state']}: {row['problem']}", "It is retried"))
        elif row["state"] == "MIRRORING" and row.get("age_ms", UNKNOWN) > STALE_MS:
            age_s = row["age_ms"] // 1000
            found.append(Finding(subject, f"the source has not answered for {age_s} s", "Check the link to the source"))
        if row.get("truncated"):
            text = f"{row['truncated']} offsets were dropped: the source does not have their records or markers"
            step = "After a failback, only this cluster had them; else look for an unclean election at the source"
            found.append(Finding(subject, text, step))
        if row.get("skipped"):
            text = f"{row['skipped']} offsets were skipped: the source had deleted them before they were copied"
            found.append(Finding(subject, text, "Raise the retention of the source"))
    return found


def without_topics(mirror: str, pattern: str, promoted: Sequence[str]) -> list[Finding]:
    """Why a mirror without problems copies nothing; `promoted` are its topics that are open already."""
    if promoted:
        text = f"no topic is copied any more: {len(promoted)} were promoted"
        step = (
            f"`ottla mirror stop {mirror}` deletes the mirror; `ottla mirror failback {mirror} TOPIC` copies one again"
        )
        return [Finding(f"mirror {mirror}", text, step)]
    if pattern:
        text = f"no topic of the source matches {pattern}, or its user has no right DESCRIBE on them"
        return [Finding(f"mirror {mirror}", text, "`ottla mirror alter --topics` changes the regular expression")]
    text = "it has no pattern of topics"
    return [Finding(f"mirror {mirror}", text, "`ottla mirror failback` or `ottla mirror alter --topics` adds topics")]


def _advised(subject: str, text: str, otherwise: str) -> Finding:
    """A finding whose text may end with its next step, behind a semicolon."""
    if UNHANDLED in text:
        return Finding(subject, text, "Report it, with the traceback in the log of the broker")
    problem, _, step = text.partition("; ")
    return Finding(subject, problem, step[:1].upper() + step[1:] or otherwise)


def _of_broker(node: int, text: str) -> Finding:
    advice = "Check that the source runs, then bootstrap.servers, the security settings, and the rights at the source"
    return _advised(f"broker {node}", text, advice)


def _throttled(report: MirrorReport, mirror: str) -> Iterator[Finding]:
    """The brokers whose limit is a cause of their lag."""
    for node, each in report.throttling.items():
        missing = sum(max(row["lag"], 0) for row in report.partitions if row.get("leader") == node)
        if each["is_delaying"] and missing:
            yield Finding(
                f"broker {node}",
                f"{missing} records behind, throttled: it fetches {units.size(each['rate'])}/s of at most "
                f"{units.size(each['limit'])}/s",
                f"`ottla mirror alter {mirror} --throttle RATE` raises the limit of each broker, "
                "`--throttle none` removes it",
            )


def _paused(report: MirrorReport, mirror: str) -> Iterator[Finding]:
    """The state of a mirror that was paused."""
    count = sum(row["state"] == "PAUSED" for row in report.partitions)
    if count:
        text = f"it is paused, and copies nothing into {count} partitions"
        yield Finding(f"mirror {mirror}", text, f"`ottla mirror resume {mirror}`")


def _waiting_for_failback(report: MirrorReport, mirror: str) -> Iterator[Finding]:
    """The topics that are read-only here and not copied yet."""
    for topic in dict.fromkeys(row["topic"] for row in report.partitions if row["state"] == "FAILBACK"):
        yield Finding(
            f"topic {topic}",
            "FAILBACK: it is read-only, and waits until the source has the same topic, open for writes",
            f"Promote it at the source, or open it here: `ottla mirror failback {mirror} {topic} --cancel`",
        )


class FailbackTopic(NamedTuple):
    """A topic of one cluster, as a failback compares it."""

    topic_id: str
    partitions: int
    state: str


def failback_problem(name: str, ours: FailbackTopic, source: FailbackTopic | None) -> tuple[str, str] | None:
    """Why a topic would wait for ever in FAILBACK, and the next step; None if it would not. `name` is the source's."""
    if source is None:
        return f"the source has no topic {name!r}", "Check --source-prefix and the rights at the source."
    if source.topic_id != ours.topic_id:
        return (
            f"topic {name!r} of the source is not a copy of it, since it has another id",
            "Copy the topic to the source first, with a mirror there.",
        )
    if is_read_only_state(source.state):
        return (
            f"topic {name!r} of the source is {source.state}, and so read-only too",
            "Promote it at the source first: `ottla mirror promote`.",
        )
    if source.partitions < ours.partitions:
        return (
            f"topic {name!r} of the source has {source.partitions} partitions, fewer than {ours.partitions} here",
            "Add the partitions at the source first: `ottla topic alter`.",
        )
    return None
