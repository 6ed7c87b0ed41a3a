"""Production readiness of a cluster: what an operator should change before it carries data that matters.

`read_facts` reads a cluster of any kind with an asyncio admin client, and changes nothing. `checks` decides, without
I/O. What could not be read is never "ok": the check is unknown, which is a warning. The protocol shows neither the
limits of a broker's process nor its clock: only the clock of the active controller.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.clients import admin as api
from ottla.common import units
from ottla.tools.why.cluster_causes import disk_findings, offline_directories, version_findings
from ottla.tools.why.cluster_samples import ClusterObservation, ClusterSample, read_features, read_settings, sample
from ottla.tools.why.model import Finding, Severity, worst

REPLICAS: Final = 3
OFFSETS_MINUTES: Final = 7 * 24 * 60
_SHOWN: Final = 3
_SKEW_MS, _SEVERE_SKEW_MS = 1_000, 60_000
_LOOPBACK: Final = ("127.", "localhost", "[::1]", "::1")
# An internal topic and the setting that it is created with.
INTERNAL: Final = {
    "__consumer_offsets": "offsets.topic.replication.factor",
    "__transaction_state": "transaction.state.log.replication.factor",
    "__share_group_state": "share.coordinator.state.topic.replication.factor",
}
# Checks that fail while they are unknown.
_BLOCKING: Final = frozenset({"security", "unclean_election"})
_UNKNOWN_STEP: Final = (
    "Repeat it as a user with DESCRIBE and DESCRIBE_CONFIGS of the cluster and of all topics, with all brokers up."
)
Settings = Mapping[str, str]


@dataclass(frozen=True)
class Facts:
    """The input of the checks. Settings are by the name of the topic, or the id of the broker.

    `unknown` has the parts that could not be read, with the reason.
    """

    now_ms: int
    sample: ClusterSample
    topics: Mapping[str, Settings] = field(default_factory=dict)
    brokers: Mapping[str, Settings] = field(default_factory=dict)
    features: Mapping[int, api.Features] = field(default_factory=dict)
    unknown: Mapping[str, str] = field(default_factory=dict)

    def of_users(self) -> dict[str, api.TopicDescription]:
        """Return the topics that are not internal."""
        return {name: topic for name, topic in self.sample.topics.items() if not topic.is_internal}


async def read_facts(admin: api.AsyncAdmin, now: Callable[[], int] = units.now_ms) -> Facts:
    """Read a cluster. Raises ClientError if no broker answers; other parts that cannot be read are `unknown`."""
    found = await sample(admin, now())
    brokers = sorted(found.active - found.silent.keys())
    unknown = {**found.unknown}
    for node, error in sorted(found.silent.items()):
        unknown |= dict.fromkeys(
            (f"settings of broker {node}", f"features of broker {node}"), " ".join(str(error).split())
        )
    topics = await read_settings(admin, [api.ConfigResource.topic(name) for name in found.topics], unknown)
    # A topic without settings and without a reason was deleted meanwhile.
    deleted = {name for name in found.topics if name not in topics and f"settings of topic {name}" not in unknown}
    return Facts(
        now(),
        replace(found, topics={name: each for name, each in found.topics.items() if name not in deleted}),
        topics,
        await read_settings(admin, [api.ConfigResource.broker(node) for node in brokers], unknown),
        await read_features(admin, brokers, unknown),
        unknown,
    )


def checks(facts: Facts) -> list[Finding]:
    """Return the result of each check, also of the checks that pass (severity "ok"), in a fixed order.

    A check whose input is missing has a warning that says so, beside the findings of the input that was read.
    """
    missing = unknown_checks(facts)
    rules: tuple[tuple[str, str, Callable[[Facts], Iterator[Finding]]], ...] = (
        ("brokers", "There are at least three brokers and an odd number of controllers.", _nodes),
        ("replication_factor", "Every topic has three replicas or more.", _replication),
        ("min_isr", "min.insync.replicas fits the replication factor of every topic.", _min_isr),
        ("internal_topics", "Internal topics have three replicas.", _internal),
        ("unclean_election", "No topic allows unclean leader elections.", _unclean),
        ("racks", "The replicas of each partition are in several racks.", _racks),
        ("auto_create", "Topics are created on purpose only.", _auto_create),
        ("offsets_retention", "Offsets of stopped groups are retained for a week or longer.", _offsets_retention),
        ("disks", "Every disk has 15 percent of its space free.", _disks),
        ("versions", "All brokers have one version, and the cluster uses its features.", _versions),
        ("clocks", "The clock of the active controller agrees with this machine's.", _clocks),
        ("security", "Every listener for clients is encrypted, and an authorizer checks rights.", _security),
        ("file_descriptors", "", _descriptors),
    )
    found: list[Finding] = []
    for code, passed, rule in rules:
        rows = list(rule(facts))
        if code in missing:
            cause = f"Unknown: {_named(missing[code])} could not be read."
            rows.append(Finding(code, "the cluster", cause, _UNKNOWN_STEP, "warning"))
        found += rows or [Finding(code, "the cluster", passed, "", "ok")]
    return found


def is_failed(facts: Facts) -> bool:
    """Whether a check is critical, or it is unknown whether the cluster is secure or allows unclean elections."""
    return worst(checks(facts)) == "critical" or not _BLOCKING.isdisjoint(unknown_checks(facts))


def unknown_checks(facts: Facts) -> dict[str, list[str]]:
    """Return the checks that cannot be decided, with their missing input."""
    partitions = [part for part in facts.unknown if part.startswith("partitions of ")]
    users = list(facts.of_users())
    internal = [setting for name, setting in INTERNAL.items() if _is_absent(facts, name)]
    input_of = {
        "brokers": ["the metadata quorum"] if facts.sample.quorum is None else [],
        "replication_factor": partitions,
        "min_isr": partitions + _topics_without(facts, users, "min.insync.replicas"),
        "internal_topics": partitions + _brokers_without(facts, *internal),
        "unclean_election": partitions + _topics_without(facts, facts.sample.topics, "unclean.leader.election.enable"),
        "racks": partitions,
        "auto_create": _brokers_without(facts, "auto.create.topics.enable"),
        "offsets_retention": _brokers_without(facts, "offsets.retention.minutes")
        + _topics_without(facts, users, "retention.ms"),
        "versions": [part for part in facts.unknown if part.startswith("features of ")],
        "security": _brokers_without(facts, "listeners", "authorizer.class.name"),
    }
    return {code: parts for code, parts in input_of.items() if parts}


def _topics_without(facts: Facts, names: Iterable[str], setting: str) -> list[str]:
    return [f"{setting} of topic {name}" for name in sorted(names) if setting not in facts.topics.get(name, {})]


def _brokers_without(facts: Facts, *settings: str) -> list[str]:
    return [
        f"{setting} of broker {node}"
        for node in sorted(facts.sample.active)
        for setting in settings
        if setting not in facts.brokers.get(str(node), {})
    ]


def _is_absent(facts: Facts, internal: str) -> bool:
    """Whether an internal topic does not exist yet; False if that is unknown."""
    topic = facts.sample.topics.get(internal)
    return f"partitions of topic {internal}" not in facts.unknown and (topic is None or not topic.partitions)


def _nodes(facts: Facts) -> Iterator[Finding]:
    brokers, quorum = facts.sample.active, facts.sample.quorum
    if len(brokers) < REPLICAS:
        cause = f"{units.plural(len(brokers), 'broker')}: records cannot have three replicas."
        yield Finding("brokers", "the cluster", cause, "Start more brokers (docs/cluster.md).", "critical")
    voters = len(quorum.voters) if quorum is not None else None
    if voters == 1:
        cause = "There is one controller: the metadata is lost with its disk."
        yield Finding(
            "brokers", "the metadata quorum", cause, "Format three controllers (docs/cluster.md).", "critical"
        )
    elif voters is not None and voters % 2 == 0:
        cause = f"{voters} controllers survive no more failures than {voters - 1}."
        yield Finding("brokers", "the metadata quorum", cause, "Use three or five controllers.", "warning")


def _replication(facts: Facts) -> Iterator[Finding]:
    by_factor: dict[int, list[str]] = defaultdict(list)
    for name, topic in sorted(facts.of_users().items()):
        if topic.partitions and topic.replication_factor < REPLICAS:
            by_factor[topic.replication_factor].append(name)
    for factor, names in sorted(by_factor.items()):
        cause = f"{units.plural(len(names), 'topic')} with {units.plural(factor, 'replica')}: "
        cause += "records are lost with a disk." if factor == 1 else "no replica is left while one is repaired."
        step = f"ottla topic reassign {names[0]} --replication-factor {REPLICAS}"
        yield Finding("replication_factor", _named(names), cause, step, "critical" if factor == 1 else "warning")


def _min_isr(facts: Facts) -> Iterator[Finding]:
    low, high = [], []
    for name, topic in sorted(facts.of_users().items()):
        least = _number(facts.topics.get(name, {}).get("min.insync.replicas"))
        if least is None or topic.replication_factor < 2:
            continue
        if least >= topic.replication_factor:
            high.append(name)
        elif least == 1 and topic.replication_factor >= REPLICAS:
            low.append(name)
    if low:
        cause = f"{units.plural(len(low), 'topic')} with min.insync.replicas=1: acks=all may wait for one replica only."
        step = f"ottla config set topic {low[0]} min.insync.replicas=2"
        yield Finding("min_isr", _named(low), cause, step, "critical")
    if high:
        cause = f"{units.plural(len(high), 'topic')} whose writes fail as soon as one broker is down."
        step = f"ottla config set topic {high[0]} min.insync.replicas=N, with N below the replication factor"
        yield Finding("min_isr", _named(high), cause, step, "warning")


def _internal(facts: Facts) -> Iterator[Finding]:
    for name, setting in INTERNAL.items():
        topic = facts.sample.topics.get(name)
        if topic is not None and topic.partitions:
            if topic.replication_factor < REPLICAS:
                cause = f"{name} has {units.plural(topic.replication_factor, 'replica')}."
                step = f"ottla topic reassign {name} --replication-factor {REPLICAS}"
                yield Finding("internal_topics", name, cause, step, "critical")
            continue
        low = _lowest(facts, setting) if _is_absent(facts, name) else None
        if low is not None and low < REPLICAS:
            cause = f"{name} does not exist yet, and would be created with {units.plural(low, 'replica')}."
            step = f"Set {setting}={REPLICAS} in server.properties of each broker."
            yield Finding("internal_topics", name, cause, step, "warning")


def _unclean(facts: Facts) -> Iterator[Finding]:
    names = _with(facts.topics, "unclean.leader.election.enable", "true")
    if names:
        cause = f"{units.plural(len(names), 'topic')}: a replica without all acknowledged records may lead."
        step = f"ottla config set topic {names[0]} unclean.leader.election.enable=false"
        yield Finding("unclean_election", _named(names), cause, step, "critical")


def _racks(facts: Facts) -> Iterator[Finding]:
    racks = {each.node_id: each.rack for each in facts.sample.cluster.brokers}
    if None in racks.values():
        without = [str(node) for node, rack in sorted(racks.items()) if rack is None]
        cause = f"Broker {_named(without)} has no rack: replicas may share one."
        step = "Set broker.rack in server.properties of each broker."
        yield Finding("racks", "the cluster", cause, step, "info" if len(racks) < REPLICAS else "warning")
        return
    if len(set(racks.values())) < 2:
        cause = f"All brokers are in rack {next(iter(racks.values()), None)}."
        yield Finding("racks", "the cluster", cause, "Place brokers in several racks.", "warning")
        return
    together = [
        name
        for name, topic in sorted(facts.sample.topics.items())
        if any(_share_a_rack(each.replicas, racks) for each in topic.partitions)
    ]
    if together:
        cause = f"{units.plural(len(together), 'topic')} with partitions whose replicas are all in one rack."
        yield Finding("racks", _named(together), cause, f"ottla topic reassign {together[0]}", "warning")


def _share_a_rack(replicas: Collection[int], racks: Mapping[int, str | None]) -> bool:
    return len(replicas) > 1 and len({racks.get(node) for node in replicas}) == 1


def _auto_create(facts: Facts) -> Iterator[Finding]:
    if brokers := _with(facts.brokers, "auto.create.topics.enable", "true"):
        cause = "A client that misspells a topic creates it, with the defaults of the broker."
        step = "Set auto.create.topics.enable=false in server.properties, and restart the broker."
        yield Finding("auto_create", f"broker {_named(brokers)}", cause, step, "warning")


def _offsets_retention(facts: Facts) -> Iterator[Finding]:
    minutes = _lowest(facts, "offsets.retention.minutes")
    if minutes is None:
        return
    kept = units.duration(60_000 * minutes)
    if minutes < OFFSETS_MINUTES:
        cause = f"A group that is stopped for {kept} loses its positions."
        step = f"Set offsets.retention.minutes={OFFSETS_MINUTES} or more in server.properties of each broker."
        yield Finding("offsets_retention", "the cluster", cause, step, "warning")
    longer = [
        name
        for name in sorted(facts.of_users())
        if (ms := facts.topics.get(name, {}).get("retention.ms", "")) == "-1" or (_number(ms) or 0) > 60_000 * minutes
    ]
    if longer:
        cause = (
            f"{units.plural(len(longer), 'topic')} retained for longer than the offsets of a stopped group ({kept})."
        )
        step = "Set offsets.retention.minutes to the longest retention, or use auto.offset.reset=none in the groups."
        yield Finding("offsets_retention", _named(longer), cause, step, "info")


def _disks(facts: Facts) -> Iterator[Finding]:
    found = list(disk_findings(ClusterObservation(facts.sample, facts.sample), ()))
    found += offline_directories(facts.sample.directories)
    yield from (replace(each, code="disks") for each in found)
    unknown = {
        node
        for node in facts.sample.active
        if not (rows := facts.sample.directories.get(node, ()))
        or any(each.total_bytes < 0 and each.error is None for each in rows)
    }
    if unknown:
        nodes = _named([str(node) for node in sorted(unknown)])
        cause = f"Broker {nodes} does not report its disks."
        yield Finding("disks", f"broker {nodes}", cause, "df -h, on each broker", "info")


def _versions(facts: Facts) -> Iterator[Finding]:
    yield from (replace(each, code="versions") for each in version_findings(facts.features))


def _clocks(facts: Facts) -> Iterator[Finding]:
    quorum = facts.sample.quorum
    leader = None if quorum is None else next((v for v in quorum.voters if v.node_id == quorum.leader), None)
    if leader is None or leader.last_caught_up_ms <= 0:
        cause = "The active controller does not report its time."
        yield Finding("clocks", "the cluster", cause, "chronyc tracking, on each node", "info")
        return
    # The controller answered between the two times.
    at = leader.last_caught_up_ms
    skew_ms = max(facts.sample.at_ms - at, at - facts.now_ms, 0)
    if skew_ms > _SKEW_MS:
        cause = f"The clocks of controller {leader.node_id} and of this machine differ by {units.duration(skew_ms)}."
        step = "Run NTP on each node: chronyc tracking"
        severity: Severity = "critical" if skew_ms > _SEVERE_SKEW_MS else "warning"
        yield Finding("clocks", f"controller {leader.node_id}", cause, step, severity)


def _security(facts: Facts) -> Iterator[Finding]:
    open_to_all: dict[str, list[str]] = defaultdict(list)
    for broker, settings in sorted(facts.brokers.items()):
        for listener, protocol, is_local in _listeners(settings):
            if protocol in ("PLAINTEXT", "SASL_PLAINTEXT") and not is_local:
                open_to_all[broker].append(f"{listener} ({protocol})")
    for broker, listeners in open_to_all.items():
        cause = f"Records and passwords pass the network unencrypted: listener {_named(listeners)}."
        step = "Use SSL or SASL_SSL: ottla security init, docs/security.md"
        yield Finding("security", f"broker {broker}", cause, step, "critical")
    without = _with(facts.brokers, "authorizer.class.name", "")
    if without:
        cause = "There is no authorizer: every client may read, write and delete everything."
        step = "Set authorizer.class.name and super.users in server.properties (docs/authorization.md)."
        yield Finding("security", f"broker {_named(without)}", cause, step, "critical")


def _listeners(settings: Settings) -> Iterator[tuple[str, str, bool]]:
    """Yield the listeners for clients and brokers: the name, the protocol, and whether only this machine reaches it."""
    rows = (pair.strip().partition(":") for pair in settings.get("listener.security.protocol.map", "").split(","))
    protocols = {name: protocol for name, _, protocol in rows}
    controllers = settings.get("controller.listener.names", "").split(",")
    for each in settings.get("listeners", "").split(","):
        name, found, address = each.strip().partition("://")
        if found and name not in controllers:
            yield name, protocols.get(name, name), address.startswith(_LOOPBACK)


def _descriptors(_: Facts) -> Iterator[Finding]:
    cause = "The protocol does not show the limit of open files. Segments and connections need them."
    step = "On each broker: grep 'open files' /proc/PID/limits; 100,000 is a good limit (LimitNOFILE in systemd)"
    yield Finding("file_descriptors", "the brokers", cause, step, "info")


def _with(rows: Mapping[str, Settings], name: str, value: str) -> list[str]:
    return sorted(each for each, settings in rows.items() if settings.get(name) == value)


def _lowest(facts: Facts, name: str) -> int | None:
    """Return the lowest value of a setting of the brokers, None if it is unknown."""
    numbers = [_number(settings.get(name)) for settings in facts.brokers.values()]
    return min((number for number in numbers if number is not None), default=None)


def _number(text: str | None) -> int | None:
    return units.whole_number(text) if text else None


def _named(names: Sequence[str]) -> str:
    """Format as `a, b, c and 7 more`."""
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + rest
