"""The exceptions of registry clients. `retriable` says whether the same call may succeed when repeated.

RegistryClientError
├── RegistrySettingError     (also a ValueError) a setting is unknown, missing or wrong
├── RegistryUnavailable      retriable: no registry answered until the deadline or the last retry
└── SchemaRegistryError      the registry's error: .http_status_code .error_code .error_message

ReferencesTooDeep is a ValueError: the schema is wrong, not the registry.
"""

from __future__ import annotations

from typing import Final

RETRIABLE_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


class RegistryClientError(Exception):
    """The root of the tree."""

    retriable: bool = False


class RegistrySettingError(RegistryClientError, ValueError):
    """A setting is unknown, missing or wrong; the message has its name."""


class ReferencesTooDeep(ValueError):
    """The references of a schema are nested too deeply."""


class RegistryUnavailable(RegistryClientError):
    """No registry of `schema.registry.url` answered; the message names each address and its problem."""

    retriable = True


class SchemaRegistryError(RegistryClientError):
    """The registry returned an error, such as 40401 (subject not found) or 409 (incompatible schema)."""

    def __init__(self, http_status_code: int, error_code: int, error_message: str) -> None:
        super().__init__(f"{error_message} (HTTP status code {http_status_code}, registry error code {error_code})")
        self.http_status_code = http_status_code
        self.error_code = error_code
        self.error_message = error_message
        self.retriable = http_status_code in RETRIABLE_STATUSES
