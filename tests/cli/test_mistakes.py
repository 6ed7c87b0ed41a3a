"""Common mistakes: one line that names the problem, one with the next step, and the exit code for its kind."""

from __future__ import annotations

import contextlib
import io
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from ottla.cli import foreign_words, root
from ottla.clients import Producer
from tests.conftest import RunningBroker

from .conftest import Run


@pytest.fixture
def closing_port() -> Iterator[str]:
    """A listener that closes each connection after the first bytes, as a TLS listener does."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):  # the server was closed
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(16)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)


@pytest.mark.parametrize(
    ("words", "code", "problem", "advice"),
    [
        ("consume nope", 1, "there is no topic 'nope'", "ottla topic list"),
        ("tail nope", 1, "there is no topic 'nope'", "ottla topic list"),
        ("produce nope", 1, "there is no topic 'nope'", "ottla topic list"),
        ("bench produce nope", 1, "there is no topic 'nope'", "ottla topic list"),
        ("topic describe nope", 1, "there is no topic 'nope'", "ottla topic list"),
        ("topic list -b 127.0.0.1:1", 1, "connection refused, nothing listens there", "`ottla up` starts one"),
        ("topic list -b nohost.invalid", 1, "the name resolves to nothing", "Check the name"),
        ("topic list -X security.protocol=SSL", 1, "closed in the TLS handshake", "security.protocol=PLAINTEXT"),
        ("consume TOPIC -X security.protocol=SSL", 1, "closed in the TLS handshake", "security.protocol=PLAINTEXT"),
        ("topic list -b CLOSING", 1, "does it want TLS", "-X security.protocol=SSL"),
        ("produce TOPIC nofile", 2, "nofile cannot be read: No such file or directory", ""),
        ("produce TOPIC .", 2, ". cannot be read: Is a directory", ""),
        ("produce TOPIC --file .", 2, ". cannot be read: Is a directory", ""),
        ("log dump nofile", 2, "nofile cannot be read: No such file or directory", ""),
        ("topic list --command-config .", 2, "the file . cannot be read: Is a directory", ""),
        ("topic list --profile nope", 2, "there is no profile 'nope'", "ottla profile list"),
        ("consume TOPIC -p 9", 1, "has no partition 9; it has 0 to 2", ""),
        ("topic reassign TOPIC --throttle 1MiB --no-wait", 2, "--throttle and --no-wait exclude each other", "wait"),
        ("consume TOPIC --producer-property a=b", 2, "unknown option --producer-property: use -X NAME=VALUE", "--help"),
    ],
)
def test_mistake_is_reported_with_the_next_step(
    words: str, code: int, problem: str, advice: str, ottla: Run, topic: str, closing_port: str
) -> None:
    done = ottla(*words.replace("TOPIC", topic).replace("CLOSING", closing_port).split())
    assert (done.code, done.out) == (code, "")
    first, *rest = done.err.splitlines()
    assert first.startswith("ottla")
    assert problem in first
    assert advice in "\n".join(rest)
    assert len(rest) <= 2
    assert all(line.startswith("       ") for line in rest)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("topic list --brokers a:1", "unknown option --brokers: use -b HOST:PORT"),
        ("topic list --broker-list a:1", "unknown option --broker-list: use -b HOST:PORT"),
        ("group list -o json", "unknown option -o: use --json"),
        ("topic describe t --format json", "unknown option --format: use --json"),
        ("up --port 9093", "unknown option --port: use --listen HOST:PORT, or --listen PORT"),
        ("up -p 9093", "unknown option -p: use --listen HOST:PORT, or --listen PORT"),
        ("up --data-dir x", "unknown option --data-dir: use --data DIR"),
        ("up --nodes 3", "unknown option --nodes: use --brokers N"),
        ("up --num-partitions 3", "unknown option --num-partitions; did you mean -X num.partitions=VALUE?"),
        ("topic create t --retention 7d", "unknown option --retention; did you mean --config retention.ms=VALUE?"),
        ("topic create t --cleanup.policy x", "--cleanup.policy; did you mean --config cleanup.policy=VALUE?"),
        ("topic create t --partition 3", "unknown option --partition; did you mean --partitions?"),
        ("produce t --linger-ms 5", "unknown option --linger-ms; did you mean -X linger.ms=VALUE?"),
        ("consume -C -t t", "unknown option -C: `ottla consume TOPIC` reads"),
        ("consume -t t", "unknown option -t: pass the topic name as an argument"),
        ("consume t --property print.key=true", "unknown option --property: -f FORMAT or --json"),
        ("produce t --property parse.key=true", "unknown option --property: -K TEXT separates key and value"),
        ("consume t --isolation-level x", "unknown option --isolation-level; did you mean --isolation?"),
        ("start", "unknown command 'start'; did you mean ottla up?"),
        ("topic consume t", "unknown command 'consume'; did you mean ottla consume?"),
        ("group seek g", "unknown command 'seek'; did you mean ottla group reset?"),
        (
            "topic list -X retention=7d",
            "There is no setting 'retention' here; did you mean 'retention.ms', a setting of",
        ),
        ("topic list -b :99999", "bootstrap.servers has '127.0.0.1:99999'; each must be host:port"),
    ],
)
def test_word_of_another_tool_is_answered_with_ottlas_word(words: str, problem: str, plain: Run) -> None:
    done = plain(*words.split())
    assert (done.code, done.out) == (2, "")
    assert problem in done.err.splitlines()[0]


def test_hints_name_options_and_commands_that_exist() -> None:
    def parameters(command: click.Command) -> Iterator[str]:
        for each in command.params:
            yield from each.opts if isinstance(each, click.Option) else [(each.metavar or "").strip("[].")]
        for below in command.commands.values() if isinstance(command, click.Group) else ():
            yield from parameters(below)

    commands = {name: root.command(name) for name in root.SUMMARIES}
    known = {name for command in commands.values() for name in parameters(command)}
    assert {row.needs for row in foreign_words.OPTIONS if row.needs} <= known
    for words in foreign_words.COMMANDS.values():
        first, *verbs = words.split()[1:]
        group = commands[first]
        assert all(isinstance(group, click.Group) and verb in group.commands for verb in verbs), words
    assert not any(len(words.split()) == 2 and words.split()[1] in commands for words in foreign_words.COMMANDS), (
        "a hint about a command that exists"
    )


@pytest.mark.parametrize("form", ["{}", ":{}"])
def test_port_alone_is_a_broker_on_this_machine(form: str, plain: Run, broker: RunningBroker, topic: str) -> None:
    port = broker.bootstrap.rpartition(":")[2]
    assert topic in plain("topic", "list", "-q", "-b", form.format(port)).out.split()


def test_empty_standard_input_has_no_records_and_is_not_an_error(
    ottla: Run, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    done = ottla("produce", topic)
    assert done.code == 0
    assert done.err.startswith("0 records acknowledged")


def test_binary_keys_are_written_as_base64_or_escaped(ottla: Run, topic: str, broker: RunningBroker) -> None:
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"v", b"\xff\x00", partition=0).result(10)
    (row,) = ottla("consume", topic, "-p", "0", "-o", "-1", "-e", "--json").objects
    assert row["key_base64"] == "/wA="
    assert ottla("consume", topic, "-p", "0", "-o", "-1", "-e", "-f", r"%k{escaped}\n").out == "\\xff\\x00\n"


@pytest.mark.parametrize(
    ("size", "advice"),
    [
        (2_000_000, "-X max.request.size=BYTES allows more"),
        (1_040_000, "`ottla topic alter TOPIC --config max.message.bytes=BYTES` allows more"),
    ],
)
def test_error_for_a_large_record_names_the_limit_to_raise(
    size: int, advice: str, ottla: Run, topic: str, tmp_path: Path
) -> None:
    assert ottla("topic", "alter", topic, "--config", "max.message.bytes=1000000").code == 0
    (tmp_path / "large").write_bytes(b"x" * size)
    done = ottla("produce", topic, "--file", str(tmp_path / "large"))
    assert done.code == 1
    assert advice in done.err
    assert ottla("topic", "alter", topic, "--config", "max.message.bytes=4MiB").code == 0
    done = ottla("produce", topic, "--file", str(tmp_path / "large"), "-X", "max.request.size=4000000")
    assert (done.code, "1 record acknowledged" in done.err) == (0, True)
