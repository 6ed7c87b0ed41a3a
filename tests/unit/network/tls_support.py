"""TLS for tests of connections: the context of a listener, and of a client."""

from __future__ import annotations

import ssl

from ottla.config import BrokerConfig
from ottla.network.listener_tls import ListenerTls
from tests.peers.secured import Certificates


def listener_tls(certificates: Certificates, **settings: str) -> ListenerTls:
    """The TLS of a listener with the certificate of the server; underscores stand for dots in `settings`."""
    given = {"ssl.keystore.location": str(certificates.server), "ssl.truststore.location": str(certificates.ca)}
    given |= {name.replace("_", "."): value for name, value in settings.items()}
    return ListenerTls("SSL", BrokerConfig(given))


def client_context(certificates: Certificates | None = None, identity: str | None = None) -> ssl.SSLContext:
    """The context of a client that trusts the authority, or anything; `identity` names its own certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    if certificates is None:
        context.verify_mode = ssl.CERT_NONE
    else:
        context.load_verify_locations(certificates.ca)
    if certificates is not None and identity is not None:
        context.load_cert_chain(certificates.directory / f"{identity}.pem")
    return context
