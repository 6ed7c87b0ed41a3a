"""`ottla up` with housekeeping tasks twenty times a second, so that kills hit them during short lifetimes.

`python fast_housekeeping.py up ...` is `ottla up ...`. Settings make some tasks frequent, but not metadata snapshots
and compaction, which run once a second. SIGUSR1 prints the stacks of all threads, SIGUSR2 the waiting requests.
"""

from __future__ import annotations

import asyncio
import faulthandler
import json
import signal
import sys
from collections.abc import Callable

from ottla.broker import server
from ottla.broker.housekeeping import Housekeeping
from ottla.cli import main

INTERVAL_MS = 50
WAITING = "What waits: "


class FastHousekeeping(Housekeeping):
    """Shortens every interval."""

    def every(self, name: str, interval_ms: int, task: Callable[[], object], *, first_ms: int | None = None) -> None:
        first_ms = interval_ms if first_ms is None else first_ms
        super().every(name, min(interval_ms, INTERVAL_MS), task, first_ms=min(first_ms, INTERVAL_MS))


class InspectedNode(server.Node):
    """A node that prints its waiting requests on SIGUSR2."""

    async def start(self) -> server.Bootstrap:
        bootstrap = await super().start()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, self._print)
        return bootstrap

    def _print(self) -> None:
        print(f"{WAITING}{json.dumps(self.waiting())}", file=sys.stderr, flush=True)

    def waiting(self) -> dict[str, object]:
        """Offsets of the metadata log and partitions, and the requests that wait for them."""
        assert self.network is not None
        metadata, ids = self.broker.metadata, self.broker.producer_ids
        return {
            "metadata": {
                "end": metadata.log.log_end_offset,
                "flushed": metadata.log.flushed_offset,
                "committed": metadata.raft.high_watermark,
                "waiting": len(metadata._waiting),
                "phase": metadata._phase.name,
            },
            "producer ids": {
                "left": ids._end - ids._next,
                "allocating": ids._is_allocating,
                "waiting": len(ids._waiting),
            },
            "connections": len(self.network.connections),
            "answers to come": sum(each._pending is not None for each in self.network.connections),
            "not written to": sum(each._writes.is_paused for each in self.network.connections),
            "partitions": {
                f"{each.topic_partition}": [each.high_watermark, each.log.log_end_offset, len(each._waits.committed)]
                for each in self.broker.partitions
            },
        }


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    server.Housekeeping = FastHousekeeping  # type: ignore[misc]
    server.Node = InspectedNode  # type: ignore[misc]
    sys.exit(main.main(sys.argv[1:]))
