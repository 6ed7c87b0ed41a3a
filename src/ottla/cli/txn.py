"""List and describe transactions, find those that hang, and abort them (KIP-664)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.cli.commands import Argument, Group, Option, Options, quiet_option, require_one, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.names import all_topics, check_broker, check_exists, confirm, members_of
from ottla.cli.output import Column, Output, moment, number, output_options
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import MAX_INT32, TopicPartition, by_topic
from ottla.tools import values
from ottla.tools.admin.hanging import active_producers, check_not_copied, hanging

COMMAND = Group(
    __doc__,
    """
    ottla txn list --state Ongoing
    ottla txn describe billing-1
    ottla txn find-hanging
    """,
    shared=[*output_options(), *connection_options()],
)

_PARTITIONS_PER_REQUEST = 500
_LIST_HINT = "`ottla txn find-hanging` shows the hanging ones."


@COMMAND.verb(
    "list",
    Option("--state STATE", "only in this state: Ongoing, CompleteCommit, ...", multiple=True),
    Option("--producer-id ID", "only of this producer id", multiple=True, type=int),
    Option("--older-than DURATION", "only open for longer: 90s, 1h (Kafka 3.8 or newer)"),
    Option("--pattern REGEX", "only ids that the expression matches (RE2; Kafka 4.1 or newer)"),
    quiet_option("transactional ids"),
    examples="""
    ottla txn list
    ottla txn list --state Ongoing --older-than 10min
    ottla txn list --pattern 'billing-.*' --quiet
    """,
    aliases=("ls",),
)
def _list(options: Options) -> None:
    """List transactional ids."""
    filters = {
        "states": members_of(api.TransactionState, options.state, "transaction"),
        "producer_ids": options.producer_id,
        "min_duration_ms": None if options.older_than is None else values.milliseconds(options.older_than),
        "pattern": options.pattern,
    }
    rows = [
        {
            "transactional_id": each.transactional_id,
            "coordinator": each.coordinator,
            "producer_id": each.producer_id,
            "state": each.state.value,
        }
        for each in connect(options).list_transactions(**filters)
    ]
    columns = [
        Column("transactional_id", narrow=True),
        Column("coordinator", right=True),
        Column("producer_id", right=True),
        Column("state", colour=_state_colour),
    ]
    given = any(value not in ([], (), None) for value in filters.values())
    empty = "No transactional id matches." if given else "There is no transactional id yet."
    Output(options).listing("transactional_id", columns, rows, empty=empty)


def _state_colour(state: str) -> str | None:
    return "green" if state == "Ongoing" else "yellow" if state.startswith("Prepare") else None


@COMMAND.verb(
    "describe",
    Argument("ids", "TRANSACTIONAL_ID", nargs=-1, required=True, help="transactional ids"),
    examples="ottla txn describe billing-1",
)
def _describe(options: Options) -> None:
    """Show the state, producer and partitions of transactional ids."""
    output, admin = Output(options), connect(options)
    described = admin.describe_transactions(options.ids)
    listed = admin.list_transactions(producer_ids=[each.producer_id for each in described.values()])
    coordinators = {each.transactional_id: each.coordinator for each in listed}
    columns = [
        Column("transactional_id", "transactional id"),
        Column("state", colour=_state_colour),
        Column("producer_id"),
        Column("producer_epoch"),
        Column("coordinator"),
        Column("timeout_ms", "timeout", units.duration),
        moment("start_ms", "started"),
        Column("partitions", show=units.ranges),
    ]
    for name, each in output.parts(described.items()):
        row = {
            "transactional_id": name,
            "state": each.state.value,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "coordinator": coordinators.get(name),
            "timeout_ms": each.timeout_ms,
            "start_ms": each.start_ms,
            "partitions": by_topic(each.partitions),
        }
        output.record(row, columns)


_PRODUCER_COLUMNS = [
    Column("topic", narrow=True),
    Column("partition", right=True),
    Column("producer_id", right=True),
    Column("producer_epoch", "EPOCH", right=True),
    Column("coordinator_epoch", right=True),
]


@COMMAND.verb(
    "describe-producers",
    Argument("partitions", "TOPIC/PARTITION", nargs=-1, required=True, help="partitions, such as orders/0"),
    examples="ottla txn describe-producers invoices/0",
)
def _describe_producers(options: Options) -> None:
    """Show the active producers of partitions, and their open transactions."""
    partitions = [_partition(word) for word in options.partitions]
    rows = [row for row, _ in active_producers(connect(options), partitions)]
    columns = [number("last_sequence"), moment("last_timestamp_ms", "LAST RECORD"), number("start_offset", "OPEN FROM")]
    Output(options).table([*_PRODUCER_COLUMNS, *columns], rows, empty="There is no active producer.")


def _partition(word: str) -> TopicPartition:
    topic, _, digits = word.rpartition("/")
    partition = units.whole_number(digits, MAX_INT32)
    if not topic or partition is None:
        shown = word[:300]
        raise Failure(f"{shown!r} is not of the form TOPIC/PARTITION", f"For example: {topic or shown}/0", exit_code=2)
    return TopicPartition(topic, partition)


@COMMAND.verb(
    "find-hanging",
    Argument(
        "topics", "TOPIC", nargs=-1, help="topics, or partitions such as orders/0; default: all, also internal ones"
    ),
    Option("--broker ID", "only partitions with a replica on this broker", type=int),
    Option(
        "--max-transaction-timeout DURATION",
        "only if the last record is older; the broker's transaction.max.timeout.ms; default: 15min",
        default="15min",
    ),
    examples="""
    ottla txn find-hanging
    ottla txn find-hanging invoices --max-transaction-timeout 1h
    """,
    summary="find open transactions that no coordinator will end",
)
def _find_hanging(options: Options) -> None:
    """Find open transactions that no coordinator will end: it does not know the producer, or the
    partition is not in the producer's transaction. They block readers with read_committed.
    """
    limit = options.max_transaction_timeout
    # Kafka's tool takes minutes.
    before_ms = units.now_ms() - values.milliseconds(f"{limit}min" if limit.isdecimal() else limit)
    output, admin = Output(options), connect(options)
    rows: list[dict[str, Any]] = []
    partitions = _searched(admin, options.topics, options.broker)
    for start in range(0, len(partitions), _PARTITIONS_PER_REQUEST):
        found = [row for row, _ in active_producers(admin, partitions[start : start + _PARTITIONS_PER_REQUEST])]
        is_open = [row for row in found if row["start_offset"] is not None]
        rows += hanging(admin, [row for row in is_open if row["last_timestamp_ms"] < before_ms])
    columns = [number("start_offset"), moment("last_timestamp_ms", "LAST RECORD"), Column("transactional_id")]
    output.table([*_PRODUCER_COLUMNS, *columns], rows, empty="No transaction hangs.")
    for row in rows[:1]:
        place = f"{row['topic']}/{row['partition']} --start-offset {row['start_offset']}"
        output.note(f"`ottla txn abort {place}` aborts it.")


def _searched(admin: api.Admin, words: Sequence[str], broker: int | None) -> list[TopicPartition]:
    if broker is not None:
        check_broker(admin, str(broker))
    single = [_partition(word) for word in words if "/" in word]
    known = all_topics(admin)
    for name in [word for word in words if "/" not in word] + [partition.topic for partition in single]:
        check_exists(name, known, "topic")
    described = admin.describe_topics([word for word in words if "/" not in word] if words else known)
    searched = single + [
        TopicPartition(name, each.partition)
        for name, topic in described.items()
        for each in topic.partitions
        if broker is None or broker in each.replicas
    ]
    return list(dict.fromkeys(searched))


@COMMAND.verb(
    "abort",
    Argument("partition", "TOPIC/PARTITION", required=False, help="the partition of a hanging transaction"),
    Option("--start-offset N", "the transaction that begins at this offset", type=int),
    Option("--producer-id ID", "the transaction of this producer", type=int),
    Option("--producer-epoch N", "with --producer-id: only of this epoch", type=int),
    Option("--transactional-id TRANSACTIONAL_ID", "the open transaction of this id, in all partitions"),
    yes_option(),
    examples="""
    ottla txn abort invoices/0 --start-offset 0
    ottla txn abort --transactional-id billing-1 --yes
    """,
    summary="abort a hanging transaction in a partition, or the open one of an id",
)
def _abort(options: Options) -> None:
    """Abort a hanging transaction in a partition. A transaction that its coordinator will end is
    refused; --transactional-id aborts it in all partitions and fences its producer, which fails at its next
    call. At a terminal the command asks first.
    """
    require_one(options, "--start-offset", "--producer-id", "--transactional-id")
    if (options.partition is None) != (options.transactional_id is not None):
        raise Failure("a hanging transaction needs TOPIC/PARTITION, and --transactional-id excludes it", exit_code=2)
    if options.producer_epoch is not None and options.producer_id is None:
        raise Failure("--producer-epoch needs --producer-id", exit_code=2)
    if options.partition is None:
        _fence(options)
    else:
        _abort_hanging(options)


def _abort_hanging(options: Options) -> None:
    partition, admin = _partition(options.partition), connect(options)
    is_open = [pair for pair in active_producers(admin, [partition]) if pair[0]["start_offset"] is not None]
    wanted = {
        "start_offset": options.start_offset,
        "producer_id": options.producer_id,
        "producer_epoch": options.producer_epoch,
    }
    found = [pair for pair in is_open if all(v is None or pair[0][key] == v for key, v in wanted.items())]
    if not found:
        starts = ", ".join(str(row["start_offset"]) for row, _ in is_open)
        advice = f"Open transactions begin at {starts}." if starts else "No transaction is open in this partition."
        raise Failure(f"{options.partition} has no such open transaction", advice)
    row, producer = found[0]
    name = f"the transaction of producer {row['producer_id']} from offset {row['start_offset']}"
    if not hanging(admin, [row]):
        check_not_copied(admin, partition.topic)
        advice = (
            f"`ottla txn list --producer-id {row['producer_id']}` shows its id; `ottla txn abort"
            " --transactional-id ID` aborts it in all its partitions."
        )
        raise Failure(f"{options.partition}: {name} does not hang: its coordinator will end it", advice)
    _confirm(f"Abort {name} in {options.partition}?", options)
    admin.abort_transaction(partition, producer)
    Output(options).changed(f"{options.partition}: aborted {name}", {**row, "aborted": True})


def _fence(options: Options) -> None:
    name, admin = options.transactional_id, connect(options)
    state = admin.describe_transactions([name])[name].state
    if state is not api.TransactionState.ONGOING:
        raise Failure(f"{name} has no transaction to abort: its state is {state.value}", _LIST_HINT)
    _confirm(f"Abort the transaction of {name} and fence its producer?", options)
    fenced = admin.fence_producers([name])[name]
    row = {"transactional_id": name, "producer_id": fenced.producer_id, "producer_epoch": fenced.producer_epoch}
    Output(options).changed(f"{name}: aborted, its producer is fenced", {**row, "aborted": True})


def _confirm(question: str, options: Options) -> None:
    confirm(question, "nothing was aborted", "--yes aborts without asking.", yes=options.yes)
