"""Stock Kafka with every kind of listener, made from what is on the machine: `openssl`, and Kafka's own storage tool.

One broker with listeners: PLAINTEXT (for itself), SSL (a client certificate if the client has one), MTLS (one is
needed), SASL_PLAINTEXT, SASL_SSL and SHORT, with PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 and OAUTHBEARER with unsecured
tokens. StandardAuthorizer keeps who is not a super user out of everything that no ACL allows.

Users: `admin` (super user), `alice`, `reader`, each with the password NAME-secret, by PLAIN and SCRAM alike.
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from .kafka import StockKafka, free_ports

PASSWORD = "store-secret"
USERS = ("admin", "alice", "reader")
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = ("PLAIN", *SCRAM, "OAUTHBEARER")
SESSION_MS = 2_000
LISTENERS = ("SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL", "SHORT", "WRONG_HOST", "EXPIRED")
_PACKAGE = "org.apache.kafka.common.security"


def password_of(user: str) -> str:
    """A user's password, by PLAIN and by SCRAM."""
    return f"{user}-secret"


class Certificates:
    """A small authority and what it signed, as PEM files, made on first use in a directory.

    `ca`, `other_ca` (an authority that signed nothing), `server`, `wrong_host`, `expired`, `client`: certificates with
    their keys in one file each; `server` is for localhost and 127.0.0.1.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.ca = self._authority("ca")
        self.other_ca = self._authority("other-ca")
        self.server = self._signed("server", "DNS:localhost,IP:127.0.0.1")
        self.wrong_host = self._signed("wrong-host", "DNS:kafka.example.com")
        self.expired = self._signed("expired", "DNS:localhost,IP:127.0.0.1", days=-1)
        self.client = self._signed("client", None)
        self.other_client = self._signed("other-client", None, by="other-ca")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments],
            cwd=self.directory,
            check=True,
            timeout=30,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def _authority(self, name: str) -> Path:
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        uses = ("-addext", "keyUsage=critical,keyCertSign,cRLSign")
        self._openssl("req", "-x509", *key, "-days", "30", "-subj", f"/CN={name}", *uses, "-out", f"{name}.pem")
        return self.directory / f"{name}.pem"

    def _signed(self, name: str, names: str | None, days: int = 30, by: str = "ca") -> Path:
        """Key and certificate in one file; the key alone is NAME.key, the certificate NAME.crt."""
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key")
        self._openssl("req", "-new", *key, "-subj", f"/CN={name}", "-out", f"{name}.csr")
        extensions = self.directory / f"{name}.ext"
        extensions.write_text(f"subjectAltName={names}\n" if names else "basicConstraints=CA:FALSE\n")
        signer = ("-CA", f"{by}.pem", "-CAkey", f"{by}.key", "-CAcreateserial", "-extfile", extensions.name)
        self._openssl("x509", "-req", "-in", f"{name}.csr", *signer, "-days", str(days), "-out", f"{name}.crt")
        whole = self.directory / f"{name}.pem"
        parts = [(self.directory / f"{name}{suffix}").read_text() for suffix in (".key", ".crt")]
        whole.write_text("".join(parts) + (self.directory / f"{by}.pem").read_text())
        return whole

    def text(self, name: str) -> str:
        """The text of a file: "client.key", "client.crt", "ca.pem"."""
        return (self.directory / name).read_text()


class SecuredKafka(StockKafka):
    """One stock broker that wants to know who one is; `address(listener)` is where each listener is.

    SHORT is SASL_PLAINTEXT without SCRAM-SHA-256, and its sessions last 2 s (connections.max.reauth.ms). WRONG_HOST and
    EXPIRED are SSL with certificates that no client should take.
    """

    def __init__(self, directory: Path, overrides: Mapping[str, object] | None = None) -> None:
        self.certificates = Certificates(directory / "certificates")
        self._ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
        users = [f"--add-scram={name}=[name={u},password={password_of(u)}]" for u in USERS for name in SCRAM]
        super().__init__(directory, 1, overrides, format_options=users)

    def address(self, listener: str) -> str:
        """host:port of a listener, by its name."""
        return f"127.0.0.1:{self._ports[listener]}"

    def _settings(self, index: int, ports: list[int]) -> dict[str, object]:
        settings = super()._settings(index, ports)
        own = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        settings["listeners"] = f"{settings['listeners']},{own}"
        settings["listener.security.protocol.map"] = (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MTLS:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,"
            "SASL_SSL:SASL_SSL,SHORT:SASL_PLAINTEXT,WRONG_HOST:SSL,EXPIRED:SSL"
        )
        settings |= {
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            # ANONYMOUS is who comes by PLAINTEXT, SSL without a certificate, and the broker itself.
            "super.users": "User:ANONYMOUS;User:admin;User:CN=client",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.certificates.server,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.certificates.ca,
            "listener.name.ssl.ssl.client.auth": "requested",
            "listener.name.mtls.ssl.client.auth": "required",
            "connection.failed.authentication.delay.ms": 20,
            "delegation.token.secret.key": "delegation-secret",
        }
        for listener in ("sasl_plaintext", "sasl_ssl", "short"):
            settings |= _sasl_settings(f"listener.name.{listener}")
        settings["listener.name.short.sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-512,OAUTHBEARER"
        for mechanism in MECHANISMS:
            settings[f"listener.name.short.{mechanism.lower()}.connections.max.reauth.ms"] = SESSION_MS
        for listener, store in (
            ("wrong_host", self.certificates.wrong_host),
            ("expired", self.certificates.expired),
        ):
            settings[f"listener.name.{listener}.ssl.keystore.location"] = store
            settings[f"listener.name.{listener}.ssl.keystore.type"] = "PEM"
        return settings


def _sasl_settings(prefix: str) -> dict[str, object]:
    users = " ".join(f'user_{user}="{password_of(user)}"' for user in USERS)
    settings: dict[str, object] = {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_PACKAGE}.plain.PlainLoginModule required {users};",
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{_PACKAGE}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    for mechanism in SCRAM:
        settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{_PACKAGE}.scram.ScramLoginModule required;"
    return settings
