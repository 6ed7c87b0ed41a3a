"""The races that compare acks=1 with acks=all in one broker, after gigabytes were written.

Pairs of runs alternate their order (1 all, all 1), and the ratio is the median over the pairs, so that neither setting
profits from its place. First the pairs meet whatever memory the machine has: nothing is deleted. Then
they are repeated with pages that were used just before (`page_cache.touch`), and with a page cache that has filled the
memory (`page_cache.filled`). A bare loop of pwrite(2) between the pairs shows what the kernel alone takes for a
megabyte at that moment.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from benchmarks import page_cache
from benchmarks.brokers import Broker
from benchmarks.filling import fill
from benchmarks.wire import Figures, new_topic, passing_topic, wait_until_deleted

GIGABYTES_BEFORE = float(os.environ.get("OTTLA_BENCH_GB_BEFORE", "5"))
ORDERS = (("1", "all"), ("all", "1")) * 3
BARE_MB = 100
AS_IT_COMES, USED_BEFORE, FULL = "memory as it comes", "memory used before", "page cache full"
RATIO = "CPU of acks=all over acks=1"
# Two runs in a row of the same setting differ by up to this on a shared machine.
LIMITS = {f"{RATIO}, {state}": 1.25 for state in (AS_IT_COMES, USED_BEFORE, FULL)}


def acks_after_gigabytes(size: int, count: int) -> Callable[[Broker, float], Figures]:
    """The race for records of one size."""

    def race(broker: Broker, scale: float) -> Figures:
        with tempfile.TemporaryDirectory(prefix="ottla-bench-") as name, broker.another(Path(name)) as fresh:
            fill(fresh, new_topic(fresh, 6), int(GIGABYTES_BEFORE * 1e6 * scale), 1000, "1")
            pairs = _Pairs(fresh, size, int(count * scale))
            figures = pairs.run(AS_IT_COMES) | pairs.run(USED_BEFORE)
            with page_cache.filled(fresh):
                return figures | pairs.run(FULL)

    race.__doc__ = (
        f"librdkafka produces records of {size} B to 6 partitions after {GIGABYTES_BEFORE:g} GB, "
        "acks=1 and acks=all in alternating order"
    )
    return race


class _Pairs:
    """Pairs of runs on one broker."""

    def __init__(self, broker: Broker, size: int, records: int) -> None:
        self._broker = broker
        self._size = size
        self._records = records
        self._megabytes = records * size / 1e6

    def run(self, state: str) -> Figures:
        """All pairs in one state of the memory: means over the runs of each setting.

        A median would be no figure of either kind of memory where the runs of one setting met both.
        """
        costs: dict[str, list[tuple[float, float]]] = {"1": [], "all": []}
        bare: list[float] = []
        with tempfile.TemporaryDirectory(dir=self._broker.data.parent, prefix="bare-") as name:
            for order in ORDERS:
                if state == USED_BEFORE:
                    page_cache.touch(self._broker, BARE_MB)
                bare.append(page_cache.system_ms_per_mb(Path(name), BARE_MB))
                for acks in order:
                    costs[acks].append(self._cost(acks, state))
        figures: Figures = {}
        for acks, runs in costs.items():
            where = f", acks={acks}, {state}"
            figures["MB per broker-CPU-second" + where] = 1e3 / statistics.fmean(map(sum, runs))
            figures["user ms per MB" + where] = statistics.fmean(user for user, _ in runs)
            figures["system ms per MB" + where] = statistics.fmean(system for _, system in runs)
        ratios = [sum(every) / sum(one) for every, one in zip(costs["all"], costs["1"], strict=True)]
        figures[f"{RATIO}, {state}"] = statistics.median(ratios)
        figures[f"system ms per MB, bare pwrite, {state}"] = statistics.fmean(bare)
        return figures

    def _cost(self, acks: str, state: str) -> tuple[float, float]:
        """User and system milliseconds of the broker for a megabyte."""
        if state == USED_BEFORE:
            page_cache.touch(self._broker, self._megabytes)
            with passing_topic(self._broker, 6) as topic:
                cost = self._produce(topic, acks)
            wait_until_deleted(self._broker, topic)
            return cost
        return self._produce(new_topic(self._broker, 6), acks)

    def _produce(self, topic: str, acks: str) -> tuple[float, float]:
        user, system = self._broker.cpu_times()
        fill(self._broker, topic, self._records, self._size, acks)
        user_after, system_after = self._broker.cpu_times()
        least = 0.01  # a clock tick: a ratio needs more than nothing
        return (
            max(user_after - user, least) / self._megabytes * 1e3,
            max(system_after - system, least) / self._megabytes * 1e3,
        )
