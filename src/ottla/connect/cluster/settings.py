"""The settings of a distributed worker, with the names and defaults of DistributedConfig of Kafka 4.3.

One default differs: without a replication factor, topics have three replicas, or fewer in a cluster with fewer brokers.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from ottla.clients.options import COMMON_OPTIONS
from ottla.common.failure import Failure
from ottla.connect.cluster import protocol, signature, topics
from ottla.connect.cluster.member import GroupSettings
from ottla.connect.cluster.store import StoreSettings
from ottla.connect.config.definition import (
    ConfigDef,
    Importance,
    Setting,
    SettingError,
    SettingType,
    between,
    non_empty,
    one_of,
)

_S, _I, _LIST = SettingType.STRING, SettingType.INT, SettingType.LIST
_HIGH, _LOW = Importance.HIGH, Importance.LOW
_HMAC: Final = signature.DEFAULT_ALGORITHM
CLUSTER_SETTINGS: Final = ConfigDef(
    [
        Setting("bootstrap.servers", _S, "Some brokers of the cluster, as host:port.", "localhost:9092", _HIGH),
        Setting("group.id", _S, "The group of workers that share connectors.", importance=_HIGH, validator=non_empty),
        Setting("session.timeout.ms", _I, "When the group removes a worker that is silent.", 10_000, _HIGH, between(1)),
        Setting("heartbeat.interval.ms", _I, "How often a worker tells the group that it is alive.", 3_000, _HIGH,
                between(1)),
        Setting("rebalance.timeout.ms", _I, "How long the workers may take to join a rebalance.", 60_000, _HIGH,
                between(1)),
        Setting("scheduled.rebalance.max.delay.ms", _I, "How long the work of a lost worker waits for its return.",
                300_000, _LOW, between(0)),
        Setting("exactly.once.source.support", _S, "enabled: sources write records and offsets in transactions.",
                "disabled", _HIGH, one_of("disabled", "preparing", "enabled", ignore_case=True)),
        Setting("connect.protocol", _S, "How workers share work: sessioned, or compatible (internal requests are not "
                "signed).", protocol.SESSIONED, _LOW, one_of("eager", "compatible", "sessioned", ignore_case=True)),
        Setting("inter.worker.key.generation.algorithm", _S, "The algorithm of session keys.", _HMAC, _LOW),
        Setting("inter.worker.key.size", _I, "The bits of session keys; by default as many as of the hash.", None,
                _LOW),
        Setting("inter.worker.key.ttl.ms", _I, "When a session key is replaced.", 3_600_000, _LOW, between(0)),
        Setting("inter.worker.signature.algorithm", _S, "The algorithm of signatures.", _HMAC, _LOW),
        Setting("inter.worker.verification.algorithms", _LIST, "The algorithms that are accepted.", [_HMAC], _LOW),
    ]
)  # fmt: skip
_COMMON: Final = frozenset(name for each in COMMON_OPTIONS for name in (each.name, *each.aliases))


@dataclass(frozen=True)
class KeySettings:
    """How internal requests are signed (KIP-507). Times in ms."""

    signs: bool = True
    key_algorithm: str = _HMAC
    key_bytes: int = 32
    ttl_ms: int = 3_600_000
    algorithm: str = _HMAC
    accepted: tuple[str, ...] = (_HMAC,)


@dataclass(frozen=True)
class ClusterSettings:
    """The parsed settings of a worker's place in its cluster."""

    clients: Mapping[str, Any]
    store: StoreSettings
    group: GroupSettings
    keys: KeySettings
    exactly_once: bool
    tls: ssl.SSLContext | None = None
    """For requests to the leader, if it has a certificate that the system does not trust."""

    @classmethod
    def read(cls, given: Mapping[str, str], tls: ssl.SSLContext | None = None) -> ClusterSettings:
        """Parse the settings of a worker. Raises Failure."""
        try:
            values = CLUSTER_SETTINGS.parse(given)
        except SettingError as error:
            raise Failure(str(error)) from error
        if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
            raise Failure("heartbeat.interval.ms must be smaller than session.timeout.ms")
        clients = {name: value for name, value in given.items() if name in _COMMON}
        clients["bootstrap.servers"] = values["bootstrap.servers"]
        support, group_id = values["exactly.once.source.support"].lower(), values["group.id"]
        store = StoreSettings(
            clients,
            topics.config_topic(given),
            topics.status_topic(given),
            None if support == "disabled" else f"connect-cluster-{group_id}",
            support == "enabled",
        )
        group = GroupSettings(
            group_id,
            values["session.timeout.ms"],
            values["heartbeat.interval.ms"],
            values["rebalance.timeout.ms"],
            values["scheduled.rebalance.max.delay.ms"],
            _protocols(values["connect.protocol"].lower()),
        )
        keys = _keys(values, signs=protocol.SESSIONED in group.protocols)
        return cls(clients, store, group, keys, support == "enabled", tls)


def _protocols(name: str) -> tuple[str, ...]:
    if name == "eager":
        raise Failure(
            "connect.protocol is eager, which this worker does not have",
            "Remove the setting from all workers of the group; they change to sessioned in a rolling restart.",
        )
    both = (protocol.SESSIONED, protocol.COMPATIBLE)
    return both if name == protocol.SESSIONED else (protocol.COMPATIBLE,)


def _keys(values: Mapping[str, Any], *, signs: bool) -> KeySettings:
    key, algorithm = values["inter.worker.key.generation.algorithm"], values["inter.worker.signature.algorithm"]
    accepted = tuple(values["inter.worker.verification.algorithms"])
    for each in (key, algorithm, *accepted):
        if not signature.is_known(each):
            raise Failure(f"the algorithm {each} is not known", "Use HmacSHA256, HmacSHA384, HmacSHA512 or HmacSHA1.")
    if algorithm not in accepted:
        raise Failure(f"inter.worker.verification.algorithms does not have {algorithm}, with which this worker signs")
    bits = values["inter.worker.key.size"]
    size = signature.key_bytes(key) if bits is None else max(5, bits // 8)
    return KeySettings(signs, key, size, values["inter.worker.key.ttl.ms"], algorithm, accepted)
