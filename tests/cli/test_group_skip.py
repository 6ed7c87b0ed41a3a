"""`ottla group skip`: the dead letter and the position change together, once, wherever the command is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest

from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.clients.admin import ConfigResource, GroupOffset
from tests.clients.support import unique
from tests.conftest import RunningBroker
from tests.open_transactions import open_transaction

from .conftest import Run
from .test_dlq import committed


@pytest.fixture
def orders(ours: Admin, broker: RunningBroker) -> str:
    """A topic with the records good, poison and good."""
    name = unique("orders")
    ours.create_topic(name, partitions=1, replication_factor=1)
    ours.create_topic(f"{name}.dlq", partitions=1, replication_factor=1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in (b"good", b"poison", b"good"):
            producer.send(name, value, b"k", partition=0, timestamp_ms=10**12, headers=[("trace", b"a")]).result(30)
    return name


@pytest.fixture
def group(ours: Admin, orders: str) -> str:
    """A group whose position is the poison record."""
    name = unique("group")
    ours.alter_group_offsets(name, {TopicPartition(orders, 0): 1})
    return name


def position(ours: Admin, group: str, topic: str) -> GroupOffset:
    return ours.list_group_offsets(group, require_stable=True)[TopicPartition(topic, 0)]


@pytest.mark.both
def test_record_becomes_a_dead_letter_and_the_group_continues_after_it(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str
) -> None:
    words = ("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq")
    dry = ottla(*words, "--dry-run", "--json")
    assert (dry.code, dry.objects[0]["skipped"]) == (0, False)
    assert (position(ours, group, orders).offset, committed(broker.bootstrap, f"{orders}.dlq")) == (1, [])
    done = ottla(*words, "--reason", "no currency")
    assert done.code == 0, done.err
    assert "was skipped by" in done.out
    at = position(ours, group, orders)
    assert at.offset == 2
    assert at.metadata.startswith(f"ottla.skip:1 to {orders}.dlq by ")
    assert at.metadata.endswith(": no currency")
    (letter,) = committed(broker.bootstrap, f"{orders}.dlq")
    assert (letter.key, letter.value, letter.timestamp, letter.headers[0]) == (b"k", b"poison", 10**12, ("trace", b"a"))
    about = {name.removeprefix("__connect.errors."): value for name, value in letter.headers}
    assert (about["topic"], about["partition"], about["offset"]) == (orders.encode(), b"0", b"1")
    assert (about["connector.name"], about["exception.message"]) == (group.encode(), b"no currency")
    assert {"skipped.by", "skipped.at"} <= about.keys()
    # A repeated command reports it, and writes nothing.
    again = ottla(*words, "--json")
    assert (again.code, again.objects[0]["skipped"], again.objects[0]["position"]) == (0, False, 2)
    assert len(committed(broker.bootstrap, f"{orders}.dlq")) == 1
    (row,) = ottla("dlq", "show", f"{orders}.dlq", "--json").objects
    assert row["writer"] == "ottla group skip"
    assert ottla("dlq", "redrive", f"{orders}.dlq").code == 0
    returned = committed(broker.bootstrap, orders)[-1]
    assert (returned.value, returned.headers) == (b"poison", [("trace", b"a"), ("ottla.redrive.count", b"1")])


@pytest.mark.both
def test_members_and_other_positions_are_refused(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str
) -> None:
    words = ("--to", f"{orders}.dlq")
    other = ottla("group", "skip", group, f"{orders}/0@0", *words)
    assert (other.code, "is 1, not 0: nothing was skipped" in other.err) == (1, True)
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    with Consumer(settings) as member:
        member.subscribe([orders])
        while not member.assignment():
            member.poll(0.2)
        refused = ottla("group", "skip", group, f"{orders}/0@1", *words)
    assert (refused.code, "has 1 member" in refused.err) == (1, True)
    assert (position(ours, group, orders).offset, committed(broker.bootstrap, f"{orders}.dlq")) == (1, [])


@pytest.mark.both
def test_position_that_moves_meanwhile_is_not_moved_back(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add = Producer.send_offsets_to_transaction

    def add_late(self: Producer, *arguments: object) -> None:
        ours.alter_group_offsets(group, {TopicPartition(orders, 0): 3})
        add(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Producer, "send_offsets_to_transaction", add_late)
    refused = ottla("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq")
    assert (refused.code, "is 3, not 1: nothing was skipped" in refused.err) == (1, True)
    assert (position(ours, group, orders).offset, committed(broker.bootstrap, f"{orders}.dlq")) == (3, [])


@pytest.mark.both
def test_commit_after_the_comparison_wins(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.tools import group_skip

    check = group_skip.check_position

    def check_early(skip: group_skip.Skip, at: GroupOffset, position: int) -> None:
        check(skip, at, position)
        ours.alter_group_offsets(group, {TopicPartition(orders, 0): 3})

    monkeypatch.setattr(group_skip, "check_position", check_early)
    assert ottla("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq").code == 0
    assert position(ours, group, orders).offset == 3


KILLED = textwrap.dedent(
    """
    import os, signal, sys
    from ottla.clients import Producer
    from ottla.cli.main import main
    from ottla.tools import group_skip

    def kill():
        os.kill(os.getpid(), signal.SIGKILL)

    def killed_at(owner, name, before):
        call = getattr(owner, name)
        def wrapped(*arguments, **more):
            if before:
                kill()
            result = call(*arguments, **more)
            kill()
        setattr(owner, name, wrapped)

    where = sys.argv[1]
    if where == "before the offset":
        killed_at(Producer, "send_offsets_to_transaction", True)
    elif where == "after the offset":
        killed_at(Producer, "send_offsets_to_transaction", False)
    else:
        import ottla.cli.group_skip
        killed_at(ottla.cli.group_skip, "write_skip", False)
    main(sys.argv[2:])
    """
)


@pytest.mark.parametrize("where", ["before the offset", "after the offset", "after the end"])
def test_killed_skip_is_repeated_without_a_second_letter(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str, where: str
) -> None:
    words = ("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, where, *words, "-b", broker.bootstrap],
        env=dict(os.environ),
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    again = ottla(*words, "--json")
    assert (again.code, again.objects[0]["skipped"]) == (0, where != "after the end")
    assert position(ours, group, orders).offset == 2
    assert [letter.value for letter in committed(broker.bootstrap, f"{orders}.dlq")] == [b"poison"]


def test_metadata_of_the_group_is_kept(ottla: Run, ours: Admin, orders: str, group: str) -> None:
    ours.alter_group_offsets(group, {TopicPartition(orders, 0): GroupOffset(1, -1, "theirs")})
    assert ottla("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq").code == 0
    assert position(ours, group, orders) == GroupOffset(2, -1, "theirs")


def test_gap_at_the_position_is_skipped_with_the_next_record(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=unique("tx")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(orders, b"aborted").result(30)
        producer.abort_transaction()
        with producer.transaction():
            producer.send(orders, b"later").result(30)
    ours.alter_group_offsets(group, {TopicPartition(orders, 0): 3})
    other = ottla("group", "skip", group, f"{orders}/0@3", "--to", f"{orders}.dlq", "--yes")
    assert other.code == 1
    assert "from the position 3 on is 5, not 3: nothing was skipped" in other.err
    done = ottla("group", "skip", group, f"{orders}/0@5", "--to", f"{orders}.dlq", "--json")
    assert (done.code, done.objects[0]["position"]) == (0, 6)
    assert [letter.value for letter in committed(broker.bootstrap, f"{orders}.dlq")] == [b"later"]


def test_aborted_record_is_skipped_as_the_group_reads_it(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str
) -> None:
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=unique("tx")) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(orders, b"aborted").result(30)
        producer.abort_transaction()
    ours.alter_group_offsets(group, {TopicPartition(orders, 0): 3})
    done = ottla("group", "skip", group, f"{orders}/0@3", "--to", f"{orders}.dlq", "--yes", "--read-uncommitted")
    assert done.code == 0, done.err
    assert [letter.value for letter in committed(broker.bootstrap, f"{orders}.dlq")] == [b"aborted"]


def test_second_skip_has_its_own_audit(ottla: Run, ours: Admin, orders: str, group: str) -> None:
    ours.alter_group_offsets(group, {TopicPartition(orders, 0): 0})
    for offset, reason in ((0, "first"), (1, "second")):
        words = ("--to", f"{orders}.dlq", "--yes", "--reason", reason)
        assert ottla("group", "skip", group, f"{orders}/0@{offset}", *words).code == 0
    assert position(ours, group, orders).metadata.endswith(": second")
    again = ottla("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq", "--yes")
    assert "was skipped before" in again.out + again.err


def test_open_transaction_is_not_skipped(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ottla.tools import group_skip

    monkeypatch.setattr(group_skip, "READ_S", 1.0)
    ours.alter_group_offsets(group, {TopicPartition(orders, 0): 3})
    with open_transaction(broker.bootstrap, unique("tx"), orders) as producer:
        done = ottla("group", "skip", group, f"{orders}/0@3", "--to", f"{orders}.dlq")
        producer.abort_transaction()
    assert (done.code, "no committed record at or after" in done.err) == (1, True)
    assert position(ours, group, orders).offset == 3


def test_letter_that_the_broker_refuses_leaves_the_group(
    ottla: Run, broker: RunningBroker, ours: Admin, orders: str, group: str
) -> None:
    ours.alter_config(ConfigResource.topic(f"{orders}.dlq"), {"max.message.bytes": "10"})
    done = ottla("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq")
    assert (done.code, "the dead letter cannot be written" in done.err) == (1, True)
    assert (position(ours, group, orders).offset, committed(broker.bootstrap, f"{orders}.dlq")) == (1, [])


Words = Callable[[str, str], tuple[str, ...]]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (lambda group, topic: (group, f"{topic}/0", "--to", f"{topic}.dlq"), "TOPIC/PARTITION@OFFSET"),
        (lambda group, topic: (group, f"{topic}/0@-1", "--to", f"{topic}.dlq"), "TOPIC/PARTITION@OFFSET"),
        (lambda group, topic: (group, f"{topic}/9@1", "--to", f"{topic}.dlq"), "has no partition 9"),
        (lambda group, topic: (group, f"{topic}/0@1", "--to", topic), "the topic of the record itself"),
        (lambda group, topic: (group, f"{topic}/0@1", "--to", f"{topic}.dl"), "Did you mean"),
        (lambda group, topic: (f"{group}x", f"{topic}/0@1", "--to", f"{topic}.dlq"), "Did you mean"),
    ],
)
def test_mistakes_have_one_clear_line(ottla: Run, orders: str, group: str, words: Words, problem: str) -> None:
    done = ottla("group", "skip", *words(group, orders))
    assert done.code in (1, 2)
    assert problem in done.err


def test_group_of_a_redrive_is_refused(ottla: Run, ours: Admin, orders: str, group: str) -> None:
    ours.alter_group_offsets(group, {TopicPartition(orders, 0): GroupOffset(1, -1, "ottla.redrive:x")})
    refused = ottla("group", "skip", group, f"{orders}/0@1", "--to", f"{orders}.dlq")
    assert (refused.code, "group of a redrive" in refused.err) == (1, True)
