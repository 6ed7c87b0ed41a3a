"""Files with secrets that other users of the machine can read."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from typing import Final

_SECRET: Final = re.compile(r"password|secret|jaas|token$|keystore\.key|credential", re.IGNORECASE)
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def looks_secret(setting: str) -> bool:
    """Whether the name of a setting says that its value must not be printed."""
    return _SECRET.search(setting) is not None


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
