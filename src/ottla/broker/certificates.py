"""The TLS of the node's listeners: certificates are replaced while it runs, by settings or by new files. KIP-226.

A key store that cannot be used leaves the old certificate in use, with a warning in the log. Changes by
`IncrementalAlterConfigs` are checked before the controller decides about them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from ottla.common.errors import ErrorCode, KafkaError
from ottla.config.listener_settings import prefix_of
from ottla.network.connection import ANONYMOUS
from ottla.network.errors import SecuritySettingError
from ottla.network.listener_tls import ListenerTls
from ottla.network.principals import principal_builder

if TYPE_CHECKING:
    from ottla.config import BrokerConfig, Listener

logger = logging.getLogger(__name__)

_CLIENT_AUTH: Final = "ssl.client.auth"


class Certificates:
    """The TLS of each listener that uses it, by the listener's name."""

    def __init__(self, config: BrokerConfig, listeners: Iterable[Listener]) -> None:
        """Read the key stores. Raises KafkaError (INVALID_CONFIG) if one cannot be used."""
        self._config = config
        self._listeners: dict[str, ListenerTls] = {}
        self._protocols = {each.name: each.protocol for each in listeners if each.protocol.uses_tls}
        for name in self._protocols:
            own = self._of(config, name)
            principal = self._principal(name, own)
            try:
                self._listeners[name] = ListenerTls(name, own)
            except SecuritySettingError as error:
                raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
            self._listeners[name].principal_of = principal

    def of(self, listener: str) -> ListenerTls | None:
        """The TLS of a listener; None without TLS."""
        return self._listeners.get(listener)

    def follow(self, config: BrokerConfig) -> None:
        """Use the current settings for new connections."""
        self._config = config
        self.reload()
        for name, tls in self._listeners.items():
            try:
                tls.principal_of = self._principal(name, self._of(config, name))
            except KafkaError as error:
                logger.warning("The principals of listener %s are determined as before: %s", name, error.message)

    def _principal(self, name: str, own: BrokerConfig) -> Callable[[bytes | None, str], str]:
        """With SASL the principal is the user who logs in, whatever the certificate."""
        build = principal_builder(name, own)
        return (lambda _certificate, _host: ANONYMOUS) if self._protocols[name].uses_sasl else build

    def reload(self) -> None:
        """Read the key stores again whose settings or files have changed."""
        for name, tls in self._listeners.items():
            try:
                if tls.reload(self._of(self._config, name)):
                    logger.info("Listener %s uses a new certificate or trust store for new connections", name)
            except SecuritySettingError as error:
                logger.warning(
                    "The certificate of listener %s stays as it was: %s. Correct it; the files are read again when they"
                    " change",
                    name,
                    error,
                )

    def check(self, changed: Mapping[str, str]) -> None:
        """Raise INVALID_REQUEST if a change of this broker's settings makes a key store unusable."""
        config = self._config.with_dynamic(changed, {})
        for name, tls in self._listeners.items():
            if any(each.startswith(f"{prefix_of(name)}ssl.") for each in changed):
                try:
                    tls.check(self._of(config, name))
                except SecuritySettingError as error:
                    problem = f"Validation of dynamic config update of SSLFactory failed: {error}"
                    raise KafkaError(ErrorCode.INVALID_REQUEST, problem) from error

    def _of(self, config: BrokerConfig, name: str) -> BrokerConfig:
        """The settings of a listener. With SASL only the listener's own ssl.client.auth counts (KIP-684)."""
        own = config.for_listener(name)
        if self._protocols[name].uses_sasl and f"{prefix_of(name)}{_CLIENT_AUTH}" not in config.listener_overrides:
            return own.with_dynamic({_CLIENT_AUTH: "none"}, {})
        return own
