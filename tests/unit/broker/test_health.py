"""The node's own probes: the same answers as `ottla health`, without a client and without names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker import health
from ottla.broker.health import HealthPages, node_health
from ottla.clients import admin as api
from ottla.common.health import Health, State
from ottla.common.ids import TopicPartition
from ottla.metrics.http import Answer
from ottla.tools.health import Facts, readiness

NODE = 1


def broker(*, fenced: bool | None, failed: bool, isr: tuple[int, ...], leader: object = None) -> Any:
    """The parts of a broker that health reads; `fenced` is None for one that is not registered."""
    registered = {} if fenced is None else {NODE: SimpleNamespace(fenced=fenced)}
    partition = SimpleNamespace(replicas=(1, 2), isr=isr)
    topics = {"orders": SimpleNamespace(name="orders", partitions={0: partition})}
    return SimpleNamespace(
        identity=SimpleNamespace(node_id=NODE),
        metadata=SimpleNamespace(image=SimpleNamespace(brokers=registered, topics_by_name=topics), leader=leader),
        logs=SimpleNamespace(log_directories=lambda: [SimpleNamespace(online=not failed)]),
    )


def facts(*, fenced: bool | None, failed: bool, isr: tuple[int, ...]) -> Facts:
    """The same node, as `ottla health ready` reads it."""
    brokers = () if fenced is None else (api.BrokerDescription(NODE, "h", 9092, None, is_fenced=fenced),)
    directory = api.LogDirectory("/data", -1, -1, {}, error="KAFKA_STORAGE_ERROR" if failed else None)
    partitions = {TopicPartition("orders", 0): api.PartitionDescription(0, 2, 1, (1, 2), isr, ())}
    return Facts(NODE, 0, api.ClusterDescription("c", 2, brokers), partitions, directories=(directory,))


@pytest.mark.parametrize("fenced", [None, True, False])
@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("isr", [(1, 2), (2,)])
def test_probe_answers_as_the_command(fenced: bool | None, failed: bool, isr: tuple[int, ...]) -> None:
    found = node_health(broker(fenced=fenced, failed=failed, isr=isr), is_broker=True)
    assert found == readiness(facts(fenced=fenced, failed=failed, isr=isr))
    assert (found.state == "ready") is (fenced is False and not failed and isr == (1, 2))


@pytest.mark.parametrize(("leader", "state"), [((1, ()), "ready"), (None, "starting")])
def test_controller_alone_is_ready_while_it_knows_the_active_controller(leader: object, state: State) -> None:
    alone = broker(fenced=None, failed=False, isr=(2,), leader=leader)
    assert node_health(alone, is_broker=False).state == state


class Probed:
    """Pages over a health that a test sets."""

    def __init__(self) -> None:
        self.state: State = "ready"
        self.checks = 0
        self.now_s = 0.0
        self.pages = HealthPages(self._check, lambda: self.now_s)

    def _check(self) -> Health:
        self.checks += 1
        return Health(NODE, self.state, ("2 replicas of this node are not in sync: secret-0",))

    def ask(self, level: str) -> tuple[int, str]:
        answer = self.pages.answer(f"/health/{level}", {})
        assert answer is not None
        response: Answer = answer.result()
        self.now_s += health.FRESH_S
        return response.status, b"".join(response.body).decode().strip()


def test_node_is_live_once_it_has_started_and_until_its_end() -> None:
    it = Probed()
    assert it.ask("live") == it.ask("ready") == (503, "starting")
    it.pages.phase = "running"
    assert (it.ask("live"), it.ask("ready")) == ((200, "live"), (200, "ready"))
    it.pages.phase = "stopping"
    assert (it.ask("live"), it.ask("ready")) == ((200, "live"), (503, "stopping"))


@pytest.mark.parametrize(("state", "text"), [("catching_up", "catching up"), ("broken", "broken")])
def test_node_that_is_not_ready_stays_alive_and_names_no_topic(state: State, text: str) -> None:
    it = Probed()
    it.pages.phase, it.state = "running", state
    assert (it.ask("live"), it.ask("ready")) == ((200, "live"), (503, text))


def test_probes_of_one_second_share_a_scan_of_the_metadata() -> None:
    it = Probed()
    it.pages.phase = "running"
    for _ in range(10):
        it.ask("ready")
        it.now_s -= health.FRESH_S
    assert it.checks == 1
    it.now_s += health.FRESH_S
    it.ask("ready")
    assert it.checks == 2


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/health/ready/"])
def test_there_is_no_other_page(path: str) -> None:
    assert Probed().pages.answer(path, {}) is None
