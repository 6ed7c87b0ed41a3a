"""The declarations of a program: streams and tables (inputs), outputs, and pipelines. Does not import Spark.

    @pipeline(exactly_once=True)
    def wordcount(lines=stream("lines", value="text")):
        words = lines.select(F.explode(F.split("value", r"\\W+")).alias("word"))
        return to("counts", words.groupBy("word").count(), key="word", mode="updates")

Declarations are values: they start nothing and connect to nothing. `planning` checks them and `runtime` runs them. A
wrong declaration raises StreamsError where it is written.
"""

from __future__ import annotations

import datetime as dt
import difflib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, overload

from ottla.common.errors import KafkaError
from ottla.common.ids import validate_topic_name
from ottla.streams import late, registries, schemas
from ottla.streams.errors import StreamsError
from ottla.streams.event_time import DEFAULT_MAX_FUTURE, milliseconds
from ottla.streams.pacing import DEFAULT_LATENCY
from ottla.streams.registries import Given, Registry
from ottla.streams.schemas import Schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["text", "bytes", "json", "avro", "protobuf"]
Mode = Literal["append", "updates", "final"]
FORMATS: Final = ("text", "bytes", "json", "avro", "protobuf")
MODES: Final = ("append", "updates", "final")
RECORD_COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "headers")
"""Columns of a record besides its key and value."""
TOPIC: Final = "topic:"
"""The beginning of `bad` if it names a topic for invalid records."""
AsOf: TypeAlias = int | tuple[tuple[int, int], ...]
"""A time in ms since the epoch, or an offset for each partition; the records before it are in the table."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


@dataclass(frozen=True)
class Stream:
    """The records of a topic, as columns."""

    topic: str
    value: Format = "bytes"
    schema: str | None = None
    key: Format | None = None
    key_schema: str | None = None
    columns: tuple[str, ...] = ()
    bad: str = "fail"
    time: str | None = None
    late: str = "0 seconds"
    start: Literal["earliest", "latest"] = "earliest"
    max_future: str = DEFAULT_MAX_FUTURE
    idle: str | None = None
    registry: Registry | None = None

    @property
    def has_checked_time(self) -> bool:
        """Whether the event time is a field of the value, so that `max_future` applies."""
        return self.time is not None and self.time not in self.columns

    @property
    def dead_letters(self) -> str | None:
        """The topic for invalid records."""
        return self.bad.removeprefix(TOPIC) if self.bad.startswith(TOPIC) else None


@dataclass(frozen=True)
class Table:
    """The latest value of each key of a topic, as columns; the column `key` has the keys."""

    topic: str
    key: str
    value: Format = "json"
    schema: str | None = None
    broadcast: bool = True
    as_of: AsOf | None = None
    registry: Registry | None = None

    def get(self, key: str | bytes, *, bootstrap: str | None = None, client: Mapping[str, str] | None = None) -> Any:
        """Return the value of a key now, or at `as_of`: a dictionary for JSON, Avro and Protobuf, else text or bytes.

        None if the key does not exist. Reads with read_committed, and from the key's partition only. `bootstrap` is by
        default $OTTLA_BOOTSTRAP or 127.0.0.1:9092, `client` are more settings of Kafka's clients. Blocks. Raises
        TableError if records before `as_of` may be compacted away, OptionError for an unusable schema, FormatError,
        ClientError.
        """
        return late.lookup.get(self, key, bootstrap, client)


Input: TypeAlias = Stream | Table


@dataclass(frozen=True)
class Output:
    """Rows for a topic."""

    topic: str
    rows: DataFrame
    key: tuple[str, ...] = ()
    mode: Mode = "append"
    value: Format = "json"
    schema: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    deleted: str | None = None
    registry: Registry | None = None

    @property
    def beside_value(self) -> tuple[str, ...]:
        """The columns that are not part of the value."""
        return tuple(name for name in (self.timestamp, self.headers, self.deleted) if name is not None)


Outputs: TypeAlias = Output | Sequence[Output]


@dataclass(frozen=True)
class Pipeline:
    """A named function from streams and tables to outputs. Calling it calls the function, e.g. with static DataFrames.

    Its checkpoint and its consumer group have its name, and its transactional ids begin with it.
    """

    name: str
    function: Callable[..., Outputs]
    inputs: dict[str, Input]
    exactly_once: bool = False
    max_records: int | None = None
    """The most records of a micro-batch, from each stream."""
    latency: str = DEFAULT_LATENCY
    """How long a record may wait for its micro-batch."""
    loop: bool = False
    """Whether an output may be an input, too."""
    registry: Registry | None = None
    """The schema registry of inputs and outputs that have none of their own."""

    def __call__(self, *arguments: DataFrame, **named: DataFrame) -> Outputs:
        return self.function(*arguments, **named)

    @property
    def streams(self) -> dict[str, Stream]:
        """The inputs that are streams, by parameter."""
        return {name: each for name, each in self.inputs.items() if isinstance(each, Stream)}

    def outputs(self, **rows: DataFrame) -> tuple[Output, ...]:
        """Call the function with a DataFrame for each parameter. Raises StreamsError for a result without outputs."""
        returned: object = self.function(**rows)
        found = (returned,) if isinstance(returned, Output) else returned
        if not isinstance(found, (list, tuple)) or not found or not all(isinstance(each, Output) for each in found):
            raise StreamsError(
                f"Pipeline {self.name!r} returns {type(returned).__name__}; it must return to(...), or a list of them"
            )
        doubled = [each.topic for number, each in enumerate(found) if each.topic in [o.topic for o in found[:number]]]
        if doubled:
            raise StreamsError(
                f"Pipeline {self.name!r} has two outputs to {doubled[0]!r}: unite their rows with union()"
            )
        return tuple(found)


# -- the functions of a program ----------------------------------------------------------------------------------------


def stream(
    topic: str,
    value: Format = "bytes",
    *,
    schema: Schema | None = None,
    key: Format | None = None,
    key_schema: Schema | None = None,
    columns: Iterable[str] = (),
    bad: str = "fail",
    time: str | None = None,
    late: str | None = None,
    max_future: str | None = None,
    idle: str | None = None,
    start: Literal["earliest", "latest"] = "earliest",
    registry: Given | None = None,
) -> Any:
    """Declare the records of a topic as an input.

    The columns are `value` for text and bytes, and the fields of the schema for other formats; records without a value
    have no fields and are skipped. `key` adds the column `key`, and `columns` some of topic, partition, offset,
    timestamp and headers. `schema` is DDL, a dataclass, for Avro the schema in JSON, or for Protobuf a generated class
    or "FILE#MESSAGE" with the descriptors that protoc wrote into a file. With "avro", "json" or "protobuf" and
    schema="registry", values have schemas in a registry: `registry` is its URL, or settings by name, by default the
    pipeline's, the run's, or $OTTLA_REGISTRY.

    `bad` is the reaction to an invalid key or value: "fail" stops the pipeline and names the record, "skip" counts it,
    "topic:NAME" writes it to a topic, with the headers of Kafka Connect. `time` is the column with the event time (the
    record's own `timestamp` needs no schema), `late` how much later than the latest one a record may be: "10 minutes".
    A record whose event time is more than `max_future` (1 day) after the record's own timestamp is invalid.
    After `idle` without records, the event time follows the clock at this distance. `start` applies to the first run.
    Raises StreamsError.
    """
    _check_topic(topic)
    what = f"stream({topic!r})"
    fields = _schema("value", value, schema)
    if key is None and key_schema is not None:
        raise StreamsError(f"{what}: key_schema has no effect without key")
    key_fields = None if key is None else _schema("key", key, key_schema)
    names = _names(f"{what}: columns", columns)
    for name in names:
        _check_choice(f"{what}: columns", name, RECORD_COLUMNS)
    _check_bad(what, bad)
    if bad != "fail" and not {value, key} & {"json", "avro", "protobuf"}:
        raise StreamsError(f"{what}: bad={bad!r} has no effect, because any bytes are valid {value}")
    _check_column(f"{what}: time", time)
    _check_choice(f"{what}: start", start, ("earliest", "latest"))
    if time == "timestamp" and time not in names and value in ("text", "bytes"):
        names = (*names, time)
    own = _registry(what, registry, fields, key_fields)
    declared = Stream(topic, value, fields, key, key_fields, names, bad, time, start=start, registry=own)
    declared = declared if late is None else _with_late(declared, late)
    declared = declared if idle is None else _with_idle(declared, idle)
    return declared if max_future is None else _with_max_future(declared, max_future)


def table(
    topic: str,
    *,
    key: str,
    value: Format = "json",
    schema: Schema | None = None,
    broadcast: bool = True,
    as_of: dt.datetime | str | Mapping[int, int] | None = None,
    registry: Given | None = None,
) -> Any:
    """Declare the latest value of each key of a compacted topic as an input. Raises StreamsError.

    The columns are `key`, which names the column with the keys as text, and the value's columns as in `stream`. A key
    whose latest record has no value is deleted. With `broadcast`, joins send the whole table to each task.

    With `as_of`, the table is not current, but as of a time: a datetime or text in ISO format, in UTC without a zone;
    or an offset for each partition, before which the records are. `registry` is as in `stream`.
    """
    _check_topic(topic)
    _check_column(f"table({topic!r}): key", key)
    _check_kind(f"table({topic!r}): broadcast", broadcast, bool)
    fields = _schema("value", value, schema)
    own = _registry(f"table({topic!r})", registry, fields)
    return Table(topic, key, value, fields, broadcast, as_of_place(as_of), own)


def to(
    topic: str,
    rows: DataFrame,
    *,
    key: str | Sequence[str] = (),
    mode: Mode = "append",
    value: Format = "json",
    schema: Schema | None = None,
    timestamp: str | None = None,
    headers: str | None = None,
    deleted: str | None = None,
    registry: Given | None = None,
) -> Output:
    """Write rows to a topic. Raises StreamsError.

    `key` is a column, written as text or bytes, or several, written as JSON. All columns are fields of the value in
    JSON, Avro or Protobuf; text and bytes have one column besides the key, or the column `value`. `timestamp` and
    `headers` name columns that become the record's own, and are not part of the value. `deleted` names a column of
    booleans: where it is true, the record has no value (a tombstone), which deletes its key from a table.

    `mode` is "append" for rows that do not change (filters, joins), "updates" for each change of a count or another
    aggregate, and "final" for windows, once they are closed. With schema="registry", the schema of the columns is
    registered as Avro, JSON Schema or Protobuf, as `value` says; `registry` is as in `stream`.
    """
    _check_topic(topic)
    _check_choice(f"to({topic!r}): mode", mode, MODES)
    fields = None
    if value in ("avro", "json", "protobuf") and schema == schemas.REGISTRY:
        fields = schemas.REGISTRY
    elif value == "avro" and schema is not None:
        fields = schemas.avro(schema)
    elif value == "protobuf":
        fields = _schema("value", value, schema)
    elif schema is not None:
        raise StreamsError(f"to({topic!r}): schema has no effect on {value}: the columns are the schema")
    _check_choice(f"to({topic!r}): value", value, FORMATS)
    keys = (key,) if isinstance(key, str) else tuple(key)
    columns = {"timestamp": timestamp, "headers": headers, "deleted": deleted}
    for name, column in (*columns.items(), *(("key", each) for each in keys)):
        _check_column(f"to({topic!r}): {name}", column)
    if deleted is not None and not keys:
        raise StreamsError(f"to({topic!r}): deleted needs key, the column with the key that is deleted")
    own = _registry(f"to({topic!r})", registry, fields)
    return Output(topic, rows, keys, mode, value, fields, timestamp, headers, deleted, own)


@overload
def pipeline(function: Callable[..., Outputs]) -> Pipeline: ...


@overload
def pipeline(
    *,
    name: str | None = None,
    exactly_once: bool = False,
    max_records: int | None = None,
    latency: str = DEFAULT_LATENCY,
    loop: bool = False,
    registry: Given | None = None,
) -> Callable[[Callable[..., Outputs]], Pipeline]: ...


def pipeline(
    function: Callable[..., Outputs] | None = None,
    *,
    name: str | None = None,
    exactly_once: bool = False,
    max_records: int | None = None,
    latency: str = DEFAULT_LATENCY,
    loop: bool = False,
    registry: Given | None = None,
) -> Pipeline | Callable[[Callable[..., Outputs]], Pipeline]:
    """Declare a function as a pipeline: its parameters have a stream or table as default, and it returns outputs.

    The function must have no effects besides its result, because it is called several times. `name` is by default the
    function's. With `exactly_once`, inputs are read with read_committed, and a reader with read_committed sees each
    result once. `max_records` limits a micro-batch. `latency` is how long a record may wait for its micro-batch while
    records arrive slowly: "5 seconds" takes less processor time, "0 ms" gives the lowest latency. An output that is an
    input, too, is refused, since it would run without end; `loop` permits it. `registry` is the schema registry of
    inputs and outputs that have none of their own. Raises StreamsError.
    """

    def declare(function: Callable[..., Outputs]) -> Pipeline:
        chosen = name or function.__name__
        if not isinstance(chosen, str) or not _NAME.fullmatch(chosen):
            raise StreamsError(f"A pipeline cannot be called {chosen!r}: use letters, digits, '.', '_' and '-'")
        inputs = {}
        for parameter in inspect.signature(function).parameters.values():
            if not isinstance(parameter.default, (Stream, Table)):
                raise StreamsError(
                    f"Pipeline {chosen!r}: the parameter {parameter.name!r} must have stream(...) or table(...) "
                    "as its default"
                )
            inputs[parameter.name] = parameter.default
        if not any(isinstance(each, Stream) for each in inputs.values()):
            raise StreamsError(f"Pipeline {chosen!r} has no stream: give a parameter the default stream(TOPIC)")
        _check_kind(f"Pipeline {chosen!r}: exactly_once", exactly_once, bool)
        _check_kind(f"Pipeline {chosen!r}: loop", loop, bool)
        if max_records is not None and (type(max_records) is not int or max_records < 1):
            raise StreamsError(f"Pipeline {chosen!r}: max_records is {max_records!r}; it must be a number from 1 on")
        milliseconds(f"Pipeline {chosen!r}: latency", latency)
        own = registries.registry(f"Pipeline {chosen!r}", registry)
        return Pipeline(chosen, function, inputs, exactly_once, max_records, latency, loop, own)

    return declare if function is None else declare(function)


def as_of_place(given: dt.datetime | str | Mapping[int, int] | None) -> AsOf | None:
    """Return the place of `as_of` in a topic. Records with the given time are before it. Raises StreamsError."""
    if given is None:
        return None
    if isinstance(given, Mapping):
        if not given or not all(type(each) is int and each >= 0 for place in given.items() for each in place):
            raise StreamsError(f"as_of is {given!r}; it must have an offset for each partition, such as {{0: 17}}")
        return tuple(sorted(given.items()))
    try:
        time = given if isinstance(given, dt.datetime) else dt.datetime.fromisoformat(given)
    except (TypeError, ValueError):
        raise StreamsError(f"as_of is {given!r}; it must be a time such as 2026-01-31T12:00:00Z") from None
    time = time if time.tzinfo else time.replace(tzinfo=dt.UTC)
    return int(time.timestamp() * 1000) + 1


# -- checks ------------------------------------------------------------------------------------------------------------


def _schema(part: str, kind: str, schema: Schema | None) -> str | None:
    _check_choice(part, kind, FORMATS)
    if kind in ("text", "bytes"):
        if schema is not None:
            raise StreamsError(f"A {part} in {kind} has no schema; did you mean {part}='json'?")
        return None
    if schema is None:
        raise StreamsError(f"A {part} in {kind} needs a schema")
    if schema == schemas.REGISTRY:
        return schemas.REGISTRY
    read = {"avro": schemas.avro, "protobuf": schemas.protobuf}.get(kind, schemas.ddl)
    return read(schema)


def _registry(what: str, given: Given | None, *fields: str | None) -> Registry | None:
    if given is not None and schemas.REGISTRY not in fields:
        raise StreamsError(f'{what}: registry has no effect without schema="registry"')
    return registries.registry(what, given)


def _with_late(given: Stream, late: str) -> Stream:
    what = f"stream({given.topic!r}): late"
    if given.time is None:
        raise StreamsError(f"{what} has no effect without time, the column with the event time")
    milliseconds(what, late)
    return replace(given, late=late)


def _with_idle(given: Stream, idle: str) -> Stream:
    what = f"stream({given.topic!r}): idle"
    if given.time is None:
        raise StreamsError(f"{what} has no effect without time, the column with the event time")
    if milliseconds(what, idle) == 0:
        raise StreamsError(f"{what} is {idle!r}; it must be longer than 0")
    return replace(given, idle=idle)


def _with_max_future(given: Stream, max_future: str) -> Stream:
    milliseconds(f"stream({given.topic!r}): max_future", max_future)
    if not given.has_checked_time:
        hint = "" if given.time is None else "; brokers reject such timestamps: message.timestamp.after.max.ms"
        raise StreamsError(
            f"stream({given.topic!r}): max_future has no effect without time, a field of the value with the event time"
            f"{hint}"
        )
    return replace(given, max_future=max_future)


def _check_bad(what: str, bad: object) -> None:
    if isinstance(bad, str) and bad.startswith(TOPIC):
        _check_topic(bad.removeprefix(TOPIC))
    elif bad not in ("fail", "skip"):
        raise StreamsError(f'{what}: bad is {bad!r}; it must be "fail", "skip" or "topic:NAME"')


def _names(what: str, given: Iterable[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise StreamsError(f"{what} is {given!r}; it must be a list: [{given!r}]")
    return tuple(given)


def _check_column(what: str, given: object) -> None:
    if given is not None and (not isinstance(given, str) or not given):
        raise StreamsError(f"{what} is {given!r}; it must be the name of a column")


def _check_kind(what: str, given: object, kind: type) -> None:
    if not isinstance(given, kind):
        raise StreamsError(f"{what} is {given!r}; it must be of type {kind.__name__}")


def _check_topic(topic: str) -> None:
    if not isinstance(topic, str):
        raise StreamsError(f"{topic!r} is not the name of a topic")
    try:
        validate_topic_name(topic)
    except KafkaError as error:
        raise StreamsError(f"{topic!r} is not the name of a topic: {error}") from None


def _check_choice(what: str, given: object, choices: Sequence[str]) -> None:
    if given in choices:
        return
    near = difflib.get_close_matches(str(given), choices, 1)
    hint = f"; did you mean {near[0]!r}?" if near else f"; it must be one of {', '.join(choices)}"
    raise StreamsError(f"{what} is {given!r}{hint}")
