"""The security of a client's connections, from security.protocol and the ssl and sasl settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.clients import late
from ottla.clients.errors import AuthenticationFailed, ConfigurationError
from ottla.network.errors import AuthenticationRefused, SecuritySettingError

if TYPE_CHECKING:
    import ssl

    from ottla.network.sasl import SaslSource

# These settings only make sense with TLS or SASL. With another protocol secrets would travel unencrypted.
_NEED_TLS: Final = (
    "ssl.context",
    "ssl.truststore.location",
    "ssl.truststore.certificates",
    "ssl.keystore.location",
    "ssl.keystore.certificate.chain",
    "ssl.certificate.location",
)
_NEED_SASL: Final = (
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "sasl.jaas.config",
    "sasl.oauth.token.provider",
)


class Security(NamedTuple):
    """The TLS context and the source of SASL exchanges for every connection of a client."""

    tls: ssl.SSLContext | None = None
    sasl: SaslSource | None = None


def read_security(options: Mapping[str, Any]) -> Security:
    """Read the security settings (see `options.SECURITY_OPTIONS`) and their key files. Raises ConfigurationError."""
    protocol = options["security_protocol"]
    is_tls, is_sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
    for is_used, names, instead in (
        (is_tls, _NEED_TLS, "SASL_SSL" if is_sasl else "SSL"),
        (is_sasl, _NEED_SASL, "SASL_SSL"),
    ):
        for name in () if is_used else names:
            if options[name.replace(".", "_")] is not None:
                raise ConfigurationError(
                    f"{name} is set, but security.protocol is {protocol}, which does not use it: set it to {instead}"
                )
    tls = sasl = None
    try:
        if is_tls:
            tls = late.tls_settings.tls_context(options)
        if is_sasl:
            sasl = late.sasl_settings.sasl_source(_with_provider(options))
    except SecuritySettingError as error:
        raise ConfigurationError(str(error)) from error
    return Security(tls, sasl)


def _with_provider(options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Let the program's token function raise AuthenticationFailed, the clients' error."""
    provider = options["sasl_oauth_token_provider"]
    if not callable(provider):
        return options
    return {**options, "sasl_oauth_token_provider": _refusing(provider)}


def _refusing(provider: Callable[[], Any]) -> Callable[[], Any]:
    def provide() -> Any:
        try:
            return provider()
        except AuthenticationFailed as error:
            raise AuthenticationRefused(str(error)) from error

    return provide
