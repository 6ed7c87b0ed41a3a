"""`ottla dlq` on a broker: letters of several writers, each redriven once, whatever kills the redrive."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ottla.clients import Admin, Consumer, Producer, TopicPartition
from ottla.clients.admin import Acl, AclOperation, AclPermission, AclResource, AclResourceType
from ottla.config.authorization import STANDARD
from tests import forked
from tests.clients.support import unique
from tests.conftest import RunningBroker
from tests.ottla_process import ForkedOttla, OttlaProcess
from tests.unit.tools.test_dead_letters import CONNECT, KNOWN, PIPELINE

from .conftest import Run
from .test_frame import on_a_terminal

COUNT = "ottla.redrive.count"
END_S = 60
ROOT = Path(__file__).parents[2]


def from_topic(headers, topic: str):
    """The headers with another original topic."""
    return [(name, topic.encode() if value == b"orders" else value) for name, value in headers]


@pytest.fixture
def orders(ours: Admin) -> str:
    name = unique("orders")
    ours.create_topic(name, partitions=3, replication_factor=1)
    return name


@pytest.fixture
def dead(ours: Admin, orders: str) -> str:
    name = f"{orders}.dlq"
    ours.create_topic(name, partitions=2, replication_factor=1)
    return name


Write = Callable[..., None]


@pytest.fixture
def write(broker: RunningBroker, orders: str, dead: str) -> Write:
    """Write letters with these values to the dead letter topic; the partitions take turns."""

    def write(*values: bytes | None, headers=CONNECT, topic: str = dead, key: bytes | None = b"k", own=()) -> None:
        with Producer(bootstrap_servers=broker.bootstrap) as producer:
            for number, value in enumerate(values):
                all_headers = [*own, *from_topic(headers, orders)]
                producer.send(topic, value, key, partition=number % 2, headers=all_headers)

    return write


def committed(bootstrap: str, topic: str, *, may_be_open: bool = False) -> list:
    """The records of a topic under read_committed, in the order of partitions and offsets.

    Brokers write the marker of a transaction after they have answered, so that the call waits for the ends of all
    transactions, unless one `may_be_open`.
    """
    found = []
    settings = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed", "auto.offset.reset": "earliest"}
    with Consumer(settings) as reader:
        tps = [TopicPartition(topic, partition) for partition in reader.partitions_of(topic)]
        reader.assign(tps)
        ends = reader.end_offsets(tps)
        if not may_be_open:
            with Consumer(settings | {"isolation.level": "read_uncommitted"}) as other:
                ends = other.end_offsets(tps)
        for _ in range(300):
            if all(reader.position(tp) >= end for tp, end in ends.items()):
                return sorted(found, key=lambda record: (record.partition, record.offset))
            found += reader.poll(0.2)
    raise AssertionError(f"{topic} was not read to its ends {ends} in 60 s")


def values_of(bootstrap: str, topic: str, *, may_be_open: bool = False) -> list[bytes | None]:
    return sorted(record.value for record in committed(bootstrap, topic, may_be_open=may_be_open))


# -- list and show ----------------------------------------------------------------------------------------------


def test_topics_are_found_by_name_setting_and_headers(
    ottla: Run, ours: Admin, orders: str, dead: str, write: Write
) -> None:
    by_headers, by_setting = unique("trash"), unique("invalid")
    ours.create_topic(by_headers, partitions=2, replication_factor=1)
    ours.create_topic(by_setting, partitions=1, replication_factor=1)
    mode = {"ottla.schema.validation.mode": "dlq", "ottla.schema.validation.dlq.topic": by_setting}
    ours.create_topic(unique("checked"), partitions=1, replication_factor=1, config=mode)
    write(b"1", b"2", b"3", topic=by_headers, headers=PIPELINE)
    write(b"1", b"2")
    write(b"3", headers=KNOWN["Spring Kafka"][0])
    rows = {row["topic"]: row for row in ottla("dlq", "list", "--json").objects}
    assert orders not in rows
    assert rows[by_setting]["letters"] == 0
    assert (rows[by_headers]["letters"], rows[by_headers]["reasons"]) == (3, {"FormatError": 3})
    assert rows[dead]["writers"] == {"Kafka Connect": 2, "Spring Kafka": 1}
    assert rows[dead]["reasons"] == {"DataException": 2, "NullPointerException": 1}
    assert rows[dead]["oldest"] <= rows[dead]["newest"]
    assert dead in ottla("dlq", "list", "-q").out.splitlines()


def test_letters_are_shown_and_filtered(ottla: Run, orders: str, dead: str, write: Write) -> None:
    write(b"1", b'{"a": 1}', b"\xff")
    write(b"4", headers=KNOWN["Kafka Streams"][0])
    rows = ottla("dlq", "show", dead, "--json").objects
    assert len(rows) == 4
    assert rows[0]["origin"] == {"topic": orders, "partition": 2, "offset": 41}
    assert [row["value"] for row in ottla("dlq", "show", dead, "--reason", "illegalstate", "--json").objects] == ["4"]
    assert ottla("dlq", "show", dead, "--origin", "elsewhere", "--json").objects == []
    assert len(ottla("dlq", "show", dead, "-p", "0", "--from", "1", "--until", "2", "--json").objects) == 1
    assert ottla("dlq", "show", dead, "--from", "@now", "--json").objects == []
    assert {"a": 1} in [row.get("value") for row in ottla("dlq", "show", dead, "--json-value").objects]
    table = ottla("dlq", "show", dead, "-n", "2")
    assert f"{orders}-2@41" in table.out
    assert len(table.out.splitlines()) == 3
    assert "--limit" in table.err


def test_mistakes_have_one_clear_line(ottla: Run, orders: str, dead: str) -> None:
    assert f"Did you mean {dead!r}" in ottla("dlq", "show", f"{dead}s").err
    assert f"Did you mean {dead!r}" in ottla("dlq", "redrive", f"{dead}s").err
    assert ottla("dlq", "redrive", dead, "--to", dead).code == 2
    assert "is not an offset" in ottla("dlq", "show", dead, "--from", "yesterday").err
    assert "NAME=VALUE" in ottla("dlq", "redrive", dead, "--set-header", "x").err
    assert "has no partition 9" in ottla("dlq", "redrive", dead, "-p", "9").err


# -- redrive ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", KNOWN)
def test_letters_of_each_writer_return_to_their_topic(
    ottla: Run, broker: RunningBroker, orders: str, dead: str, write: Write, writer: str
) -> None:
    write(b"1\x00", None, headers=KNOWN[writer][0], own=[("trace", b"a")])
    done = ottla("dlq", "redrive", dead, "--same-partition", "--json")
    assert (done.code, done.objects[0]["redriven"]) == (0, {orders: 2})
    records = committed(broker.bootstrap, orders)
    assert {record.value for record in records} == {b"1\x00", None}
    for record in records:
        assert (record.partition, record.key) == (2, b"k")
        assert record.headers == [("trace", b"a"), (COUNT, b"1")]
    again = ottla("dlq", "redrive", dead, "--json")
    assert (again.code, again.objects[0]["redriven"]) == (0, {})
    assert len(committed(broker.bootstrap, orders)) == 2


def test_dry_run_writes_nothing(ottla: Run, broker: RunningBroker, ours: Admin, orders: str, dead: str, write: Write):
    write(b"1", b"2")
    done = ottla("dlq", "redrive", dead, "--dry-run")
    assert "would redrive 2 letters" in done.out
    assert committed(broker.bootstrap, orders) == []
    assert not ours.list_group_offsets(f"ottla.redrive.{dead}")


def test_filters_leave_letters_for_later_and_none_is_redriven_twice(
    ottla: Run, broker: RunningBroker, orders: str, dead: str, write: Write
) -> None:
    write(*(b"connect%d" % n for n in range(3)))
    write(*(b"streams%d" % n for n in range(3)), headers=KNOWN["Kafka Streams"][0])
    write(*(b"later%d" % n for n in range(3)))
    first = ottla("dlq", "redrive", dead, "--reason", "IllegalState", "--json").objects[0]
    assert (first["redriven"], first["not_chosen"]) == ({orders: 3}, 6)
    limited = ottla("dlq", "redrive", dead, "--from", "1", "--limit", "2", "--json").objects[0]
    assert limited["redriven"] == {orders: 2}
    rest = ottla("dlq", "redrive", dead, "--json").objects[0]
    assert rest["redriven"] == {orders: 4}
    assert len(set(values_of(broker.bootstrap, orders))) == len(committed(broker.bootstrap, orders)) == 9
    assert ottla("dlq", "redrive", dead, "--group", unique("again"), "--dry-run", "--json").objects[0]["redriven"] == {
        orders: 9
    }


def test_letter_that_returns_is_redriven_a_limited_number_of_times(
    ottla: Run, broker: RunningBroker, orders: str, dead: str, write: Write
) -> None:
    write(b"poison")
    for replays in (1, 2, 3):
        assert ottla("dlq", "redrive", dead, "--json").objects[0]["redriven"] == {orders: 1}
        last = max(committed(broker.bootstrap, orders), key=lambda record: dict(record.headers)[COUNT])
        assert dict(last.headers)[COUNT] == b"%d" % replays
        write(last.value, own=last.headers)
    stopped = ottla("dlq", "redrive", dead, "--json")
    assert (stopped.code, stopped.objects[0]["left"]) == (1, {"replays": 1})
    assert ottla("dlq", "redrive", dead, "--max-replays", "4", "--json").objects[0]["redriven"] == {orders: 1}


def test_letters_that_cannot_be_redriven_are_left_and_counted(
    ottla: Run, broker: RunningBroker, orders: str, dead: str, write: Write
) -> None:
    write(b"unknown", headers=[])
    write(b"elsewhere", headers=[("__connect.errors.topic", b"no-such-topic")])
    write(b"good")
    done = ottla("dlq", "redrive", dead)
    assert done.code == 1
    assert "redriven 1 letter, left 1 without a known origin (--to names a topic)" in done.out
    assert "left 1 whose original topic does not exist" in done.out
    assert ottla("dlq", "redrive", dead, "--to", orders, "--json").objects[0]["redriven"] == {orders: 2}
    assert values_of(broker.bootstrap, orders) == [b"elsewhere", b"good", b"unknown"]


def test_values_are_edited_and_failed_edits_are_left(
    ottla: Run, broker: RunningBroker, orders: str, dead: str, write: Write
) -> None:
    write(b"a bad", b"b bad", b"c worse")
    edit = "sed -n 's/bad/good/;t found;q 3;:found;p'"
    done = ottla("dlq", "redrive", dead, "--edit", edit, "--json")
    assert (done.code, done.objects[0]["left"]) == (1, {"edit": 1})
    assert values_of(broker.bootstrap, orders) == [b"a good", b"b good"]
    fixed = ottla("dlq", "redrive", dead, "--set-header", "fixed=yes", "--original-timestamp", "--json")
    assert fixed.objects[0]["redriven"] == {orders: 1}
    (record,) = [each for each in committed(broker.bootstrap, orders) if each.value == b"c worse"]
    assert ("fixed", b"yes") in record.headers


def test_failed_redrive_reports_one_letter(
    ottla: Run,
    broker: RunningBroker,
    ours: Admin,
    orders: str,
    dead: str,
    write: Write,
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The letters go to different partitions, so that their batches fail separately.
    for key in (b"a", b"b", b"c", b"d"):
        write(b"1", key=key)
    to = unique("small")
    ours.create_topic(to, partitions=4, replication_factor=1, config={"max.message.bytes": "10"})
    done = ottla("dlq", "redrive", dead, "--to", to)
    assert (done.code, done.err.count("cannot be written")) == (1, 1)
    gc.collect()  # a producer logs a failure that was not looked at when its batch is freed
    assert not [each for each in caplog.messages if "did not ask for the outcome" in each]


def test_redrive_asks_at_a_terminal(ottla: Run, broker: RunningBroker, orders: str, dead: str, write: Write) -> None:
    write(b"1")
    code, shown = on_a_terminal(["dlq", "redrive", dead], "n\n", "[y/N]")
    assert code == 1
    assert "nothing was redriven" in shown
    assert committed(broker.bootstrap, orders) == []


def test_group_of_another_program_is_refused(ottla: Run, ours: Admin, dead: str, write: Write) -> None:
    from ottla.clients.admin import GroupOffset

    write(b"1")
    group = unique("theirs")
    ours.alter_group_offsets(group, {TopicPartition(dead, 0): GroupOffset(0, -1, "mine")})
    refused = ottla("dlq", "redrive", dead, "--group", group)
    assert refused.code == 1
    assert "another program committed its offset" in refused.err


# -- killed redrives --------------------------------------------------------------------------------------------

Disturb = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def disturbed(tmp_path: Path, broker: RunningBroker) -> Disturb:
    """Run `ottla`, which is disturbed after some steps."""

    def run(steps: int, act: str, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["tests.cli.disturbed_redrive", str(steps), act, *words, "-b", broker.bootstrap]
        return forked.run(command, tmp_path, 2 * END_S, [str(ROOT)])

    return run


@pytest.fixture
def killed(disturbed: Disturb) -> Callable[..., int]:
    """Run `ottla` and kill it after some steps; returns the exit code."""

    def run(steps: int, *words: str) -> int:
        done = disturbed(steps, "kill", *words)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return done.returncode

    return run


@pytest.mark.parametrize("seed", range(4))
def test_killed_redrive_continues_without_a_duplicate(
    broker: RunningBroker, orders: str, dead: str, write: Write, killed: Callable[..., int], seed: int
) -> None:
    draw = random.Random(seed)
    letters = [b"%02d" % number for number in range(14)]
    write(*letters)
    kills = 0
    for _ in range(6):
        kills += killed(draw.randrange(2, 18), "dlq", "redrive", dead) != 0
        seen = values_of(broker.bootstrap, orders, may_be_open=True)
        assert len(seen) == len(set(seen))
    assert kills
    assert killed(10_000, "dlq", "redrive", dead) == 0
    assert values_of(broker.bootstrap, orders) == letters


def test_kill_at_each_step_of_a_transaction(
    broker: RunningBroker, ours: Admin, orders: str, dead: str, write: Write, killed: Callable[..., int]
) -> None:
    """Each step of the first transaction: two steps each to begin, to send three records, the offsets, and the end."""
    letters = [b"%d" % number for number in range(4)]
    write(*letters)
    for steps in range(0, 15, 2):
        group = unique("killed")
        to = unique("copy")
        ours.create_topic(to, partitions=1, replication_factor=1)
        words = ("dlq", "redrive", dead, "--to", to, "--group", group)
        assert killed(steps, *words) == -signal.SIGKILL
        assert killed(10_000, *words) == 0
        assert values_of(broker.bootstrap, to) == letters, f"killed after {steps} steps"


# -- interrupted redrives, and two at the same time --------------------------------------------------------------


@pytest.mark.parametrize("steps", [0, 3, 5, 9, 12, 13, 20])
def test_interrupt_ends_a_redrive_after_its_transaction(
    broker: RunningBroker, orders: str, dead: str, write: Write, disturbed: Disturb, steps: int
) -> None:
    letters = [b"%02d" % number for number in range(14)]
    write(*letters)
    done = disturbed(steps, "interrupt", "dlq", "redrive", dead)
    assert "Traceback" not in done.stderr
    assert done.returncode == 130, done.stderr
    seen = values_of(broker.bootstrap, orders)
    assert len(seen) < len(letters)
    assert len(seen) == len(set(seen))
    if steps > 2:  # the letters are being redriven: the run reports what it did
        assert f"redriven {len(seen)} letter" in done.stdout
    assert disturbed(10_000, "interrupt", "dlq", "redrive", dead).returncode == 0
    assert values_of(broker.bootstrap, orders) == letters


@pytest.mark.parametrize("steps", [2, 3, 7, 10, 12, 13])
def test_second_redrive_fences_the_first_one(
    broker: RunningBroker, orders: str, dead: str, write: Write, disturbed: Disturb, steps: int
) -> None:
    """Whatever the first one does when the second one begins: one line, and each letter once."""
    letters = [b"%02d" % number for number in range(10)]
    write(*letters)
    done = disturbed(steps, "redrive", "dlq", "redrive", dead)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    assert done.stderr.count("ottla: ") == 1, done.stderr
    assert "another redrive with the same group has begun" in done.stderr
    assert values_of(broker.bootstrap, orders) == letters


# -- rights -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """A broker on which only the user `admin` has rights; other users are anonymous."""
    settings = {"authorizer.class.name": STANDARD, "super.users": "User:admin"}
    with ForkedOttla(tmp_path_factory.mktemp("guarded"), settings) as process:
        yield process
    process.assert_no_traceback()


@pytest.mark.parametrize("words", [("show", "orders.dlq"), ("redrive", "orders.dlq")])
def test_user_without_rights_gets_one_line(plain: Run, guarded: OttlaProcess, words: tuple[str, ...]) -> None:
    refused = plain("dlq", *words, "-b", guarded.bootstrap)
    assert refused.code == 1
    assert refused.out == ""
    assert refused.err.count("ottla: ") == 1
    assert "Traceback" not in refused.err


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OttlaProcess]:
    """A broker on which all users have the rights that no rule is about."""
    settings = {"authorizer.class.name": STANDARD, "allow.everyone.if.no.acl.found": "true"}
    with ForkedOttla(tmp_path_factory.mktemp("ruled"), settings) as process:
        yield process
    process.assert_no_traceback()


def all_but(kind: AclResourceType, name: str, lacks: AclOperation) -> list[Acl]:
    """Rules that leave anonymous users all rights to a resource but one."""
    resource = AclResource(kind, name)
    return [
        Acl(resource, "User:*", AclOperation.ALL),
        Acl(resource, "User:ANONYMOUS", lacks, AclPermission.DENY),
    ]


@pytest.mark.parametrize(
    ("kind", "name", "lacks"),
    [
        (AclResourceType.TOPIC, "{dead}", AclOperation.READ),
        (AclResourceType.TOPIC, "{orders}", AclOperation.WRITE),
        (AclResourceType.GROUP, "{group}", AclOperation.READ),
        (AclResourceType.GROUP, "{group}", AclOperation.DESCRIBE),
        (AclResourceType.TRANSACTIONAL_ID, "{group}", AclOperation.WRITE),
        (AclResourceType.TRANSACTIONAL_ID, "{group}", AclOperation.DESCRIBE),
    ],
)
def test_missing_right_is_one_line_and_nothing_is_half_done(
    plain: Run, ruled: OttlaProcess, kind: AclResourceType, name: str, lacks: AclOperation
) -> None:
    names = {"orders": unique("orders"), "group": unique("redrive")}
    names["dead"] = f"{names['orders']}.dlq"
    other = unique("payments")
    with Admin(bootstrap_servers=ruled.bootstrap) as admin:
        for topic in (names["orders"], names["dead"], other):
            admin.create_topic(topic, partitions=2, replication_factor=1)
        with Producer(bootstrap_servers=ruled.bootstrap) as producer:
            for number in range(4):
                origin = other if number == 0 else names["orders"]
                producer.send(names["dead"], b"%d" % number, b"k", partition=0, headers=from_topic(CONNECT, origin))
        rules = all_but(kind, name.format(**names), lacks)
        admin.create_acls(rules)
        words = ("dlq", "redrive", names["dead"], "--group", names["group"], "--yes", "-b", ruled.bootstrap)
        refused = plain(*words)
        assert refused.code == 1
        assert refused.err.count("ottla: ") == 1, refused.err
        assert "Traceback" not in refused.err
        assert "uthoriz" in refused.err or "no permission" in refused.err, refused.err
        assert "abort_transaction" not in refused.err  # it was aborted
        admin.delete_acls(rules)
        assert (values_of(ruled.bootstrap, other), values_of(ruled.bootstrap, names["orders"])) == ([], [])
        assert plain(*words).code == 0
        assert values_of(ruled.bootstrap, other) == [b"0"]
        assert values_of(ruled.bootstrap, names["orders"]) == [b"1", b"2", b"3"]


def test_letters_of_a_topic_that_may_not_be_described_are_left(plain: Run, ruled: OttlaProcess) -> None:
    """Brokers do not say that such a topic exists."""
    orders = unique("orders")
    rules = all_but(AclResourceType.TOPIC, orders, AclOperation.DESCRIBE)
    with Admin(bootstrap_servers=ruled.bootstrap) as admin:
        for topic in (orders, f"{orders}.dlq"):
            admin.create_topic(topic, partitions=1, replication_factor=1)
        with Producer(bootstrap_servers=ruled.bootstrap) as producer:
            producer.send(f"{orders}.dlq", b"1", b"k", headers=from_topic(CONNECT, orders))
        admin.create_acls([*rules, *all_but(AclResourceType.TOPIC, orders, AclOperation.WRITE)])
        done = plain("dlq", "redrive", f"{orders}.dlq", "--yes", "-b", ruled.bootstrap)
        assert done.code == 1
        assert "redriven 0 letters, left 1 whose original topic does not exist" in done.out
