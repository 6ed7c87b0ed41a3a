"""Secrets that other users of the machine can read: in files, and in the list of processes."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Final

_SECRET: Final = re.compile(
    r"password|secret|jaas|token$|keystore\.key|credential(?!s\.client\.id$|s\.source$)|user\.info", re.IGNORECASE
)
# The value of an environment variable (KIP-887).
VARIABLE: Final = re.compile(r"\$\{env:([A-Za-z_][A-Za-z0-9_]*)\}")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def looks_secret(setting: str) -> bool:
    """Whether the name of a setting says that its value must not be printed."""
    return _SECRET.search(setting) is not None


def shown_to_others(option: str, words: Iterable[str], instead: str) -> str | None:
    """Return a line if one of the words `NAME=VALUE` after an option has a secret as a literal value.

    `instead` says where the value can be given without being seen.
    """
    for word in words:
        setting, _, value = word.partition("=")
        if value and looks_secret(setting.replace("_", ".")) and not VARIABLE.fullmatch(value):
            return f"{option} {setting}: the list of processes shows its value to other users; {instead} keeps it out"
    return None


def exposure(path: str, settings: Iterable[str]) -> str | None:
    """Return a line if other users can read the file and one of its settings is secret. Raises OSError."""
    secret = next(filter(looks_secret, settings), None)
    if secret is None:
        return None
    found = os.stat(path)
    if not stat.S_ISREG(found.st_mode) or not found.st_mode & _OTHERS:
        return None
    mode = stat.S_IMODE(found.st_mode)
    return f"permissions {mode:04o} of {path} are too open: it has {secret}, and other users can read it"
