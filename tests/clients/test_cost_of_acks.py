"""With acks=all a broker process needs as many reads, writes and wake-ups as with acks=1.

The kernel counts them. CPU time would depend on the state of the page cache (decision 10).
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.ottla_process import OttlaProcess

from .support import WAIT_S
from .wire import Connection, batch, produce

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the counts come from /proc")
REQUESTS, ROUNDS = 200, 4
# Background tasks cause some reads and writes.
SLACK = REQUESTS * ROUNDS // 20


def counts(pid: int) -> Counter[str]:
    """Return the numbers of reads, writes and wake-ups of all threads of a process."""
    found: Counter[str] = Counter()
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        name, value = line.split(": ")
        if name in ("syscr", "syscw"):
            found[name] = int(value)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        for line in (thread / "status").read_text().splitlines():
            if line.startswith("voluntary_ctxt_switches"):
                found["wake-ups"] += int(line.split()[1])
    return found


def test_acks_all_needs_the_system_calls_of_acks_1(tmp_path: Path) -> None:
    spent: dict[int, Counter[str]] = {1: Counter(), -1: Counter()}
    with OttlaProcess(tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 2})
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        del admin  # connections of the admin client must not wake the broker
        with Connection(broker.bootstrap) as connection:
            data = batch([bytes(1000)])
            produce(connection, "t", data)
            for number in range(2 * ROUNDS):
                acks = (1, -1, -1, 1)[number % 4]
                before = counts(broker.pid)
                for _ in range(REQUESTS):
                    assert produce(connection, "t", data, acks=acks).error == 0
                spent[acks].update({name: n - before[name] for name, n in counts(broker.pid).items()})
    for call in ("syscr", "syscw"):
        assert spent[-1][call] == pytest.approx(spent[1][call], abs=SLACK)
    for acks in spent:
        # One write for the record, one for the response.
        assert spent[acks]["syscw"] == pytest.approx(2 * REQUESTS * ROUNDS, abs=SLACK)
        # One wake-up per request while the broker is idle. A hand-off to a thread would need two.
        assert spent[acks]["wake-ups"] <= 1.25 * REQUESTS * ROUNDS
