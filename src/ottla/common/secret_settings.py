"""Settings whose values no page, command or message may show: passwords, tokens, and logins in URLs."""

from __future__ import annotations

import re
from typing import Final

_WORDS: Final = (
    "password", "passphrase", "secret", "jaas", "token", "credential", "authorization", "user.info", "cookie",
    "keystore.key", "key.pem", "private.key", "api.key", "apikey", "access.key",
)  # fmt: skip
_REFERENCES: Final = re.compile(r"\$\{[^{}]*\}(:?\$\{[^{}]*\})*")
_LOGIN: Final = re.compile(r"(://[^/@:\s]*):[^/@\s]*@")
_PARAMETER: Final = re.compile(r"(?i)(password|secret|token)=[^&;\s]*")


def has_secret_name(name: str) -> bool:
    """Whether a setting is secret, by its name: `value.converter.basic.auth.user.info`, `api-key`."""
    words = re.sub(r"[-_]", ".", name.lower())
    return any(word in words for word in _WORDS)


def shown_value(value: str, mask: str, *, is_secret: bool) -> str:
    """Return the value of a setting with `mask` in place of secrets, also of passwords in URLs.

    A secret that consists of references, such as `${env:NAME}`, is shown: the names are not secret.
    """
    if is_secret:
        return value if not value or _REFERENCES.fullmatch(value) else mask
    return _PARAMETER.sub(rf"\1={mask}", _LOGIN.sub(rf"\1:{mask}@", value))
