"""The names of quotas, and their limits in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.common.failure import Failure
from ottla.tools import values
from ottla.tools.suggestions import did_you_mean

QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
    "connection_creation_rate",
)


def check_names(names: Iterable[str]) -> None:
    """Raise Failure for a name that is not a quota."""
    for name in names:
        if name not in QUOTAS:
            advice = did_you_mean(name, QUOTAS, f"The quotas are {', '.join(QUOTAS)}.")
            raise Failure(f"there is no quota {name!r}", *advice, exit_code=2)


def limit_of(name: str, value: str) -> float:
    """Return the number that a value such as 10MiB stands for; raises Failure."""
    try:
        return float(values.broker_value(name, value))
    except ValueError:
        raise Failure(f"{name} is {value!r}; it must be a number", exit_code=2) from None
