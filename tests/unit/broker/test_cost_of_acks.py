"""acks=all costs as much as acks=1: on one replica without flush settings both make the same calls.

Calls are counted, not timed: processor time depends on the memory of the page cache (decision 10).
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest

from .harness import BrokerHarness, batch

REQUESTS = 120
# 20 KB each: every batch adds index entries, and two segments roll.
BATCH = [bytes(1000)] * 20
SEGMENT_BYTES = str(1 << 20)


def calls_of(harness: BrokerHarness, topic: str, acks: int) -> Counter[str]:
    """Produce to a new topic; returns the number of calls of each function."""
    harness.create(topic, segment_bytes=SEGMENT_BYTES)
    requests = [batch(*BATCH) for _ in range(REQUESTS)]
    calls: Counter[str] = Counter()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1
        elif event == "c_call":
            calls[argument.__qualname__] += 1

    gc.disable()  # the profiler also reports its own callbacks
    sys.setprofile(note)
    try:
        for data in requests:
            harness.produce((topic, {0: data}), acks=acks)
            harness.loop.run()
    finally:
        sys.setprofile(None)
        gc.enable()
    assert harness.partition(topic).high_watermark == REQUESTS * len(BATCH)
    return calls


@pytest.mark.parametrize("order", [(1, -1), (-1, 1)], ids=str)
def test_acks_all_makes_the_calls_of_acks_1(harness: BrokerHarness, order: tuple[int, int]) -> None:
    calls_of(harness, "warm-up", 1)  # the first requests load modules and allocate buffers
    counts = {acks: calls_of(harness, f"acks{acks}", acks) for acks in order}
    assert counts[1]["Files.pwrite"] >= REQUESTS  # the profiler counted the calls
    # acks=all adds only the check of min.insync.replicas.
    assert counts[-1] - counts[1] == {"Partition.check_acks": REQUESTS}
    assert counts[1] - counts[-1] == {}


def test_acks_all_leaves_nothing_waiting(harness: BrokerHarness) -> None:
    harness.create("t")
    harness.threads.held = True
    for _ in range(3):
        answer = harness.produce(("t", {0: batch(b"a")}), acks=-1)
        assert answer.responses[0].partition_responses[0].error_code == 0
    assert harness.threads.work == []
    assert harness.partition("t")._waits.committed == []
