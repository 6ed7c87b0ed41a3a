"""Pages of dead letters: found topics, letters with their reasons, redrives, masks."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.console.masking import MASKED, Masks, Rule

from .conftest import RunningConsole, StartConsole, csrf, post

DEAD, ORIGIN = "orders.dlq", "orders"


def headers_of(number: int, topic: str = ORIGIN) -> list[tuple[str, bytes]]:
    name = "__connect.errors."
    return [
        (f"{name}topic", topic.encode()),
        (f"{name}partition", b"0"),
        (f"{name}offset", b"%d" % number),
        (f"{name}exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        (f"{name}exception.message", b"<b>bad</b> number %d" % number),
    ]


@pytest.fixture
def letters(ottla: Any) -> None:
    with Admin(ottla.bootstrap) as admin:
        admin.create_topic(ORIGIN)
        admin.create_topic(DEAD)
    with Producer(bootstrap_servers=ottla.bootstrap) as producer:
        for number in range(5):
            producer.send(DEAD, b"value-%d" % number, b"k", headers=headers_of(number))
        producer.send(DEAD, b"gone", b"k", headers=headers_of(9, "no-such-topic"))


def values_of(bootstrap: str, topic: str) -> list[bytes | None]:
    """Return all values of a partition."""
    found: list[bytes | None] = []
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        for _ in range(40):
            if consumer.position(partition) >= end:
                return found
            found += [record.value for record in consumer.poll(0.5)]
    raise AssertionError(f"the topic {topic} was not read to its end")


@pytest.mark.usefixtures("letters")
def test_topics_and_letters_are_shown(console: RunningConsole) -> None:
    (topic,) = console.json("/dead-letters")["topics"]
    assert topic["name"] == DEAD
    assert topic["letters"] == 6
    assert topic["writers"] == {"Kafka Connect": 6}
    shown = console.json(f"/dead-letters/{DEAD}")
    assert [letter["offset"] for letter in shown["letters"]] == [5, 4, 3, 2, 1, 0]
    assert shown["letters"][-1]["origin"] == "orders-0@0"
    assert shown["letters"][-1]["reason"] == "DataException: <b>bad</b> number 0"
    assert shown["command"].startswith(f"ottla dlq show {DEAD} -b ")
    chosen = console.json(f"/dead-letters/{DEAD}?reason=number+3")
    assert [letter["offset"] for letter in chosen["letters"]] == [3]
    page = console.http.get(f"/dead-letters/{DEAD}").text
    assert "&lt;b&gt;bad&lt;/b&gt;" in page
    assert "<b>bad" not in page


@pytest.mark.usefixtures("letters")
def test_redrive_writes_each_letter_once_after_a_preview(ottla: Any, console: RunningConsole) -> None:
    path = f"/dead-letters/{DEAD}/redrive"
    preview = console.json(path)
    assert preview["dry_run"]
    assert preview["redriven"] == {ORIGIN: 5}
    assert preview["left"] == {"no_topic": 1}
    assert values_of(ottla.bootstrap, ORIGIN) == []
    some = post(console.http, path, reason="number 3", origin="")
    assert some.status_code == 303
    assert some.headers["location"] == f"/dead-letters/{DEAD}?done=redriven"
    assert values_of(ottla.bootstrap, ORIGIN) == [b"value-3"]
    for _ in range(2):
        assert post(console.http, path, reason="", origin="").status_code == 303
    assert values_of(ottla.bootstrap, ORIGIN) == [b"value-3", *(b"value-%d" % n for n in (0, 1, 2, 4))]
    assert console.json(path)["redriven"] == {}
    assert "<button" in console.http.get(path).text  # the filter, without a form that redrives nothing
    assert "Redrive 0" not in console.http.get(path).text


@pytest.mark.usefixtures("letters")
def test_redrive_is_refused_without_a_token_and_when_read_only(ottla: Any, start_console: StartConsole) -> None:
    path = f"/dead-letters/{DEAD}/redrive"
    console = start_console({"bootstrap.servers": ottla.bootstrap}, read_only=True)
    assert console.http.get(path).status_code == 403
    assert path not in console.http.get(f"/dead-letters/{DEAD}").text
    writing = start_console({"bootstrap.servers": ottla.bootstrap})
    assert writing.http.post(path, data={"reason": ""}).status_code == 403
    assert console.http.post(path, data={"csrf": csrf(writing.http), "reason": ""}).status_code == 403
    assert values_of(ottla.bootstrap, ORIGIN) == []


@pytest.mark.usefixtures("letters")
def test_messages_of_masked_topics_are_not_shown(ottla: Any, start_console: StartConsole) -> None:
    masks = Masks((Rule(topics=("orders*",), fields=("value.email",)),))
    console = start_console({"bootstrap.servers": ottla.bootstrap}, masks=masks)
    shown = console.json(f"/dead-letters/{DEAD}")["letters"]
    assert {letter["reason"] for letter in shown} == {"DataException"}
    (topic,) = console.json("/dead-letters")["topics"]
    assert topic["reasons"] == {MASKED: 6}
    # The number of matches would spell out a message, letter by letter.
    for path in (f"/dead-letters/{DEAD}?reason=number", f"/dead-letters/{DEAD}/redrive?reason=number"):
        assert console.http.get(path).status_code == 403
    assert console.json(f"/dead-letters/{DEAD}?origin={ORIGIN}")["matching"] == 5


def test_letters_of_aborted_transactions_are_not_redriven(ottla: Any, console: RunningConsole, letters: None) -> None:
    with Producer(bootstrap_servers=ottla.bootstrap, transactional_id="writer") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(DEAD, b"aborted", b"k", headers=headers_of(7)).result(20)
        producer.abort_transaction()
    assert len(console.json(f"/dead-letters/{DEAD}")["letters"]) == 6
    assert console.json(f"/dead-letters/{DEAD}/redrive")["redriven"] == {ORIGIN: 5}
    assert post(console.http, f"/dead-letters/{DEAD}/redrive", reason="", origin="").status_code == 303
    assert b"aborted" not in values_of(ottla.bootstrap, ORIGIN)


def test_missing_topic_and_no_topics(console: RunningConsole) -> None:
    assert console.json("/dead-letters")["topics"] == []
    assert "There are no topics for dead letters." in console.http.get("/dead-letters").text
    for path in ("/dead-letters/nope", "/dead-letters/nope/redrive"):
        assert console.http.get(path).status_code == 404
