"""OAuth tokens for a client or node: the grant that the settings select, and the request (KIP-768, KIP-1139).

- Client credentials (RFC 6749, 4.4): with a secret, or with a signed assertion (RFC 7523, 2.2).
- The JWT bearer grant (RFC 7523, 2.1), with `sasl.oauthbearer.jwt.retriever.class=JwtBearerJwtRetriever`.
- A file with a token, if `sasl.oauthbearer.token.endpoint.url` is a file URL. Something else replaces it in time.

An assertion comes from a file, or is signed here: that needs the extra `ottla[security]`. Files are read again for each
token. `options` has the settings by their Python names. No message of an error has a secret.
"""

from __future__ import annotations

import json
import time
import urllib.parse
import uuid
from base64 import b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ottla.common.http_body import read_body
from ottla.network.errors import AuthenticationRefused, ConnectFailed, SecuritySettingError
from ottla.security.oauthbearer import OAuthToken, expiry_of

TIMEOUT_S: Final = 10.0
LARGEST_ANSWER_BYTES: Final = 256 * 1024
LARGEST_FILE_BYTES: Final = 256 * 1024
_URL: Final = "sasl.oauthbearer.token.endpoint.url"
_RETRIEVER: Final = "sasl.oauthbearer.jwt.retriever.class"
_ASSERTION: Final = "sasl.oauthbearer.assertion"
_RETRIEVERS: Final = (
    "DefaultJwtRetriever",
    "ClientCredentialsJwtRetriever",
    "JwtBearerJwtRetriever",
    "FileJwtRetriever",
)
_JWT_BEARER_GRANT: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_JWT_BEARER_ASSERTION: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_EXTRA: Final = "needs PyJWT and cryptography: install them with pip install 'ottla[security]'"


def token_request(
    options: Mapping[str, Any], login: Mapping[str, str], extensions: Mapping[str, str]
) -> tuple[Callable[[], OAuthToken], str]:
    """Return a function that requests a token, and a name for its source. Raises SecuritySettingError.

    `login` has the options of the login module. The function blocks; it raises AuthenticationRefused or ConnectFailed.
    """
    url = options["sasl_oauthbearer_token_endpoint_url"]
    retriever = (options.get("sasl_oauthbearer_jwt_retriever_class") or _RETRIEVERS[0]).rpartition(".")[2]
    if retriever not in _RETRIEVERS:
        raise SecuritySettingError(f"{_RETRIEVER} is {retriever}; it must be one of {', '.join(_RETRIEVERS)}")
    parts = urllib.parse.urlsplit(url)
    is_file = parts.scheme == "file"
    if is_file != (retriever == "FileJwtRetriever") and retriever != "DefaultJwtRetriever":
        raise SecuritySettingError(f"{_URL} is {url!r}, which {retriever} does not support")
    if is_file:
        path = Path(urllib.parse.unquote(parts.path))
        return lambda: _token_of_file(path, extensions), f"The file {path}"
    if parts.scheme not in {"http", "https"}:
        raise SecuritySettingError(f"{_URL} is {url!r}; it must be an http(s) address or a file URL")
    form = _form(retriever, options, login)
    return lambda: _ask(url, *form(), extensions), f"The token endpoint {url}"


def _token_of_file(path: Path, extensions: Mapping[str, str]) -> OAuthToken:
    value = _read(path)
    return OAuthToken(value, expiry_of(value), extensions)


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST_FILE_BYTES:
            raise AuthenticationRefused(f"{path} has more than {LARGEST_FILE_BYTES} bytes: it is not a token")
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectFailed(f"{path} cannot be read: {error}") from error


# -- grants ----------------------------------------------------------------------------------------------------

Form = tuple[dict[str, str], dict[str, str]]
"""The form of a request, and its headers."""


def _form(retriever: str, options: Mapping[str, Any], login: Mapping[str, str]) -> Callable[[], Form]:
    """Return a function that fills in the form. Raises SecuritySettingError."""
    scope = options["sasl_oauthbearer_scope"] or login.get("scope")
    with_scope = {"scope": scope} if scope else {}
    if retriever == "JwtBearerJwtRetriever":
        assertion = _assertion(options)
        return lambda: ({"grant_type": _JWT_BEARER_GRANT, "assertion": assertion(), **with_scope}, {})
    name = options["sasl_oauthbearer_client_credentials_client_id"] or login.get("clientId")
    form = {"grant_type": "client_credentials", **with_scope}
    if options.get("sasl_oauthbearer_assertion_file") or options.get("sasl_oauthbearer_assertion_claim_iss"):
        assertion = _assertion(options)
        form |= {"client_assertion_type": _JWT_BEARER_ASSERTION, **({"client_id": name} if name else {})}
        return lambda: ({**form, "client_assertion": assertion()}, {})
    secret = options["sasl_oauthbearer_client_credentials_client_secret"] or login.get("clientSecret")
    if not name or not secret:
        raise SecuritySettingError(f"{_URL} needs sasl.oauthbearer.client.credentials.client.id and .secret")
    quoted = f"{urllib.parse.quote(name, safe='')}:{urllib.parse.quote(secret, safe='')}"
    headers = {"Authorization": f"Basic {b64encode(quoted.encode()).decode()}"}
    return lambda: (form, headers)


def _assertion(options: Mapping[str, Any]) -> Callable[[], str]:
    """Return a function that returns a signed assertion. Raises SecuritySettingError."""
    file = options.get("sasl_oauthbearer_assertion_file")
    if file:
        path = Path(file)
        return lambda: _read(path)
    key_file = options.get("sasl_oauthbearer_assertion_private_key_file")
    if not key_file:
        raise SecuritySettingError(f"an assertion needs {_ASSERTION}.file or {_ASSERTION}.private.key.file")
    template_file = options.get("sasl_oauthbearer_assertion_template_file")
    sign = _Signer(options, Path(key_file), Path(template_file) if template_file else None)
    sign.load()
    return sign


class _Signer:
    """Signs assertions with the key in a file. Claims of the settings override the claims of the template."""

    def __init__(self, options: Mapping[str, Any], key_file: Path, template_file: Path | None) -> None:
        self._algorithm = str(options["sasl_oauthbearer_assertion_algorithm"]).upper()
        self._key_file = key_file
        self._template_file = template_file
        passphrase = options["sasl_oauthbearer_assertion_private_key_passphrase"]
        self._passphrase = passphrase.encode() if passphrase else None
        claims = {name: options[f"sasl_oauthbearer_assertion_claim_{name}"] for name in ("aud", "iss", "sub")}
        self._claims = {name: value for name, value in claims.items() if value}
        self._expires_s = int(options["sasl_oauthbearer_assertion_claim_exp_seconds"])
        self._not_before_s = int(options["sasl_oauthbearer_assertion_claim_nbf_seconds"])
        self._has_id = bool(options["sasl_oauthbearer_assertion_claim_jti_include"])

    def load(self) -> tuple[Any, Mapping[str, Any]]:
        """Return the key and the template. Raises SecuritySettingError."""
        try:
            from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 - an extra
        except ImportError:
            raise SecuritySettingError(f"{_ASSERTION}.private.key.file {_EXTRA}") from None
        try:
            key = load_pem_private_key(self._key_file.read_bytes(), self._passphrase)
        except (OSError, ValueError, TypeError) as error:
            raise SecuritySettingError(f"{_ASSERTION}.private.key.file={self._key_file}: {error}") from error
        if self._template_file is None:
            return key, {}
        try:
            template = json.loads(self._template_file.read_bytes())
        except (OSError, ValueError, RecursionError) as error:
            raise SecuritySettingError(f"{_ASSERTION}.template.file={self._template_file}: {error}") from error
        parts = [template.get(name, {}) for name in ("header", "payload")] if isinstance(template, dict) else [None]
        if not all(isinstance(part, dict) for part in parts):
            problem = 'it must be a JSON object with the objects "header" and "payload"'
            raise SecuritySettingError(f"{_ASSERTION}.template.file={self._template_file}: {problem}")
        return key, template

    def __call__(self) -> str:
        """Return a new assertion. Raises AuthenticationRefused."""
        try:
            from jwt import PyJWTError, encode  # noqa: PLC0415 - an extra
        except ImportError:
            raise AuthenticationRefused(f"{_ASSERTION}.private.key.file {_EXTRA}") from None
        now_s = int(time.time())
        try:
            key, template = self.load()
            claims = {**template.get("payload", {}), **self._claims}
            claims |= {"iat": now_s, "exp": now_s + self._expires_s, "nbf": now_s - self._not_before_s}
            if self._has_id:
                claims["jti"] = str(uuid.uuid4())
            return encode(claims, key, self._algorithm, template.get("header"))
        except (SecuritySettingError, PyJWTError, TypeError) as error:
            raise AuthenticationRefused(f"The assertion cannot be signed: {error}") from error


# -- the token endpoint ----------------------------------------------------------------------------------------


def _ask(url: str, form: Mapping[str, str], headers: Mapping[str, str], extensions: Mapping[str, str]) -> OAuthToken:
    """Request a token. Blocks for at most 10 s.

    Raises AuthenticationRefused if the endpoint refuses the client, ConnectFailed if it does not answer.
    """
    import http.client  # noqa: PLC0415 - these take 20 ms, and few clients need them
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    body = urllib.parse.urlencode(form).encode()
    request = urllib.request.Request(url, body, {**headers, "Accept": "application/json"})  # noqa: S310 - checked
    asked_ms = time.time() * 1000
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:  # noqa: S310
            answer = json.loads(read_body(response, LARGEST_ANSWER_BYTES))
        value, lifetime_s = answer["access_token"], answer.get("expires_in")
    except urllib.error.HTTPError as error:
        with error:
            try:
                text = error.read(500).decode(errors="replace").strip()
            except (OSError, http.client.HTTPException) as cut:  # the status says enough
                text = f"({cut})"
        what = f"The token endpoint {url} answered {error.code} {error.reason}: {text}"
        refuses = 400 <= error.code < 500 and error.code != 429
        raise (AuthenticationRefused if refuses else ConnectFailed)(what) from None
    except (OSError, http.client.HTTPException) as error:
        reason = str(error) or type(error).__name__
        raise ConnectFailed(f"The token endpoint {url} does not answer: {reason}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise AuthenticationRefused(f"The token endpoint {url} answered without an access_token") from error
    if not isinstance(value, str):
        raise AuthenticationRefused(f"The token endpoint {url} answered without an access_token")
    # A session ends with the token's own expiry (a claim in seconds), which may be earlier than the endpoint says.
    ends_ms = [] if (claimed_ms := expiry_of(value)) is None else [claimed_ms]
    if isinstance(lifetime_s, (int, float)):
        ends_ms.append(int(asked_ms + lifetime_s * 1000))
    return OAuthToken(value, min(ends_ms, default=None), extensions)
