"""docs/clients-moving.md: its example runs, and the calls and settings in its tables exist."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from ottla.clients import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, foreign_settings
from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.errors import ConfigurationError
from ottla.clients.foreign_settings import Elsewhere
from ottla.clients.producer.settings import PRODUCER_OPTIONS, read_settings
from tests.conftest import RunningBroker

from .support import WAIT_S

PAGE = Path(__file__).parents[2] / "docs" / "clients-moving.md"
SECTIONS = dict(re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))
ROW = re.compile(r"^\| (.+?) \| (.+?) \|$", re.MULTILINE)
CALL = re.compile(r"\b([cp])\.(\w+)\(")
OURS = {"c": Consumer, "p": Producer}
OURS_ASYNC = {"c": AsyncConsumer, "p": AsyncProducer}
THEIRS = {
    "From confluent-kafka": ({"c": confluent_kafka.Consumer, "p": confluent_kafka.Producer}, OURS),
    "From kafka-python": ({"c": kafka.KafkaConsumer, "p": kafka.KafkaProducer}, OURS),
    "From aiokafka": ({"c": aiokafka.AIOKafkaConsumer, "p": aiokafka.AIOKafkaProducer}, OURS_ASYNC),
}


@pytest.mark.parametrize("section", THEIRS)
def test_every_call_in_the_tables_exists(section: str) -> None:
    theirs, ours = THEIRS[section]
    rows = ROW.findall(SECTIONS[section])
    assert len(rows) > 10
    for before, after in rows:
        for name, method in CALL.findall(before):
            assert hasattr(theirs[name], method), f"{section}: {method} does not exist in that client"
        for name, method in CALL.findall(after):
            assert hasattr(ours[name], method), f"{section}: {method} does not exist in Ottla"
        for kind, method in re.findall(r"\b(Admin|AsyncAdmin)(?:\(.*?\))?\.(\w+)\(", after):
            assert hasattr({"Admin": Admin, "AsyncAdmin": AsyncAdmin}[kind], method)


def test_table_of_settings_equals_the_table_of_the_error_messages() -> None:
    rows = re.findall(
        r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.*?) ?\|$", SECTIONS["Settings with other names"], re.MULTILINE
    )
    found = [Elsewhere(name, clients, here.strip("`-"), note) for name, clients, here, note in rows]
    assert found == list(foreign_settings.TABLE)


@pytest.mark.parametrize("row", foreign_settings.TABLE, ids=lambda row: row.name)
def test_setting_of_another_client_is_rejected_with_its_name_in_ottla(row: Elsewhere) -> None:
    known = {option.name for option in (*PRODUCER_OPTIONS, *CONSUMER_OPTIONS)}
    aliases = {alias for option in (*PRODUCER_OPTIONS, *CONSUMER_OPTIONS) for alias in option.aliases}
    assert not row.here or row.here in known
    assert row.name.replace("_", ".") not in known | aliases
    for client, options in ((Producer, PRODUCER_OPTIONS), (Consumer, CONSUMER_OPTIONS)):
        for name in (row.name, row.name.replace(".", "_")):
            with pytest.raises(ConfigurationError, match=f"There is no setting '{re.escape(name)}' here") as caught:
                client({"bootstrap.servers": "127.0.0.1:9", name: 1})
            if row.here:
                assert row.here in str(caught.value).replace("_", ".")
                assert ("this client does not have" in str(caught.value)) == (
                    row.here not in {each.name for each in options}
                )
            else:
                assert row.note in str(caught.value)


def test_table_of_defaults_has_the_values_of_each_client() -> None:
    """librdkafka has no API for its defaults; the values are from its CONFIGURATION.md, version 2.16."""
    assert "partition.assignment.strategy" in SECTIONS["Different defaults"]
    found = re.findall(
        r"^\| `(.+?)` \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", SECTIONS["Different defaults"], re.MULTILINE
    )
    assert len(found) == 6
    ours = {option.name: option.default for option in (*PRODUCER_OPTIONS, *CONSUMER_OPTIONS)}
    ours["enable.idempotence"] = read_settings({"bootstrap.servers": "h:9"})[1].idempotent
    python = {**kafka.KafkaConsumer.DEFAULT_CONFIG, **kafka.KafkaProducer.DEFAULT_CONFIG}
    aio = {
        name: parameter.default
        for client in (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer)
        for name, parameter in inspect.signature(client).parameters.items()
    }
    aio["delivery_timeout_ms"] = aio["request_timeout_ms"]
    assert "defaults to ``acks=1``" in str(aiokafka.AIOKafkaProducer.__doc__)
    aio["acks"] = 1
    for name, _, of_python, of_aio, here in found:
        key = name.replace(".", "_")
        assert [plain(of_python), plain(of_aio), plain(here)] == [text(python[key]), text(aio[key]), text(ours[name])]


def plain(cell: str) -> str:
    """Return a cell's text without backticks, thousands separators and remarks."""
    return re.sub(r"`| \(.*\)|(?<=\d),(?=\d)", "", cell)


def text(default: object) -> str:
    """Return a default in the page's notation."""
    if isinstance(default, tuple):
        return ",".join(assignor.name for assignor in default)
    return "all" if default == -1 else str(default).lower()


def test_example_of_the_page_runs(broker: RunningBroker, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "log_level": 2})
    for i in range(10):
        producer.produce(topic, b"order %d" % i, partition=0)
    assert producer.flush(WAIT_S) == 0
    (source,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    source = source.replace('"orders', f'"{topic}').replace('"upper"', repr(f"{topic}-group"))
    exec(compile(source, PAGE.name, "exec"), {"bootstrap": broker.bootstrap})
    assert capsys.readouterr().out == "10\n"
