"""What the producer's core asks of its shell, and what it is told about sent requests.

The shell obeys effects in their order, after it has let go of the lock around the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.clients.producer.batch import Batch


@dataclass(frozen=True, slots=True)
class Send:
    """Send these batches, one per partition, to a broker; answer with `responded` or `lost` and this id, once."""

    request_id: int
    node_id: int
    batches: list[Batch]


@dataclass(frozen=True, slots=True)
class RefreshMetadata:
    """Ask for these topics; answer with `metadata_changed` or `metadata_failed`. `failures` in a row before this."""

    topics: tuple[str, ...]
    failures: int


@dataclass(frozen=True, slots=True)
class AskProducerId:
    """Ask any broker for a producer id; answer with `producer_id_given` or `producer_id_failed`."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Call `announce` on these batches."""

    batches: list[Batch]


@dataclass(frozen=True, slots=True)
class Wake:
    """Call these: senders that waited for room or metadata look again."""

    wakers: list[Callable[[], object]]


Effect = Send | RefreshMetadata | AskProducerId | Finished | Wake


class Outcome(NamedTuple):
    """What a broker said about one batch; `record_errors` by index in the batch. KIP-467."""

    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    message: str | None = None
    record_errors: tuple[tuple[int, str | None], ...] = ()
