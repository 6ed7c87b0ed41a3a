"""The options for the connection, such as `-X` and `-b`, for every command that has them.

The commands are read from `ottla --help`: a new one needs a row in `WORDS`, or these tests fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from ottla.cli.connect import GivenSettings, client_settings
from ottla.clients import Producer
from ottla.launch.settings import broker_config
from tests.conftest import RunningBroker

from .commands import all_commands, options_of
from .conftest import Run

# The arguments with which each command succeeds; TOPIC has records, GROUP has committed offsets for it.
WORDS = {
    "produce": "TOPIC FILE",
    "consume": "TOPIC -e",
    "tail": "TOPIC -e",
    "bench produce": "TOPIC --records 10",
    "bench consume": "TOPIC",
    "bench e2e": "TOPIC --records 2",
    "topic create": "TOPIC --if-not-exists",
    "topic list": "",
    "topic describe": "TOPIC",
    "topic alter": "TOPIC --config retention.ms=-1",
    "topic delete": "TOPIC --dry-run",
    "topic delete-records": "TOPIC -p 0 --before 0 --dry-run",
    "topic add-partitions": "TOPIC --by 1 --dry-run",
    "topic reassign": "TOPIC --dry-run",
    "topic elect-leaders": "TOPIC",
    "group list": "",
    "group describe": "GROUP",
    "group lag": "GROUP",
    "group why": "GROUP --watch 0",
    "group skip": "GROUP TOPIC/0@5 --to __consumer_offsets --dry-run",
    "group reset": "GROUP --to-earliest",
    "group delete": "GROUP",
    "config list": "topic TOPIC",
    "config get": "topic TOPIC retention.ms",
    "config set": "topic TOPIC retention.ms=-1",
    "config unset": "topic TOPIC retention.ms",
    "check": "",
    "health": "ready",
    "top": "--once --interval 0.1",
    "cluster show": "--only brokers",
    "cluster why": "--watch 0",
    "cluster balance": "",
    "dlq list": "",
    "dlq show": "TOPIC",
    "dlq redrive": "TOPIC --origin none --dry-run",
    "txn list": "",
    "txn describe": "GROUP",
    "txn describe-producers": "TOPIC/0",
    "txn find-hanging": "TOPIC",
    "txn abort": "--transactional-id GROUP --yes",
}
# Their settings are the server's own: see tests/registry, tests/rest and tests/connect.
SERVERS = ("registry serve", "rest serve", "connect run", "connect serve")
# A setting that only this kind of client has.
OWN = {"producer": "linger.ms=1", "consumer": "fetch.min.bytes=1"}


def kinds_of_commands() -> dict[str, tuple[str, ...]]:
    """The commands with an option -X, and the kinds of clients that it configures; none if it configures a broker."""
    found: dict[str, tuple[str, ...]] = {}
    for path, command in all_commands():
        for parameter in command.params:
            if "-X" in parameter.opts:
                made = parameter.process_value(command.make_context("ottla", [], resilient_parsing=True), ("a=b",))
                found[path] = made.kinds if isinstance(made, GivenSettings) else ()
    return found


KINDS = kinds_of_commands()


def words_of(path: str, topic: str = "t", group: str = "g") -> list[str]:
    words = WORDS[path].replace("TOPIC", topic).replace("GROUP", group).replace("FILE", __file__).split()
    return [*path.split(), *words]


def test_clients_of_commands_have_one_id_and_push_no_metrics() -> None:
    """The process id in the client id would make series and quotas for each run."""
    found = client_settings(options_of("topic", "list"))
    assert (found["client.id"], found["enable.metrics.push"]) == ("ottla-cli", False)
    found = client_settings(options_of("topic", "list", "-X", "client_id=mine", "-X", "enable_metrics_push=true"))
    assert (found["client.id"], found["enable.metrics.push"]) == ("mine", "true")


def test_every_command_with_settings_is_tested() -> None:
    # `ottla broker` needs several brokers: see tests/cluster. `ottla stream` needs pipelines: see tests/streams.
    # `ottla mcp` needs a client: see tests/mcp_server.
    # Stock Kafka's brokers of these tests have no users: see test_security.py. `ottla schema` needs a registry.
    # `ottla mirror` needs two clusters: see test_mirror.py.
    tested_elsewhere = ("broker ", "stream ", "security ", "schema ", "mcp", "mirror ")
    assert {path for path, kinds in KINDS.items() if kinds and not path.startswith(tested_elsewhere)} == set(WORDS)


@pytest.mark.parametrize("path", [path for path, kinds in KINDS.items() if not kinds and path not in SERVERS])
def test_other_commands_accept_settings_of_a_broker(path: str) -> None:
    options = options_of(path, "--data", "/tmp", "-X", "node.id=7", "-X", "num.partitions=3")
    config = broker_config(options)
    assert (config.node_id, config.int("num.partitions")) == (7, 3)


@pytest.mark.both
@pytest.mark.parametrize("path", WORDS)
def test_command_accepts_settings_of_its_clients(
    path: str, broker: RunningBroker, ottla: Run, topic: str, group: str
) -> None:
    given = ["request.timeout.ms=20000", "retry_backoff_ms=50", *(OWN[k] for k in KINDS[path] if k in OWN)]
    with open_transaction(broker, topic, group) if path.startswith("txn") else nullcontext():
        done = ottla(*words_of(path, topic, group), *(word for setting in given for word in ("-X", setting)))
    # One broker is never ready for production.
    assert done.code == (1 if path == "check" else 0), done.err


@contextmanager
def open_transaction(broker: RunningBroker, topic: str, transactional_id: str) -> Iterator[None]:
    """Keep a transaction open; the block may abort it."""
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=transactional_id) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"x").result(30)
        yield


@pytest.mark.parametrize("path", WORDS)
def test_command_rejects_settings_of_other_clients(path: str, plain: Run) -> None:
    for kind, setting in OWN.items():
        if kind not in KINDS[path]:
            done = plain(*words_of(path), "-X", setting)
            assert (done.code, done.err.count("\n")) == (2, 1), done.err
            assert f"-X {setting.partition('=')[0]}: a {kind} has this setting, and this command has a" in done.err


@pytest.mark.parametrize("path", WORDS)
def test_mistyped_setting_is_an_error_with_the_nearest_name(path: str, plain: Run) -> None:
    for kind in ("admin", *KINDS[path]):
        typo, meant = {"producer": ("lingr.ms", "linger.ms"), "consumer": ("fetch.mim.bytes", "fetch.min.bytes")}.get(
            kind, ("request.timeout.sm", "request.timeout.ms")
        )
        done = plain(*words_of(path), "-X", f"{typo}=1")
        assert (done.code, done.err) == (2, f"ottla: -X: There is no setting {typo!r}; did you mean {meant!r}?\n")


@pytest.mark.parametrize("path", ["produce", "consume", "bench consume", "topic list"])
def test_settings_do_not_hide_a_refused_connection(path: str, plain: Run) -> None:
    given = next((OWN[kind] for kind in KINDS[path] if kind in OWN), "retry.backoff.ms=50")
    done = plain(*words_of(path), "-b", "127.0.0.1:1", "-X", given)
    assert done.code == 1
    assert done.err.splitlines()[0].startswith("ottla: No broker can be reached: 127.0.0.1:1: connection refused")
    assert done.err.count("\n") == 2, done.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["consume", "t", "-X", "group.id=g"], "--group GROUP` joins a group"),
        (["consume", "t", "-X", "auto.offset.reset=latest"], "-o end"),
        (["consume", "t", "-X", "value.deserializer=json"], "-f and --json"),
        (["produce", "t", "-X", "allow.auto.create.topics=true"], "--create"),
        (["produce", "t", "-X", "partitioner=random"], "a Python object"),
        (["produce", "t", "-X", "linger.ms"], "NAME=VALUE"),
        (["produce", "t", "-X", "linger.ms=soon"], "must be a number"),
        (["consume", "t", "-X", "fetch.message.max.bytes=9"], "max.partition.fetch.bytes"),
        (["topic", "list", "-X", "linger.msec=1"], "There is no setting"),
        (["bench", "consume", "t", "-X", "fetch.mxa.wait.ms=1"], "fetch.max.wait.ms"),
    ],
)
def test_setting_that_the_command_cannot_use_is_rejected(
    words: list[str], problem: str, ottla: Run, topic: str
) -> None:
    done = ottla(*(topic if word == "t" else word for word in words))
    assert done.code == 2, done.err
    assert problem in done.err


def test_files_and_profiles_are_shared_by_clients_of_all_kinds(ottla: Run, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "shared.properties"
    file.write_text(
        "linger.ms=1\nfetch.min.bytes=1\ngroup.id=shared\ngroup.instance.id=i\nauto.offset.reset=none\n"
        "enable.auto.commit=true\nkey.deserializer=org.apache.kafka.common.serialization.StringDeserializer\n"
    )
    for path in ("produce", "consume", "bench e2e", "topic list"):
        done = ottla(*words_of(path, topic), "--command-config", str(file))
        assert done.code == 0, done.err


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("host", "host:9092"),
        ("host:1", "host:1"),
        ("a, b:2,c", "a:9092,b:2,c:9092"),
        ("[::1]", "[::1]:9092"),
        ("[::1]:2", "[::1]:2"),
        ("PLAINTEXT://host", "PLAINTEXT://host:9092"),
    ],
)
def test_server_without_a_port_gets_the_default_port(given: str, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def servers(*words: str) -> object:
        return client_settings(options_of("topic", "list", *words))["bootstrap.servers"]

    assert servers("-b", given) == wanted
    assert servers("-X", f"bootstrap.servers={given}") == wanted
    monkeypatch.setenv("OTTLA_BOOTSTRAP", given)
    assert servers() == wanted


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ("", "-b is empty"),
        (" ", "-b is empty"),
        (",", "-b is empty"),
        ("::1", "brackets: [::1]:9092"),
        ("host:x", "must be host:port"),
        ("host:", "must be host:port"),
    ],
)
def test_invalid_servers_are_rejected(given: str, problem: str, plain: Run) -> None:
    for words in (["topic", "list"], ["produce", "t"], ["consume", "t"]):
        done = plain(*words, "-b", given)
        assert done.code == 2
        assert problem in done.err


@pytest.mark.parametrize(("words", "hint"), [
    (["consume", "t", "-f", "json"], "--json"),
    (["consume", "t", "-f", ""], "%k=%v"),
    (["consume", "t", "-f", r"100%%\n"], "%k=%v"),
    (["tail", "t", "-f", "JSON"], "--json is the option"),
    (["produce", "t", "-f", "json"], "--json is the option"),
    (["produce", "t", "-f", ""], "%k=%v"),
    (["consume", "t", "-o", "json"], "--json is the option"),
])  # fmt: skip
def test_format_without_a_field_is_rejected(words: list[str], hint: str, plain: Run) -> None:
    done = plain(*words)
    assert done.code == 2
    assert hint in done.err
    assert done.err.count("\n") == 2
