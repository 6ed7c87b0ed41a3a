"""One request for each need of `authorization_table`, and the users who have all rights but that need, or only it.

The same cases run on Ottla's broker without a network (tests/unit/broker/test_authorization_table.py), and on stock
Kafka and Ottla side by side (tests/interop/test_authorization.py). `CASES` covers each row of the table.

Users: `admin` (super user), `stranger` (no right), `only-RIGHT` (this right on all resources), `without-RIGHTS` (all
other rights).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple, Protocol

from ottla.broker.authorization_table import NEEDS, Effect, Need, Right
from ottla.protocol.message import Message
from ottla.protocol.registry import request_class
from ottla.records import BatchProducer, encode_batch
from ottla.records.batch import TRANSACTIONAL
from ottla.security.acl import CLUSTER_NAME, Acl, Operation, Pattern, PermissionType, ResourceType

TOPIC, OTHER = "t", "t2"
GROUP, CONSUMERS, SHARERS, STREAMS = "g", "g-consumer", "g-share", "g-streams"
EMPTY_SHARERS = "g-share-empty"
TRANSACTION = "x"
ADMIN, STRANGER = "admin", "stranger"
BROKER, LOGGER, METRICS, CONFIG_TOPIC, CONFIG_GROUP = 4, 8, 16, 2, 32


class World(Protocol):
    """The resources that the requests name."""

    def topic_id(self, name: str) -> bytes:
        """The id of a topic."""
        ...

    def fresh_topic(self) -> str:
        """Create a topic that a case may delete."""
        ...

    def absent_topic(self) -> str:
        """A name that no topic has had yet."""
        ...

    def open_share_session(self, member_id: str) -> None:
        """Open a share session of a member of `SHARERS` in `TOPIC`."""
        ...


class Case(NamedTuple):
    """A request, and which needs of its API it has."""

    name: str
    key: int
    needs: tuple[Need, ...]
    request: Callable[[World], Message]
    versions: tuple[int, ...]
    on_controller: bool = False
    only_refused: bool = False
    """Whether the request must not be sent by a client that may: it would change the cluster."""


def user_without(need: Need) -> str:
    """The user with all rights that the need does not name."""
    return "without-" + "_or_".join(_short(right) for right in need.any_of)


def user_with(right: Right) -> str:
    """The user with one right."""
    return "only-" + _short(right)


def _short(right: Right) -> str:
    return f"{right.operation.name}-{right.resource_type.name}"


def build(kind: type, values: dict[str, Any]) -> Any:
    """A message or an element of one from nested dictionaries."""
    module = sys.modules[kind.__module__]
    fields = {}
    for name, value in values.items():
        found = re.search(r"(?:list\[)?(\w+)\]?(?: \| None)?$", kind.__annotations__[name])
        inner = getattr(module, found[1], None) if found is not None else None
        if isinstance(value, dict):
            value = build(inner, value)  # type: ignore[arg-type]
        elif isinstance(value, list):
            value = [build(inner, each) if isinstance(each, dict) else each for each in value]  # type: ignore[arg-type]
        fields[name] = value
    return kind(**fields)


CASES: list[Case] = []
Make = Callable[[World], dict[str, Any]]


def case(name: str, key: int, needs: str, make: Make | dict[str, Any], versions: str = "", **options: bool) -> None:
    """Add a case. `needs` has the positions in the row of the table, `versions` a range."""
    row = NEEDS[key]
    kind = request_class(key)
    lowest, highest = kind.MIN_VERSION, kind.MAX_VERSION
    if versions:
        first, _, last = versions.partition("-")
        lowest, highest = int(first), int(last or first)
    chosen = tuple(row[int(position)] for position in needs.split())
    fields = make if callable(make) else lambda _world: make
    wanted = tuple(range(lowest, highest + 1))
    CASES.append(Case(name, key, chosen, lambda world: build(kind, fields(world)), wanted, **options))


def _batch(*, transactional: bool = False) -> bytearray:
    records = [(1_700_000_000_000, b"k", b"v", [])]
    if not transactional:
        return encode_batch(records)
    return encode_batch(records, producer=BatchProducer(999, 0, 0), attributes=TRANSACTIONAL)


def _produce(world: World, *, transactional: bool = False) -> dict[str, Any]:
    topic = {
        "name": TOPIC,
        "topic_id": world.topic_id(TOPIC),
        "partition_data": [{"index": 0, "records": _batch(transactional=transactional)}],
    }
    transaction = TRANSACTION if transactional else None
    return {"acks": -1, "timeout_ms": 5_000, "transactional_id": transaction, "topic_data": [topic]}


def _fetch(world: World, replica_id: int = -1) -> dict[str, Any]:
    partition = {"partition": 0, "partition_max_bytes": 1_000}
    return {
        "max_wait_ms": 0,
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id},
        "topics": [{"topic": TOPIC, "topic_id": world.topic_id(TOPIC), "partitions": [partition]}],
    }


def _metadata(world: World, *, by_id: bool = False, name: str = TOPIC, **options: Any) -> dict[str, Any]:
    topic = {"name": None, "topic_id": world.topic_id(TOPIC)} if by_id else {"name": name}
    return {"topics": [topic], "allow_auto_topic_creation": False, **options}


def _offsets(world: World) -> dict[str, Any]:
    partitions = [{"partition_index": 0, "committed_offset": 0}]
    topic = {"name": TOPIC, "topic_id": world.topic_id(TOPIC), "partitions": partitions}
    return {"group_id": GROUP, "topics": [topic]}


def _offset_fetch(world: World, *, all_topics: bool = False) -> dict[str, Any]:
    old: Any = None if all_topics else [{"name": TOPIC, "partition_indexes": [0]}]
    new: Any = None
    if not all_topics:
        new = [{"name": TOPIC, "topic_id": world.topic_id(TOPIC), "partition_indexes": [0]}]
    return {"group_id": GROUP, "topics": old, "groups": [{"group_id": GROUP, "topics": new}]}


def _config(kind: int, name: str, setting: str, value: str) -> dict[str, Any]:
    config = {"name": setting, "value": value}
    return {"resources": [{"resource_type": kind, "resource_name": name, "configs": [config]}], "validate_only": True}


def _topic_configs(name: str, kind: int) -> dict[str, Any]:
    return {"resources": [{"resource_type": kind, "resource_name": name, "configuration_keys": ["retention.ms"]}]}


def _share(world: World, **options: Any) -> dict[str, Any]:
    partition: dict[str, Any] = {"partition_index": 0}
    topics = [{"topic_id": world.topic_id(TOPIC), "partitions": [partition]}]
    return {"group_id": SHARERS, "member_id": _SHARE_MEMBER, "topics": topics, **options}


def _acknowledge(world: World) -> dict[str, Any]:
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    world.open_share_session(_SHARE_MEMBER)
    request = _share(world, share_session_epoch=1)
    request["topics"][0]["partitions"][0]["acknowledgement_batches"] = [batch]
    return request


def _state(world: World) -> dict[str, Any]:
    return {"group_id": SHARERS, "topics": [{"topic_id": world.topic_id(TOPIC), "partitions": [{"partition": 0}]}]}


def _delete_topic(world: World, *, by_id: bool) -> dict[str, Any]:
    name = world.fresh_topic()
    topic: dict[str, Any] = {"name": None, "topic_id": world.topic_id(name)} if by_id else {"name": name}
    return {"topic_names": [name], "topics": [topic], "timeout_ms": 5_000}


def streams_member(*, internal: bool = False) -> dict[str, Any]:
    """The first heartbeat of a member of `STREAMS`; with a changelog topic if `internal`."""
    changelogs = [{"name": "s-changelog", "partitions": 0, "replication_factor": 1}] if internal else []
    row = {"subtopology_id": "0", "source_topics": [TOPIC], "state_changelog_topics": changelogs}
    return {
        "group_id": STREAMS,
        "member_id": "BBBBBBBBBBBBBBBBBBBBBB",
        "member_epoch": 0,
        "rebalance_timeout_ms": 30_000,
        "process_id": "p",
        "topology": {"epoch": 1, "subtopologies": [row]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }


_SHARE_MEMBER = "AAAAAAAAAAAAAAAAAAAAAA"
_PARTITIONS = [{"name": TOPIC, "partitions": [0]}]
_MEMBER = {"group_id": GROUP, "member_id": "m"}
_SHARE_TOPIC = [{"topic_name": TOPIC, "partitions": [{"partition_index": 0, "start_offset": 0}]}]
SHARE_OFFSETS = {"group_id": EMPTY_SHARERS, "topics": _SHARE_TOPIC}
"""The fields of an AlterShareGroupOffsets request, which creates a share group without members."""
_ACL = {"resource_type": 2, "resource_name": "a", "principal": "User:a", "host": "*", "operation": 3}

case("produce", 0, "1", _produce)
case("produce transactional", 0, "0 1", lambda world: _produce(world, transactional=True))
case("fetch", 1, "0", _fetch)
case("fetch of a follower", 1, "1", lambda world: _fetch(world, 7))
case("fetch of a replica", 1, "2", {"topics": []}, on_controller=True, versions="17-18")
case(
    "offsets",
    2,
    "0",
    {"replica_id": -1, "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]},
)
case("metadata by name", 3, "0", _metadata)
case("metadata by id", 3, "0", lambda world: _metadata(world, by_id=True), "12-13")
case("metadata of all", 3, "1", {"topics": None, "allow_auto_topic_creation": False}, "1-13")
case("metadata of all, version 0", 3, "1", {"topics": []}, "0")
case(
    "metadata creates",
    3,
    "0 2",
    lambda world: _metadata(world, name=world.absent_topic(), allow_auto_topic_creation=True),
    "4-13",
)
case(
    "operations of the cluster",
    3,
    "3",
    {"topics": [], "include_cluster_authorized_operations": True, "allow_auto_topic_creation": False},
    "8-10",
)
case("commit", 8, "0 1", _offsets)
case("committed offsets", 9, "0 1", _offset_fetch)
case("all committed offsets", 9, "0 2", lambda world: _offset_fetch(world, all_topics=True), "2-10")
case("coordinator of a group", 10, "0", {"key": GROUP, "coordinator_keys": [GROUP], "key_type": 0})
case(
    "coordinator of a transaction",
    10,
    "1",
    {"key": TRANSACTION, "coordinator_keys": [TRANSACTION], "key_type": 1},
    "1-6",
)
case(
    "coordinator of a share partition",
    10,
    "2",
    {"coordinator_keys": [f"{SHARERS}:AAAAAAAAAAAAAAAAAAAAAQ:0"], "key_type": 2},
    "6",
)
case("join", 11, "0", {**_MEMBER, "session_timeout_ms": 10_000, "protocol_type": "consumer"})
case("heartbeat", 12, "0", _MEMBER)
case("leave", 13, "0", {**_MEMBER, "members": [{"member_id": "m"}]})
case("sync", 14, "0", {**_MEMBER, "protocol_type": "consumer", "protocol_name": "range"})
case("describe group", 15, "0", {"groups": [GROUP]})
case("list groups", 16, "0", {})
case(
    "create topic",
    19,
    "0",
    {"topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}], "validate_only": True},
)
case(
    "create topic, settings",
    19,
    "0 1",
    {"topics": [{"name": "made", "num_partitions": 1, "replication_factor": 1}], "validate_only": True},
    "5-7",
)
case("delete topic", 20, "0", lambda world: _delete_topic(world, by_id=False))
case("delete topic by id", 20, "1", lambda world: _delete_topic(world, by_id=True), "6")
case(
    "delete records",
    21,
    "0",
    {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "offset": 0}]}], "timeout_ms": 5_000},
)
case("transactional producer", 22, "0", {"transactional_id": TRANSACTION, "transaction_timeout_ms": 5_000}, "0-5")
case("idempotent producer", 22, "1", {"transactional_id": None, "transaction_timeout_ms": 5_000}, "0-5")
case("end of epoch", 23, "0", {"topics": [{"topic": TOPIC, "partitions": [{"partition": 0}]}]})
case(
    "add partitions",
    24,
    "0 1",
    {"v3_and_below_transactional_id": TRANSACTION, "v3_and_below_topics": _PARTITIONS},
    "0-3",
)
case(
    "verify partitions",
    24,
    "2",
    {"transactions": [{"transactional_id": TRANSACTION, "verify_only": True, "topics": _PARTITIONS}]},
    "4-5",
)
case("add offsets", 25, "0 1", {"transactional_id": TRANSACTION, "group_id": GROUP, "producer_id": 999})
case("end transaction", 26, "0", {"transactional_id": TRANSACTION, "producer_id": 999})
case(
    "markers",
    27,
    "0",
    {"markers": [{"producer_id": 1, "topics": [{"name": "absent", "partition_indexes": [0]}]}]},
)
case(
    "commit in a transaction",
    28,
    "0 1 2",
    {
        "transactional_id": TRANSACTION,
        "group_id": GROUP,
        "producer_id": 999,
        "topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "committed_offset": 0}]}],
    },
)
case(
    "describe acls",
    29,
    "0",
    {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
)
case("create acls", 30, "0", {"creations": [{**_ACL, "permission_type": 3}]}, only_refused=True)
case(
    "delete acls",
    31,
    "0",
    {"filters": [{"resource_type_filter": 2, "resource_name_filter": "absent", "operation": 3, "permission_type": 3}]},
)
case("settings of a topic", 32, "0", _topic_configs(TOPIC, CONFIG_TOPIC))
case("settings of a group", 32, "1", _topic_configs(GROUP, CONFIG_GROUP))
case("settings of a broker", 32, "2", _topic_configs("1", BROKER))
case("loggers of a broker", 32, "2", _topic_configs("1", LOGGER))
case("client metrics", 32, "2", _topic_configs("m", METRICS))
case("alter a topic", 33, "0", _config(CONFIG_TOPIC, TOPIC, "retention.ms", "100000"))
case("alter a group", 33, "1", _config(CONFIG_GROUP, GROUP, "consumer.session.timeout.ms", "50000"))
case("alter a broker", 33, "2", _config(BROKER, "", "log.retention.ms", "100000"))
case(
    "move between directories",
    34,
    "0",
    {"dirs": [{"path": "/absent", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
)
case("log directories", 35, "0", {"topics": []}, "3-5")
case(
    "create partitions",
    37,
    "0",
    {"topics": [{"name": TOPIC, "count": 2, "assignments": None}], "validate_only": True, "timeout_ms": 5_000},
)
case("delete group", 42, "0", {"groups_names": ["absent"]})
case("elect leaders", 43, "0", {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]})
case("change a topic", 44, "0", _config(CONFIG_TOPIC, TOPIC, "retention.ms", "100000"))
case("change a group", 44, "1", _config(CONFIG_GROUP, GROUP, "consumer.session.timeout.ms", "50000"))
case("change a broker", 44, "2", _config(BROKER, "", "log.retention.ms", "100000"))
case("change client metrics", 44, "2", _config(METRICS, "m", "metrics", "*"))
case("change a logger", 44, "2", _config(LOGGER, "1", "root", "INFO"))
case("change a logger of a controller", 44, "3", _config(LOGGER, "1", "root", "INFO"), on_controller=True)
case(
    "reassign",
    45,
    "0",
    {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}], "timeout_ms": 5_000},
)
case("reassignments", 46, "0", {"topics": [{"name": TOPIC, "partition_indexes": [0]}], "timeout_ms": 5_000})
case(
    "delete offsets",
    47,
    "0 1",
    {"group_id": GROUP, "topics": [{"name": OTHER, "partitions": [{"partition_index": 0}]}]},
)
case("describe quotas", 48, "0", {"components": [], "strict": False})
case(
    "alter quotas",
    49,
    "0",
    {
        "entries": [
            {
                "entity": [{"entity_type": "user", "entity_name": "u"}],
                "ops": [{"key": "producer_byte_rate", "value": 1e9}],
            }
        ],
        "validate_only": True,
    },
)
case("describe users", 50, "0", {"users": [{"name": "absent"}]})
case("alter users", 51, "0", {"deletions": [{"name": "absent", "mechanism": 1}], "upsertions": []})
case("quorum", 55, "0", {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]})
case(
    "features",
    57,
    "0",
    {"feature_updates": [{"feature": "absent.version", "max_version_level": 1}], "validate_only": True},
)
case("describe cluster", 60, "0", {"include_cluster_authorized_operations": True, "endpoint_type": 1})
case("describe controllers", 60, "1", {"endpoint_type": 2}, "1-2", on_controller=True)
case("producers", 61, "0", {"topics": [{"name": TOPIC, "partition_indexes": [0]}]})
case("unregister", 64, "0", {"broker_id": 77})
case("describe transaction", 65, "0", {"transactional_ids": [TRANSACTION]})
case("list transactions", 66, "0", {})
case(
    "consumer heartbeat",
    68,
    "0 1",
    {"group_id": CONSUMERS, "member_id": "absent", "member_epoch": 5, "subscribed_topic_names": [TOPIC]},
)
case("describe consumer group", 69, "0 1", {"group_ids": [CONSUMERS]})
case("list resources", 74, "0", {})
case("partitions of a topic", 75, "0", {"topics": [{"name": TOPIC}], "response_partition_limit": 100})
case("partitions of all topics", 75, "1", {"topics": [], "response_partition_limit": 100})
case(
    "share heartbeat",
    76,
    "0 1",
    {"group_id": SHARERS, "member_id": "absent", "member_epoch": 5, "subscribed_topic_names": [TOPIC]},
)
case("describe share group", 77, "0 1", {"group_ids": [SHARERS]})
case("share fetch", 78, "0 1", lambda world: _share(world, max_records=1, batch_size=1, max_bytes=1_000))
case("acknowledge", 79, "0 1", _acknowledge)
case("add voter", 80, "0", {"voter_id": 9, "cluster_id": "other", "listeners": []})
case("remove voter", 81, "0", {"voter_id": 9, "cluster_id": "other"})
for _key, _name in ((83, "initialize"), (84, "read"), (85, "write"), (86, "delete"), (87, "summarize")):
    case(f"{_name} share state", _key, "0", _state)
case("streams heartbeat", 88, "0 1", streams_member())
case("describe streams group", 89, "0 1", {"group_ids": [STREAMS]})
case(
    "share offsets",
    90,
    "0 1",
    {"groups": [{"group_id": SHARERS, "topics": [{"topic_name": TOPIC, "partitions": [0]}]}]},
)
case("all share offsets", 90, "0 2", {"groups": [{"group_id": SHARERS, "topics": None}]})
case("alter share offsets", 91, "0 1", SHARE_OFFSETS)
case("delete share offsets", 92, "0 1", {"group_id": EMPTY_SHARERS, "topics": [{"topic_name": TOPIC}]})
for _key in (52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82):
    case(f"between nodes {_key}", _key, "0", {}, on_controller=True, only_refused=True)


def rights_of(user: str) -> Iterator[Acl]:
    """The rules of a user."""
    principal = f"User:{user}"
    if user.startswith("only-"):
        yield _rule(principal, *_split(user.removeprefix("only-")), PermissionType.ALLOW)
    if user.startswith("without-"):
        for kind in ResourceType:
            if kind > ResourceType.ANY:
                yield _rule(principal, Operation.ALL, kind, PermissionType.ALLOW)
        for text in user.removeprefix("without-").split("_or_"):
            yield _rule(principal, *_split(text), PermissionType.DENY)


def _split(text: str) -> tuple[Operation, ResourceType]:
    operation, _, kind = text.partition("-")
    return Operation[operation], ResourceType[kind]


def _rule(principal: str, operation: Operation, kind: ResourceType, permission: PermissionType) -> Acl:
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else "*"
    return Acl(Pattern(kind, name), principal, "*", operation, permission)


def users() -> list[str]:
    """All users except `admin` and `nobody`."""
    needs = dict.fromkeys(chain.from_iterable(each.needs for each in CASES))
    found = dict.fromkeys(user_without(need) for need in needs)
    found |= dict.fromkeys(user_with(right) for need in needs for right in need.any_of)
    return list(found)


def errors_of(message: object) -> set[int]:
    """Each error code in a response, except for hidden settings."""
    if isinstance(message, list):
        return set().union(*map(errors_of, message)) if message else set()
    found: set[int] = set()
    for name in getattr(type(message), "__annotations__", ()):
        value = getattr(message, name, None)
        if name == "topic_config_error_code":
            continue
        if name.endswith("error_code"):
            found.add(int(value or 0))
        else:
            found |= errors_of(value)
    return found


def is_reported(need: Need) -> bool:
    """Whether a response without the right has an error."""
    return need.effect in (Effect.REFUSED, Effect.ERROR)
