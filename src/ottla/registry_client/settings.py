"""Settings of registry clients, by Confluent's names, with dots or underscores.

Each name may have the prefix `schema.registry.`, which Java's clients need for some of them: `schema.registry.url` and
`url` are the same, as are `schema.registry.ssl.key.location` and `ssl.key.location`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit

from ottla.common.settings import Setting
from ottla.network.errors import SecuritySettingError
from ottla.registry_client.errors import RegistrySettingError

if TYPE_CHECKING:
    import ssl

PREFIX: Final = "schema_registry_"
_SSL: Final = (
    Setting("ssl.context", "object", None, "An ssl.SSLContext, used instead of the other ssl settings."),
    Setting("ssl.truststore.location", "str", None, "A PEM file (or directory) of trusted authorities."),
    Setting("ssl.truststore.certificates", "str", None, "The same as PEM text."),
    Setting("ssl.truststore.type", "str", "PEM", "The format of that file: PEM or PKCS12."),
    Setting("ssl.truststore.password", "password", None, "The password of a PKCS12 file."),
    Setting("ssl.keystore.location", "str", None, "A file with this client's private key and certificates."),
    Setting("ssl.keystore.certificate.chain", "str", None, "This client's certificates as PEM text."),
    Setting("ssl.keystore.key", "password", None, "This client's private key as PEM text."),
    Setting("ssl.keystore.type", "str", "PEM", "The format of that file: PEM or PKCS12."),
    Setting("ssl.keystore.password", "password", None, "The password of a PKCS12 file."),
    Setting("ssl.certificate.location", "str", None, "A PEM file with this client's certificates alone."),
    Setting("ssl.key.location", "str", None, "A PEM file with this client's private key."),
    Setting("ssl.key.password", "password", None, "The password of the private key."),
    Setting("ssl.endpoint.identification.algorithm", "str", "https", "https, or empty: the name is not checked."),
    Setting("enable.ssl.certificate.verification", "bool", True, "False: every certificate is accepted. Not safe."),
)
SETTINGS: Final = (
    Setting("url", "list", None, "One or more addresses of registries; the next one is used when one fails."),
    Setting(
        "basic.auth.credentials.source", "str", None, "Where user name and password are from.",
        choices=("URL", "USER_INFO", "SASL_INHERIT"),
    ),
    Setting("basic.auth.user.info", "password", None, "User name and password, as NAME:PASSWORD."),
    Setting("sasl.username", "str", None, "The user name for SASL_INHERIT."),
    Setting("sasl.password", "password", None, "The password for SASL_INHERIT."),
    Setting(
        "bearer.auth.credentials.source", "str", None, "Where the token is from.", choices=("STATIC_TOKEN", "CUSTOM")
    ),
    Setting("bearer.auth.token", "password", None, "A token."),
    Setting("bearer.auth.token.provider", "object", None, "A function that returns a token. It must not block."),
    Setting("bearer.auth.logical.cluster", "str", None, "The header target-sr-cluster of Confluent Cloud."),
    Setting("bearer.auth.identity.pool.id", "str", None, "The header Confluent-Identity-Pool-Id."),
    Setting("http.connect.timeout.ms", "int", 10_000, "How long opening a connection may take.", low=1),
    Setting("http.read.timeout.ms", "int", 30_000, "How long a registry may take to answer.", low=1),
    Setting("default.api.timeout.ms", "int", 60_000, "How long a call with its retries may take.", low=1),
    Setting("max.retries", "int", 3, "How often a failed request is repeated, at all addresses.", low=0),
    Setting("retries.wait.ms", "int", 100, "The wait before the first retry; it doubles, and is random.", low=0),
    Setting("retries.max.wait.ms", "int", 5_000, "The longest such wait.", low=0),
    Setting("cache.capacity", "int", 1_000, "The most schemas in each cache.", low=1),
    Setting("latest.cache.ttl.sec", "int", 60, "How long the latest version of a subject is cached.", low=0),
    *_SSL,
)  # fmt: skip
_ALIASES: Final = {"ssl_ca_location": "ssl_truststore_location", "ssl_ca_pem": "ssl_truststore_certificates"}
_ROWS: Final = {row.python_name: row for row in SETTINGS}


class RegistrySettings(NamedTuple):
    """The settings of a client, read. `authorization` returns the value of that header for one request."""

    urls: tuple[str, ...]
    authorization: Callable[[], str | None]
    headers: Mapping[str, str]
    values: Mapping[str, Any]

    def tls(self) -> ssl.SSLContext | None:
        """Build the TLS context if an address is https; reads files. Raises RegistrySettingError."""
        if not any(url.startswith("https:") for url in self.urls):
            return None
        from ottla.network.tls_settings import tls_context  # noqa: PLC0415 - ssl takes 10 ms to import

        try:
            return tls_context(self.values)
        except SecuritySettingError as error:
            raise RegistrySettingError(f"schema.registry.{error}") from error


def is_registry_setting(name: str) -> bool:
    """Whether a mixed mapping of settings has this one for the registry's client."""
    name = name.replace(".", "_")
    return name.startswith(PREFIX) or (name in _ROWS and name.startswith(("basic_auth_", "bearer_auth_")))


def has_setting(name: str) -> bool:
    """Whether the registry's client has a setting of this name."""
    python_name = name.replace(".", "_").removeprefix(PREFIX)
    return _ALIASES.get(python_name, python_name) in _ROWS


def check_setting(name: str, value: object) -> None:
    """Check the value of one setting. Raises RegistrySettingError."""
    python_name = name.replace(".", "_").removeprefix(PREFIX)
    row = _ROWS.get(_ALIASES.get(python_name, python_name))
    if row is None:
        raise RegistrySettingError(_unknown(name, python_name))
    _read(row, value)


def read_settings(given: Mapping[str, object]) -> RegistrySettings:
    """Read and check settings. Raises RegistrySettingError."""
    values: dict[str, Any] = {row.python_name: row.default for row in SETTINGS}
    seen: dict[str, str] = {}
    for name, value in given.items():
        python_name = name.replace(".", "_").removeprefix(PREFIX)
        python_name = _ALIASES.get(python_name, python_name)
        row = _ROWS.get(python_name)
        if row is None:
            raise RegistrySettingError(_unknown(name, python_name))
        if python_name in seen:
            raise RegistrySettingError(f"{row.name} is given twice, as {seen[python_name]!r} and as {name!r}")
        seen[python_name] = name
        values[python_name] = row.default if value is None else _read(row, value)
    urls, in_url = _read_urls(values["url"])
    headers = {
        header: values[name]
        for header, name in (
            ("target-sr-cluster", "bearer_auth_logical_cluster"),
            ("Confluent-Identity-Pool-Id", "bearer_auth_identity_pool_id"),
        )
        if values[name]
    }
    return RegistrySettings(urls, _authorization(values, in_url), headers, values)


def _unknown(name: str, python_name: str) -> str:
    close = get_close_matches(python_name, _ROWS, n=1, cutoff=0.7)
    hint = f"; did you mean {_ROWS[close[0]].name!r}?" if close else ""
    return f"There is no registry setting {name!r}{hint}"


def _read(row: Setting, value: object) -> Any:
    read = _CONVERTERS[row.kind](value)
    if read is None:
        shown = f"a {type(value).__name__}" if row.sensitive else repr(value)
        raise RegistrySettingError(f"{row.name} is {shown}; it must be {_KINDS[row.kind]}")
    if row.choices and read not in row.choices:
        raise RegistrySettingError(f"{row.name} is {value!r}; it must be one of {', '.join(row.choices)}")
    if row.low is not None and read < row.low:
        raise RegistrySettingError(f"{row.name} is {value!r}; it must be at least {row.low:g}")
    return read


def _int(value: object) -> int | None:
    try:
        return None if isinstance(value, bool) else int(str(value).strip())
    except ValueError:
        return None


def _bool(value: object) -> bool | None:
    return {"true": True, "false": False}.get(str(value).strip().lower())


def _str(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _list(value: object) -> list[str] | None:
    parts = value.split(",") if isinstance(value, str) else value
    if isinstance(parts, Sequence) and all(isinstance(part, str) for part in parts):
        return [part.strip() for part in parts if part.strip()]
    return None


_CONVERTERS: Final[Mapping[str, Callable[[object], Any]]] = {
    "int": _int, "bool": _bool, "str": _str, "password": _str, "list": _list, "object": lambda value: value,
}  # fmt: skip
_KINDS: Final = {
    "int": "a whole number", "bool": "true or false", "str": "a string", "password": "a string",
    "list": "a list of strings, or one string with commas",
}  # fmt: skip


def _read_urls(given: list[str] | None) -> tuple[tuple[str, ...], str | None]:
    """Return the addresses without credentials, and the credentials of the first address that has some."""
    if not given:
        raise RegistrySettingError("schema.registry.url is missing: give it the address of a registry")
    urls, user_info = [], None
    for url in given:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise RegistrySettingError(
                f"schema.registry.url has {_hidden(url)!r}; each must be http://HOST:PORT or https://HOST:PORT"
            )
        userinfo, at, host = parts.netloc.rpartition("@")
        if at and user_info is None:
            user_info = unquote(userinfo)
        urls.append(urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")))
    return tuple(urls), user_info


def _hidden(url: str) -> str:
    return "...@" + url.rpartition("@")[2] if "@" in url else url


def _authorization(values: Mapping[str, Any], in_url: str | None) -> Callable[[], str | None]:
    provider, token = values["bearer_auth_token_provider"], values["bearer_auth_token"]
    user_info, source = values["basic_auth_user_info"], values["basic_auth_credentials_source"]
    if provider is not None and not callable(provider):
        raise RegistrySettingError("bearer.auth.token.provider must be a function that returns a token")
    if source == "SASL_INHERIT":
        if values["sasl_username"] is None or values["sasl_password"] is None:
            raise RegistrySettingError(
                "basic.auth.credentials.source is SASL_INHERIT: set sasl.username, sasl.password"
            )
        user_info = f"{values['sasl_username']}:{values['sasl_password']}"
    elif source == "URL" or (source is None and user_info is None):
        user_info = in_url
    elif source == "USER_INFO" and user_info is None:
        raise RegistrySettingError("basic.auth.credentials.source is USER_INFO: set basic.auth.user.info")
    if sum(each is not None for each in (provider, token, user_info)) > 1:
        raise RegistrySettingError("Both a user and a token are given for the registry, or two tokens: choose one")
    if user_info is not None and ":" not in user_info:
        raise RegistrySettingError("The credentials of the registry have no password: they must be NAME:PASSWORD")
    if provider is not None:
        return lambda: f"Bearer {provider()}"
    fixed = None
    if token is not None:
        fixed = f"Bearer {token}"
    elif user_info is not None:
        fixed = "Basic " + base64.b64encode(user_info.encode()).decode()
    return lambda: fixed
