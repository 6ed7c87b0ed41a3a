"""Metadata responses after the loss of a broker, such that no client waits for it.

Kafka names the previous leader until the controller has elected another. librdkafka asks for the leader when its
connection to it is closed, believes the answer, and sends its next request a second later. It waits for another second
if the answer with the new leader does not contain the previous broker: it then closes the broker's queue together with
the partitions that it is just moving. Therefore:

- A broker that lost its own connection to a leader delays the Metadata responses that would name this leader until
  the controller has fenced it, for at most `WAIT_S`. Then the controller is right: perhaps only the connection between
  these two brokers was cut.
- A broker is listed in Metadata responses for `LISTED_S` after it was fenced. It leads nothing then.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from ottla.common.completion import Completion, gather

if TYPE_CHECKING:
    from ottla.common.timers import CallLater
    from ottla.metadata.image import MetadataImage

WAIT_S = 2.0
LISTED_S = 2.0


class LostBrokers:
    """The brokers to which this one lost its connection, and those that were fenced a short time ago."""

    def __init__(self, call_later: CallLater) -> None:
        self._call_later = call_later
        self._image: MetadataImage | None = None
        self._lost: dict[int, Completion[None]] = {}
        self.just_fenced: frozenset[int] = frozenset()
        """The fenced brokers that are still listed."""

    def __bool__(self) -> bool:
        """Whether any broker is lost."""
        return bool(self._lost)

    def lost(self, broker_id: int) -> None:
        """The broker closed the connection of a fetcher. Until it answers again, this has an effect once."""
        if broker_id not in self._lost and self._is_alive(broker_id):
            settled: Completion[None] = Completion()
            self._lost[broker_id] = settled

            def give_up() -> None:
                settled.complete(None)

            self._call_later(WAIT_S, give_up)

    def answered(self, broker_id: int) -> None:
        """The broker answered a fetcher."""
        self._settle(broker_id)

    def settled(self, leaders: Collection[int] | None) -> Completion[None] | None:
        """A completion for a response that names these leaders, or all; None if it need not wait."""
        waiting = [
            settled
            for broker_id, settled in self._lost.items()
            if not settled.done and (leaders is None or broker_id in leaders)
        ]
        return gather(waiting, lambda _: None) if waiting else None

    def publish(self, old: MetadataImage | None, new: MetadataImage) -> None:
        """The metadata changed."""
        self._image = new
        if old is None or old.brokers is new.brokers:
            return
        for broker_id in [each for each in self._lost if not self._is_alive(each)]:
            self._settle(broker_id)
        fenced = {
            broker_id
            for broker_id, broker in new.brokers.items()
            if broker.fenced and broker_id in old.brokers and not old.brokers[broker_id].fenced
        }
        if fenced:
            self.just_fenced |= fenced
            self._call_later(LISTED_S, lambda: self._unlist(fenced))

    def _is_alive(self, broker_id: int) -> bool:
        broker = None if self._image is None else self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def _settle(self, broker_id: int) -> None:
        settled = self._lost.pop(broker_id, None)
        if settled is not None:
            settled.complete(None)

    def _unlist(self, fenced: Collection[int]) -> None:
        self.just_fenced -= frozenset(fenced)
