"""Several workers as processes: requests to any of them, lost and restarted workers, exactly once through all of it."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.connect.cluster.counting import check_counts
from tests.connect.cluster.workers import (
    BROKER,
    COUNTING,
    WorkerProcess,
    committed,
    put,
    running,
    states,
    until,
    workers,
)
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.peers.stock_connect import RestError

pytestmark = [pytest.mark.timeout(300), pytest.mark.xdist_group("connect-cluster")]
STEPS = int(os.environ.get("OTTLA_CONNECT_CHAOS_STEPS", "4"))
SEED = int(os.environ.get("OTTLA_CONNECT_CHAOS_SEED", "1"))
TOPIC = "counts"


def counting(tasks: int, **more: str) -> dict[str, str]:
    return {"connector.class": COUNTING, "topic": TOPIC, "tasks.max": str(tasks), **more}


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[OttlaProcess]:
    with ForkedOttla(tmp_path / "broker", BROKER) as broker:
        yield broker


def settled_counts(worker: WorkerProcess, bootstrap: str) -> dict[str, int]:
    """Stop the source, and check that each value was written exactly once."""

    def stopped() -> bool:
        worker.request("PUT", "/connectors/count/stop")
        return states(worker, "count")[0][0] == "STOPPED" and len(states(worker, "count")) == 1

    until(stopped, "stopping the source")
    rows = until(lambda: worker.request("GET", "/connectors/count/offsets"), "reading offsets")["offsets"]
    counts = check_counts(committed(bootstrap, TOPIC))
    assert {row["partition"]["stream"]: row["offset"]["next"] for row in rows} == counts
    return counts


def test_any_worker_accepts_any_request(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with workers(tmp_path, own_broker.bootstrap, 3) as every:
        for number, worker in enumerate(every):
            put(worker, f"c{number}", counting(1, streams="1"))
        names = {"c0", "c1", "c2"}
        for worker in every:
            until(lambda worker=worker: set(worker.request("GET", "/connectors")) == names, "all see all connectors")
            with pytest.raises(RestError) as caught:
                worker.request("PUT", "/connectors/bad/config", {"connector.class": "unknown"})
            assert caught.value.status == 400
        for name in names:
            until(lambda name=name: running(every[0], name, 1), f"{name} runs")
        owners = {worker_id for name in names for _, worker_id in states(every[0], name)}
        assert owners == {worker.worker_id for worker in every}, "the work is divided"
        for worker in every:  # two of them forward it to the worker of the task, by way of the leader
            until(lambda worker=worker: worker.request("POST", "/connectors/c0/tasks/0/restart") is None, "restart")
            until(lambda worker=worker: worker.request("POST", "/connectors/c1/restart") is None, "restart")
            until(lambda: running(every[0], "c0", 1) and running(every[0], "c1", 1), "they run again")
        for worker, name in zip(every, sorted(names), strict=True):
            until(lambda worker=worker, name=name: worker.request("DELETE", f"/connectors/{name}") is None, "delete")
        for worker in every:
            until(lambda worker=worker: worker.request("GET", "/connectors") == [], "all are deleted")


def test_unsigned_internal_requests_are_refused(own_broker: OttlaProcess, tmp_path: Path) -> None:
    with workers(tmp_path, own_broker.bootstrap, 1) as (worker,):
        put(worker, "count", counting(1))
        for method, path in (("POST", "/connectors/count/tasks"), ("PUT", "/connectors/count/fence")):
            with pytest.raises(RestError, match="missing required signature") as caught:
                worker.request(method, path, [])
            assert caught.value.status == 400
        until(lambda: running(worker, "count", 1), "the source runs")


def test_work_of_a_killed_worker_moves_and_no_record_is_lost_or_repeated(
    own_broker: OttlaProcess, tmp_path: Path
) -> None:
    with workers(tmp_path, own_broker.bootstrap, 3) as every:
        put(every[0], "count", counting(3))
        until(lambda: running(every[0], "count", 3), "the source runs")
        killed, *others = sorted(every, key=lambda each: each.worker_id != states(every[0], "count")[0][1])
        killed.kill()
        left = {each.worker_id for each in others}
        until(lambda: running(others[0], "count", 3, on=left), "its work has moved")
        put(others[1], "count", counting(2))
        until(lambda: running(others[0], "count", 2, on=left), "another number of tasks")
        counts = settled_counts(others[0], own_broker.bootstrap)
        assert all(counts.values())


def test_a_restarted_worker_gets_its_work_back(own_broker: OttlaProcess, tmp_path: Path) -> None:
    more = {"scheduled.rebalance.max.delay.ms": 120_000}
    with workers(tmp_path, own_broker.bootstrap, 3, **more) as every:
        put(every[0], "count", counting(3))
        until(lambda: running(every[0], "count", 3), "the source runs")
        time.sleep(1.0)  # the group settles
        before = states(every[0], "count")
        leader = every[0]
        owners = [worker_id for _, worker_id in before]
        restarted = next(each for each in every if each.worker_id in owners and _follows(each, every))
        leader = next(each for each in every if each is not restarted)
        restarted.stop()
        restarted.start()
        until(lambda: running(leader, "count", 3), "all run again")
        assert states(leader, "count") == before


def _follows(worker: WorkerProcess, every: list[WorkerProcess]) -> bool:
    """Whether another worker leads, by the logs."""
    lines = [line for each in every for line in each.log().splitlines() if "(this worker)" in line]
    assert lines
    return worker.worker_id not in max(lines)


def test_a_paused_worker_writes_nothing_after_its_work_has_moved(own_broker: OttlaProcess, tmp_path: Path) -> None:
    """SIGSTOP for longer than the session timeout: when it goes on, its tasks are fenced."""
    with workers(tmp_path, own_broker.bootstrap, 2) as every:
        put(every[0], "count", counting(2))
        paused, other = every
        both = {each.worker_id for each in every}

        def divided() -> bool:
            return running(other, "count", 2) and {worker_id for _, worker_id in states(other, "count")[1:]} == both

        until(divided, "each worker runs a task")
        paused.signal(signal.SIGSTOP)
        until(lambda: running(other, "count", 2, on={other.worker_id}), "its work has moved")
        before = len(committed(own_broker.bootstrap, TOPIC))
        paused.signal(signal.SIGCONT)
        until(lambda: "The group removed this worker" in paused.log(), "it notices that it was removed")
        until(lambda: len(committed(own_broker.bootstrap, TOPIC)) > before, "the other worker writes on")
        settled_counts(other, own_broker.bootstrap)


@pytest.mark.long
def test_chaos_loses_and_repeats_nothing(own_broker: OttlaProcess, tmp_path: Path) -> None:
    """Kills, pauses, restarts of the broker and other numbers of tasks, in random order."""
    draw = random.Random(SEED)
    with workers(tmp_path, own_broker.bootstrap, 3) as every:
        put(every[0], "count", counting(3))
        until(lambda: running(every[0], "count", 3), "the source runs")
        events = ["kill", "pause", "broker", "tasks"]
        for step in range(STEPS):
            event = events[step] if step < len(events) else draw.choice(events)
            victim = draw.choice(every)
            if event == "kill":
                victim.kill()
                time.sleep(draw.uniform(0, 4))
                victim.start()
            elif event == "pause":
                victim.signal(signal.SIGSTOP)
                time.sleep(draw.uniform(2, 6))
                victim.signal(signal.SIGCONT)
            elif event == "broker":
                own_broker.kill()
                time.sleep(draw.uniform(0, 2))
                own_broker.start()
            else:
                put(victim, "count", counting(draw.randint(1, 5)))
            time.sleep(draw.uniform(0, 2))
        put(every[0], "count", counting(3))
        before = len(committed(own_broker.bootstrap, TOPIC))
        until(lambda: running(every[1], "count", 3), "the source runs again")
        until(lambda: len(committed(own_broker.bootstrap, TOPIC)) > before, "the source writes")
        counts = settled_counts(every[2], own_broker.bootstrap)
        assert min(counts.values()) > 0
