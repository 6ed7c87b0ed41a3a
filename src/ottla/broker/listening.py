"""The listening sockets of one node: for clients, and for the controller if it has its own listeners.

All sockets are bound before the broker registers, so that port 0 is replaced by a real port. Client sockets accept
connections when everything else is ready; the sockets of a controller with other voters as soon as it is in the quorum.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.network.sockets import bind, is_loopback

if TYPE_CHECKING:
    from ottla.broker.broker import Broker
    from ottla.broker.certificates import Certificates
    from ottla.config import BrokerConfig, Listener
    from ottla.network.connection import Dispatch
    from ottla.network.server import Server

logger = logging.getLogger(__name__)


class Listeners:
    """The sockets: `bind`, then `open_clients` and `open_controllers`; `close` may be called at any time."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        # For each listener one or more sockets: a host may have several addresses.
        self._clients: list[list[socket.socket]] = []
        self._controllers: list[list[socket.socket]] = []
        self.certificates: Certificates | None = None
        """The TLS of the listeners, after `bind`; None if no listener uses it."""

    def bind(self) -> None:
        """Bind every listener.

        Raises ListenError, or KafkaError: for a setting of TLS or SASL that is wrong, and for a listener that other
        machines can reach without authentication, unless the settings allow that.
        """
        config = self._config
        # Most nodes of a developer have neither TLS nor SASL, and need not load the code.
        every = (*config.listeners, *config.controller_listeners)
        for listener in every:
            if listener.protocol.uses_sasl:
                from ottla.broker.sasl_mechanisms import prepared  # noqa: PLC0415

                prepared(config, listener.name)
        if any(each.protocol.uses_tls for each in every):
            from ottla.broker.certificates import Certificates  # noqa: PLC0415

            self.certificates = Certificates(config, every)
        for listeners, bound in ((config.listeners, self._clients), (config.controller_listeners, self._controllers)):
            for listener in listeners:
                bound.append(bind(listener, config))
        reachable = [
            listener
            for listener, sockets in zip(every, (*self._clients, *self._controllers), strict=True)
            if not all(map(is_loopback, sockets))
        ]
        exposed = ", ".join(str(listener) for listener in reachable if not self._authenticates(listener))
        if exposed and not config.is_insecure:
            self.close()
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{exposed} would be open to other machines without authentication: use SASL or"
                " ssl.client.auth=required, listen on 127.0.0.1, or start with --insecure (ottla.insecure=true)",
            )
        if exposed:
            logger.warning(
                "Listening on %s, which other machines can reach, without authentication: any client that connects can"
                " read and write all data. Protect it with a firewall, or listen on 127.0.0.1",
                exposed,
            )
        readable = ", ".join(str(listener) for listener in reachable if self._sends_secrets(listener))
        if readable:
            logger.warning(
                "Listening on %s, which other machines can reach, without encryption: passwords and tokens of PLAIN and"
                " OAUTHBEARER can be read on the network. Use SASL_SSL, or SCRAM",
                readable,
            )

    def _sends_secrets(self, listener: Listener) -> bool:
        """Whether clients send passwords or tokens without encryption."""
        mechanisms = self._config.for_listener(listener.name).items("sasl.enabled.mechanisms")
        sends = "PLAIN" in mechanisms or "OAUTHBEARER" in mechanisms
        return sends and listener.protocol.uses_sasl and not listener.protocol.uses_tls

    def _authenticates(self, listener: Listener) -> bool:
        """Whether each client of the listener has to prove who it is."""
        if listener.protocol.uses_sasl:
            return True
        client_auth = self._config.for_listener(listener.name).text("ssl.client.auth")
        return listener.protocol.uses_tls and client_auth == "required"

    @property
    def advertised(self) -> list[Listener]:
        """The advertised listeners, with the bound ports."""
        return _with_ports(self._config.advertised, self._clients)

    @property
    def advertised_controllers(self) -> list[Listener]:
        """The controller's listeners, with the bound ports."""
        return _with_ports(self._config.advertised_controllers, self._controllers)

    def open_clients(self, broker: Broker, server: Server) -> None:
        """Accept connections of clients and other brokers."""
        for listener, sockets in zip(self._config.listeners, self._clients, strict=True):
            self._open(broker, server, listener, sockets, server.dispatch)

    def open_controllers(self, broker: Broker, server: Server, controller: Dispatch) -> None:
        """Accept connections to the controller; `controller` handles the requests."""
        for listener, sockets in zip(self._config.controller_listeners, self._controllers, strict=True):
            self._open(broker, server, listener, sockets, controller)

    def _open(
        self, broker: Broker, server: Server, listener: Listener, sockets: list[socket.socket], dispatch: Dispatch
    ) -> None:
        first_frame_bytes = None
        if listener.protocol.uses_sasl:
            from ottla.broker.authentication import SaslDispatch  # noqa: PLC0415
            from ottla.broker.sasl_mechanisms import starting_listener  # noqa: PLC0415

            settings = starting_listener(broker, listener.name)
            dispatch = SaslDispatch(broker, dispatch, settings).__call__
            first_frame_bytes = settings.max_receive_bytes
        for sock in sockets:
            _log_listening(listener, sock)
            server.listen(
                listener.name,
                sock,
                dispatch,
                first_frame_bytes,
                None if self.certificates is None else self.certificates.of(listener.name),
            )

    def close(self) -> None:
        """Close all bound sockets."""
        for sockets in (*self._clients, *self._controllers):
            for sock in sockets:
                sock.close()


def _log_listening(listener: Listener, sock: socket.socket) -> None:
    host, port = sock.getsockname()[:2]
    logger.info("Awaiting socket connections on %s:%d (%s).", host, port, listener.name)


def _with_ports(listeners: list[Listener], bound: list[list[socket.socket]]) -> list[Listener]:
    return [
        listener._replace(port=listener.port or sockets[0].getsockname()[1])
        for listener, sockets in zip(listeners, bound, strict=True)
    ]
