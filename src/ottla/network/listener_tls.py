"""TLS of one listener: its ssl.SSLContext, built from the settings of the broker, and rebuilt when they change.

`ListenerTls.reload` builds the next context completely before it replaces the current one: a key store that cannot be
read leaves the old certificate in use. Open connections keep the context with which they began.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.config.listener_settings import KEY_STORE_SETTINGS
from ottla.network.connection import ANONYMOUS
from ottla.network.errors import SecuritySettingError
from ottla.network.key_stores import file_versions, key_store_options
from ottla.network.tls_settings import identify, trust
from ottla.network.tls_transport import C, TlsTransport
from ottla.security.certificate import alternative_names, distinguished_name

if TYPE_CHECKING:
    from ottla.config import BrokerConfig
    from ottla.network.handshakes import Handshakes

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


class ListenerTls:
    """The TLS of the listener `name`; `context` is for new connections."""

    def __init__(self, name: str, config: BrokerConfig) -> None:
        """Build the context. Raises SecuritySettingError with the listener and the remedy."""
        self.name = name
        self.principal_of: Callable[[bytes | None, str], str] = lambda _certificate, _host: ANONYMOUS
        """Returns the principal of a client, given its certificate in DER and its host; ValueError refuses it."""
        self.context, self._certificate = _built(name, config)
        self._settings = _settings(config)
        self._files = file_versions(key_store_options(config))

    def reload(self, config: BrokerConfig) -> bool:
        """Use the settings and files as they are now; whether something changed.

        Raises SecuritySettingError, and leaves everything as it was, for a key store that cannot be used. The same
        problem is raised again only after the next change.
        """
        settings, files = _settings(config), file_versions(key_store_options(config))
        if (settings, files) == (self._settings, self._files):
            return False
        self._settings, self._files = settings, files
        context, certificate = self.check(config)
        self.context, self._certificate = context, certificate
        return True

    def check(self, config: BrokerConfig) -> tuple[ssl.SSLContext, bytes]:
        """Build a context that may replace the current one. Raises SecuritySettingError, as Kafka does.

        The subject of the certificate must not change, nor may it lose alternative names, unless settings allow it.
        """
        context, certificate = _built(self.name, config)
        old, new = distinguished_name(self._certificate), distinguished_name(certificate)
        if old.lower() != new.lower() and not config.bool("ssl.allow.dn.changes"):
            raise SecuritySettingError(
                f"listener {self.name}: Keystore DistinguishedName does not match: existing {old}, new {new}. Set "
                "ssl.allow.dn.changes=true and restart the broker if the change is intended"
            )
        lost = alternative_names(self._certificate) - alternative_names(certificate)
        if lost and not config.bool("ssl.allow.san.changes"):
            raise SecuritySettingError(
                f"listener {self.name}: Keystore SubjectAltNames do not match: the new certificate lacks {len(lost)} of"
                " the existing names. Set ssl.allow.san.changes=true and restart the broker if the change is intended"
            )
        return context, certificate

    def principal(self, tls: ssl.SSLObject, host: str) -> str:
        """Return the principal of a client whose handshake is complete. Raises ValueError to refuse it."""
        return self.principal_of(tls.getpeercert(binary_form=True), host)

    def protocol(self, connection: C, handshakes: Handshakes, refused: Callable[[C, str], None]) -> TlsTransport[C]:
        """Return the protocol of an accepted socket; `refused` is called with the reason if its handshake fails."""
        return TlsTransport(connection, self, handshakes, refused)

    def wrap(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> ssl.SSLObject:
        """Return the TLS of a new connection, whose encrypted bytes go through these."""
        return self.context.wrap_bio(incoming, outgoing, server_side=True)


def _settings(config: BrokerConfig) -> tuple[object, ...]:
    return tuple(
        config[name] for name in (*KEY_STORE_SETTINGS, "ssl.client.auth", "ssl.enabled.protocols", "ssl.cipher.suites")
    )


def _built(listener: str, config: BrokerConfig) -> tuple[ssl.SSLContext, bytes]:
    """Return the context and the certificate of the broker in DER."""
    try:
        context = _context(config)
        return context, _own_certificate(context)
    except SecuritySettingError as error:
        raise SecuritySettingError(f"listener {listener}: {error}") from error


def _context(config: BrokerConfig) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # A client of TLS 1.2 could have the broker compute handshakes again and again on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As in Java, each certificate in the trust store is an anchor, whether it is a root or not.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _limit_versions(context, config)
    options = key_store_options(config)
    options |= {"ssl_certificate_location": None, "ssl_key_location": None}
    if not any(options[f"ssl_keystore_{name}"] for name in ("location", "certificate_chain")):
        raise SecuritySettingError(
            "TLS needs a certificate: set ssl.keystore.location to a PEM file with the private key and the certificate"
            " chain, or ssl.keystore.key and ssl.keystore.certificate.chain"
        )
    identify(context, options)
    client_auth = config.text("ssl.client.auth") or "none"
    if client_auth != "none" or any(options[f"ssl_truststore_{name}"] for name in ("location", "certificates")):
        if not any(options[f"ssl_truststore_{name}"] for name in ("location", "certificates")):
            raise SecuritySettingError(
                f"ssl.client.auth={client_auth} needs the authorities that sign the clients' certificates: set "
                "ssl.truststore.location to a PEM file"
            )
        trust(context, options)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    return context


def _limit_versions(context: ssl.SSLContext, config: BrokerConfig) -> None:
    versions = config.items("ssl.enabled.protocols") or tuple(_VERSIONS)
    for name in versions:
        if name not in _VERSIONS:
            raise SecuritySettingError(f"{name} is not supported: use TLSv1.2 and TLSv1.3 (ssl.enabled.protocols)")
    chosen = sorted(_VERSIONS[name] for name in versions)
    suites = config.items("ssl.cipher.suites")
    if suites:
        chosen = _limit_suites(context, suites, chosen)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]


def _limit_suites(
    context: ssl.SSLContext, suites: tuple[str, ...], versions: list[ssl.TLSVersion]
) -> list[ssl.TLSVersion]:
    """Allow only these suites, and return the versions of `versions` that have one."""
    every = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    every.set_ciphers("ALL")
    known = {each["name"]: each["protocol"] for each in every.get_ciphers()}
    modern = {name for name, protocol in known.items() if protocol == "TLSv1.3"}
    names = [_openssl_name(suite) for suite in suites]
    unknown = [suite for suite, name in zip(suites, names, strict=True) if name not in known]
    if unknown:
        raise SecuritySettingError(f"ssl.cipher.suites: {', '.join(unknown)} is not a suite that OpenSSL supports")
    chosen, older = modern & {*names}, [name for name in names if name not in modern]
    if chosen and chosen != modern and ssl.TLSVersion.TLSv1_3 in versions:
        raise SecuritySettingError(
            "ssl.cipher.suites: Python cannot choose among the suites of TLS 1.3: name all of them "
            f"({', '.join(sorted(modern))}), or set ssl.enabled.protocols=TLSv1.2"
        )
    if older:
        context.set_ciphers(":".join(older))
    left = [each for each in versions if (chosen if each == ssl.TLSVersion.TLSv1_3 else older)]
    if not left:
        raise SecuritySettingError("ssl.cipher.suites has no suite for a version in ssl.enabled.protocols")
    return left


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name of a suite with a name of the TLS standards; other names stay as they are."""
    if "_WITH_" not in suite:
        return suite
    exchange, _, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    if "CHACHA20" in cipher:
        cipher = cipher.removesuffix("_SHA256")
    return f"{'' if exchange == 'RSA' else exchange + '_'}{cipher}".replace("_", "-")


def _own_certificate(context: ssl.SSLContext) -> bytes:
    """Return the certificate that the context presents, in DER: from a handshake in memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
    client = client_context.wrap_bio(to_client, to_server)
    # This context has the same key, and asks for no certificate.
    verify_mode, context.verify_mode = context.verify_mode, ssl.CERT_NONE
    try:
        server = context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(4):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
    except ssl.SSLError as error:
        reason = error.reason or error
        raise SecuritySettingError(f"a handshake with the certificate of ssl.keystore fails: {reason}") from error
    finally:
        context.verify_mode = verify_mode
    certificate = client.getpeercert(binary_form=True)
    if certificate is None:
        raise SecuritySettingError("the certificate of ssl.keystore cannot be used for a handshake")
    return certificate
