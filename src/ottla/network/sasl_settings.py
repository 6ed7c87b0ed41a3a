"""The sasl settings of a client or node as a source of exchanges: one `SaslClient` for each connection and renewal.

`sasl_source(options)` checks the settings without network access. The source that it returns may request a token first.
The program's function and the token endpoint run in a thread, because they block. Nonces come from `secrets`.

`options` has the client settings by their Python names (see `clients.options.SECURITY_OPTIONS`).
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from ottla.common.settings import ChangingText
from ottla.network import oauth
from ottla.network.errors import AuthenticationRefused, ConnectFailed, SecuritySettingError
from ottla.network.sasl import SaslSource
from ottla.security import jaas, oauthbearer, plain, scram
from ottla.security.mechanism import SaslClient, SaslError
from ottla.security.oauthbearer import OAuthToken, TokenCache

TokenProvider: TypeAlias = Callable[[], OAuthToken | str]

NONCE_BYTES: Final = 24
_CLAIM = re.compile(r"unsecuredLogin(?P<kind>String|Number|List)Claim_(?P<name>.+)")
_LOGIN: Final = ("sasl_username", "sasl_password", "sasl_jaas_config")
_MECHANISM_OF_MODULE: Final = {"PlainLoginModule": "PLAIN", "OAuthBearerLoginModule": "OAUTHBEARER"}


def sasl_source(options: Mapping[str, Any]) -> SaslSource:
    """Return the source of exchanges for these settings. Raises SecuritySettingError."""
    module, login = parse_jaas(options["sasl_jaas_config"]) if options["sasl_jaas_config"] else ("", {})
    mechanism = options["sasl_mechanism"] or _MECHANISM_OF_MODULE.get(module)
    if mechanism is None:
        raise SecuritySettingError(
            "sasl.mechanism is missing: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER, as the brokers have it"
        )
    expected = "ScramLoginModule" if mechanism in scram.NAMES else f"{_module_of(mechanism)}"
    if module and module != expected:
        raise SecuritySettingError(f"sasl.jaas.config has {module}, but {mechanism} needs {expected}")
    if mechanism == oauthbearer.NAME:
        return _token_source(options, login)
    given = {name: options[name] for name in _LOGIN}
    changing = {name: each for name, each in given.items() if isinstance(each, ChangingText)}
    first = _exchange_of(mechanism, given)

    async def source() -> SaslClient:
        if not changing:
            return first()
        try:
            current = await asyncio.to_thread(lambda: {name: each.current() for name, each in changing.items()})
        except Exception as error:  # a config provider may raise anything; the next connection tries again
            raise ConnectFailed(f"the credentials cannot be read: {error}") from error
        try:
            return _exchange_of(mechanism, {**given, **current})()
        except SecuritySettingError as error:
            raise AuthenticationRefused(str(error)) from error

    return source


def _exchange_of(mechanism: str, given: Mapping[str, Any]) -> Callable[[], SaslClient]:
    """Return the function that makes an exchange for each connection. Raises SecuritySettingError."""
    login = parse_jaas(given["sasl_jaas_config"])[1] if given["sasl_jaas_config"] else {}
    username, password = given["sasl_username"] or login.get("username"), given["sasl_password"]
    password = login.get("password") if password is None else password
    if not username or password is None:
        what = "sasl.username" if not username else "sasl.password"
        raise SecuritySettingError(f"{mechanism} needs {what} (or a sasl.jaas.config that has it)")
    token_auth = login.get("tokenauth", "").lower() == "true"

    def exchange() -> SaslClient:
        if mechanism == plain.NAME:
            return plain.PlainClient(username, password)
        nonce = secrets.token_urlsafe(NONCE_BYTES)
        return scram.ScramClient(mechanism, username, password, nonce, token_auth=token_auth)

    try:
        exchange()
    except SaslError as error:
        raise SecuritySettingError(str(error)) from error
    return exchange


def _module_of(mechanism: str) -> str:
    return next(module for module, name in _MECHANISM_OF_MODULE.items() if name == mechanism)


def parse_jaas(line: str) -> tuple[str, dict[str, str]]:
    """Parse a sasl.jaas.config into login module (without its package) and options. Raises SecuritySettingError."""
    text = line.strip()
    try:
        module = jaas.parse(text if text.endswith(";") else f"{text};")
    except SaslError:
        raise SecuritySettingError(
            "sasl.jaas.config is not of the form: "
            'org.apache.kafka.common.security.scram.ScramLoginModule required username="..." password="...";'
        ) from None
    name = module.short_name
    if name not in {*_MECHANISM_OF_MODULE, "ScramLoginModule"}:
        raise SecuritySettingError(
            f"sasl.jaas.config has {name}; known are PlainLoginModule, ScramLoginModule and OAuthBearerLoginModule"
        )
    return name, module.options


# -- tokens ----------------------------------------------------------------------------------------------------


def _token_source(options: Mapping[str, Any], login: Mapping[str, str]) -> SaslSource:
    provider, where = _token_provider(options, login)
    cache = TokenCache()
    asking = asyncio.Lock()

    async def source() -> SaslClient:
        async with asking:  # one token request serves all connections
            token = cache.get(time.time() * 1000)
            if token is None:
                token = await asyncio.to_thread(_ask, provider, where)
                cache.put(token, time.time() * 1000)
        try:
            return oauthbearer.OAuthBearerClient(token)
        except SaslError as error:
            raise AuthenticationRefused(f"{where}: {error}") from error

    return source


def _ask(provider: TokenProvider, where: str) -> OAuthToken:
    try:
        token = provider()
    except ConnectFailed:
        raise
    except Exception as error:  # the program's function may raise anything; a retry may succeed
        raise ConnectFailed(f"{where} gave no token: {error!r}") from error
    if isinstance(token, str):
        return OAuthToken(token)
    if not isinstance(token, OAuthToken):
        raise AuthenticationRefused(f"{where} returned a {type(token).__name__}, not a string or OAuthToken")
    return token


def _token_provider(options: Mapping[str, Any], login: Mapping[str, str]) -> tuple[TokenProvider, str]:
    provider, url = options["sasl_oauth_token_provider"], options["sasl_oauthbearer_token_endpoint_url"]
    extensions = dict(_pair(item) for item in options["sasl_oauthbearer_extensions"])
    extensions |= {k.removeprefix("extension_"): v for k, v in login.items() if k.startswith("extension_")}
    if provider is not None:
        if not callable(provider):
            raise SecuritySettingError("sasl.oauth.token.provider must be a function without arguments")
        return provider, "sasl.oauth.token.provider"
    if url is not None:
        return oauth.token_request(options, login, extensions)
    claims = _unsecured_claims(login)
    subject = claims.pop("sub", None)
    if subject is None:
        raise SecuritySettingError(
            "OAUTHBEARER needs sasl.oauth.token.provider, or sasl.oauthbearer.token.endpoint.url with a client's id "
            'and secret, or (for tests) a sasl.jaas.config with unsecuredLoginStringClaim_sub="..."'
        )
    lifetime_s = _number(login.get("unsecuredLoginLifetimeSeconds", "3600"))

    def unsecured() -> OAuthToken:
        token = oauthbearer.unsecured_jws(str(subject), now_s=time.time(), lifetime_s=lifetime_s, claims=claims)
        return OAuthToken(token.value, token.expires_at_ms, extensions)

    return unsecured, "sasl.jaas.config"


def _pair(item: str) -> tuple[str, str]:
    name, equals, value = item.partition("=")
    if not equals or not name:
        raise SecuritySettingError(f"sasl.oauthbearer.extensions has {item!r}; each must be name=value")
    return name.strip(), value.strip()


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise SecuritySettingError(f"sasl.jaas.config has {text!r} where a number belongs") from None


def _unsecured_claims(login: Mapping[str, str]) -> dict[str, object]:
    claims: dict[str, object] = {}
    for option, text in login.items():
        match = _CLAIM.fullmatch(option)
        if match is None:
            continue
        value: object = text
        if match["kind"] == "Number":
            value = _number(text)
        elif match["kind"] == "List":  # the first character is the separator
            value = text[1:].split(text[0]) if text else []
        claims[match["name"]] = value
    return claims
