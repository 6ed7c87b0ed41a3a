"""`ottla up` that writes its resource usage to a file: a line of JSON every PERIOD seconds.

`python monitored_broker.py FILE PERIOD up ...` is `ottla up ...`. Numbers of tasks and objects, and the time of an
event loop iteration, cannot be measured from outside.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import threading
import time
from pathlib import Path

from ottla.broker import server
from ottla.cli import main

BEAT_S = 0.01
# Walking all objects takes milliseconds.
OBJECTS_EVERY_S = 10


class MonitoredNode(server.Node):
    """A node that reports its resource usage."""

    path: Path
    period_s: float

    async def start(self) -> server.Bootstrap:
        bootstrap = await super().start()
        self._turns = 0
        self._objects = 0
        self._late_s = self._turn_s = 0.0
        self._report()
        self._beat(time.monotonic(), time.thread_time())
        return bootstrap

    def _beat(self, due_s: float, cpu_s: float) -> None:
        """Measure the delay of a due timer and its CPU time; the rest of the delay was spent outside of the process."""
        now_s, now_cpu_s = time.monotonic(), time.thread_time()
        self._late_s = max(self._late_s, now_s - due_s)
        self._turn_s = max(self._turn_s, now_cpu_s - cpu_s)
        asyncio.get_running_loop().call_later(BEAT_S, self._beat, now_s + BEAT_S, now_cpu_s)

    def _report(self) -> None:
        loop = asyncio.get_running_loop()
        if self._turns % int(OBJECTS_EVERY_S / self.period_s) == 0:
            self._objects = len(gc.get_objects())
        self._turns += 1
        with self.path.open("a") as file:
            file.write(json.dumps(self.held()) + "\n")
        self._late_s = self._turn_s = 0.0
        loop.call_later(self.period_s, self._report)

    def held(self) -> dict[str, float]:
        """The current numbers of tasks, threads, objects, connections and so on."""
        assert self.network is not None
        groups = self.broker.groups
        return {
            "at": time.time(),
            "tasks": len(asyncio.all_tasks()),
            "threads": threading.active_count(),
            "objects": self._objects,
            "connections": len(self.network.connections),
            "buffered": self.network.connections.memory.used_bytes,
            "fetch sessions": len(self.broker.fetch_sessions),
            "groups": sum(len(runner.shard._core.groups) for runner in groups.shards._runners.values()),
            "logs": len(self.broker.logs.all()),
            "doomed": len(self.broker.logs.deletions),
            "resident": _resident(),
            "descriptors": len(os.listdir("/proc/self/fd")),
            "cpu": time.process_time(),
            "late": self._late_s,
            "turn": self._turn_s,
        }


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    MonitoredNode.path, MonitoredNode.period_s = Path(sys.argv[1]), float(sys.argv[2])
    server.Node = MonitoredNode  # type: ignore[misc]
    sys.exit(main.main(sys.argv[3:]))
