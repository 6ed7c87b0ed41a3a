"""A broker for tests with TLS, SASL or both: its settings, its users, and the settings of their clients.

The files are in a directory that `close` deletes. Certificates need the extra `ottla[security]`.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

from ottla.tools.secured_files import AUTHORITY, KEY_STORE, LOCAL_HOSTS, SecuredFiles

LISTENER: Final = "SECURED"
PROTOCOLS: Final = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
DEFAULT_USERS: Final = ("test",)
_CERTIFICATE_DAYS: Final = 2
_PLAIN_MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"


class BrokerSecurity:
    """The security of one broker. Each user logs in with a password (SASL) or with a certificate `CN=user` (SSL)."""

    def __init__(self, protocol: str, users: Iterable[str] = DEFAULT_USERS) -> None:
        """Create the certificates. Raises ValueError for another protocol or a user that cannot be in settings."""
        if protocol not in PROTOCOLS:
            raise ValueError(f"security={protocol!r} is not one of {', '.join(PROTOCOLS)}")
        self.protocol = protocol
        self.users = tuple(users)
        if not self.users:
            raise ValueError("users: a secured broker needs at least one user")
        self._directory = Path(tempfile.mkdtemp(prefix="ottla-test-security-"))
        self._files = SecuredFiles(self._directory)
        self._passwords = {user: self._files.password(user) for user in self.users}
        if self.uses_tls:
            self._home = self._files.issue(1, LOCAL_HOSTS, _CERTIFICATE_DAYS)
            if not self.uses_sasl:
                self._stores = {user: self._files.issue_client(user, _CERTIFICATE_DAYS) for user in self.users}

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol != "SASL_PLAINTEXT"

    @property
    def uses_sasl(self) -> bool:
        """Whether users log in with passwords."""
        return self.protocol != "SSL"

    def broker_settings(self) -> dict[str, object]:
        """Return the settings of the broker."""
        prefix = f"listener.name.{LISTENER.lower()}."
        settings: dict[str, object] = {
            "listener.security.protocol.map": f"{LISTENER}:{self.protocol}",
            "inter.broker.listener.name": LISTENER,
        }
        if self.uses_sasl:
            logins = " ".join(f'user_{user}="{password}"' for user, password in self._passwords.items())
            settings[f"{prefix}sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
            settings[f"{prefix}plain.sasl.jaas.config"] = f"{_PLAIN_MODULE} {logins};"
        if self.uses_tls:
            settings["ssl.keystore.type"] = settings["ssl.truststore.type"] = "PEM"
            settings["ssl.keystore.location"] = str(self._home / KEY_STORE)
            settings["ssl.truststore.location"] = str(self._home / AUTHORITY)
        if not self.uses_sasl:
            settings[f"{prefix}ssl.client.auth"] = "required"
        return settings

    def client_settings(self, user: str | None = None) -> dict[str, str]:
        """Return the client settings of a user, by default of the first one, by Kafka's names. Raises ValueError."""
        name = user or self.users[0]
        if name not in self.users:
            raise ValueError(f"user={name!r} is not one of {', '.join(self.users)}")
        settings = {"security.protocol": self.protocol}
        if self.uses_sasl:
            settings |= {"sasl.mechanism": "PLAIN", "sasl.username": name, "sasl.password": self._passwords[name]}
        if self.uses_tls:
            settings["ssl.truststore.location"] = str(self._directory / AUTHORITY)
        if not self.uses_sasl:
            settings["ssl.keystore.location"] = str(self._stores[name])
        return settings

    def close(self) -> None:
        """Delete the certificates."""
        shutil.rmtree(self._directory, ignore_errors=True)


# -- the settings of other libraries -----------------------------------------------------------------------------------

_LIBRDKAFKA: Final = {
    "ssl.truststore.location": ("ssl.ca.location",),
    "ssl.keystore.location": ("ssl.certificate.location", "ssl.key.location"),
}
_KAFKA_PYTHON: Final = {
    "bootstrap.servers": ("bootstrap_servers",),
    "security.protocol": ("security_protocol",),
    "sasl.mechanism": ("sasl_mechanism",),
    "sasl.username": ("sasl_plain_username",),
    "sasl.password": ("sasl_plain_password",),
    "ssl.truststore.location": ("ssl_cafile",),
    "ssl.keystore.location": ("ssl_certfile", "ssl_keyfile"),
}


def _renamed(names: dict[str, tuple[str, ...]]) -> Callable[[dict[str, str]], dict[str, str]]:
    return lambda settings: {other: value for name, value in settings.items() for other in names.get(name, (name,))}


LIBRARIES: Final = {
    "ottla": _renamed({}),
    "confluent-kafka": _renamed(_LIBRDKAFKA),
    "kafka-python": _renamed(_KAFKA_PYTHON),
}
"""By its name on PyPI: how a library names these settings."""


def settings_for(library: str, settings: dict[str, str]) -> dict[str, str]:
    """Return settings by the names of a library. Raises ValueError for an unknown one."""
    if library not in LIBRARIES:
        raise ValueError(f"library={library!r} is not one of {', '.join(LIBRARIES)}")
    return LIBRARIES[library](settings)
