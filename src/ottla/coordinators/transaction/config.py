"""The settings of the transaction coordinator, read once from the broker's settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ottla.coordinators.settings import whole_numbers


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Defaults are Kafka's; times in milliseconds."""

    id_expiration_ms: int = 604_800_000
    max_timeout_ms: int = 900_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    two_phase_commit: bool = False
    # How long markers that could not be written are held back before they are written again.
    marker_retry_ms: int = 50
    max_marker_retry_ms: int = 5_000

    @classmethod
    def from_settings(cls, setting: Callable[[str], object]) -> TransactionConfig:
        """Read the broker's settings through `setting(name)`; raises TypeError if a value has the wrong type."""
        number = whole_numbers(setting)
        return cls(
            id_expiration_ms=number("transactional.id.expiration.ms"),
            max_timeout_ms=number("transaction.max.timeout.ms"),
            abort_timed_out_interval_ms=number("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            remove_expired_interval_ms=number("transaction.remove.expired.transaction.cleanup.interval.ms"),
            two_phase_commit=bool(number("transaction.two.phase.commit.enable")),
        )
