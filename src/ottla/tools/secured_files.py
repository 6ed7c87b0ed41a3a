"""The files of a secured cluster: certificates, the settings of its nodes, and the settings of its clients.

    DIR/ca.pem  DIR/ca.key                    the authority; keep its key away from the nodes
    DIR/node-1/server.properties  keystore.pem  ca.pem      all that the first node needs
    DIR/admin.properties                      client settings of the administrator
    DIR/clients/NAME.properties  NAME.pem     client settings with a certificate
    DIR/cluster-id                            the id that several nodes are formatted with

Clients log in over TLS with a password (listener CLIENTS, SASL_SSL) or with a certificate (listener CERTIFICATES, SSL).
Nodes use mutual TLS among themselves (listeners BROKERS and CONTROLLER, SSL). The administrator and the nodes are super
users; every other client needs ACLs. Files with keys or passwords have mode 600. Stock Kafka reads the same files of a
cluster of several nodes.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.common.failure import Failure
from ottla.common.ids import uuid_to_text
from ottla.config.properties import format_properties, load_properties
from ottla.network.sasl_settings import parse_jaas

if TYPE_CHECKING:
    from types import ModuleType

    from ottla.tools.certificates import Issued

AUTHORITY, AUTHORITY_KEY, CLUSTER_ID = "ca.pem", "ca.key", "cluster-id"
KEY_STORE, SERVER_PROPERTIES, ADMIN_PROPERTIES = "keystore.pem", "server.properties", "admin.properties"
CLIENTS, CERTIFICATES, BROKERS, CONTROLLER = "CLIENTS", "CERTIFICATES", "BROKERS", "CONTROLLER"
PROTOCOLS: Final = {CLIENTS: "SASL_SSL", CERTIFICATES: "SSL", BROKERS: "SSL", CONTROLLER: "SSL"}
PORTS: Final = {CLIENTS: 9092, CONTROLLER: 9093, BROKERS: 9094, CERTIFICATES: 9095}
MOST_CONTROLLERS: Final = 3
DEFAULT_DAYS: Final = 365
AUTHORITY_DAYS: Final = 3650
# A user has a password for one of the two (`ottla security user add --mechanism`), and some clients know only one.
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MODULES: Final = "org.apache.kafka.common.security"
_PASSWORD_BYTES: Final = 24
_PRIVATE, _PUBLIC = 0o600, 0o644


class ClusterPlan(NamedTuple):
    """The nodes by their host names and addresses, the clients with certificates, and the administrator.

    `target` is the directory of a node's files on its machine; empty: where they are written.
    """

    nodes: Sequence[Sequence[str]]
    clients: Sequence[str] = ()
    admin: str = "admin"
    target: str = ""
    data: str = ""
    days: int = DEFAULT_DAYS


class SecuredFiles:
    """The directory of one cluster. Existing files stay as they are, unless certificates are renewed."""

    def __init__(self, directory: Path, now: dt.datetime | None = None) -> None:
        self.directory = directory.absolute()
        self.written: list[Path] = []
        """The files that were written, in their order."""
        self._now = now or dt.datetime.now(dt.UTC)

    def create(self, plan: ClusterPlan, *, renew: bool = False) -> None:
        """Write what does not exist yet; with `renew` also new keys and certificates of nodes and clients.

        Raises Failure, also if `cryptography` is not installed, and OSError.
        """
        password = self.password(plan.admin)
        for number, hosts in enumerate(plan.nodes, 1):
            home = self.issue(number, hosts, plan.days, renew=renew)
            settings = node_properties(plan, number, password, plan.target or str(home))
            self._write_new(home / SERVER_PROPERTIES, format_properties(settings), _PRIVATE)
        if not self.admin_properties.exists():
            self.write_admin(_addresses(plan, CLIENTS), plan.admin, password)
        for name in plan.clients:
            self._create_client(name, plan, renew=renew)

    def issue(self, number: int, hosts: Sequence[str], days: int, *, renew: bool = False) -> Path:
        """Write the key and certificate of a node, unless it has them; returns the directory of its files."""
        home, authority = self.node(number), self._authority()
        if renew or not (home / KEY_STORE).exists():
            issued = load_certificates().issue(authority, f"node-{number}", hosts, self._now, days)
            self._write(home / KEY_STORE, issued.key + issued.certificate, _PRIVATE)
        self._write_new(home / AUTHORITY, authority.certificate, _PUBLIC)
        return home

    def write_admin(self, bootstrap: str, admin: str, password: str) -> None:
        """Write the client settings of the administrator."""
        settings = password_properties(bootstrap, admin, password, str(self.directory / AUTHORITY))
        self._write(self.admin_properties, format_properties(settings), _PRIVATE)

    def password(self, admin: str) -> str:
        """Return the administrator's password from the file, or a new password. Raises Failure for another user."""
        if not re.fullmatch(r"[\w.-]+", admin):
            raise Failure(f"{admin!r} cannot be a user: use letters, digits, _, - and .", exit_code=2)
        if not self.admin_properties.exists():
            return secrets.token_urlsafe(_PASSWORD_BYTES)
        _, login = parse_jaas(load_properties(self.admin_properties).get("sasl.jaas.config", ""))
        if login.get("username") != admin or "password" not in login:
            problem = f"{self.admin_properties} has another user than {admin}"
            raise Failure(problem, "Delete it to create another administrator.", exit_code=2)
        return login["password"]

    def issue_client(self, name: str, days: int, *, renew: bool = False) -> Path:
        """Write the key and certificate `CN=name` of a client, unless it has them; returns their file."""
        store = self.directory / "clients" / f"{name}.pem"
        if not name or Path(name).name != name or name.startswith("."):
            raise Failure(f"{name!r} cannot be the name of a client's file", exit_code=2)
        if re.fullmatch(r"node-\d+", name):
            # The principal of its certificate would be a super user.
            raise Failure(f"{name} is the name of a node: a client needs another name", exit_code=2)
        if renew or not store.exists():
            issued = load_certificates().issue(self._authority(), name, (), self._now, days)
            self._write(store, issued.key + issued.certificate, _PRIVATE)
        return store

    def _create_client(self, name: str, plan: ClusterPlan, *, renew: bool) -> None:
        store = self.issue_client(name, plan.days, renew=renew)
        settings = {
            "bootstrap.servers": _addresses(plan, CERTIFICATES),
            "security.protocol": "SSL",
            **_trust(str(self.directory / AUTHORITY)),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
        }
        self._write_new(store.with_suffix(".properties"), format_properties(settings), _PRIVATE)

    def node(self, number: int) -> Path:
        """Return the directory of a node's files."""
        return self.directory / f"node-{number}"

    def cluster_id(self) -> str:
        """Return the id with which the directories of all nodes are formatted; it is random, and always the same."""
        path = self.directory / CLUSTER_ID
        if not path.exists():
            self._write(path, f"{uuid_to_text(b'o' + os.urandom(15))}\n", _PUBLIC)
        return path.read_text(encoding="utf-8").strip()

    @property
    def admin_properties(self) -> Path:
        """The client settings of the administrator."""
        return self.directory / ADMIN_PROPERTIES

    def _authority(self) -> Issued:
        """Return the authority, which is created at first."""
        certificate, key = self.directory / AUTHORITY, self.directory / AUTHORITY_KEY
        certificates = load_certificates()
        if certificate.exists():
            if not key.exists():
                raise Failure(f"{key} is missing: only it can issue certificates", "Put it back, or use another DIR.")
            found: Issued = certificates.Issued(key.read_text(), certificate.read_text())
            return found
        name = f"Ottla CA {secrets.token_hex(4)}"
        created: Issued = certificates.create_authority(name, self._now, AUTHORITY_DAYS)
        self._write(key, created.key, _PRIVATE)
        self._write(certificate, created.certificate, _PUBLIC)
        return created

    def _write_new(self, path: Path, text: str, mode: int) -> None:
        if not path.exists():
            self._write(path, text, mode)

    def _write(self, path: Path, text: str, mode: int) -> None:
        write_file(path, text, mode)
        self.written.append(path)


def load_certificates() -> ModuleType:
    """Return the module `certificates`. Raises Failure if the library that it needs is not installed."""
    try:
        from ottla.tools import certificates  # noqa: PLC0415 - needs an optional package
    except ImportError as error:
        advice = "`pip install 'ottla[security]'` installs it."
        raise Failure("certificates need the Python package cryptography, which is not installed", advice) from error
    return certificates


def write_file(path: Path, text: str, mode: int = _PRIVATE) -> None:
    """Write a file at once and with this mode, so that no reader sees a part of it. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), mode)  # whatever the umask is
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            draft.unlink()
        raise


# -- settings ------------------------------------------------------------------------------------------------------


def node_properties(plan: ClusterPlan, number: int, password: str, home: str) -> dict[str, str]:
    """Return the settings of a node whose files are in `home`."""
    count, host = len(plan.nodes), plan.nodes[number - 1][0]
    is_controller = number <= _controllers(count)
    listeners = [CLIENTS, *([CERTIFICATES] if plan.clients else []), *([BROKERS] if count > 1 else [])]
    settings = {"node.id": str(number)}
    if count > 1:
        settings["process.roles"] = "broker,controller" if is_controller else "broker"
        settings["controller.quorum.voters"] = ",".join(
            f"{voter}@{_shown(hosts[0])}:{PORTS[CONTROLLER]}"
            for voter, hosts in enumerate(plan.nodes[: _controllers(count)], 1)
        )
        settings["controller.listener.names"] = CONTROLLER
        listeners += [CONTROLLER] if is_controller else []
    settings["listeners"] = ",".join(f"{name}://{_shown(_bound(host))}:{PORTS[name]}" for name in listeners)
    settings["advertised.listeners"] = ",".join(f"{name}://{_shown(host)}:{PORTS[name]}" for name in listeners)
    settings |= security_properties(listeners, range(1, count + 1), plan.admin, password, home)
    settings["log.dirs"] = plan.data or f"{home}/data"
    if count > 1:
        replicas, in_sync = min(count, 3), 2 if count >= 3 else 1
        settings |= {
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(in_sync),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(in_sync),
            "share.coordinator.state.topic.replication.factor": str(replicas),
            "share.coordinator.state.topic.min.isr": str(in_sync),
        }
    return settings


def security_properties(
    listeners: Sequence[str], node_ids: Sequence[int], admin: str, password: str, home: str
) -> dict[str, str]:
    """Return the settings of a node's security for these of its listeners. Certificates are in `home`."""
    # A broker without the role of a controller connects to the listener CONTROLLER of other nodes.
    protocols = {name: PROTOCOLS[name] for name in (*listeners, *([CONTROLLER] if len(node_ids) > 1 else []))}
    clients = f"listener.name.{CLIENTS.lower()}"
    settings = {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
        "inter.broker.listener.name": BROKERS if BROKERS in listeners else CLIENTS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{home}/{KEY_STORE}",
        **_trust(f"{home}/{AUTHORITY}"),
        "authorizer.class.name": AUTHORIZER,
        "super.users": ";".join([f"User:{admin}", *(f"User:CN=node-{number}" for number in node_ids)]),
        f"{clients}.sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAM)),
        f"{clients}.plain.sasl.jaas.config": f'{_MODULES}.plain.PlainLoginModule required user_{admin}="{password}";',
    }
    for mechanism in SCRAM:
        settings[f"{clients}.{mechanism.lower()}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
    for name, protocol in protocols.items():
        if protocol == "SSL":
            settings[f"listener.name.{name.lower()}.ssl.client.auth"] = "required"
    return settings


def password_properties(bootstrap: str, username: str, password: str, authority: str) -> dict[str, str]:
    """Return the client settings of a user that is in the settings of the nodes (PLAIN)."""
    return {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        # The Java clients know no other form.
        "sasl.jaas.config": f'{_MODULES}.plain.PlainLoginModule required username="{username}" password="{password}";',
        **_trust(authority),
    }


def _trust(authority: str) -> Mapping[str, str]:
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}


def _controllers(count: int) -> int:
    return MOST_CONTROLLERS if count >= MOST_CONTROLLERS else 1


def _addresses(plan: ClusterPlan, listener: str) -> str:
    return ",".join(f"{_shown(hosts[0])}:{PORTS[listener]}" for hosts in plan.nodes)


def _bound(host: str) -> str:
    """The address to listen on: every interface, unless clients use an address of the loopback interface."""
    return host if host in LOCAL_HOSTS or host.startswith("127.") else ""


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
