"""TLS and SASL of the connections from this node to other nodes, from the node's settings. KIP-103, KIP-684.

    security = PeerSecurity(config)      # raises KafkaError for settings that cannot work
    NodeChannels(client_id, options=security.brokers)

Connections to brokers use the settings of the listener between brokers. Connections to controllers use the settings of
the first listener of `controller.listener.names`. Key files are read again for the first connection after they changed,
so that a rotated certificate needs no restart. If the new files cannot be read, connections use the previous ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.cluster.node import late
from ottla.common.errors import ErrorCode, KafkaError
from ottla.network.errors import SecuritySettingError
from ottla.network.key_stores import file_versions, key_store_options
from ottla.network.node_channel import DEFAULT_OPTIONS, ChannelOptions

if TYPE_CHECKING:
    import ssl

    from ottla.config import BrokerConfig
    from ottla.network.sasl import SaslSource
    from ottla.security.mechanism import SaslClient

logger = logging.getLogger(__name__)

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_BROKER_MECHANISM: Final = "sasl.mechanism.inter.broker.protocol"
_CONTROLLER_MECHANISM: Final = "sasl.mechanism.controller.protocol"
_SASL_SETTINGS: Final = (
    "sasl.jaas.config",
    "sasl.oauthbearer.assertion.algorithm",
    "sasl.oauthbearer.assertion.claim.aud",
    "sasl.oauthbearer.assertion.claim.exp.seconds",
    "sasl.oauthbearer.assertion.claim.iss",
    "sasl.oauthbearer.assertion.claim.jti.include",
    "sasl.oauthbearer.assertion.claim.nbf.seconds",
    "sasl.oauthbearer.assertion.claim.sub",
    "sasl.oauthbearer.assertion.file",
    "sasl.oauthbearer.assertion.private.key.file",
    "sasl.oauthbearer.assertion.private.key.passphrase",
    "sasl.oauthbearer.assertion.template.file",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
    "sasl.oauthbearer.jwt.retriever.class",
    "sasl.oauthbearer.scope",
    "sasl.oauthbearer.token.endpoint.url",
)
# Settings that only clients have.
_TLS_DEFAULTS: Final[Mapping[str, Any]] = {
    "ssl_context": None,
    "ssl_certificate_location": None,
    "ssl_key_location": None,
    "enable_ssl_certificate_verification": True,
}
_SASL_DEFAULTS: Final[Mapping[str, Any]] = {
    "sasl_username": None,
    "sasl_password": None,
    "sasl_oauth_token_provider": None,
    "sasl_oauthbearer_extensions": (),
}


class PeerSecurity:
    """The options of this node's connections; `current()` returns its settings with the dynamic ones."""

    def __init__(self, config: BrokerConfig, current: Callable[[], BrokerConfig] | None = None) -> None:
        current = current or (lambda: config)
        # A node that no other node can find needs no credentials for other nodes.
        is_alone = config.roles.is_single and not config.controller_listeners
        broker = "" if is_alone else config.inter_broker_listener
        controller = "" if is_alone else next(iter(config.items("controller.listener.names")), "")
        self.brokers: ChannelOptions = _options(broker, _BROKER_MECHANISM, current)
        """For connections to brokers."""
        self.controllers: ChannelOptions = _options(controller.upper(), _CONTROLLER_MECHANISM, current)
        """For connections to controllers."""


def _options(listener: str, mechanism_setting: str, current: Callable[[], BrokerConfig]) -> ChannelOptions:
    if not listener:
        return DEFAULT_OPTIONS
    protocol = current().security_protocol(listener)
    tls = TlsOfPeers(listener, current) if protocol.uses_tls else None
    sasl = SaslOfPeers(listener, mechanism_setting, current) if protocol.uses_sasl else None
    return ChannelOptions(tls=tls, sasl=sasl, advice=_advice(listener, mechanism_setting, tls, sasl))


def _advice(listener: str, mechanism_setting: str, tls: TlsOfPeers | None, sasl: SaslOfPeers | None) -> str:
    """Return the settings that decide whether the other node accepts this one, for a log line."""
    prefix = f"listener.name.{listener.lower()}."
    settings = [f"{prefix}ssl.keystore.location and ssl.truststore.location"] if tls is not None else []
    if sasl is not None:
        settings.append(f"{mechanism_setting}={sasl.mechanism} and {prefix}{sasl.mechanism.lower()}.sasl.jaas.config")
    return f"check {', '.join(settings)} of this node, and the same listener of the other node" if settings else ""


class TlsOfPeers:
    """The TLS context of new connections: call it for each. Its creation raises KafkaError for wrong settings."""

    def __init__(self, listener: str, current: Callable[[], BrokerConfig]) -> None:
        self._listener = listener
        self._current = current
        self._state: object = None
        self._context = self._load(self._options())

    def __call__(self) -> ssl.SSLContext:
        """Return the context; it is built again after its settings or files changed."""
        options = self._options()
        if _state(options) == self._state:
            return self._context
        try:
            self._context = self._load(options)
        except KafkaError as error:
            logger.warning("Connections by listener %s use the previous certificates: %s", self._listener, error)
        else:
            logger.info("Loaded the changed certificates of connections by listener %s", self._listener)
        return self._context

    def _options(self) -> dict[str, Any]:
        return _tls_options(self._current().for_listener(self._listener))

    def _load(self, options: Mapping[str, Any]) -> ssl.SSLContext:
        # Files that change during this are loaded again for the next connection.
        self._state = _state(options)
        try:
            return late.tls_context(options)
        except SecuritySettingError as error:
            raise _invalid(self._listener, error) from error


class SaslOfPeers:
    """The source of SASL exchanges (`SaslSource`) for new connections and renewals."""

    def __init__(self, listener: str, mechanism_setting: str, current: Callable[[], BrokerConfig]) -> None:
        self._listener = listener
        self._mechanism_setting = mechanism_setting
        self._current = current
        self._options: Mapping[str, Any] | None = None
        self._source: SaslSource
        self._refresh()

    @property
    def mechanism(self) -> str:
        """The mechanism of new connections."""
        return str(self._current().for_listener(self._listener).text(self._mechanism_setting))

    async def __call__(self) -> SaslClient:
        """Return a new exchange. Raises NetworkError if a token cannot be obtained."""
        try:
            self._refresh()
        except KafkaError as error:
            logger.warning("Connections by listener %s use the previous credentials: %s", self._listener, error)
        return await self._source()

    def _refresh(self) -> None:
        options = self._read_options()
        if options == self._options:
            return
        self._options = options
        try:
            self._source = late.sasl_source(options)
        except SecuritySettingError as error:
            raise _invalid(f"{self._listener}.{options['sasl_mechanism'].lower()}", error) from error

    def _read_options(self) -> Mapping[str, Any]:
        mechanism = self.mechanism
        if mechanism not in MECHANISMS:
            text = f"{self._mechanism_setting}={mechanism} is not supported: set it to one of {', '.join(MECHANISMS)}"
            raise KafkaError(ErrorCode.INVALID_CONFIG, text)
        config = self._current().for_listener(self._listener, mechanism)
        return {
            **_SASL_DEFAULTS,
            **{name.replace(".", "_"): config[name] for name in _SASL_SETTINGS},
            "sasl_mechanism": mechanism,
        }


def _tls_options(config: BrokerConfig) -> dict[str, Any]:
    name = "ssl.endpoint.identification.algorithm"
    return {**_TLS_DEFAULTS, name.replace(".", "_"): config[name], **key_store_options(config)}


def _invalid(prefix: str, error: SecuritySettingError) -> KafkaError:
    text = f"listener.name.{prefix.lower()}: {error}"
    return KafkaError(ErrorCode.INVALID_CONFIG, text)


def _state(options: Mapping[str, Any]) -> object:
    return options, file_versions(options)
