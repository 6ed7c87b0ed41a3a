"""Spark errors as errors of a connector: which pass, and which record is invalid. Without I/O and Spark.

Spark reports an exception of its tasks as text. The names in it decide, as for pipelines (`ottla.streams.failures`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from ottla.connect.errors import ConnectError, DataError, RetriableError
from ottla.streams.failures import classify, text_of

_OURS: Final = re.compile(r"\bottla\.connect\.errors\.(\w+): ([^\n]*)")
_BY_NAME: Final[Mapping[str, type[ConnectError]]] = {
    "DataError": DataError,
    "RetriableError": RetriableError,
}
_BY_KIND: Final[Mapping[str, type[ConnectError]]] = {
    "data": DataError,
    "retriable": RetriableError,
    "program": ConnectError,
}


def translated(error: Exception) -> ConnectError:
    """Return the error of a connector for an Spark exception."""
    text = text_of(error)
    found = [(match[1], match[2].strip()) for match in _OURS.finditer(text)]
    for wanted in ("DataError", "RetriableError"):
        for name, reason in found:
            if name == wanted:
                return _BY_NAME[name](reason)
    if found:
        return ConnectError(found[0][1])
    failure = classify(text)
    return _BY_KIND[failure.kind](failure.reason)
