"""`ottla group skip`: move a group past one record, which becomes a dead letter."""

from __future__ import annotations

import getpass
import socket
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Final

from ottla import clients
from ottla.cli.commands import Argument, Option, Options, yes_option
from ottla.cli.connect import client_settings, connect
from ottla.cli.names import all_topics, check_exists, confirm
from ottla.cli.output import Output
from ottla.clients.errors import ProducerFenced
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.group_skip import (
    Audit,
    Skip,
    read_position,
    read_record,
    transactional_id,
    was_skipped,
    write_skip,
)

_INIT_S: Final = 60.0
# The broker aborts the transaction of a skip that was killed after this time, unless the next one does so before.
_TRANSACTION_MS: Final = 60_000
# Any record that a broker has stored must fit into the dead letter topic: the broker decides.
_LARGEST: Final = (1 << 30) - 1

PARAMETERS = [
    Argument("group", "GROUP", help="the group, without members"),
    Argument("place", "TOPIC/PARTITION@OFFSET", help="the record, such as orders/0@42"),
    Option("--to TOPIC", "the dead letter topic, which must exist", required=True),
    Option("--reason TEXT", "why, for the dead letter and the log of offsets", default="skipped by an operator"),
    Option("--read-uncommitted", "also a record of an open or aborted transaction"),
    Option("--dry-run", "only check, and show the size of the record"),
    yes_option(),
]
EXAMPLES = """
ottla group skip billing orders/0@42 --to orders.dlq --dry-run
ottla group skip billing orders/0@42 --to orders.dlq --reason 'no currency'
"""


def skip(options: Options) -> None:
    """Move a group past one record. The record is copied into a dead letter topic, from which `ottla dlq redrive`
    writes it back, and the group continues after it. Both happen in one transaction.

    The record must be the first one from the position of the group on, and the group must have no members. The dead
    letter and the committed offset say who skipped the record, when, and why.
    """
    output = Output(options)
    partition, offset = _place(options.place)
    wanted = Skip(options.group, partition, offset, options.to)
    if wanted.to == partition.topic:
        raise Failure("--to is the topic of the record itself", exit_code=2)
    admin = connect(options)
    check_exists(wanted.group, [each.group_id for each in admin.list_groups()], "group")
    topics = all_topics(admin)
    for name in (partition.topic, wanted.to):
        check_exists(name, topics, "topic")
    if partition.partition >= topics[partition.topic].partitions:
        count = units.plural(topics[partition.topic].partitions, "partition")
        raise Failure(f"topic {partition.topic!r} has no partition {partition.partition}; it has {count}")
    with ExitStack() as open_until_end:
        producer = None
        if not options.dry_run:
            _ask(options, wanted)
            producer = open_until_end.enter_context(_open_producer(options, wanted.group))
            # This also ends the transaction of a skip that was killed: the position is read after it.
            producer.init_transactions(_INIT_S)
        at = read_position(admin, wanted)
        if was_skipped(wanted, at):
            _report(output, wanted, at.offset, f"was skipped before: {at.metadata}", skipped=False)
            return
        consumer = open_until_end.enter_context(_open_consumer(options))
        record = read_record(consumer, wanted, at.offset)
        if producer is None:
            what = f"would be skipped, {units.size(len(record.key or b'') + len(record.value or b''))}"
            _report(output, wanted, record.offset + 1, what, skipped=False)
            return
        audit = Audit(_user(), datetime.now(UTC).isoformat(timespec="seconds"), options.reason)
        try:
            letter = write_skip(producer, admin, wanted, record, audit, position=at.offset)
        except ProducerFenced as error:
            raise Failure("another skip in the same group has begun, so this one ended") from error
        text = f"was skipped by {audit.user} at {audit.time} ({audit.reason}); its dead letter is in {letter}"
        _report(output, wanted, record.offset + 1, text, skipped=True)


def _report(output: Output, skip: Skip, now: int, text: str, *, skipped: bool) -> None:
    row = {
        "group": skip.group,
        **skip.partition._asdict(),
        "offset": skip.offset,
        "position": now,
        "to": skip.to,
        "skipped": skipped,
        "text": text,
    }
    output.changed(f"{skip.group}: {skip.partition}@{skip.offset} {text}", row, made=skipped)


def _place(word: str) -> tuple[TopicPartition, int]:
    place, _, offset_text = word.rpartition("@")
    topic, _, partition_text = place.rpartition("/")
    partition, offset = units.whole_number(partition_text), units.whole_number(offset_text)
    if not topic or partition is None or offset is None:
        raise Failure(f"{word!r} is not of the form TOPIC/PARTITION@OFFSET", "For example: orders/0@42", exit_code=2)
    return TopicPartition(topic, partition), offset


def _ask(options: Options, skip: Skip) -> None:
    confirm(
        f"Move {skip.group} past {skip.partition}@{skip.offset}, and copy the record to {skip.to}?",
        "nothing was skipped",
        "--dry-run only checks; --yes skips without asking.",
        yes=options.yes,
    )


def _user() -> str:
    """Return `user@host` of this process: the audit names a person's account on a machine."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # no account has this process's user id
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


def _open_consumer(options: Options) -> clients.Consumer:
    """Return a consumer without a group."""
    settings = client_settings(options, "consumer") | {
        "isolation.level": "read_uncommitted" if options.read_uncommitted else "read_committed",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "none",
    }
    for name in ("group.id", "group.instance.id", "group.protocol"):
        settings.pop(name, None)
    return clients.Consumer(settings)


def _open_producer(options: Options, group: str) -> clients.Producer:
    settings = client_settings(options, "producer")
    settings |= {
        "transactional.id": transactional_id(group),
        "transaction.timeout.ms": _TRANSACTION_MS,
        "acks": "all",
        "enable.idempotence": True,
        "max.request.size": _LARGEST,
    }
    return clients.Producer(settings)
