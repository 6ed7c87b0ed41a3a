"""Checks before the clients of a source move to the target of a mirror, and what happens at the source meanwhile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from ottla.clients.admin import Admin, ConfigResource, GroupListing, GroupState, OffsetSpec
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.mirror_verification import Side, comparison, ranges_of
from ottla.tools.admin.mirrors import STALE_MS, UNKNOWN, MirrorReport, named, unreported
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.topic_facts import copied_topics

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"
QUIET_S: Final = 2.0
"""How long no end offset of the source moves when its producers have stopped."""
_POLL_S: Final = 0.2
_VALIDATION: Final = ("confluent.key.schema.validation", "confluent.value.schema.validation")
MODE: Final = "ottla.schema.validation.mode"
LETTERS: Final = "ottla.schema.validation.dlq.topic"
REGISTRY: Final = "confluent.schema.registry.url"
_MOST_NAMES: Final = 5


class Check(NamedTuple):
    """One condition of a switch. With a `PROBLEM`, nothing is changed."""

    check: str
    result: str
    text: str


def check_copy(report: MirrorReport, partitions: Sequence[TopicPartition], max_lag: int) -> list[Check]:
    """Whether the source is connected, each topic follows, and the copy has nearly all records."""
    found = [Check("source", PROBLEM, f"broker {node}: {text}") for node, text in report.problems.items()]
    found = found or [Check("source", OK, "each broker reaches it")]
    topics = [Check("topics", PROBLEM, f"{name}: {text}") for name, text in report.topics.items()]
    found += topics or [Check("topics", OK, f"{len({each.topic for each in partitions})} topics follow")]
    names = {each.topic for each in partitions}
    rows = [row for row in report.partitions if row["topic"] in names]
    missing = unreported(partitions, rows)
    if missing:
        found.append(Check("partitions", PROBLEM, f"without a leader: {_some(missing)}"))
    # The copy of others has ended already, in a switch that was interrupted.
    copied = [row for row in rows if row["state"] != "STOPPING"]
    stuck = named(row for row in copied if row["state"] != "MIRRORING" or row["problem"] or _is_silent(row))
    if stuck:
        found.append(Check("partitions", PROBLEM, f"not copied now: {_some(stuck)}"))
    lag = max((row["lag"] for row in copied), default=0)
    text = f"{len(partitions)} partitions, at most {max(lag, 0)} records behind"
    found.append(Check("lag", PROBLEM if lag > max_lag else OK, text))
    for name in ("truncated", "skipped"):
        count = sum(row.get(name, 0) for row in rows)
        if count:
            found.append(Check(name, WARNING, f"{count} records: `ottla mirror why` has the partitions"))
    return found


def _is_silent(row: dict[str, Any]) -> bool:
    return not 0 <= row.get("age_ms", UNKNOWN) <= STALE_MS


def check_groups(report: MirrorReport, pattern: str, groups: Iterable[GroupListing]) -> list[Check]:
    """Whether the committed offsets of the source's `groups` are copied, and which groups still have members."""
    if not pattern:
        return [Check("groups", WARNING, "their offsets are not copied: `ottla mirror alter --groups`")]
    found = [
        Check("groups", WARNING, f"offsets of {name} are not copied: {text}") for name, text in report.groups.items()
    ]
    if report.groups_age_ms == UNKNOWN:
        found.append(Check("groups", PROBLEM, "their offsets are not copied yet"))
    elif not report.groups_found:
        text = "none that the pattern matches is visible: check it, and the right DESCRIBE on groups at the source"
        found.append(Check("groups", WARNING, text))
    else:
        count = "" if report.groups_found < 0 else f" of groups ({report.groups_found})"
        found.append(Check("groups", OK, f"offsets{count} were copied {report.groups_age_ms / 1000:.1f} s ago"))
    if active := active_groups(pattern, groups):
        found.append(Check("groups", WARNING, f"with members at the source, to be stopped: {active}"))
    return found


def active_groups(pattern: str, groups: Iterable[GroupListing]) -> str:
    """The names of those groups of the source with members whose offsets are copied; empty if there are none."""
    inactive = (GroupState.EMPTY, GroupState.DEAD)
    return _some(
        [each.group_id for each in groups if re.fullmatch(pattern, each.group_id) and each.state not in inactive]
    )


def check_schemas(target: Admin, topics: Sequence[str]) -> list[Check]:
    """Whether the target can check the records of those topics that have schema validation.

    The settings are copied, but neither the registry of the brokers nor always the topic for dead letters.
    """
    found = target.describe_configs(
        [ConfigResource.topic(name) for name in topics], names=[*_VALIDATION, MODE, LETTERS]
    )
    settings = {resource.name: {name: entry.value for name, entry in own.items()} for resource, own in found.items()}
    validated = [
        name
        for name, own in settings.items()
        if "true" in [own.get(each) for each in _VALIDATION] and own.get(MODE) != "warn"
    ]
    if not validated:
        return []
    nodes = [ConfigResource.broker(each.node_id) for each in target.describe_cluster().brokers]
    described, errors = outcomes(target.describe_configs, nodes, names=[REGISTRY])
    if errors:
        why = next(iter(errors.values()))
        return [Check("schemas", WARNING, f"the registry of the brokers for {_some(validated)} is unknown: {why}")]
    without = [node.name for node in nodes if not (REGISTRY in described[node] and described[node][REGISTRY].value)]
    if without:
        text = f"{REGISTRY} is not set on {_some(without)}, which would refuse all records of {_some(validated)}"
        return [Check("schemas", PROBLEM, f"brokers: {text}")]
    letters = {str(settings[name].get(LETTERS)) for name in validated if settings[name].get(MODE) == "dlq"}
    missing = letters - {each.name for each in target.list_topics()}
    unwritable = sorted(missing | copied_topics(target, letters - missing).keys() - {*topics})
    if unwritable:
        text = f"topics for dead letters that do not exist, or are copies: {_some(unwritable)}"
        return [Check("schemas", WARNING, f"{text}; batches with invalid records will be refused")]
    return [Check("schemas", OK, f"the brokers have a registry for {_some(validated)}")]


def check_last_records(
    source: Admin, target: Admin, keys: Mapping[TopicPartition, TopicPartition], count: int
) -> Check:
    """Whether the last `count` offsets of each partition that both clusters have are equal byte for byte.

    `keys` are the partitions of the target with their names at the source.
    """
    different, size = [], 0
    for key, both in ranges_of(source, target, keys).items():
        compared = comparison(Side(source, keys[key]), Side(target, key), both)
        compared.run(max(both.start, both.end - count), both.end, lambda _offsets, _bytes: None)
        size += compared.size
        if compared.differing:
            different.append(str(key))
    if different:
        return Check("verify", PROBLEM, f"differ: {_some(different)}; `ottla mirror verify` has the offsets")
    return Check("verify", OK, f"{size} bytes at the ends of the partitions are equal")


def wait_for_producers(
    source: Admin,
    partitions: Sequence[TopicPartition],
    wait_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Wait until no partition of the source grows and none has an open transaction; return when the last one grew.

    Times are of `clock`. Raises Failure after `wait_s` seconds.
    """
    deadline_s, moved_s, known = clock() + wait_s, clock(), _ends(source, partitions)
    while True:
        sleep(_POLL_S)
        now_s, ends = clock(), _ends(source, partitions)
        moving = [str(key) for key in partitions if ends[key] != known[key]]
        if moving:
            moved_s, known = now_s, ends
        stable = source.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), read_committed=True)
        unstable = [str(key) for key in partitions if stable[key].offset < ends[key]]
        if now_s - moved_s >= QUIET_S and not unstable:
            return moved_s
        if now_s >= deadline_s:
            text = f"have open transactions: {_some(unstable)}" if unstable else f"grow: {_some(moving)}"
            raise Failure(
                f"partitions of the source still {text}" if unstable or moving else "the source was not quiet for long",
                "Stop the producers, and run it again; nothing was changed.",
            )


def late_records(
    source: Admin, target: Admin, keys: Mapping[TopicPartition, TopicPartition]
) -> dict[TopicPartition, int]:
    """How many records the source has got in each partition after the end of the copy; `keys` as above."""
    found = source.list_offsets(dict.fromkeys(keys.values(), OffsetSpec.LATEST))
    theirs = {key: found[other] for key, other in keys.items() if found[other].leader_epoch >= 0}
    # Records of the target have later leader epochs.
    copied = target.ends_of_epochs({key: each.leader_epoch for key, each in theirs.items()}) if theirs else {}
    late = {key: each.offset - copied[key].end_offset for key, each in theirs.items() if copied[key].end_offset >= 0}
    return {key: count for key, count in late.items() if count > 0}


def _ends(admin: Admin, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    found = admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST))
    return {key: each.offset for key, each in found.items()}


def _some(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
