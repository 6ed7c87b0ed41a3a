"""Clients that tests leave open: they are reported and closed, and do not disturb the next test of their group."""

from __future__ import annotations

from pathlib import Path

import pytest

from .test_plugin import Run

each_place = pytest.mark.parametrize("place", ["thread", "process"])

# Each function joins a group and reads a record; what it returns is open. `close` is how to close it.
LIBRARIES = {
    "confluent": """
import time
from confluent_kafka import Consumer

def open_consumer(bootstrap, topic, group, count=1):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest",
                         "log_level": 0, "client.id": "app"})
    consumer.subscribe([topic])
    deadline = time.monotonic() + 20
    while count and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        count -= message is not None and message.error() is None
    assert count <= 0, "it got no partitions"
    return consumer

def close(consumer):
    consumer.close()
""",
    "kafka-python": """
import time
from kafka import KafkaConsumer

def open_consumer(bootstrap, topic, group, count=1):
    # A leader that assigns before it has metadata sometimes keeps its empty assignment: use another consumer.
    for _ in range(4):
        consumer = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
                                 client_id="app", metadata_max_age_ms=500)
        missing = count
        started = time.monotonic()
        while missing > 0 and time.monotonic() - started < (5 if missing == count else 20):
            missing -= sum(map(len, consumer.poll(timeout_ms=100).values()))
        if missing <= 0:
            return consumer
        consumer.close()
    raise AssertionError("it got no partitions")

def close(consumer):
    consumer.close()
""",
    "aiokafka": """
import asyncio
import threading
from aiokafka import AIOKafkaConsumer

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()

def open_consumer(bootstrap, topic, group, count=1):
    async def read():
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
                                    client_id="app")
        await consumer.start()
        for _ in range(count):
            await consumer.getone()
        return consumer
    return asyncio.run_coroutine_threadsafe(read(), loop).result(20)

def close(consumer):
    asyncio.run_coroutine_threadsafe(consumer.stop(), loop).result(20)
""",
    "ottla": """
import time
from ottla.clients import Consumer

def open_consumer(bootstrap, topic, group, count=1):
    consumer = Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", client_id="app")
    consumer.subscribe([topic])
    deadline = time.monotonic() + 20
    while count > 0 and time.monotonic() < deadline:
        count -= len(consumer.poll(0.1))
    assert count <= 0, "it got no partitions"
    return consumer

def close(consumer):
    consumer.close()
""",
}

# The second test reads from the topic of the same name with the same group, as the first one's client still would.
STARVED = """
import ctypes

LEFT = []

def test_first(ottla):
    ottla.produce(ottla.topic("orders"), "1")
    LEFT.append(open_consumer(ottla.bootstrap, "orders", "shop"))
    # At the exit of the interpreter, librdkafka would take half a minute of CPU to close it: its broker is unreachable.
    for consumer in LEFT:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(consumer))

def test_second(ottla):
    ottla.produce(ottla.topic("orders"), "2")
    consumer = open_consumer(ottla.bootstrap, "orders", "shop")
    assert len(ottla.group("shop").members) == 1
    close(consumer)
"""


# kafka-python's own timing is not fixed here.
ONCE_MORE = {"kafka-python": [pytest.mark.flaky(reruns=1)]}


@each_place
@pytest.mark.parametrize("library", [pytest.param(name, marks=ONCE_MORE.get(name, [])) for name in LIBRARIES])
def test_consumer_left_open_is_reported_and_does_not_starve_the_next_test(run: Run, place: str, library: str) -> None:
    code, out = run(
        LIBRARIES[library] + STARVED, f"--ottla={place}", "--timeout=50", "-Wdefault", "-Wignore::ResourceWarning"
    )
    assert code == 0, out
    assert "2 passed" in out
    assert out.count("The test left clients open:") == 1, out
    assert "client.id 'app'" in out
    assert "connections, member of the group 'shop'" in out or "connection, member of the group 'shop'" in out
    assert "To close it: " in out
    assert "test_it.py::test_first" in out.partition("warnings summary")[2]
    assert "test_it.py::test_second" not in out.partition("warnings summary")[2]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_policy_decides_what_an_open_client_does_to_its_test(run: Run) -> None:
    text = LIBRARIES["ottla"] + STARVED
    code, out = run(text, "--ottla-unclosed=fail", "-Wdefault")
    assert (code, "2 passed, 1 error" in out) == (1, True), out
    assert "ERROR at teardown of test_first" in out
    assert "plugin.py" not in out.partition("ERROR at teardown")[2].partition("short test summary")[0]
    code, out = run(text)  # warnings are errors there
    assert (code, "2 passed, 1 error" in out) == (1, True), out
    code, out = run(text, ini="ottla_unclosed = ignore\n")
    assert (code, "2 passed" in out) == (0, True), out
    code, out = run(
        text.replace("def test_first", '@__import__("pytest").mark.ottla_unclosed("ignore")\ndef test_first')
    )
    assert (code, "2 passed" in out) == (0, True), out
    code, out = run("def test_it(ottla): pass", ini="ottla_unclosed = warm\n")
    assert (code, "'warm' is not one of warn, fail, ignore, keep" in out) == (1, True), out


def test_consumer_dropped_without_close_is_reported_and_leaves_its_group(run: Run) -> None:
    text = LIBRARIES["confluent"] + STARVED.replace("LEFT.append", "").replace(
        '"shop"))\n\n', '"shop"))\n    import gc; gc.collect()\n\n', 1
    )
    code, out = run(text, "-Wdefault")
    assert (code, "2 passed" in out) == (0, True), out
    assert "disconnected without leaving; member of the group 'shop'" in out


def test_clients_of_wider_scope_are_neither_reported_nor_disturbed(run: Run) -> None:
    code, out = run(
        LIBRARIES["confluent"]
        + """
import pytest
from confluent_kafka import Producer

@pytest.fixture(scope="module")
def topic(ottla_session_broker):
    producer = Producer({"bootstrap.servers": ottla_session_broker.bootstrap, "client.id": "app"})
    producer.produce("wide", b"1")
    assert producer.flush(10) == 0
    return "wide"

@pytest.fixture(scope="module")
def consumer(ottla_session_broker, topic):
    consumer = open_consumer(ottla_session_broker.bootstrap, topic, "shop")
    yield consumer
    consumer.close()

@pytest.mark.parametrize("turn", range(3))
def test_it(consumer, ottla, topic, turn):
    members = ottla.group("shop").members
    assert len(members) == 1
    # A member of the same group that belongs to the test.
    other = open_consumer(ottla.bootstrap, ottla.topic(), "shop", 0)
    ottla.wait_until(lambda: (other.poll(0.01), consumer.poll(0.01), other.assignment())[-1])
    other.close()
    ottla.produce(topic, "x")
    deadline = time.monotonic() + 20
    while consumer.poll(0.1) is None:
        assert time.monotonic() < deadline
    assert ottla.group("shop").members == members
""",
        "--timeout=50",
    )
    assert (code, "3 passed" in out) == (0, True), out


def test_failed_test_reports_only_its_failure_and_frees_its_group(run: Run) -> None:
    failing = STARVED.replace('"shop"))\n', '"shop"))\n    consumer = LEFT.pop()\n    assert not consumer\n', 1)
    code, out = run(LIBRARIES["confluent"] + failing, "--timeout=50")
    assert (code, "1 failed, 1 passed" in out) == (1, True), out
    assert "left clients open" not in out


def test_kept_clients_share_one_port_and_stay_connected(run: Run) -> None:
    code, out = run(
        """
        from ottla.clients import Producer

        KEPT = []

        def test_first(ottla):
            KEPT.append(Producer(bootstrap_servers=ottla.bootstrap))
            KEPT[0].send(ottla.topic("a"), b"1").result(10)

        def test_second(ottla):
            KEPT[0].send(ottla.topic("b"), b"1").result(10)
            KEPT.pop().close()
        """,
        "--ottla-unclosed=keep",
    )
    assert (code, "2 passed" in out) == (0, True), out


@each_place
def test_port_of_a_test_survives_a_restart_of_the_broker(run: Run, place: str) -> None:
    code, out = run(
        LIBRARIES["ottla"]
        + """
import pytest

@pytest.mark.parametrize("way", ["restart", "kill"])
def test_first(ottla, way):
    topic = ottla.topic()
    ottla.produce(topic, "1")
    with open_consumer(ottla.bootstrap, topic, "shop") as consumer:
        if way == "restart":
            ottla.restart()
        else:
            ottla.kill()
            ottla.start()
        ottla.produce(topic, "2")
        ottla.wait_until(lambda: consumer.poll(0.1))

def test_second(ottla):
    ottla.produce(ottla.topic("orders"), "2")
    open_consumer(ottla.bootstrap, "orders", "shop").close()
    ottla.kill()
""",
        f"--ottla={place}",
        "--timeout=50",
    )
    assert (code, "3 passed" in out) == (0, True), out


def test_static_member_that_was_closed_is_removed_without_a_report(run: Run) -> None:
    text = (LIBRARIES["ottla"] + STARVED).replace('client_id="app"', 'client_id="app", group_instance_id="one"')
    code, out = run(text.replace("LEFT.append", "close"))
    assert (code, "2 passed" in out) == (0, True), out


def test_consumer_that_was_closed_while_it_joined_is_removed_without_a_report(run: Run) -> None:
    code, out = run(
        LIBRARIES["confluent"]
        + """
import pytest

@pytest.fixture(scope="module")
def member(ottla_session_broker):
    # It never rejoins before its next heartbeat: until then the join of another member waits.
    from ottla.clients import Consumer
    with Consumer(bootstrap_servers=ottla_session_broker.bootstrap, group_id="shop") as consumer:
        consumer.subscribe(["wide"])
        yield consumer

@pytest.mark.parametrize("turn", range(2))
def test_it(member, ottla, turn):
    ottla.wait_until(lambda: member.poll(0.01) or ottla.group("shop").state == "Stable")
    assert len(ottla.group("shop").members) == 1
    other = open_consumer(ottla.bootstrap, ottla.topic(), "shop", 0)
    ottla.wait_until(lambda: (group := ottla.group("shop")).state == "PreparingRebalance" and len(group.members) == 2)
    other.close()
""",
        "--timeout=50",
    )
    assert (code, "2 passed" in out) == (0, True), out


def test_dropped_client_warns_in_the_test_that_dropped_it_and_is_closed(run: Run) -> None:
    text = """
        import gc
        from ottla.clients import Producer

        gc.disable()

        def test_first(ottla):
            producer = Producer(bootstrap_servers=ottla.bootstrap)
            producer.send(ottla.topic(), b"x").result(10)
            cycle = [producer]
            cycle.append(cycle)

        def test_second(ottla):
            gc.collect()
            import threading
            ottla.wait_until(lambda: not [each for each in threading.enumerate() if "ottla-producer" in each.name])
    """
    code, out = run(text)  # warnings are errors there
    assert code == 1, out
    assert "unclosed producer" in out
    assert "left clients open" not in out
    assert "ERROR test_it.py::test_first" in out
    assert "test_it.py::test_second" not in out
    code, out = run(text, "-Wdefault")
    assert (code, "2 passed" in out) == (0, True), out
    assert "unclosed producer" in out


def test_helpers_leave_nothing_open(run: Run) -> None:
    code, out = run(
        """
        import gc
        import os

        import pytest

        FILES = []

        @pytest.mark.parametrize("turn", range(8))
        def test_it(ottla, turn):
            assert ottla.bootstrap
            topic = ottla.topic()
            ottla.produce(topic, "x")
            assert ottla.records(topic) == ottla.consume(topic)
            assert ottla.group("shop").state == "Dead"
            gc.collect()
            FILES.append(sum("socket" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                             if os.path.exists(f"/proc/self/fd/{fd}")))
            assert FILES[-1] <= FILES[0], FILES
        """
    )
    assert (code, "8 passed" in out) == (0, True), out
