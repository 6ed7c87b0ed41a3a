"""The nodes of `ottla up --brokers N`: their directories below one, their ports, and their settings.

DIR/node-1, DIR/node-2, ... each have `server.properties`, which is written again at each start, and `data`. The first
three nodes are controllers too; with fewer than three only the first, because a quorum of two survives no failure.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from ottla.cluster.formatting import NodeFormat, format_node
from ottla.common.clock import SystemClock
from ottla.common.failure import Failure, failing_on
from ottla.common.ids import uuid_to_text
from ottla.common.system_random import random_uuid
from ottla.config import INSECURE, BrokerConfig, ConfigError, format_properties
from ottla.config.metrics_rows import LISTENER
from ottla.launch.secured import LocalSecurity, refuse_own
from ottla.launch.settings import LOOPBACK, data_directory, listen_address, metrics_address
from ottla.launch.storage import cannot_listen, unusable
from ottla.log.creation import removed_if_refused
from ottla.log.files import Files
from ottla.log.storage import META_PROPERTIES, DirectoryLock, StorageError, read_meta
from ottla.network.sockets import ListenError, bind
from ottla.tools.secured_files import write_file
from ottla.tools.values import name_and_value, read_properties

DEFAULT_PORT = 9092
MOST_BROKERS = 64
SERVER_PROPERTIES = "server.properties"
CONTROLLERS = 3
# `--brokers` decides these settings.
_OWN = (
    "advertised.listeners",
    "broker.id",
    "controller.listener.names",
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
    "listeners",
    "log.dir",
    "log.dirs",
    "metadata.log.dir",
    "node.id",
    "process.roles",
)


class LocalNode(NamedTuple):
    """One node, with the file of its settings."""

    node_id: int
    properties_file: Path
    data: Path


def prepare(options: SimpleNamespace, brokers: int, security: LocalSecurity | None = None) -> list[LocalNode]:
    """Write the settings of each node, and format the new ones; raises Failure."""
    home = Path(data_directory(options)).absolute()
    _check_home(home, brokers)
    given = _given(options)
    nodes = [LocalNode(i, home / f"node-{i}" / SERVER_PROPERTIES, home / f"node-{i}" / "data") for i in _ids(brokers)]
    settings = [
        given | own | {"log.dirs": str(node.data)}
        for node, own in zip(nodes, _settings(options, brokers, given), strict=True)
    ]
    for position, each in enumerate(settings):
        if metrics := metrics_address(options, position):
            each[LISTENER] = metrics
    if security is not None:
        _secure(options, given, settings, security)
    with failing_on(ConfigError):
        configs = [BrokerConfig(properties) for properties in settings]
    created = [str(path) for node in nodes for path in (node.data, node.properties_file.parent)]
    try:
        with removed_if_refused(Files(), created, [SERVER_PROPERTIES]), failing_on(StorageError, exit_code=1):
            for node, config in zip(nodes, configs, strict=True):
                _check_free(node, config)
            for node, properties in zip(nodes, settings, strict=True):
                node.properties_file.parent.mkdir(parents=True, exist_ok=True)
                write_file(node.properties_file, format_properties(properties))
            format_nodes(nodes)
    except OSError as error:
        raise unusable(str(error.filename or home), error) from error
    return nodes


def _secure(
    options: SimpleNamespace, given: Mapping[str, str], settings: list[dict[str, str]], security: LocalSecurity
) -> None:
    """Replace the listeners of all nodes by secured ones."""
    refuse_own(given)
    host = listen_address(options.listen)[0] if options.listen else LOOPBACK
    try:
        for node_id, each in enumerate(settings, 1):
            each |= security.settings(node_id, len(settings), host, each["listeners"])
    except OSError as error:
        raise unusable(str(error.filename), error) from error


def _check_free(node: LocalNode, config: BrokerConfig) -> None:
    """Raise StorageError or Failure if another process has the node's directory or address.

    The node's own process would find out after its settings were overwritten, and after other nodes had started.
    """
    if node.data.is_dir():
        lock = DirectoryLock(str(node.data))
        lock.acquire()
        lock.release()
    for listener in config.listeners:
        try:
            sockets = bind(listener, config)
        except ListenError as error:
            refused = cannot_listen(error)
            raise Failure(f"node {node.node_id} cannot start: {refused.problem}", *refused.advice) from error
        for each in sockets:
            each.close()


def _ids(brokers: int) -> range:
    return range(1, brokers + 1)


def _check_home(home: Path, brokers: int) -> None:
    if (home / META_PROPERTIES).exists():
        raise Failure(
            f"{home} has the data of a single broker",
            "Choose another directory for a cluster with --data DIR, or start it without --brokers.",
        )
    known = [path for path in home.glob("node-*") if (path / "data" / META_PROPERTIES).exists()]
    if len(known) > brokers:
        raise Failure(
            f"{home} has a cluster of {len(known)} brokers",
            f"Start all of them: --brokers {len(known)}. `ottla broker drain` removes a broker from a running cluster.",
        )


def _given(options: SimpleNamespace) -> dict[str, str]:
    """The settings of the user, for every node."""
    properties = read_properties(options.config) if options.config else {}
    for name in _OWN:
        properties.pop(name, None)
    if getattr(options, "insecure", False):
        properties[INSECURE] = "true"
    overrides = dict(name_and_value(override, "-X") for override in options.overrides)
    own = sorted(overrides.keys() & set(_OWN))
    if own or options.node_id is not None:
        problem = f"--brokers sets {own[0] if own else 'node.id'} of each node itself"
        raise Failure(problem, "Nodes with settings of their own: one `ottla up --config FILE` each.", exit_code=2)
    return properties | overrides


def _settings(options: SimpleNamespace, brokers: int, given: Mapping[str, str]) -> list[dict[str, str]]:
    host, port = listen_address(options.listen) if options.listen else (LOOPBACK, DEFAULT_PORT)
    if port + brokers - 1 > 65535:
        raise Failure(f"--listen: the ports {port} to {port + brokers - 1} are not all below 65536", exit_code=2)
    return node_settings(brokers, host, port, given)


def node_settings(
    brokers: int, host: str, port: int, given: Mapping[str, str], controller_ports: Sequence[int] = ()
) -> list[dict[str, str]]:
    """Return the settings of each node that differ from Kafka's defaults and that `given` does not have.

    `port` is the first broker's; 0: free ports. `controller_ports` are at least three; none: free ports.
    """
    shown = f"[{host}]" if ":" in host else host
    controllers = list(_ids(CONTROLLERS if brokers >= CONTROLLERS else 1))
    # Static voters may have other ports after each start, because all of them start together.
    ports = dict(zip(controllers, controller_ports or free_ports(len(controllers)), strict=False))
    replicas, in_sync = min(brokers, 3), 2 if brokers >= 3 else 1
    common = {
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{i}@{LOOPBACK}:{ports[i]}" for i in controllers),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
    }
    common |= {
        name: str(value)
        for name, value in {
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": replicas,
            "share.coordinator.state.topic.min.isr": in_sync,
        }.items()
        if name not in given
    }
    settings = []
    for node_id in _ids(brokers):
        listeners = f"PLAINTEXT://{shown}:{port + node_id - 1 if port else 0}"
        if node_id in ports:
            listeners += f",CONTROLLER://{LOOPBACK}:{ports[node_id]}"
        roles = "broker,controller" if node_id in ports else "broker"
        settings.append(common | {"node.id": str(node_id), "process.roles": roles, "listeners": listeners})
    return settings


def free_ports(count: int) -> list[int]:
    """Return different ports of the loopback interface that are free now."""
    sockets = [socket.create_server((LOOPBACK, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def format_nodes(nodes: list[LocalNode]) -> None:
    """Format the new nodes for the cluster of the others, or for a new one. Raises StorageError and OSError."""
    files = Files()
    metas = [read_meta(files, str(node.data)) if node.data.is_dir() else None for node in nodes]
    cluster_id = next((meta.cluster_id for meta in metas if meta is not None), uuid_to_text(b"o" + os.urandom(15)))
    for node in nodes:
        wanted = NodeFormat(node.node_id, cluster_id, [str(node.data)], str(node.data))
        format_node(files, wanted, random_uuid, SystemClock().wall_ms(), ignore_formatted=True)
