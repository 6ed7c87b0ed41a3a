"""The key stores in a node's settings, as `tls_settings` takes them, and the state of their files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla.config.listener_settings import KEY_STORE_SETTINGS

if TYPE_CHECKING:
    from ottla.config import BrokerConfig

_FILES: Final = ("ssl_keystore_location", "ssl_truststore_location")
# A broker's key stores are JKS by default, which only a JVM reads; the contents of a file show what it is.
_DEFAULT_TYPE: Final = "JKS"


def key_store_options(config: BrokerConfig) -> dict[str, Any]:
    """Return the settings of the key stores by their Python names. A type that is Kafka's default becomes PEM."""
    options = {name.replace(".", "_"): config[name] for name in KEY_STORE_SETTINGS}
    for name in ("ssl_keystore_type", "ssl_truststore_type"):
        if options[name] == _DEFAULT_TYPE:
            options[name] = "PEM"
    return options


def file_versions(options: Mapping[str, Any]) -> tuple[object, ...]:
    """Return the state of the files of key stores, which differs after a file was replaced or written."""
    return tuple(_version(options[name]) for name in _FILES)


def _version(path: str | None) -> object:
    if not path:
        return None
    try:
        found = os.stat(path)
    except OSError as error:
        return error.errno
    return found.st_ino, found.st_mtime_ns, found.st_size
