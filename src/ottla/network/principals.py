"""The principal of a client with a TLS certificate: `principal.builder.class` and `ssl.principal.mapping.rules`.

Kafka's default builder returns `User:` with the distinguished name of the certificate, which the rules may shorten. A
Python function in its place receives a `TlsClient` and returns a principal, `Type:name`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from ottla.common.errors import ErrorCode, KafkaError
from ottla.network import plugins
from ottla.network.connection import ANONYMOUS
from ottla.security.certificate import distinguished_name
from ottla.security.principal_rules import PrincipalRules

if TYPE_CHECKING:
    from ottla.config import BrokerConfig

KAFKAS_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
_BUILDER: Final = "principal.builder.class"
_RULES: Final = "ssl.principal.mapping.rules"


class TlsClient(NamedTuple):
    """A client whose TLS handshake is complete."""

    listener: str
    host: str
    certificate: bytes | None
    """The verified certificate in DER; None if the client presented none."""
    distinguished_name: str | None
    """The subject of the certificate, as Java writes it (RFC 2253)."""


PrincipalBuilder: TypeAlias = Callable[[TlsClient], str]


def principal_builder(listener: str, config: BrokerConfig) -> Callable[[bytes | None, str], str]:
    """Return a function of a certificate and a host; `config` has the settings of the listener.

    Raises KafkaError for an unknown class or a broken rule. The function raises ValueError if no rule matches.
    """
    name = config.text(_BUILDER) or KAFKAS_BUILDER
    builder: PrincipalBuilder = _default(config) if name == KAFKAS_BUILDER else plugins.load(_BUILDER, name)
    is_default = name == KAFKAS_BUILDER

    def build(certificate: bytes | None, host: str) -> str:
        subject = None if certificate is None else distinguished_name(certificate)
        client = TlsClient(listener, host, certificate, subject)
        if is_default:
            return builder(client)
        try:
            principal = builder(client)
        except Exception as error:  # the operator's code: the client is refused, the others are served
            raise ValueError(f"{_BUILDER}={name} raised {type(error).__name__}") from error
        if not isinstance(principal, str) or not all(principal.partition(":")):
            raise ValueError(f"{_BUILDER}={name} returned a value that is not of the form Type:name")
        return principal

    return build


def _default(config: BrokerConfig) -> PrincipalBuilder:
    try:
        rules = PrincipalRules(config.text(_RULES) or "DEFAULT")
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"{_RULES}: {error}") from error

    def build(client: TlsClient) -> str:
        return ANONYMOUS if client.distinguished_name is None else f"User:{rules.name(client.distinguished_name)}"

    return build
