"""What becomes of records that were sent: acknowledged, with their offsets, or failed, with the line they came from."""

from __future__ import annotations

import json
import sys
from collections import deque
from typing import TYPE_CHECKING, BinaryIO, Protocol

from ottla.cli import human
from ottla.cli.terminal import Style

if TYPE_CHECKING:
    from ottla.clients import ClientError, RecordMetadata

_LOOK_EVERY = 512
_MOST_OPEN = 100_000
_MOST_TOLD = 10
_MOST_PARTITIONS = 8


class Delivery(Protocol):
    """What `Producer.send` gives out."""

    def done(self) -> bool: ...
    def result(self, timeout_s: float | None = None) -> RecordMetadata: ...


class Deliveries:
    """Keeps the futures of records in the order in which they were sent, and lets them go as they are settled."""

    def __init__(self, out: BinaryIO, *, verbose: bool, as_json: bool) -> None:
        self._out = out
        self._verbose = verbose
        self._as_json = as_json
        self._open: deque[tuple[str, int, Delivery]] = deque()
        self._ranges: dict[tuple[str, int], list[int]] = {}  # first and last offset, count
        self.acknowledged = 0
        self.failed = 0

    def add(self, source: str, number: int, delivery: Delivery) -> None:
        """One more is on its way, from that line. Blocks while very many are."""
        self._open.append((source, number, delivery))
        if len(self._open) % _LOOK_EVERY == 0 or self._verbose:
            self._settle_done()
            while len(self._open) > _MOST_OPEN:
                self._settle(*self._open.popleft())

    def look(self) -> None:
        """Settle what is done by now."""
        self._settle_done()
        self._out.flush()

    def finish(self) -> None:
        """Wait until each has its end; the producer's delivery.timeout.ms bounds it."""
        while self._open:
            self._settle(*self._open.popleft())
        self._out.flush()

    def refused(self, source: str, number: int, why: str) -> None:
        """A line that was not sent, and why."""
        self.failed += 1
        if self.failed <= _MOST_TOLD:
            print(Style.of(sys.stderr).red(f"ottla: {source}{number}: {why}"), file=sys.stderr)
        elif self.failed == _MOST_TOLD + 1:
            print("       more of them are only counted", file=sys.stderr)

    def summary(self, took_s: float) -> str:
        """One line for people."""
        rate = f" ({self.acknowledged / took_s:,.0f}/s)" if took_s > 0 and self.acknowledged > 1 else ""
        text = f"{human.plural(self.acknowledged, 'record')} acknowledged in {human.duration(took_s * 1000)}{rate}"
        places = [
            f"{topic}/{partition} {first}" + (f"-{last}" if last != first else "")
            for (topic, partition), (first, last, _) in sorted(self._ranges.items())
            if first >= 0
        ]
        if places:
            more = f" and {len(places) - _MOST_PARTITIONS} more" if len(places) > _MOST_PARTITIONS else ""
            text += f": {', '.join(places[:_MOST_PARTITIONS])}{more}"
        return text + (f"; {self.failed:,} failed" if self.failed else "")

    def _settle_done(self) -> None:
        waiting = self._open
        while waiting and waiting[0][2].done():
            self._settle(*waiting.popleft())

    def _settle(self, source: str, number: int, delivery: Delivery) -> None:
        from ottla.clients.errors import ClientError

        try:
            metadata = delivery.result()
        except ClientError as error:
            self.refused(source, number, _one_line(error))
            return
        self.acknowledged += 1
        topic, partition, offset, _ = metadata
        kept = self._ranges.get((topic, partition))
        if kept is None:
            self._ranges[topic, partition] = [offset, offset, 1]
        else:
            kept[1] = offset
            kept[2] += 1
        if self._verbose:
            self._tell(number, metadata)

    def _tell(self, number: int, metadata: RecordMetadata) -> None:
        topic, partition, offset, timestamp = metadata
        if self._as_json:
            row = {"line": number, "topic": topic, "partition": partition, "offset": offset, "timestamp": timestamp}
            self._out.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
        else:
            self._out.write(f"{topic}\t{partition}\t{offset}\n".encode())


def _one_line(error: ClientError) -> str:
    return " ".join(str(error).split()) or type(error).__name__
