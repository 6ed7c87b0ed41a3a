"""Metrics of the process, its event loop and its connections."""

from __future__ import annotations

import os
import resource
from collections import Counter
from typing import TYPE_CHECKING, Final

from ottla.broker.metrics import families as f
from ottla.broker.metrics.exposition import Samples, labelled
from ottla.broker.metrics.loop_delay import cumulative

if TYPE_CHECKING:
    from ottla.broker.metrics.loop_delay import LoopDelay
    from ottla.network.server import Server

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")


def add_process(samples: Samples, started_s: float) -> None:
    """Add CPU time, memory and descriptors; on systems without /proc only the CPU time and the limit."""
    times = os.times()
    samples.add(f.PROCESS_CPU, times.user + times.system)
    samples.add(f.PROCESS_START, started_s)
    samples.add(f.PROCESS_MAX_FDS, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    try:
        with open("/proc/self/statm", encoding="ascii") as statm:
            samples.add(f.PROCESS_MEMORY, int(statm.read().split()[1]) * _PAGE_BYTES)
        samples.add(f.PROCESS_FDS, len(os.listdir("/proc/self/fd")))
    except OSError:  # another system, or no descriptor is left
        return


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
    for listener, count in Counter(each.listener for each in network.connections).items():
        samples.add(f.CONNECTIONS, count, labelled(listener=listener, networkProcessor=0))
