"""Settings of the console: the cluster, the addresses, the protections."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ottla.console.masking import Masks

DEFAULT_LISTEN: Final = "127.0.0.1:8083"
# Names and passwords that identify a user. Each user of the console signs in with own ones.
_OF_USERS: Final = ("sasl.username", "sasl.password", "sasl.jaas.config", "sasl.oauth.token.provider")
_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """The settings of a console. `clients` has the settings of the kinds admin, consumer and producer."""

    clients: Mapping[str, Mapping[str, object]] = field(repr=False)
    listen: str = DEFAULT_LISTEN
    registry: Mapping[str, object] | None = field(default=None, repr=False)
    """Settings of the registry's clients, with `schema.registry.url`; None: records are shown without schemas."""
    connect: str | None = None
    """The URL of a Connect worker."""
    tls: Mapping[str, str] = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    """Names of this machine that browsers may use, besides addresses and localhost."""
    masks: Masks = field(default_factory=Masks)
    read_only: bool = False
    insecure: bool = False
    access_log: bool = False
    signs_in: bool = True
    """Whether each user signs in, if the brokers identify users. If not, all requests act as the user in `clients`."""
    session_idle_s: float = 1800.0
    session_most_s: float = 12 * 3600.0
    failed_login_delay_s: float = 1.0

    @property
    def bootstrap(self) -> str:
        """The addresses of brokers, separated by commas."""
        servers = self.clients["admin"]["bootstrap.servers"]
        return servers if isinstance(servers, str) else ",".join(map(str, servers))  # type: ignore[call-overload]

    @property
    def uses_sasl(self) -> bool:
        """Whether the brokers identify users by SASL, so that the console has a sign-in."""
        protocol = self.clients["admin"].get("security.protocol", "PLAINTEXT")
        return str(protocol).upper().startswith("SASL")

    @property
    def needs_login(self) -> bool:
        """Whether requests need a session of a user."""
        return self.uses_sasl and self.signs_in

    def client(self, kind: str, user: str | None = None, password: str = "") -> dict[str, object]:
        """Return the settings of a client of this kind, as this user."""
        given = {name.replace("_", "."): value for name, value in self.clients[kind].items()}
        if self.needs_login:
            given = {name: value for name, value in given.items() if name not in _OF_USERS}
            mechanism = str(given.get("sasl.mechanism", "SCRAM-SHA-512")).upper()
            given["sasl.mechanism"] = mechanism if mechanism in _MECHANISMS else "SCRAM-SHA-512"
            given |= {"sasl.username": user, "sasl.password": password}
        return {**given, "client.id": "ottla-console"} if self.signs_in else given
