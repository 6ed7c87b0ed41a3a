"""Client settings: names, checks and suggestions for typos; and the exception of each error code."""

from __future__ import annotations

import logging
import math
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import ottla.clients
from ottla.clients import errors
from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.errors import BrokerError, ClientError, ConfigurationError, error_for
from ottla.clients.options import COMMON_OPTIONS, LONG_MAX, Option, parse_servers, read_options
from ottla.clients.producer.settings import PRODUCER_OPTIONS
from ottla.common.errors import ErrorCode

SERVERS = {"bootstrap.servers": "localhost:9092"}


def test_both_names_of_a_setting_are_accepted_and_defaults_added() -> None:
    options = read_options(COMMON_OPTIONS, {"bootstrap_servers": ["a:1", "b:2"], "request.timeout.ms": "5000"})
    assert options["bootstrap_servers"] == ["a:1", "b:2"]
    assert options["request_timeout_ms"] == 5000
    assert options["retry_backoff_ms"] == 100
    assert set(options) == {row.python_name for row in COMMON_OPTIONS}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "bootstrap.servers is missing"),
        ({"bootstrap.servers": ""}, "bootstrap.servers is empty"),
        ({"bootstrap.servers": "localhost"}, "must be host:port"),
        ({"bootstrap.servers": "localhost:0"}, "must be host:port"),
        ({"bootstrap.server": "a:1"}, "did you mean 'bootstrap.servers'"),
        (SERVERS | {"request_timeout": 5}, "did you mean 'request_timeout_ms'"),
        (SERVERS | {"xyzzy": 5}, "There is no setting 'xyzzy'$"),
        (SERVERS | {"request.timeout.ms": "soon"}, "'soon'; it must be a whole number"),
        (SERVERS | {"request.timeout.ms": True}, "True; it must be a whole number"),
        (SERVERS | {"request.timeout.ms": 0}, "at least 1"),
        (SERVERS | {"security.protocol": "SSLv2"}, "must be one of PLAINTEXT"),
        (SERVERS | {"client.id": "a", "client_id": "b"}, "client.id is given twice"),
    ],
)
def test_invalid_setting_is_an_error_that_names_it(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        read_options(COMMON_OPTIONS, given)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("bool", "true", True),
        ("bool", False, False),
        ("float", "1.5", 1.5),
        ("int", 3.0, 3),
        ("list", "a, b,", ["a", "b"]),
        ("str", 7, "7"),
        ("object", str, str),
    ],
)
def test_values_may_be_text_or_typed(kind: str, value: object, read: object) -> None:
    assert Option("x", kind, None, "").read(value) == read  # type: ignore[arg-type]


def test_servers_may_have_a_listener_name_or_an_ipv6_address() -> None:
    assert parse_servers(["PLAINTEXT://h:1", "[::1]:2"]) == [("h", 1), ("::1", 2)]


def test_every_error_code_has_an_exception_with_its_retriability() -> None:
    for code in ErrorCode:
        error = error_for(code)
        assert isinstance(error, BrokerError)
        assert (error.code, error.retriable) == (code, code.retriable)
    assert type(error_for(36)) is errors.TopicAlreadyExists
    assert str(error_for(36, "Topic t is there")) == "Topic t is there"
    assert "999" in str(error_for(999))


def test_docstring_contains_every_exception() -> None:
    drawn = errors.__doc__ or ""
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, ClientError) and not kind.__name__.startswith("_"):
            assert kind.__name__ in drawn, f"draw {kind.__name__}"


def test_names_are_exported_on_first_use() -> None:
    assert ottla.clients.TopicAlreadyExists is errors.TopicAlreadyExists
    with pytest.raises(AttributeError, match="no attribute 'Produzer'"):
        _ = ottla.clients.Produzer


def test_importing_the_package_imports_neither_asyncio_nor_pyarrow() -> None:
    script = "import sys, ottla.clients; print([m for m in ('asyncio', 'pyarrow', 'uvloop') if m in sys.modules])"
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=30).stdout
        == "[]\n"
    )


_NUMBERS = (10**30, -(10**30), 10**400, "9" * 30, "9" * 5000, "1e999", math.nan, "nan", math.inf, "-inf", 1.5, "0x10")
_HOSTILE = (*_NUMBERS, "", " ", "\0", "\udcff", "a,\udcff", ["\udcff"], b"x", [], [1], {"a": 1}, object(), True, None)
_TYPES: dict[str, type] = {
    "int": int, "float": float, "bool": bool, "str": str, "password": str, "list": list,
}  # fmt: skip
_ROWS = {row.name: row for row in (*COMMON_OPTIONS, *PRODUCER_OPTIONS, *CONSUMER_OPTIONS)}


@pytest.mark.parametrize("name", [name for name, row in _ROWS.items() if row.kind != "object"])
def test_value_is_of_the_type_of_its_setting_or_an_error(name: str) -> None:
    """A client must not fail later, in its own threads, because of a value that it has accepted."""
    row = _ROWS[name]
    for value in _HOSTILE:
        try:
            read = row.read(value)
        except ConfigurationError as error:
            problem = str(error)
        else:
            problem = ""
        if problem:
            assert problem.startswith(f"{name} is ")
            assert not row.sensitive or not isinstance(value, str) or not value.strip() or value not in problem
        elif value is not None:
            assert type(read) is _TYPES[row.kind], value
            assert not isinstance(read, float | int) or abs(read) <= LONG_MAX
            for text in [read] if isinstance(read, str) else read if row.kind == "list" else []:
                text.encode()


@pytest.mark.parametrize(("kind", "rows"), [("Producer", PRODUCER_OPTIONS), ("Consumer", CONSUMER_OPTIONS)])
def test_clients_start_with_the_largest_value_of_each_setting(
    kind: str, rows: tuple[Option, ...], caplog: pytest.LogCaptureFixture
) -> None:
    create: Callable[..., Any] = getattr(ottla.clients, kind)
    for row in rows:
        if row.kind not in ("int", "float"):
            continue
        largest = LONG_MAX if row.high is None else int(row.high)
        with caplog.at_level(logging.ERROR, "asyncio"):
            try:
                client = create({"bootstrap.servers": "127.0.0.1:1", row.name: largest})
            except ConfigurationError:
                continue  # settings that limit each other
            client.close(0.0)
        assert not caplog.records, f"{row.name}={largest}: {caplog.text}"


@pytest.mark.parametrize(
    ("client", "given", "message"),
    [
        ("Producer", {"retention": 1}, "here; did you mean 'retention.ms', a setting of topics, set by create_topic("),
        ("Consumer", {"retention.ms": 1}, "'retention.ms' here: retention.ms is a setting of topics, set by"),
        ("Admin", {"min_insync_replicas": 2}, "min.insync.replicas is a setting of topics"),
        (
            "ShareConsumer",
            {"group_id": "g", "auto_offset_reset": "earliest"},
            "or `ottla config set group GROUP share.auto.offset.reset=VALUE`",
        ),
        ("ShareConsumer", {"group_id": "g", "isolation_level": "x"}, "share.isolation.level is a setting of groups"),
        ("ShareConsumer", {"group_id": "g", "enable_auto_commit": 1}, "enable.auto.commit is a setting of consumers"),
        ("Consumer", {"linger_ms": 5}, "linger.ms is a setting of producers"),
        ("Producer", {"group_id": "g"}, "group.id is a setting of consumers"),
        ("Producer", {"compresion_type": "lz4"}, "'compresion_type'; did you mean 'compression_type'?"),
        ("Consumer", {"topics": ["a"]}, "There is no setting 'topics': topics are passed to subscribe() or send()"),
        ("Producer", {"brokers": "a:1"}, "There is no setting 'brokers': bootstrap_servers names some brokers"),
    ],
)
def test_setting_of_something_else_is_named_with_its_owner(client: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        getattr(ottla.clients, client)(SERVERS | given)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("orders", "not 'orders': topics are passed to subscribe() or send(), addresses as bootstrap_servers"),
        (["orders", "bills"], "not ['orders', 'bills']: topics are passed to subscribe()"),
        ("localhost:9092", "not 'localhost:9092': write bootstrap_servers='localhost:9092'"),
        (7, "not a int"),
    ],
)
@pytest.mark.parametrize("client", ["Producer", "Consumer", "ShareConsumer"])
def test_first_argument_that_is_not_a_mapping_is_explained(client: str, first: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(message)):
        getattr(ottla.clients, client)(first, group_id="g")


@pytest.mark.parametrize(
    ("server", "example"), [("29195", "127.0.0.1:29195"), ("localhost", "localhost:9092"), ("orders", "orders:9092")]
)
def test_server_without_a_port_or_host_is_rejected_with_an_example(server: str, example: str) -> None:
    with pytest.raises(ConfigurationError, match=f"has '{server}'; each must be host:port, such as {example}$"):
        parse_servers([server])
