"""Reads and checks the options of `format("ottla")`: Spark's Kafka source and sink have the same.

Names are Spark's and not case-sensitive. The prefix `kafka.` leads to the settings of our clients, which have Kafka's
names. A misspelt, missing or contradictory option raises OptionError with a suggestion. An option that only tunes the
JVM's client is accepted and has no effect. An unsupported option that would change which records are read, or their
security, is rejected. Nothing here does I/O or knows Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from ottla.clients.consumer.settings import CONSUMER_OPTIONS
from ottla.clients.errors import ConfigurationError
from ottla.clients.options import COMMON_OPTIONS, Option, read_options
from ottla.clients.producer.settings import PRODUCER_OPTIONS, read_settings
from ottla.common.ids import TopicPartition
from ottla.common.units import UNITS_MS
from ottla.registry_client.settings import is_registry_setting
from ottla.spark import exactly_once
from ottla.spark.names import ENDING, FORMATS, STARTING, STRATEGIES, TYPED_NAMES, Side, check_names, with_effect
from ottla.spark.names import OptionError as OptionError  # noqa: PLC0414 - re-exported
from ottla.spark.offsets import EARLIEST, LATEST, Positions, PositionsError, positions

# -- meaning of the options ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of the topics whose whole name matches. Internal topics never match."""

    text: str

    def matches(self, topic: str) -> bool:
        """Whether a topic matches."""
        return re.fullmatch(self.text, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """Some partitions of these topics."""

    partitions: Mapping[str, tuple[int, ...]]


Subscription: TypeAlias = Subscribe | SubscribePattern | Assign


@dataclass(frozen=True, slots=True)
class Earliest:
    """The first offset of each partition."""


@dataclass(frozen=True, slots=True)
class Latest:
    """The end of each partition."""


@dataclass(frozen=True, slots=True)
class Offsets:
    """An offset for every partition; -1 is its end, -2 its first offset."""

    at: Positions


@dataclass(frozen=True, slots=True)
class Timestamps:
    """The first record at or after a time, in ms since the epoch, for every partition."""

    at_ms: Positions


@dataclass(frozen=True, slots=True)
class Timestamp:
    """The first record at or after one time, in ms since the epoch."""

    at_ms: int


Place: TypeAlias = Earliest | Latest | Offsets | Timestamps | Timestamp


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The options of a read. `client` are the given settings of our clients, by Kafka's names: some are secret."""

    subscription: Subscription
    starting: Place
    ending: Place
    client: Mapping[str, str] = field(repr=False)
    on_no_match: Literal["error", "latest"] = "error"
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 900_000
    idle_after_ms: int | None = None
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    include_errors: bool = False
    isolation_level: str = "read_uncommitted"
    commit_group: str | None = None
    poll_timeout_ms: int | None = None
    fetch_offset_retries: int = 3
    fetch_offset_retry_interval_ms: int = 1_000
    key_format: str = "raw"
    value_format: str = "raw"
    formats: Mapping[str, str] = field(default_factory=dict)
    """The given options of the formats, by their names in lower case."""
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The settings of the schema registry, of which some are secret."""


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of a write. `topic` overrides the column `topic`."""

    topic: str | None
    client: Mapping[str, str] = field(repr=False)
    key_format: str = "raw"
    value_format: str = "raw"
    formats: Mapping[str, str] = field(default_factory=dict)
    registry: Mapping[str, str] = field(default_factory=dict, repr=False)
    exactly_once: exactly_once.ExactlyOnce | None = None


# -- reading the options ------------------------------------------------------------------------------------------

_DURATION: Final = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)?\s*")


class _Given:
    """The given options. Names are not case-sensitive; one method per type reads a value."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in given.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def __iter__(self) -> Any:
        return iter(self._values)

    def text(self, name: str) -> str | None:
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def boolean(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in ("true", "false"):
            raise OptionError(f"{name} is {text!r}; it must be true or false")
        return text.lower() == "true"

    def number(self, name: str, low: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"{name} is {text!r}; it must be a whole number") from None
        if not low <= number < 2**63:
            raise OptionError(f"{name} is {number}; it must be at least {low} and less than 2**63")
        return number

    def duration_ms(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        found = _DURATION.fullmatch(text.lower())
        if found is None:
            raise OptionError(f"{name} is {text!r}; it must be a time such as 500ms, 30s, 15m or 1h")
        return int(int(found[1]) * (0.001 if found[2] == "us" else UNITS_MS[found[2] or "ms"]))

    def choice(self, name: str, choices: Iterable[str], default: str) -> str:
        text = self.text(name)
        if text is None:
            return default
        for choice in choices:
            if text.lower() == choice:
                return choice
        raise OptionError(f"{name} is {text!r}; it must be {' or '.join(choices)}")

    def json(self, name: str) -> Any:
        text = self.text(name) or ""
        try:
            return json.loads(text)
        except ValueError as error:
            raise OptionError(f"{name} is not JSON: {error}; it is {text!r}") from None

    def positions(self, name: str) -> Positions:
        try:
            return positions(self.json(name))
        except PositionsError as error:
            raise OptionError(f"{name}: {error}") from None

    def formats(self) -> dict[str, str]:
        if "mode" in self and all(
            (self.text(name) or "raw").lower() == "raw" for name in ("key.format", "value.format", "schema")
        ):
            raise OptionError("mode is given, but key.format and value.format are raw; did you mean value.format=json?")
        return {name: self._values[name] for name in map(str.lower, TYPED_NAMES) if name in self._values}

    def value_format(self) -> str:
        """Read value.format, for which `schema=registry` is another form."""
        text = self.text("schema")
        if text is not None and (text.lower() != "registry" or "value.format" in self):
            raise OptionError(f"schema is {text!r}; it can only be registry, without value.format")
        return "registry" if text is not None else self.choice("value.format", FORMATS, "raw")

    def registry(self) -> dict[str, str]:
        return {name: value for name, value in self._values.items() if is_registry_setting(name)}

    def kafka(self) -> dict[str, str]:
        return {name.removeprefix("kafka."): value for name, value in self._values.items() if name.startswith("kafka.")}


# -- the source ---------------------------------------------------------------------------------------------------


def read_source_options(given: Mapping[str, str], *, streaming: bool | None = None) -> SourceOptions:
    """Read and check the options of a read. Raises OptionError.

    `streaming` is None at load(), when the kind of read is unknown; then checks that depend on it are skipped. Options
    for streams have no effect on a batch read, as in Spark's Kafka source, but `commitGroup` is rejected there.
    """
    options = _Given(given)
    check_names(options, _names(CONSUMER_OPTIONS), "source")
    client, isolation_level = _source_client(options.kafka())
    subscription = _subscription(options)
    starting = _place(options, STARTING, Latest() if streaming else Earliest())
    ending = _place(options, ENDING, Latest())
    _check_places(options, subscription, starting, ending, streaming)
    least, most = options.number("minOffsetsPerTrigger"), options.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger ({least}) is more than maxOffsetsPerTrigger ({most})")
    delay_ms = options.duration_ms("maxTriggerDelay")
    group = options.text("commitGroup")
    if group == "":
        raise OptionError("commitGroup is empty; give it the name of a consumer group")
    if group is not None and streaming is False:
        raise OptionError("commitGroup is for streaming queries: Spark does not report when a batch read is processed")
    return SourceOptions(
        subscription=subscription,
        starting=starting,
        ending=ending,
        client=client,
        on_no_match=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),  # type: ignore[arg-type]
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=900_000 if delay_ms is None else delay_ms,
        idle_after_ms=options.duration_ms("idleAfter"),
        min_partitions=options.number("minPartitions"),
        max_records_per_partition=options.number("maxRecordsPerPartition"),
        fail_on_data_loss=options.boolean("failOnDataLoss", True),
        include_headers=options.boolean("includeHeaders", False),
        include_errors=_include_errors(options),
        isolation_level=isolation_level,
        commit_group=group,
        poll_timeout_ms=options.number("kafkaConsumer.pollTimeoutMs"),
        fetch_offset_retries=options.number("fetchOffset.numRetries") or 3,
        fetch_offset_retry_interval_ms=_or(options.number("fetchOffset.retryIntervalMs", 0), 1_000),
        key_format=options.choice("key.format", FORMATS, "raw"),
        value_format=options.value_format(),
        formats=options.formats(),
        registry=options.registry(),
    )


def _include_errors(options: _Given) -> bool:
    wanted = options.boolean("includeErrors", False)
    if wanted and (options.text("mode") or "").upper() != "PERMISSIVE":
        raise OptionError("includeErrors needs mode=PERMISSIVE: otherwise an invalid value fails the query")
    return wanted


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _subscription(options: _Given) -> Subscription:
    given = [name for name in STRATEGIES if name in options]
    if len(given) != 1:
        what = f"{' and '.join(given)} are given" if given else "none is given"
        raise OptionError(f"Exactly one of {', '.join(STRATEGIES)} must be given; {what}")
    name = given[0]
    text = options.text(name) or ""
    if name == "subscribe":
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError("subscribe is empty; it must be one or more topics, separated by commas")
        return Subscribe(topics)
    if name == "subscribePattern":
        if not text:
            raise OptionError("subscribePattern is empty; it must be a regular expression")
        try:
            re.compile(text)
        except re.error as error:
            raise OptionError(f"subscribePattern {text!r} is not a regular expression: {error}") from None
        return SubscribePattern(text)
    return _assign(options.json(name))


def _assign(found: Any) -> Assign:
    partitions = {}
    for topic, indexes in found.items() if isinstance(found, dict) else [("", None)]:
        is_list = isinstance(indexes, list) and all(type(index) is int and index >= 0 for index in indexes)
        if not is_list or not indexes:
            raise OptionError(f'assign must be e.g. {{"topicA": [0, 1], "topicB": [2, 4]}}; it is {json.dumps(found)}')
        partitions[topic] = tuple(sorted(set(indexes)))
    if not partitions:
        raise OptionError("assign has no partitions")
    return Assign(partitions)


# -- places -------------------------------------------------------------------------------------------------------


def _place(options: _Given, names: tuple[str, str, str], default: Place) -> Place:
    """Read the first of the three options that is given. It overrides the others, as Spark documents."""
    at_time, by_time, by_offset = names
    if at_time in options:
        at_ms = options.number(at_time, 0)
        assert at_ms is not None
        return Timestamp(at_ms)
    if by_time in options:
        times = options.positions(by_time)
        wrong = next((tp for tp, at in times.items() if at < 0), None)
        if wrong is not None:
            raise OptionError(f"{by_time} has {times[wrong]} for {wrong}; a timestamp must not be negative")
        return Timestamps(times)
    text = (options.text(by_offset) or "").lower()
    if by_offset not in options:
        return default
    if text in ("earliest", "latest"):
        return Earliest() if text == "earliest" else Latest()
    if not text.startswith("{"):
        raise OptionError(f"{by_offset} is {text!r}; it must be earliest, latest, or offsets as JSON")
    offsets = options.positions(by_offset)
    wrong = next((tp for tp, at in offsets.items() if at < EARLIEST), None)
    if wrong is not None:
        raise OptionError(f"{by_offset} has {offsets[wrong]} for {wrong}; it must be an offset, -1 or -2")
    return Offsets(offsets)


def _check_places(
    options: _Given, subscription: Subscription, starting: Place, ending: Place, streaming: bool | None
) -> None:
    if streaming:
        for name in ENDING:
            if name in options:
                raise OptionError(f"{name} is for batch reads: a streaming query has no end")
    if streaming is False and starting == Latest():
        raise OptionError("startingOffsets is latest; a batch read from there would have nothing to read")
    if ending == Earliest():
        raise OptionError("endingOffsets is earliest; a read up to there would have nothing to read")
    for name, place in (("startingOffsets", starting), ("endingOffsets", ending)):
        if isinstance(place, (Offsets, Timestamps)):
            _check_partitions(name, place, subscription)
    if isinstance(starting, Offsets) and streaming is False:
        _reject(starting.at, LATEST, "startingOffsets", "latest", "a batch read cannot start there")
    if isinstance(ending, Offsets):
        _reject(ending.at, EARLIEST, "endingOffsets", "earliest", "a read cannot end there")
    _check_order(starting, ending)


def _reject(at: Positions, value: int, name: str, word: str, why: str) -> None:
    for tp, offset in at.items():
        if offset == value:
            raise OptionError(f"{name} has {value} ({word}) for {tp}; {why}")


def _check_partitions(name: str, place: Offsets | Timestamps, subscription: Subscription) -> None:
    """Check that the JSON and the subscription have the same topics. Partitions are checked with the cluster later."""
    given = place.at if isinstance(place, Offsets) else place.at_ms
    name += "ByTimestamp" if isinstance(place, Timestamps) else ""
    if isinstance(subscription, Subscribe):
        topics = {tp.topic for tp in given}
        extra, missing = topics - set(subscription.topics), set(subscription.topics) - topics
    elif isinstance(subscription, Assign):
        wanted = {f"{topic}-{i}" for topic, indexes in subscription.partitions.items() for i in indexes}
        extra, missing = {str(tp) for tp in given} - wanted, wanted - {str(tp) for tp in given}
    else:
        extra, missing = {tp.topic for tp in given if not subscription.matches(tp.topic)}, set()
    if extra:
        raise OptionError(f"{name} has {', '.join(sorted(extra))}, which the query does not subscribe to")
    if missing:
        raise OptionError(f"{name} has no entry for {', '.join(sorted(missing))}; -1 is latest, -2 is earliest")


def _check_order(starting: Place, ending: Place) -> None:
    if isinstance(starting, Timestamp) and isinstance(ending, Timestamp) and starting.at_ms > ending.at_ms:
        raise OptionError(f"startingTimestamp ({starting.at_ms}) is after endingTimestamp ({ending.at_ms})")
    pairs: list[tuple[str, Positions, Positions]] = []
    if isinstance(starting, Offsets) and isinstance(ending, Offsets):
        pairs.append(("Offsets", starting.at, ending.at))
    if isinstance(starting, Timestamps) and isinstance(ending, Timestamps):
        pairs.append(("OffsetsByTimestamp", starting.at_ms, ending.at_ms))
    for name, first, last in pairs:
        if first.keys() != last.keys():
            odd = ", ".join(map(str, sorted(first.keys() ^ last.keys())))
            raise OptionError(
                f"starting{name} and ending{name} have different partitions: {odd} is in only one of them"
            )
        for tp, at in first.items():
            if 0 <= last[tp] < at:
                raise OptionError(f"starting{name} ({at}) is after ending{name} ({last[tp]}) for {tp}")


def check_covered(name: str, given: Iterable[TopicPartition], actual: Iterable[TopicPartition]) -> None:
    """Raise OptionError unless offsets or timestamps are given for exactly the existing partitions."""
    wanted, there = set(given), set(actual)
    if there - wanted:
        odd = ", ".join(map(str, sorted(there - wanted)))
        raise OptionError(
            f"{name} has no entry for {odd}; it must include every partition (-1 is latest, -2 is earliest)"
        )
    if wanted - there:
        odd = ", ".join(map(str, sorted(wanted - there)))
        raise OptionError(f"{name} has {odd}, which the cluster does not have")


# -- the sink -----------------------------------------------------------------------------------------------------


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Read and check the options of a write. Raises OptionError."""
    options = _Given(given)
    check_names(options, _names(PRODUCER_OPTIONS), "sink")
    client = _client(options.kafka(), PRODUCER_OPTIONS, "sink")
    topic = options.text("topic")
    if topic == "":
        raise OptionError("topic is empty; omit it if the column 'topic' has the topic of each row")
    once = exactly_once.from_options(options.text, topic)
    if once is not None:
        _check_transactional(client)
    # Without effect, as in Spark's Kafka sink: the column `headers` is written if it exists.
    options.boolean("includeHeaders", False)
    return SinkOptions(
        topic=topic,
        client=client,
        key_format=options.choice("key.format", FORMATS, "raw"),
        value_format=options.value_format(),
        formats=options.formats(),
        registry=options.registry(),
        exactly_once=once,
    )


def _check_transactional(client: Mapping[str, str]) -> None:
    try:
        read_settings({**client, "transactional.id": exactly_once.PREFIX})
    except ConfigurationError as error:
        raise OptionError(f"exactlyOnce does not go with these settings: {error}") from None


# -- settings of clients ------------------------------------------------------------------------------------------


def _names(rows: tuple[Option, ...]) -> set[str]:
    return {name for row in rows for name in (row.name, *row.aliases)}


def common_settings(client: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that all clients have, for an admin client."""
    known = _names(COMMON_OPTIONS)
    return {name: value for name, value in client.items() if name in known}


def _source_client(kafka: Mapping[str, str]) -> tuple[dict[str, str], str]:
    client = _client(kafka, CONSUMER_OPTIONS, "source")
    level = client.pop("isolation.level", "read_uncommitted").strip().lower()
    return client, level


def _client(kafka: Mapping[str, str], rows: tuple[Option, ...], side: Side) -> dict[str, str]:
    client = with_effect(kafka, side)
    if "bootstrap.servers" not in kafka:
        raise OptionError("kafka.bootstrap.servers is missing; set it to one or more brokers as host:port")
    try:
        read_options(rows, client)
    except ConfigurationError as error:
        raise OptionError(f"kafka.{error}" if str(error).split()[0] in client else str(error)) from None
    return client
