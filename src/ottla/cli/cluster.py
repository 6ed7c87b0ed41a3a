"""Show the cluster: its id and controller, brokers, features, the metadata quorum, log directories.

Below them, if there are any: partitions in trouble (offline, under or at min.insync.replicas, under-replicated), and
partitions that are moving to other brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ottla.cli.commands import Choice, Command, Option, Options
from ottla.cli.connect import connect, connection_options
from ottla.cli.late import api
from ottla.cli.moving import REASSIGNMENT_COLUMNS, node_ids, reassignment_rows
from ottla.cli.output import Column, Output, moment, number, output_options, size
from ottla.clients.errors import BrokerError, UnsupportedByBroker
from ottla.common import units

EXAMPLES = """
ottla cluster
ottla cluster -b 127.0.0.1:9092 --json | jq '.brokers[].host'
ottla cluster --only log-dirs
ottla cluster --only partitions --only moves
"""

_PARTS = ("brokers", "features", "quorum", "log-dirs", "partitions", "moves")


_PARAMETERS = [
    Option("--only PART", f"only this part: {', '.join(_PARTS)}", multiple=True, type=Choice(_PARTS)),
    *output_options(),
    *connection_options(),
]


def run(options: Options) -> None:
    """Show the state of the cluster."""
    output, facts = Output(options), _facts(connect(options))
    if output.json:
        output.object(facts if not options.only else {name: facts[name.replace("-", "_")] for name in options.only})
        return
    shown = options.only or _PARTS
    if not options.only:
        output.line(
            f"{output.style.bold(facts['cluster_id'])}  {units.plural(len(facts['brokers']), 'broker')}, "
            f"{units.plural(facts['topic_count'], 'topic')}, {units.plural(facts['partition_count'], 'partition')}"
            + (f", level {facts['release']}" if facts["release"] else "")
        )
    for name in shown:
        rows = facts[name.replace("-", "_")]
        if len(shown) > 1 and (rows or name not in _RARE):
            output.line()
        if rows:
            output.table(_COLUMNS[name], rows)
        elif name in options.only:
            output.note(_RARE.get(name, ""))
    for part, problem in facts["unknown"].items():
        output.note(f"{part}: {problem}")


def _facts(admin: api.Admin) -> dict[str, Any]:
    unknown: dict[str, str] = {}

    def reported(part: str, call: Callable[[], Any]) -> Any:
        # Old brokers lack some APIs, and the user may not be authorized for all of them.
        try:
            return call()
        except (BrokerError, UnsupportedByBroker) as error:
            unknown[part] = " ".join(str(error).split())
            return None

    try:
        cluster = admin.describe_cluster(include_fenced=True)
    except UnsupportedByBroker:
        cluster = admin.describe_cluster()
    topics = admin.list_topics(include_internal=True)
    described = reported("leaders", lambda: admin.describe_topics([topic.name for topic in topics])) if topics else {}
    partitions = [partition for topic in (described or {}).values() for partition in topic.partitions]
    directories = reported("log directories", admin.describe_log_dirs) or {}
    troubled = reported("partitions", lambda: _troubled(admin, described or {})) or []
    moves = reported("moves", admin.list_partition_reassignments) or {}
    features = reported("features", admin.describe_features)
    quorum = reported("quorum", admin.describe_quorum)
    brokers = [
        {
            "node_id": broker.node_id,
            "host": broker.host,
            "port": broker.port,
            "rack": broker.rack,
            "controller": broker.node_id == cluster.controller,
            "fenced": broker.is_fenced,
            "leader_count": sum(partition.leader == broker.node_id for partition in partitions),
            "replica_count": sum(broker.node_id in partition.replicas for partition in partitions),
            "size": _used(directories.get(broker.node_id)),
        }
        for broker in cluster.brokers
    ]
    level = features.finalized.get("metadata.version") if features else None
    return {
        "cluster_id": cluster.cluster_id,
        "controller": cluster.controller,
        "release": _release(level.highest) if level else None,
        "topic_count": len(topics),
        "partition_count": sum(topic.partitions for topic in topics),
        "brokers": brokers,
        "features": _feature_rows(features) if features else [],
        "quorum": _quorum_rows(quorum) if quorum else [],
        "log_dirs": _directory_rows(directories),
        "partitions": troubled,
        "moves": reassignment_rows(moves),
        "unknown": unknown,
    }


def _troubled(admin: api.Admin, topics: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The partitions that lack a leader or replicas in sync, the worst first."""
    replicated = [name for name, topic in topics.items() if topic.replication_factor > 1]
    least: dict[str, int] = {}
    if replicated:
        configs = admin.describe_configs([api.ConfigResource.topic(name) for name in replicated])
        least = {resource.name: int(entries[_MIN_ISR].value or 1) for resource, entries in configs.items()}
    rows = []
    for name, topic in topics.items():
        for each in topic.partitions:
            state = _trouble(each, least.get(name, 1))
            if state is not None:
                rows.append(
                    {
                        "topic": name,
                        "partition": each.partition,
                        "state": state,
                        "leader": each.leader,
                        "replicas": list(each.replicas),
                        "isr": list(each.isr),
                        "min_isr": least.get(name, 1),
                    }
                )
    return sorted(rows, key=lambda row: (_STATES.index(row["state"]), row["topic"], row["partition"]))


_MIN_ISR = "min.insync.replicas"
_STATES = ("offline", "under min ISR", "at min ISR", "under-replicated")


def _trouble(partition: Any, least: int) -> str | None:
    if partition.leader is None:
        return "offline"
    in_sync, replicas = len(partition.isr), len(partition.replicas)
    if replicas == 1:
        return None
    if in_sync < least:
        return "under min ISR"
    if in_sync == least:
        return "at min ISR"
    return "under-replicated" if in_sync < replicas else None


def _used(directories: Any) -> int | None:
    if directories is None:
        return None
    return sum(int(replica.size) for directory in directories for replica in directory.replicas.values())


def _release(level: int) -> str | None:
    """Return the name of a level of metadata.version."""
    from ottla.metadata.features import METADATA_VERSION_NAMES

    return METADATA_VERSION_NAMES.get(level)


def _feature_rows(features: api.Features) -> list[dict[str, Any]]:
    return [
        {
            "feature": name,
            "level": features.finalized[name].highest if name in features.finalized else 0,
            "lowest": supported.lowest,
            "highest": supported.highest,
        }
        for name, supported in sorted(features.supported.items())
    ]


def _quorum_rows(quorum: api.Quorum) -> list[dict[str, Any]]:
    roles = (("voter", quorum.voters), ("observer", quorum.observers))
    end = max((replica.log_end_offset for replica in quorum.voters), default=0)
    return [
        {
            "node_id": replica.node_id,
            "role": "leader" if replica.node_id == quorum.leader else role,
            "leader_epoch": quorum.leader_epoch,
            "high_watermark": quorum.high_watermark,
            "log_end_offset": replica.log_end_offset,
            "lag": end - replica.log_end_offset,
            "last_fetch_ms": replica.last_fetch_ms if replica.last_fetch_ms >= 0 else None,
            "last_caught_up_ms": replica.last_caught_up_ms if replica.last_caught_up_ms >= 0 else None,
        }
        for role, replicas in roles
        for replica in replicas
    ]


def _directory_rows(directories: Any) -> list[dict[str, Any]]:
    return [
        {
            "node_id": node_id,
            "path": directory.path,
            "replica_count": len(directory.replicas),
            "size": sum(replica.size for replica in directory.replicas.values()),
            "free": directory.usable_bytes if directory.usable_bytes >= 0 else None,
            "total": directory.total_bytes if directory.total_bytes >= 0 else None,
        }
        for node_id, rows in sorted(directories.items())
        for directory in rows
    ]


def _address(row: Mapping[str, Any]) -> str:
    return f"[{row['host']}]:{row['port']}" if ":" in row["host"] else f"{row['host']}:{row['port']}"


def _state(row: Mapping[str, Any]) -> str:
    return "fenced" if row["fenced"] else "up, controller" if row["controller"] else "up"


# Parts that are shown only if they have rows, and the note of `--only` without rows.
_RARE = {
    "partitions": "Every partition has a leader, and all of its replicas are in sync.",
    "moves": "No partition is moving.",
}

_COLUMNS = {
    "moves": REASSIGNMENT_COLUMNS,
    "partitions": [
        Column("topic", "PARTITIONS IN TROUBLE", narrow=True),
        number("partition", "NUMBER"),
        Column("state", colour=lambda state: "yellow" if state in _STATES[2:] else "red"),
        Column("leader", right=True),
        node_ids("replicas"),
        node_ids("isr", "IN SYNC"),
        number("min_isr", "MIN"),
    ],
    "brokers": [
        Column("node_id", "BROKER", right=True),
        Column("host", "ADDRESS", cell=_address),
        Column("rack", optional=True),
        Column("fenced", "STATE", cell=_state, colour=lambda fenced: "red" if fenced else "green"),
        number("leader_count", "LEADS"),
        number("replica_count", "REPLICAS"),
        size("size"),
    ],
    "features": [
        Column("feature"),
        Column("level", right=True),
        Column("highest", "SUPPORTED", right=True, cell=lambda row: f"{row['lowest']}-{row['highest']}"),
    ],
    "quorum": [
        Column("node_id", "QUORUM", right=True),
        Column("role", colour=lambda role: "green" if role == "leader" else None),
        number("leader_epoch", "EPOCH"),
        number("log_end_offset", "END"),
        number("lag"),
        moment("last_caught_up_ms", "CAUGHT UP"),
    ],
    "log-dirs": [
        Column("node_id", "BROKER", right=True),
        Column("path", "LOG DIRECTORY", narrow=True),
        number("replica_count", "REPLICAS"),
        size("size"),
        size("free"),
        size("total", "DISK"),
    ],
}


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
