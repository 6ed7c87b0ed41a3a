"""The results of sent records: acknowledged with an offset, or failed with the line of the input."""

from __future__ import annotations

import json
import sys
from collections import deque
from collections.abc import Callable
from typing import BinaryIO, Protocol

from ottla import clients
from ottla.clients.errors import MessageTooLarge
from ottla.common import units
from ottla.common.style import Style

_CHUNK = 512
_MOST_OPEN = 100_000
_MOST_PRINTED = 10
_MOST_PARTITIONS = 8


class Delivery(Protocol):
    """The result of `Producer.send`."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def done(self) -> bool: ...
    def exception(self, timeout_s: float | None = None) -> Exception | None: ...
    def result(self, timeout_s: float | None = None) -> clients.RecordMetadata: ...


# The source of records, their line numbers there, and their futures.
_Chunk = tuple[str, list[int], list[Delivery]]


def reason(error: Exception) -> str:
    """Format the error of a record as one line, with the next step if one is known."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, MessageTooLarge):
        if "max.request.size" in text:
            return f"{text}; -X max.request.size=BYTES allows more"
        if "max.message.bytes" in text:
            return f"{text}; `ottla topic alter TOPIC --config max.message.bytes=BYTES` allows more"
    return text


class Deliveries:
    """Holds the futures of records in sending order until they are settled."""

    def __init__(self, out: BinaryIO, *, verbose: bool, as_json: bool, say: Callable[[str], None]) -> None:
        """`say` prints a line about a record that failed."""
        self._out = out
        self._say = say
        self._verbose = verbose
        self._as_json = as_json
        self._open: deque[_Chunk] = deque()
        self._newest: _Chunk = ("", [], [])
        self._most = 1 if verbose else _CHUNK
        self._ranges: dict[tuple[str, int], list[int]] = {}  # first and last offset
        self.acknowledged = 0
        self.failed = 0

    def add(self, source: str, number: int, delivery: Delivery) -> None:
        """Add the future of a record from that line. Blocks while too many are open."""
        chunk = self._newest
        if chunk[0] != source or len(chunk[1]) >= self._most:
            chunk = self._next_chunk(source)
        chunk[1].append(number)
        chunk[2].append(delivery)

    def look(self) -> None:
        """Settle the finished futures."""
        self._next_chunk("")
        self._out.flush()

    def finish(self) -> None:
        """Wait for all futures; the producer's delivery.timeout.ms bounds the time."""
        self._next_chunk("")
        while self._open:
            self._settle(self._open.popleft())
        self._out.flush()

    def _next_chunk(self, source: str) -> _Chunk:
        waiting = self._open
        if self._newest[1]:
            waiting.append(self._newest)
        while waiting and (waiting[0][2][-1].done() or len(waiting) > _MOST_OPEN // self._most):
            self._settle(waiting.popleft())
        self._newest = (source, [], [])
        return self._newest

    def refused(self, source: str, number: int, why: str) -> None:
        """Report a line whose record was not sent or failed, with the reason."""
        self.failed += 1
        if self.failed <= _MOST_PRINTED:
            self._say(Style.of(sys.stderr).red(f"ottla: {source}{number}: {why}"))
        elif self.failed == _MOST_PRINTED + 1:
            self._say("       further failures are only counted")

    def summary(self, took_s: float) -> str:
        """Format the summary as one line."""
        rate = f" ({self.acknowledged / took_s:,.0f}/s)" if took_s > 0 and self.acknowledged > 1 else ""
        text = f"{units.plural(self.acknowledged, 'record')} acknowledged in {units.duration(took_s * 1000)}{rate}"
        places = [
            f"{topic}/{partition} {first}" + (f"-{last}" if last != first else "")
            for (topic, partition), (first, last) in sorted(self._ranges.items())
            if first >= 0
        ]
        if places:
            more = f" and {len(places) - _MOST_PARTITIONS} more" if len(places) > _MOST_PARTITIONS else ""
            text += f": {', '.join(places[:_MOST_PARTITIONS])}{more}"
        return text + (f"; {self.failed:,} failed" if self.failed else "")

    def _settle(self, chunk: _Chunk) -> None:
        """Wait for these futures. Reads offsets only at the start and end of a run in one partition."""
        source, numbers, deliveries = chunk
        first = last = None
        for number, delivery in zip(numbers, deliveries, strict=True):
            error = delivery.exception()
            if error is not None:
                self.refused(source, number, reason(error))
                continue
            self.acknowledged += 1
            if last is None or delivery.partition != last.partition or delivery.topic != last.topic:
                self._note(first, last)
                first = delivery
            last = delivery
            if self._verbose:
                self._print(number, delivery.result())
        self._note(first, last)

    def _note(self, first: Delivery | None, last: Delivery | None) -> None:
        if first is None or last is None:
            return
        topic, partition, offset, _ = first.result()
        offsets = self._ranges.setdefault((topic, partition), [offset, offset])
        offsets[1] = last.result().offset

    def _print(self, number: int, metadata: clients.RecordMetadata) -> None:
        topic, partition, offset, timestamp = metadata
        if self._as_json:
            row = {"line": number, "topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp}
            self._out.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        else:
            self._out.write(f"{topic}\t{partition}\t{offset}\n".encode())
