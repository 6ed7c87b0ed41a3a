"""Decides what is wrong with a cluster, from two samples. Pure functions.

The protocol does not show a controlled shutdown, and a follower's own lag is always 0 in DescribeLogDirs. So the size
of a replica is compared with the size of its leader, and the texts say what the evidence is.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla.clients import admin as api
from ottla.common import units
from ottla.common.ids import TopicPartition
from ottla.metadata.features import METADATA_VERSION_NAMES
from ottla.tools.admin.leaderless import way_out
from ottla.tools.why.cluster_samples import MIN_ISR, MOVED, RATES, ClusterObservation
from ottla.tools.why.model import ClusterReport, Finding, Severity, by_severity

_SHOWN: Final = 3
_BEHIND_MS: Final = 5_000
"""A voter whose last full fetch is older than this is behind: it fetches twice a second or more often."""
_IMBALANCE: Final = 0.1
"""leader.imbalance.per.broker.percentage: the share above which a controller would elect preferred leaders."""
_FULL, _NEARLY_FULL = 0.05, 0.15
_VERSION: Final = "metadata.version"


class Partition(NamedTuple):
    """A partition with its name."""

    name: TopicPartition
    at: api.PartitionDescription


def explain(seen: ClusterObservation) -> ClusterReport:
    """Return the report about a cluster."""
    last = seen.last
    partitions = [
        Partition(TopicPartition(name, each.partition), each)
        for name, topic in sorted(last.topics.items())
        for each in topic.partitions
    ]
    rules = (_quorum, _brokers, _offline, _under_min_isr, _replicas, _moves, _balance, disk_findings, _versions)
    findings = [finding for rule in rules for finding in rule(seen, partitions)]
    controller = last.quorum.leader if last.quorum is not None else last.cluster.controller
    return ClusterReport(
        last.cluster.cluster_id,
        controller if controller is not None and controller >= 0 else None,
        len(last.cluster.brokers),
        seen.seconds,
        by_severity(findings),
        {**last.unknown, **seen.unknown},
    )


# -- controllers and brokers -------------------------------------------------------------------------------------


def _quorum(seen: ClusterObservation, _: Sequence[Partition]) -> Iterator[Finding]:
    quorum, problem = seen.last.quorum, seen.last.unknown.get("quorum")
    if quorum is None:
        # A controller that refuses the user answers.
        if problem is not None and seen.last.unanswered >= {"quorum", "moves"}:
            cause = f"No active controller answers: the controllers have no majority, or are not reachable ({problem})."
            step = "Start the controllers that are down. A quorum of 3 needs 2 of them, one of 5 needs 3."
            yield Finding("no_controller", "the metadata quorum", cause, step, "critical")
        return
    newest_ms = max((each.last_caught_up_ms for each in quorum.voters), default=0)
    behind = [
        each
        for each in quorum.voters
        if each.node_id != quorum.leader and newest_ms - each.last_caught_up_ms > _BEHIND_MS
    ]
    end = max((each.log_end_offset for each in quorum.voters), default=0)
    spare = (len(quorum.voters) - 1) // 2 - len(behind)
    for each in behind:
        since = f"for {units.duration(newest_ms - each.last_caught_up_ms)}" if each.last_caught_up_ms > 0 else "at all"
        left = "without it no other may fail" if spare <= 0 else f"{spare} more may fail"
        cause = (
            f"Controller {each.node_id} has not caught up {since}, and lacks "
            f"{units.plural(max(0, end - each.log_end_offset), 'record')} of the metadata log; {left}."
        )
        step = f"Start controller {each.node_id}, or read its log. Then: ottla cluster --only quorum"
        yield Finding(
            "voter_behind", f"controller {each.node_id}", cause, step, "critical" if spare <= 0 else "warning"
        )


def _brokers(seen: ClusterObservation, partitions: Sequence[Partition]) -> Iterator[Finding]:
    last = seen.last
    known = {each.node_id for each in last.cluster.brokers}
    used = {node for each in partitions for node in each.at.replicas}
    for broker in sorted(known | used):
        held = [each for each in partitions if broker in each.at.replicas]
        subject, replicas = f"broker {broker}", units.plural(len(held), "replica")
        if broker not in last.active:
            # An old broker does not report fenced ones: they are only known from their replicas.
            what = (
                "is fenced: the controller receives no heartbeats from it" if broker in known else "is not registered"
            )
            step = (
                f"Start broker {broker}; its log says why it ended. If it does not return: ottla broker drain {broker}"
            )
            cause = f"Broker {broker} {what}. It has {replicas}."
            yield Finding("broker_down", subject, cause, step, "warning" if held else "info")
        elif any(broker in each.at.offline_replicas for each in held):
            count = sum(broker in each.at.offline_replicas for each in held)
            yield _offline_directory(broker, f"{count} of its {replicas} are in log directories that are offline")
        elif offline := _offline_paths(last.directories.get(broker, ())):
            yield _offline_directory(broker, offline)
        elif (error := last.silent.get(broker)) is not None:
            cause = f"Broker {broker} is registered, but does not answer: {' '.join(str(error).split())}"
            step = f"Read the log of broker {broker}, and take a stack dump of its process; restart it if it hangs."
            yield Finding("broker_silent", subject, cause, step, "critical")
        elif held and _serves_nothing(broker, held):
            cause = (
                f"Broker {broker} is up, but leads none of its {replicas} and is in sync for none: it starts, "
                "shuts down (the protocol does not show a controlled shutdown), or cannot fetch."
            )
            yield Finding("broker_in_no_isr", subject, cause, f"Read the log of broker {broker}.", "warning")


def _serves_nothing(broker: int, held: Sequence[Partition]) -> bool:
    return all(each.at.leader != broker and broker not in each.at.isr for each in held)


def _offline_paths(directories: Sequence[api.LogDirectory]) -> str:
    """Format as `/data: KAFKA_STORAGE_ERROR`, empty if all directories are in use."""
    return ", ".join(f"{each.path}: {each.error}" for each in directories if each.error is not None)


def offline_directories(directories: Mapping[int, Sequence[api.LogDirectory]]) -> Iterator[Finding]:
    """Yield the brokers that report log directories that are offline."""
    for node, rows in sorted(directories.items()):
        if offline := _offline_paths(rows):
            yield _offline_directory(node, offline)


def _offline_directory(broker: int, problem: str) -> Finding:
    cause = f"A log directory of broker {broker} is offline: {problem}."
    step = f"Repair its disk, and restart broker {broker}. Or move its replicas: ottla broker drain {broker}"
    return Finding("log_dir_offline", f"broker {broker}", cause, step, "critical")


# -- partitions --------------------------------------------------------------------------------------------------


def _offline(seen: ClusterObservation, partitions: Sequence[Partition]) -> Iterator[Finding]:
    causes: dict[tuple[str, str], list[Partition]] = defaultdict(list)
    active = seen.last.active
    for each in partitions:
        if each.at.leader is not None:
            continue
        down = [node for node in each.at.replicas if node not in active]
        named = ", ".join(map(str, down))
        if len(down) == len(each.at.replicas):
            cause = f"all of its replicas are down (broker {named})"
        elif down:
            cause = (
                f"no replica that is up may lead: broker {named}, which is down, may have records that the others lack"
            )
        else:
            cause = "all of its brokers are up, but none may lead"
        step = way_out(each.at, active) or ""
        causes[cause, step].append(each)
    for (cause, step), rows in causes.items():
        unclean = f"ottla topic elect-leaders {rows[0].name.topic} --unclean"
        command = f"{step[:1].upper()}{step[1:]}. Or give up records: {unclean}"
        who = f"{units.plural(len(rows), 'partition')} without a leader: {cause}."
        yield Finding("offline_partition", _named(rows), who[:1].upper() + who[1:], command, "critical")


def _under_min_isr(seen: ClusterObservation, partitions: Sequence[Partition]) -> Iterator[Finding]:
    causes: dict[tuple[int, tuple[int, ...]], list[Partition]] = defaultdict(list)
    for each in partitions:
        least = _number(seen.topic_settings.get(each.name.topic, {}).get(MIN_ISR)) or 1
        # Brokers require at most all replicas.
        if each.at.leader is not None and len(each.at.isr) < min(least, len(each.at.replicas)):
            missing = tuple(node for node in each.at.replicas if node not in each.at.isr)
            causes[least, missing].append(each)
    for (least, missing), rows in causes.items():
        named = ", ".join(map(str, missing))
        cause = f"broker {named} is not in sync, and min.insync.replicas is {least}"
        step = f"Bring broker {named} back, see its own cause. ottla config list topic {rows[0].name.topic}"
        text = f"Writes with acks=all fail (NOT_ENOUGH_REPLICAS) in {units.plural(len(rows), 'partition')}: {cause}."
        yield Finding("under_min_isr", _named(rows), text, step, "critical")


class _Progress(NamedTuple):
    """How a replica follows its leader: missing bytes, its rate, and the bytes that its leader gets per second."""

    missing: int
    per_s: float
    written_per_s: float

    def left(self) -> str:
        """The time until it has caught up, as the end of a sentence."""
        gain = self.per_s - self.written_per_s
        return f", {units.duration(1000 * self.missing / gain)} remain" if gain > 0 and self.missing else ""


def _progress(seen: ClusterObservation, each: Partition, node: int) -> _Progress | None:
    """Return None if a size is unknown."""
    if each.at.leader is None or seen.seconds <= 0:
        return None
    sizes = [at.size(each.name, who) for who in (each.at.leader, node) for at in (seen.first, seen.last)]
    leader_before, leader_now, before, now = sizes
    if leader_now is None or now is None:
        return None
    grown = now - (before or 0)
    written = leader_now - (leader_now if leader_before is None else leader_before)
    return _Progress(max(0, leader_now - now), grown / seen.seconds, max(0.0, written / seen.seconds))


def _is_throttled(seen: ClusterObservation, each: Partition, node: int) -> bool:
    """Whether replication of a partition to a broker is limited, at the leader or at the follower."""
    settings = seen.topic_settings.get(each.name.topic, {})
    for who, replicas, rate in zip((each.at.leader, node), MOVED, RATES, strict=True):
        listed = settings.get(replicas, "").replace(" ", "").split(",")
        is_listed = "*" in listed or f"{each.name.partition}:{who}" in listed
        if is_listed and (_number(seen.broker_settings.get(who or 0, {}).get(rate)) or 1 << 62) < 1 << 62:
            return True
    return False


def _replicas(seen: ClusterObservation, partitions: Sequence[Partition]) -> Iterator[Finding]:
    """Explain replicas that are not in sync, on brokers that are up and answer; others have a cause of their own."""
    causes: dict[tuple[str, int], list[tuple[Partition, _Progress]]] = defaultdict(list)
    last = seen.last
    for each in partitions:
        move = last.moves.get(each.name)
        adding = move.adding if move is not None else ()
        for node in each.at.replicas:
            if node in each.at.isr or node in adding or node not in last.active or node in each.at.offline_replicas:
                continue
            progress = _progress(seen, each, node)
            if progress is None or node in last.silent:
                continue
            kind = "replica_catching_up" if progress.per_s > 0 or not progress.missing else "replica_stuck"
            kind = "replica_throttled" if _is_throttled(seen, each, node) else kind
            causes[kind, node].append((each, progress))
    for (kind, node), rows in sorted(causes.items()):
        yield _of_replicas(kind, node, [each for each, _ in rows], _sum([progress for _, progress in rows]))


def _sum(rows: Sequence[_Progress]) -> _Progress:
    return _Progress(*map(sum, zip(*rows, strict=True)))


def _of_replicas(kind: str, node: int, rows: Sequence[Partition], progress: _Progress) -> Finding:
    what = f"{units.plural(len(rows), 'partition')} ({_named(rows)})"
    lacks = f"lacks {units.size(progress.missing)}"
    rate = f"{units.size(round(progress.per_s))}/s"
    subject = f"broker {node}"
    if kind == "replica_throttled":
        cause = (
            f"Broker {node} is not in sync for {what}: it {lacks} and follows with {rate}, throttled{progress.left()}."
        )
        step = f"Raise the limit: ottla config set broker {node} {RATES[1]}=RATE {RATES[0]}=RATE"
        return Finding(kind, subject, cause, step, "warning")
    if kind == "replica_catching_up":
        cause = f"Broker {node} catches up with {what}: it {lacks} and follows with {rate}{progress.left()}."
        return Finding(kind, subject, cause, "Wait. Observe for longer: ottla cluster why --watch 30", "info")
    cause = f"Broker {node} is up, but does not follow {what}: it {lacks}, and its replicas did not grow."
    step = f"Read the log of broker {node}: its fetcher may fail at a batch, a disk, or the connection to the leader."
    return Finding(kind, subject, cause, step, "critical")


def _moves(seen: ClusterObservation, partitions: Sequence[Partition]) -> Iterator[Finding]:
    by_name = {each.name: each for each in partitions}
    last = seen.last
    for name, move in sorted(last.moves.items()):
        each = by_name.get(name)
        if each is None or name not in seen.first.moves:
            continue
        command = f"ottla topic reassign {name.topic} --cancel"
        down = [node for node in move.adding if node not in last.active or node in last.silent]
        rows = {node: _progress(seen, each, node) for node in move.adding if node not in each.at.isr}
        if down:
            cause = f"It waits for broker {', '.join(map(str, down))}, which is down or does not answer."
            step = f"Start that broker, or cancel: {command}"
            yield Finding("move_stuck", f"{name}", f"The reassignment makes no progress. {cause}", step, "critical")
            continue
        progress = _sum([row for row in rows.values() if row is not None]) if any(rows.values()) else None
        throttled = any(_is_throttled(seen, each, node) for node in rows)
        if progress is None:
            continue
        lacks = f"Broker {', '.join(map(str, rows))} lacks {units.size(progress.missing)}"
        rate = f"{units.size(round(progress.per_s))}/s{' (throttled)' if throttled else ''}"
        if progress.per_s <= 0 and progress.missing:
            cause = f"The reassignment makes no progress. {lacks}, and its replica did not grow."
            step = f"{_raise(rows) if throttled else f'Read the log of broker {min(rows)}'}. Or cancel: {command}"
            yield Finding("move_stuck", f"{name}", cause, step, "critical")
        else:
            cause = f"The partition moves. {lacks} and follows with {rate}{progress.left()}."
            yield Finding("move_running", f"{name}", cause, "ottla topic reassign --status", "info")


def _raise(nodes: dict[int, _Progress | None]) -> str:
    return f"Raise the limit: ottla config set broker {min(nodes)} {RATES[1]}=RATE"


def _balance(seen: ClusterObservation, partitions: Sequence[Partition]) -> Iterator[Finding]:
    preferred: Counter[int] = Counter()
    away: dict[int, list[Partition]] = defaultdict(list)
    for each in partitions:
        if each.at.leader is None or not each.at.replicas:
            continue
        first = each.at.replicas[0]
        preferred[first] += 1
        if each.at.leader != first and first in each.at.isr and first in seen.last.active:
            away[first].append(each)
    for node, rows in sorted(away.items()):
        share = len(rows) / preferred[node]
        cause = (
            f"Broker {node} does not lead {len(rows)} of the {units.plural(preferred[node], 'partition')} that prefer "
            f"it ({_named(rows)}), although it is in sync."
        )
        step = "ottla topic elect-leaders '*'"
        severity: Severity = "warning" if share > _IMBALANCE else "info"
        yield Finding("leaders_off_balance", f"broker {node}", cause, step, severity)


# -- disks and versions ------------------------------------------------------------------------------------------


def disk_findings(seen: ClusterObservation, _: Sequence[Partition]) -> Iterator[Finding]:
    """Yield the disks that are nearly full."""
    for node, directories in sorted(seen.last.directories.items()):
        before = {each.path: each for each in seen.first.directories.get(node, ())}
        for each in directories:
            if each.total_bytes <= 0 or each.usable_bytes < 0 or each.usable_bytes > _NEARLY_FULL * each.total_bytes:
                continue
            earlier = before.get(each.path)
            lost = (earlier.usable_bytes - each.usable_bytes) if earlier is not None else 0
            per_s = lost / seen.seconds if seen.seconds > 0 else 0
            left = f", {units.duration(1000 * each.usable_bytes / per_s)} remain at this rate" if per_s > 0 else ""
            cause = (
                f"{each.path} of broker {node} has {units.size(each.usable_bytes)} of {units.size(each.total_bytes)} "
                f"free{left}."
            )
            step = "Shorten the retention of large topics (ottla topic list --long), or move replicas away: "
            step += f"ottla broker drain {node}"
            severity: Severity = "critical" if each.usable_bytes < _FULL * each.total_bytes else "warning"
            yield Finding("disk_nearly_full", f"broker {node}", cause, step, severity)


def _versions(seen: ClusterObservation, _: Sequence[Partition]) -> Iterator[Finding]:
    yield from version_findings(seen.features)


def version_findings(features: Mapping[int, api.Features]) -> Iterator[Finding]:
    """Compare the versions that the brokers support with each other, and with the cluster's."""
    supported = {
        node: each.supported[_VERSION].highest for node, each in features.items() if _VERSION in each.supported
    }
    if not supported:
        return
    lowest, highest = min(supported.values()), max(supported.values())
    if lowest != highest:
        shown = ", ".join(f"broker {node}: {_release(level)}" for node, level in sorted(supported.items()))
        cause = f"The brokers have different versions ({shown})."
        older = next(node for node, level in sorted(supported.items()) if level == lowest)
        yield Finding(
            "versions_differ", f"broker {older}", cause, "Finish the upgrade of the older brokers.", "warning"
        )
    levels = [each.finalized[_VERSION].highest for each in features.values() if _VERSION in each.finalized]
    if levels and max(levels) < lowest:
        cause = f"{_VERSION} is {_release(max(levels))}, and all brokers support {_release(lowest)}: features are off."
        step = f"After the upgrade is proved: kafka-features.sh upgrade --feature {_VERSION}={lowest}"
        yield Finding("feature_behind", _VERSION, cause, step, "info")


def _release(level: int) -> str:
    return METADATA_VERSION_NAMES.get(level, f"level {level}")


def _number(text: str | None) -> int | None:
    return units.whole_number(text) if text else None


def _named(rows: Sequence[Partition]) -> str:
    """Format as `orders-0, orders-1, orders-2 and 7 more`."""
    names = [str(each.name) for each in rows]
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
