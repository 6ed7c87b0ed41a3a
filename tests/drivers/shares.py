"""A share coordinator's shard without a broker: an in-memory log and a manual clock.

`validate` runs after every event, so that a test fails at the event that breaks an invariant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.coordinators.events import Append, Appended, Call, LogLine, Moment, Reply
from ottla.coordinators.share.events import PruneLog, Result
from ottla.coordinators.share.shard import ShareCoordinatorConfig, ShareCoordinatorShard

WALL_START_MS = 1_700_000_000_000


class ShareCoordinatorDriver:
    """Obeys one shard's effects. Times in milliseconds since the start."""

    def __init__(self, config: ShareCoordinatorConfig | None = None) -> None:
        self.config = config or ShareCoordinatorConfig()
        self.now_ms = 0
        self.log: dict[int, tuple[bytes, bytes | None]] = {}
        self.end_offset = 0
        self.append_error = ErrorCode.NONE
        """If set, appends fail with it."""
        self.shard = ShareCoordinatorShard(self.config)
        self.shard.loaded(self._now())
        self._answers: dict[Call[Any], object] = {}

    def _now(self) -> Moment:
        return Moment(self.now_ms, WALL_START_MS + self.now_ms)

    def ask(self, request: object) -> Result:
        """Send one request and return its response."""
        call = Call(request)
        self._obey(self.shard.step(call, self._now()))
        answer = self._answers.pop(call)
        return answer if isinstance(answer, Result) else Result()

    def advance(self, duration_ms: int) -> None:
        """Advance the time; timers run in their order."""
        end_ms = self.now_ms + duration_ms
        while (next_ms := self.shard.next_timer_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            self._obey(self.shard.handle_timer(self._now()))
        self.now_ms = end_ms

    def replayed(self) -> ShareCoordinatorShard:
        """A new shard that has replayed the log."""
        shard = ShareCoordinatorShard(self.config)
        for offset, (key, value) in sorted(self.log.items()):
            shard.replay(key, value, offset)
        shard.validate()
        return shard

    def restart(self) -> None:
        """Replace the shard by one that has replayed the log."""
        self.shard = self.replayed()
        self.shard.loaded(self._now())

    def _obey(self, effects: Iterable[object]) -> None:
        pending = deque(effects)
        while pending:
            effect = pending.popleft()
            if isinstance(effect, Reply):
                assert effect.call not in self._answers, "answered twice"
                self._answers[effect.call] = effect.response
            elif isinstance(effect, PruneLog):
                self.log = {offset: record for offset, record in self.log.items() if offset >= effect.offset}
            elif isinstance(effect, Append):
                pending.extendleft(reversed(self._append(effect)))
            else:
                assert isinstance(effect, LogLine), effect
        self.shard.validate()

    def _append(self, append: Append) -> list[object]:
        base = self.end_offset
        if self.append_error is ErrorCode.NONE:
            self.log.update(enumerate(append.records, start=base))
            self.end_offset += len(append.records)
        return list(self.shard.handle_appended(Appended(append.id, base, self.append_error), self._now()))
