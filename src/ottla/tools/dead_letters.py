"""Dead letters: their origin and reason, read from headers, and the records that redrive them. No I/O.

Each program that writes dead letters has a row in `WRITERS`, with the names of its headers. A dead letter with the
headers of several writers belongs to the writer whose headers are the last.

A redriven record has the key and the value of its letter, byte by byte, and the header `ottla.redrive.count`, which is
one higher than in the letter. `decide` returns that record, or the reason why the letter is left in its topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.common import units

if TYPE_CHECKING:
    from ottla.clients.consumer.record import Record

COUNT_HEADER: Final = "ottla.redrive.count"
Headers = Sequence[tuple[str, bytes | None]]

_NAMES = re.compile(r"dlq[.\-_].+|.+[.\-_](dlq|dlt)", re.IGNORECASE)


class Writer(NamedTuple):
    """The headers of one program that writes dead letters: their names, and the prefixes of all headers it adds.

    - `exceptions` are names of the exception's class; the first one that the letter has counts.
    - `is_binary`: numbers are big-endian integers; otherwise they are text.
    - `first_is_origin`: the program appends an origin at each hop, and the first one is the record's own topic.
    - `may_omit_record`: a letter without key and value may stand for a record that was not copied.
    """

    name: str
    topic: str
    partition: str
    offset: str
    message: str
    exceptions: tuple[str, ...]
    prefixes: tuple[str, ...]
    timestamp: str = ""
    stage: str = ""
    is_binary: bool = False
    first_is_origin: bool = False
    may_omit_record: bool = False


def _with_prefix(name: str, prefix: str, exceptions: tuple[str, ...], message: str, stage: str = "") -> Writer:
    """Return a writer whose headers are text and begin with a prefix of its own."""
    return Writer(
        name,
        f"{prefix}topic",
        f"{prefix}partition",
        f"{prefix}offset",
        f"{prefix}{message}",
        tuple(f"{prefix}{each}" for each in exceptions),
        (prefix,),
        stage=f"{prefix}{stage}" if stage else "",
    )


def _spring(name: str, prefix: str, *more_prefixes: str) -> Writer:
    """Return a writer with the headers of Spring's DeadLetterPublishingRecoverer below a prefix."""
    return Writer(
        name,
        f"{prefix}original-topic",
        f"{prefix}original-partition",
        f"{prefix}original-offset",
        f"{prefix}exception-message",
        (f"{prefix}exception-cause-fqcn", f"{prefix}exception-fqcn"),
        (f"{prefix}original-", f"{prefix}exception-", *more_prefixes),
        timestamp=f"{prefix}original-timestamp",
        is_binary=True,
        first_is_origin=True,
    )


_CONNECT = "__connect.errors."
WRITERS: Final = (
    # KIP-298. Ottla's pipelines and schema validation have the same headers, see `_OWN`.
    _with_prefix("Kafka Connect", _CONNECT, ("exception.class.name",), "exception.message", "stage"),
    # KIP-1034: the header `exception` is Java's toString() of the exception.
    _with_prefix("Kafka Streams", "__streams.errors.", ("exception",), "message"),
    # KIP-1191: the record itself is copied only if the group's settings say so.
    _with_prefix("share group", "__dlq.errors.", (), "message")._replace(may_omit_record=True),
    _spring("Spring Kafka", "kafka_dlt-", "springDeserializerException"),
    # Spring's topics for retries omit `dlt-`, and count the attempts.
    _spring("Spring Kafka retries", "kafka_", "retry_topic-", "springDeserializerException"),
    _spring("Spring Cloud Stream", "x-")._replace(
        prefixes=tuple(
            f"x-{name}"
            for name in (
                "original-topic",
                "original-partition",
                "original-offset",
                "original-timestamp",
                "exception-fqcn",
                "exception-message",
                "exception-stacktrace",
            )
        ),
    ),
    Writer(
        "SmallRye",
        "dead-letter-topic",
        "dead-letter-partition",
        "dead-letter-offset",
        "dead-letter-reason",
        ("dead-letter-exception-class-name",),
        ("dead-letter-",),
    ),
)
# Ottla's own writers, by a header that only they have.
_OWN: Final = {
    (f"{_CONNECT}class.name", b"ottla.streams"): "Ottla pipeline",
    (f"{_CONNECT}class.name", b"ottla.group.skip"): "ottla group skip",
    (f"{_CONNECT}connector.name", b"ottla.schema.validation"): "Ottla schema validation",
}


class DeadLetter(NamedTuple):
    """The origin and the reason of a dead letter. `writer` is empty if no header names an origin."""

    writer: str = ""
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None
    exception: str = ""
    message: str = ""
    stage: str = ""
    redrives: int = 0

    @property
    def origin(self) -> str:
        """The origin as `topic-partition@offset`, without the parts that are unknown; empty without a topic."""
        if self.topic is None:
            return ""
        partition = "" if self.partition is None else f"-{self.partition}"
        return f"{self.topic}{partition}{'' if self.offset is None else f'@{self.offset}'}"

    @property
    def reason(self) -> str:
        """The class of the exception without its package, and the message."""
        name = self.exception.rpartition(".")[2]
        return ": ".join(part for part in (name, self.message) if part) or self.stage

    def mentions(self, text: str) -> bool:
        """Whether the class, the message or the stage of the failure has this text, in any case."""
        return any(text.lower() in part.lower() for part in (self.exception, self.message, self.stage))


class Redriven(NamedTuple):
    """A record to send. Partition None: by its key. Timestamp None: the time of the send."""

    topic: str
    partition: int | None
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class Left(Enum):
    """The reason why a letter is left in its topic; the value is for people."""

    REPLAYS = "redriven too often already (--max-replays)"
    NO_ORIGIN = "without a known origin (--to names a topic)"
    NO_TOPIC = "whose original topic does not exist (--to names another)"
    NO_PARTITION = "whose original partition is unknown or does not exist"
    NO_RECORD = "without key and value: the share group does not copy records"
    TO_ITSELF = "that would return to the dead letter topic"
    EDIT = "that --edit failed for"


class Plan(NamedTuple):
    """The options of a redrive. `to` replaces the original topics; `set_headers` replace headers of the same names."""

    to: str | None = None
    same_partition: bool = False
    original_timestamp: bool = False
    keep_headers: bool = False
    set_headers: tuple[tuple[str, bytes], ...] = ()
    max_replays: int = 3


def is_name_of_dead_letters(topic: str) -> bool:
    """Whether a topic is named as topics for dead letters are: `orders.dlq`, `orders-dlt`, `dlq.orders`."""
    return _NAMES.fullmatch(topic) is not None


def read_letter(headers: Headers) -> DeadLetter:
    """Return the origin and the reason that the headers of a record name."""
    redrives = _number(_last(headers, COUNT_HEADER), is_binary=False) or 0
    writer = _writer_of(headers)
    if writer is None:
        return DeadLetter(redrives=redrives)
    own = next((name for (header, value), name in _OWN.items() if _last(headers, header) == value), writer.name)
    find = _first if writer.first_is_origin else _last
    exceptions = [_text(_last(headers, name)) for name in writer.exceptions]
    exception = next((each for each in exceptions if each), "")
    message = _text(_last(headers, writer.message))
    name, _, rest = exception.partition(": ")  # Java's toString() has the message, too
    return DeadLetter(
        own,
        _text(find(headers, writer.topic)) or None,
        _number(find(headers, writer.partition), is_binary=writer.is_binary),
        _number(find(headers, writer.offset), is_binary=writer.is_binary),
        _number(find(headers, writer.timestamp), is_binary=writer.is_binary),
        name,
        message or rest,
        _text(_last(headers, writer.stage)),
        redrives,
    )


def decide(
    record: Record[bytes, bytes], letter: DeadLetter, plan: Plan, partitions: Mapping[str, int]
) -> Redriven | Left:
    """Return the record that redrives a letter, or why it is left. `partitions` are the topics that exist."""
    topic = plan.to or letter.topic
    if letter.redrives >= plan.max_replays:
        return Left.REPLAYS
    if topic is None:
        return Left.NO_ORIGIN
    if topic == record.topic:
        return Left.TO_ITSELF
    if topic not in partitions:
        return Left.NO_TOPIC
    if record.key is None and record.value is None and _may_omit_record(letter):
        return Left.NO_RECORD
    partition = letter.partition if plan.same_partition else None
    if plan.same_partition and (partition is None or partition >= partitions[topic]):
        return Left.NO_PARTITION
    timestamp_ms = record.timestamp if letter.timestamp_ms is None else letter.timestamp_ms
    return Redriven(
        topic,
        partition,
        timestamp_ms if plan.original_timestamp else None,
        record.key,
        record.value,
        _redriven_headers(record.headers, letter, plan),
    )


def _redriven_headers(headers: Headers, letter: DeadLetter, plan: Plan) -> list[tuple[str, bytes | None]]:
    names = {name for name, _ in headers}
    removed = () if plan.keep_headers else tuple(p for w in WRITERS if w.topic in names for p in w.prefixes)
    replaced = {COUNT_HEADER, *(name for name, _ in plan.set_headers)}
    kept = [each for each in headers if each[0] not in replaced and not each[0].startswith(removed)]
    return [*kept, *plan.set_headers, (COUNT_HEADER, b"%d" % (letter.redrives + 1))]


def _may_omit_record(letter: DeadLetter) -> bool:
    return any(writer.may_omit_record for writer in WRITERS if writer.name == letter.writer)


def _writer_of(headers: Headers) -> Writer | None:
    """Return the writer whose topic header is the last one."""
    by_topic = {writer.topic: writer for writer in WRITERS}
    return next((by_topic[name] for name, value in reversed(headers) if name in by_topic and value), None)


def _last(headers: Headers, name: str) -> bytes | None:
    return _first(reversed(headers), name)


def _first(headers: Iterable[tuple[str, bytes | None]], name: str) -> bytes | None:
    return next((value for each, value in headers if each == name), None)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode(errors="replace")


def _number(value: bytes | None, *, is_binary: bool) -> int | None:
    """Return a number that is not negative; None for other bytes."""
    if value is None:
        return None
    if is_binary and len(value) in (4, 8):
        number = int.from_bytes(value, "big", signed=True)
        return number if number >= 0 else None
    return units.whole_number(_text(value))
