"""Acknowledgements of acquired records: their types, their form in requests, and the outcome of a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import Final

from ottla.clients.errors import ClientError
from ottla.common.ids import TopicPartition

GAP: Final = 0
"""The type for an acquired offset without a record, for example one that compaction removed."""


class AcknowledgeType(IntEnum):
    """The outcome of a record that this consumer acquired."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed: the group delivers it again, up to its delivery limit."""
    REJECT = 3
    """It cannot be processed: the group does not deliver it again."""
    RENEW = 4
    """It is still being processed: its lock is extended, and it must be acknowledged later (Kafka 4.2)."""


def batches(types: Mapping[int, int]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield (first offset, last offset, types) of runs of adjacent offsets; one type stands for the whole run."""
    run: list[int] = []
    for offset in sorted(types):
        if run and offset != run[-1] + 1:
            yield _batch(run, types)
            run = []
        run.append(offset)
    if run:
        yield _batch(run, types)


def _batch(run: list[int], types: Mapping[int, int]) -> tuple[int, int, list[int]]:
    given = [types[offset] for offset in run]
    return run[0], run[-1], given[:1] if len(set(given)) == 1 else given


class CommitOutcome:
    """The results of one commit by partition; None is success. Complete when `is_done`."""

    def __init__(self) -> None:
        self.results: dict[TopicPartition, ClientError | None] = {}
        self._waiting = 0

    @property
    def is_done(self) -> bool:
        return self._waiting == 0

    def expect(self) -> None:
        self._waiting += 1

    def resolve(self, tp: TopicPartition, error: ClientError | None) -> None:
        self._waiting -= 1
        self.results[tp] = self.results.get(tp) or error
