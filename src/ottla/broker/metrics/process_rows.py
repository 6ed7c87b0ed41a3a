"""Metrics of the process, its event loop and its connections."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.broker.metrics.loop_delay import cumulative
from ottla.metrics.exposition import Samples, labelled

if TYPE_CHECKING:
    from ottla.broker.metrics.loop_delay import LoopDelay
    from ottla.network.server import Server

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
LISTED_EVERY_S: Final = 60.0


class Descriptors:
    """Counts the open descriptors of the process without listing them in the thread of the event loop.

    Since Linux 6.2, the size of the directory is their number. An older system lists them: 20,000 take 30 to 250 ms.
    So a thread does that, at most once in `LISTED_EVERY_S`.
    """

    def __init__(self, directory: str = "/proc/self/fd") -> None:
        self._directory = directory
        self._listed: int | None = None
        self._due_s = 0.0
        self._thread: threading.Thread | None = None

    def count(self) -> int | None:
        """Return the number; None as long as it is not known. Raises OSError on a system without /proc."""
        size = os.stat(self._directory).st_size
        if size:
            return size
        now_s = time.monotonic()
        if self._thread is None or (now_s >= self._due_s and not self._thread.is_alive()):
            self._due_s = now_s + LISTED_EVERY_S
            self._thread = threading.Thread(target=self._list, name="ottla-descriptors", daemon=True)
            self._thread.start()
        return self._listed

    def _list(self) -> None:
        try:
            self._listed = len(os.listdir(self._directory))
        except OSError:  # no descriptor is left for the directory itself: the sample is missing
            self._listed = None


def add_process(samples: Samples, started_s: float, descriptors: Descriptors) -> None:
    """Add CPU time, memory and descriptors; on systems without /proc only the CPU time and the limit."""
    times = os.times()
    samples.add(f.PROCESS_CPU, times.user + times.system)
    samples.add(f.PROCESS_START, started_s)
    samples.add(f.PROCESS_MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            samples.add(f.PROCESS_MEMORY, int(statm.read().split()[1]) * _PAGE_BYTES)
        count = descriptors.count()
    except OSError:  # another system, or no descriptor is left
        return
    if count is not None:
        samples.add(f.PROCESS_FDS, count)


def add_loop(samples: Samples, delay: LoopDelay, unfinished: int) -> None:
    """Add the delays of the event loop, and the idle share of its thread."""
    name = f.LOOP_DELAY.name
    lines = samples.of(f.LOOP_DELAY)
    cumulative(delay.counts, lambda bound, count: lines.append(f'{name}_bucket{{le="{bound}"}} {count}'))
    lines += [f"{name}_sum {delay.total_s}", f"{name}_count {sum(delay.counts)}"]
    samples.add(f.LOOP_DELAY_MAX, delay.max_s)
    samples.add(f.HANDLER_IDLE, delay.idle)
    samples.add(f.NETWORK_IDLE, delay.idle)
    samples.add(f.UNFINISHED, unfinished)


def add_connections(samples: Samples, network: Server) -> None:
    """Add the number of connections of each listener."""
    counts = Counter(dict.fromkeys(network.listeners, 0))
    counts.update(each.listener for each in network.connections)
    for listener, count in counts.items():
        samples.add(f.CONNECTIONS, count, labelled(listener=listener, networkProcessor=0))
