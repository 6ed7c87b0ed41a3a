"""Bootstrap addresses without a Kafka broker: Producer, Consumer and Admin raise an error with one clear line."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from ottla.clients import Admin, BrokerUnavailable, ClientError, Consumer, Producer, reachability

SHORT = {"request_timeout_ms": 1_000}
TLS_ALERT = b"\x15\x03\x03\x00\x02\x02\x46"
HTTP = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
def answering() -> Iterator[Callable[[bytes], str]]:
    """Return a function that listens on a port, answers each connection with the given bytes and closes it."""
    made: list[socket.socket] = []

    def serve(listener: socket.socket, answer: bytes) -> None:
        with contextlib.suppress(OSError):  # closed at the end of the test
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    connection.recv(65_536)
                    connection.sendall(answer)

    def make(answer: bytes) -> str:
        listener = socket.create_server(("127.0.0.1", 0))
        made.append(listener)
        threading.Thread(target=serve, args=(listener, answer), daemon=True).start()
        return f"127.0.0.1:{listener.getsockname()[1]}"

    yield make
    for listener in made:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()


def produce(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap, max_block_ms=2_500, **SHORT) as producer:
        producer.send("t", b"v").result(10)


def consume(bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, **SHORT) as consumer:
        consumer.assign([("t", 0)])
        consumer.poll(10)


def consume_in_a_group(bootstrap: str) -> None:
    with Consumer(bootstrap_servers=bootstrap, group_id="g", **SHORT) as consumer:
        consumer.subscribe("t")
        consumer.poll(10)


def administer(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap, default_api_timeout_ms=1_000, **SHORT) as admin:
        admin.list_topics()


@pytest.mark.parametrize("call", [produce, consume, consume_in_a_group, administer])
@pytest.mark.parametrize("there", ["nothing", "an unknown name", "TLS", "a web server", "another protocol", "silence"])
def test_bootstrap_address_without_a_broker_is_a_one_line_error(
    there: str, call: Callable[[str], None], answering: Callable[[bytes], str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"127.0.0.1:{free.getsockname()[1]}"
    bootstrap, says, retriable = {
        "nothing": (closed, "connection refused, nothing listens there", True),
        "an unknown name": ("unknown.invalid:9092", "the name resolves to nothing", False),
        "TLS": (answering(TLS_ALERT), "wants TLS", False),
        "a web server": (answering(HTTP), "answers as a web server does, not as Kafka", False),
        "another protocol": (answering(b"SSH-2.0-x\r\n"), "does not answer as Kafka does", False),
        "silence": (answering(b""), "does it want TLS, or is it not Kafka?", True),
    }[there]
    with pytest.raises(BrokerUnavailable) as raised:
        call(bootstrap)
    text = str(raised.value)
    assert bootstrap in text
    assert says in text
    assert "\n" not in text
    assert raised.value.retriable == retriable


def test_error_names_each_address_with_its_problem(answering: Callable[[bytes], str]) -> None:
    bootstrap = f"unknown.invalid:9092,{answering(HTTP)}"
    with pytest.raises(BrokerUnavailable) as raised:
        administer(bootstrap)
    assert "resolves to nothing" in str(raised.value)
    assert "web server" in str(raised.value)


def test_producer_that_waits_for_a_broker_logs_it_within_seconds(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reachability, "REPORT_AFTER_S", 0.3)
    with Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=1_500) as producer, pytest.raises(ClientError):
        producer.send("t", b"v").result(10)
    logged = [record.getMessage() for record in caplog.records if record.name == "ottla.clients.network"]
    assert len(logged) == 1
    assert "127.0.0.1:1: connection refused, nothing listens there" in logged[0]
