"""Transactions whose ends the connector defines (transaction.boundary=connector)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.clients import Consumer
from ottla.connect.runtime import State
from ottla.connect.worker.steps import Step
from ottla.testing.connect import ConnectWorker, KillAt
from ottla.testing.waiting import wait_until
from tests.connect.forked_process import ForkedConnect
from tests.connect.worker.sources import LAST
from tests.connect.worker.test_kills import VALUES

TENS = [list(range(begin, begin + 10)) for begin in range(0, LAST, 10)]


def config(topic: str, **more: str) -> dict[str, str]:
    return {
        "name": f"tens-{topic}",
        "connector.class": "tests.connect.worker.sources:TensConnector",
        "topic": topic,
        "transaction.boundary": "connector",
        **VALUES,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def settings(topic: str, support: str = "enabled") -> dict[str, str]:
    return {"exactly.once.source.support": support, "offset.storage.topic": f"{topic}-offsets", "group.id": topic}


def transactions(ottla: Any, topic: str) -> list[list[int]]:
    """The numbers of committed transactions: a marker, which has an offset too, is after each of them."""
    given = {"bootstrap_servers": ottla.bootstrap, "isolation_level": "read_committed", "enable_auto_commit": False}
    found: list[list[int]] = []
    with Consumer(given, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        expected = -1
        while records := consumer.poll(0.3):
            for each in records:
                if each.offset != expected:
                    found.append([])
                found[-1].append(json.loads(each.value)["number"])
                expected = each.offset + 1
    return found


@pytest.mark.parametrize("step", [Step.AFTER_SEND, Step.AFTER_OFFSETS, Step.AFTER_COMMIT])
def test_transactions_of_the_connector_are_whole_and_written_once(ottla: Any, step: Step) -> None:
    topic = ottla.topic()
    times = 4 if step is Step.AFTER_SEND else 2
    with ForkedConnect(ottla.bootstrap, config(topic), settings(topic), KillAt(step, times)) as process:
        process.wait_until_killed()
    begun = transactions(ottla, topic)
    assert begun == TENS[: len(begun)]
    with ConnectWorker(ottla.bootstrap, settings(topic)) as worker:
        worker.start(config(topic))
        wait_until(lambda: len(transactions(ottla, topic)) == len(TENS), 30.0)
    assert transactions(ottla, topic) == TENS


def test_aborted_transaction_is_discarded_and_not_read_again(ottla: Any, ottla_connect: Any) -> None:
    topic = ottla.topic()
    worker = ottla_connect(settings(topic))
    given = config(topic, abort_at="19", stop_at="20")
    tasks = worker.start(given)

    def offsets() -> list[object]:
        return [each.offset for each in worker.call(worker.runtime.offsets(given["name"], given))]

    # No transaction follows the aborted one, whose records a restart would read again without its offset.
    wait_until(lambda: offsets() == [{"after": 20}], 30.0)
    worker.stop(tasks)
    worker.call(worker.runtime.stop_connector(given["name"]))
    worker.start(config(topic))
    wait_until(lambda: len(transactions(ottla, topic)) == len(TENS) - 1, 30.0)
    assert transactions(ottla, topic) == [TENS[0], *TENS[2:]]


def test_pause_and_stop_commit_no_part_of_a_transaction(ottla: Any, ottla_connect: Any) -> None:
    topic = ottla.topic()
    worker = ottla_connect(settings(topic))
    given = config(topic, stop_at="15")
    tasks = worker.start(given)
    wait_until(lambda: transactions(ottla, topic) == TENS[:1], 30.0)
    wait_until(lambda: worker.report(tasks[0]).facts.get("records") == 15, 30.0)
    worker.pause(tasks)
    worker.wait_for(State.PAUSED)
    # An open transaction would hide the records of other producers.
    ottla.produce(topic, b'{"number": -1}')
    wait_until(lambda: transactions(ottla, topic) == [TENS[0], [-1]], 30.0)
    worker.pause(tasks, paused=False)
    wait_until(lambda: worker.report(tasks[0]).facts.get("records") == 5, 30.0)
    worker.stop(tasks)
    worker.call(worker.runtime.stop_connector(given["name"]))
    assert transactions(ottla, topic) == [TENS[0], [-1]]
    worker.start(config(topic))
    wait_until(lambda: len(transactions(ottla, topic)) == len(TENS) + 1, 30.0)
    assert transactions(ottla, topic) == [TENS[0], [-1], *TENS[1:]]


def test_transaction_that_the_connector_does_not_end_stops_the_task(ottla: Any, ottla_connect: Any) -> None:
    topic = ottla.topic()
    worker = ottla_connect(settings(topic))
    worker.start({**config(topic, stop_at="15"), "producer.override.transaction.timeout.ms": "2000"})
    trace = worker.wait_for(State.FAILED).trace
    assert "has not ended its transaction for 1.5 s" in trace
    assert "transaction.boundary=poll" in trace


def test_without_exactly_once_the_connector_has_no_transactions(ottla: Any, ottla_connect: Any) -> None:
    topic = ottla.topic()
    ottla_connect(settings(topic, "disabled")).start(config(topic))
    wait_until(lambda: transactions(ottla, topic) == [list(range(LAST))], 30.0)
