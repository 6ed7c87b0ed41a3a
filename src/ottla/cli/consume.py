"""Print the records of topics. Without -o and -e, start at the beginning and wait for new records.

The offsets of groups do not change, except with --group: the command then joins that group and commits to it. At a
terminal each record is formatted for people; elsewhere the default is the value and a line break.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import translate
from typing import TYPE_CHECKING

import click

from ottla import clients
from ottla.cli.commands import Argument, Choice, Command, Option, Options, section
from ottla.cli.connect import client_settings, connection_options, open_admin
from ottla.cli.names import choose, compiled, is_pattern, missing
from ottla.cli.registry_options import json_values, open_registry, registry_option
from ottla.clients.errors import BrokerUnavailable, RequestTimedOut, UnknownTopicOrPartition
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.common.style import Style
from ottla.tools.follow import Follower, Limits, Sink, Stopping, newest, stopping_on_interrupt
from ottla.tools.formats.escaping import for_terminal
from ottla.tools.formats.json_lines import write_lines
from ottla.tools.formats.option import parse_format
from ottla.tools.formats.record_lines import PrettyWriter
from ottla.tools.formats.record_writer import Writer, for_terminal_only
from ottla.tools.offsets import offsets_at, parse_moment, parse_partitions, parse_where, start_offsets
from ottla.tools.progress import Progress, output_is_a_file

if TYPE_CHECKING:
    from ottla.tools.registry_values import JsonText

EXAMPLES = r"""
ottla consume orders                        existing records, then new ones
ottla consume orders -e --json | jq .value  existing records as JSON lines
ottla consume orders -e -o @-1h             records of the last hour
ottla consume orders -o @2026-01-31T12:00 --until 2026-01-31T13:00
ottla consume 'ord*' -e -f '%t[%p]@%o %T{iso} %k=%v\n'
ottla consume orders -e -p 0,2-3 -o +100    from the 101st record
ottla consume orders -e --group billing     uncommitted records
ottla consume orders -e --value registry    schemas in a registry: as JSON
ottla consume orders -e --json | ottla produce copy --json -p any --create
"""

SOON_S = 0.5
"""After this time without a response the command checks whether a broker exists at all."""

FORMAT_HELP = r"""how a record is written: %t topic %p partition %o offset %T timestamp %k key %v value
(or %s) %h headers %K %V sizes %H number of headers; %k{hex} {base64} {escaped} %T{iso} {strftime[..]}
%o{big32} and others; \n \t \xNN; default: %v\n"""


def topic_parameters() -> list[click.Parameter]:
    """Return the parameters for topics and partitions."""
    return [
        Argument("topics", "TOPIC", nargs=-1, required=True, help="topics; * ? [abc] are wildcards (quote them)"),
        Option("-r, --regex", "the topics are regular expressions that match whole names"),
        Option("-p, --partition P,..", "only these partitions: 0,2,4-6", multiple=True),
    ]


def reading_options() -> list[click.Parameter]:
    """Return the options that consume and tail share: the end, the filters, and the output."""
    return [
        Option("-e, --exit-at-end", "end at the current end of each partition"),
        Option("--until WHEN", "only records older than this time; ends after them"),
        Option("--grep REGEX", "only records whose value or key matches", takes_bytes=True),
        Option(
            "--isolation",
            "read_committed omits records of open and aborted transactions; default: read_uncommitted",
            type=Choice(("read_uncommitted", "read_committed")),
        ),
        *section(
            "Output",
            Option("-f, --format FORMAT", FORMAT_HELP, takes_bytes=True),
            Option("--null TEXT", "what -f writes for a null key or value", default="", takes_bytes=True),
            Option("-J, --json", "a JSON object per record and line"),
            Option("--json-value", "like --json, but embeds values that are JSON"),
        ),
        *section(
            "Schemas",
            Option("--key FORMAT", "registry: keys are decoded to JSON by their schema", type=Choice(("registry",))),
            Option("--value FORMAT", "registry: values are decoded to JSON", type=Choice(("registry",))),
            registry_option(),
        ),
        *connection_options("consumer", "registry"),
    ]


_PARAMETERS = [
    *topic_parameters(),
    Option(
        "-o, --offset WHERE",
        "beginning (default), end, N, +N after the beginning, -N before the end of each partition, or "
        "@WHEN: @2026-01-31T12:00, @1769860800000, @-1h",
    ),
    Option("-n, --count N", "end after N records", type=click.IntRange(min=0)),
    Option("--last N", "begin with the last N of all partitions together", type=click.IntRange(min=0)),
    Option("-g, --group GROUP", "join this group, begin at its position, and commit"),
    *reading_options(),
]


def run(options: Options) -> int:
    """Read the records and print them."""
    _check(options)
    return read(options, offset=options.offset or "beginning", last=options.last, count=options.count)


def _check(options: Options) -> None:
    if options.last is not None and options.offset is not None:
        raise Failure("--last and -o exclude each other: both name the start", exit_code=2)
    if not options.group:
        return
    for name in ("partition", "last", "until"):
        if getattr(options, name) not in (None, ()):
            raise Failure(
                f"--{name.replace('_', '-')} excludes --group: the group chooses partitions and offsets",
                exit_code=2,
            )
    if options.offset is not None and options.offset not in ("beginning", "end"):
        raise Failure(
            f"-o {options.offset} excludes --group",
            "beginning and end are the start of a group without committed offsets; `ottla group reset` moves a group.",
            exit_code=2,
        )


def read(options: Options, *, offset: str, last: int | None, count: int | None) -> int:
    """Read from `offset`, or the `last` records, and print them; returns the exit code. For consume and tail."""
    where = parse_where(offset)
    until_ms = parse_moment(options.until) if options.until else None
    limits = Limits(count, None, until_ms, _pattern(options.grep))
    partitions = parse_partitions(options.partition)
    bar = Progress("records", shown=output_is_a_file())
    sink_for = _sinks(options, bar)
    decoders = _decoders(options)
    with _warning_of(decoders), _consumer(options, where.kind, decoders) as consumer, bar.cleared():
        if getattr(options, "group", None):
            return _in_group(consumer, options, sink_for, limits, bar)
        tps = _partitions(consumer, options, partitions)
        sink = sink_for(len({tp.topic for tp in tps}) > 1)
        first, end = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
        is_over = until_ms is not None and until_ms <= units.now_ms()
        if until_ms is not None and is_over:
            end = {tp: max(first[tp], offset) for tp, offset in offsets_at(consumer, until_ms, end).items()}
        starts = start_offsets(consumer, where, first, end)
        with stopping_on_interrupt() as stopping:
            corrupt = 0
            if last is not None:
                written, corrupt = _show_last(consumer, last, limits._replace(ends=end), first, sink, stopping)
                starts = end
                limits = limits._replace(most=None if count is None else count - written)
            if options.exit_at_end or is_over:
                limits = limits._replace(ends=end)
            follower = Follower(consumer, sink, limits, stopping, bar, lambda: _existing(consumer, options, partitions))
            follower.run(starts)
        return 130 if stopping.asked else 1 if corrupt + follower.corrupt else 0


def _show_last(
    consumer: clients.Consumer,
    last: int,
    limits: Limits,
    first: Mapping[TopicPartition, int],
    sink: Sink,
    stopping: Stopping,
) -> tuple[int, int]:
    """Print the last records before the ends; returns the number of records and of corrupt batches."""
    collected: list[clients.Record] = []
    ends = limits.ends or {}
    follower = Follower(consumer, collected.extend, Limits(ends=ends), stopping)
    follower.run({tp: max(first[tp], end - last) for tp, end in ends.items()})
    chosen = newest(collected, last)
    chosen = limits.matching(chosen)
    chosen = chosen if limits.most is None else chosen[: limits.most]
    if chosen:
        sink(chosen)
    return len(chosen), follower.corrupt


def _in_group(
    consumer: clients.Consumer, options: Options, sink_for: Callable[[bool], Sink], limits: Limits, bar: Progress
) -> int:
    topics: list[str] | None = None
    pattern = None
    if any(is_pattern(name, regex=options.regex) for name in options.topics):
        pattern = "|".join(f"(?:{name})" if options.regex else translate(name) for name in options.topics)
        _compiled(pattern, "a topic")
    else:
        topics = sorted({tp.topic for tp in _partitions(consumer, options, [])})
    if options.exit_at_end:
        limits = limits._replace(ends=consumer.end_offsets(_partitions(consumer, options, [])))
    sink = sink_for(topics is None or len(topics) > 1)
    with stopping_on_interrupt() as stopping:
        follower = Follower(consumer, sink, limits, stopping, bar)
        follower.run_in_group(topics, pattern)
    return 130 if stopping.asked else 1 if follower.corrupt else 0


def _decoders(options: Options) -> dict[str, JsonText]:
    """Return the deserializers of keys and values that have schemas in a registry, by part."""
    parts = [part for part in ("key", "value") if getattr(options, part) is not None]
    if not parts:
        return {}
    registry = open_registry(options)
    return {part: json_values().JsonText(registry, part) for part in parts}


@contextmanager
def _warning_of(decoders: Mapping[str, JsonText]) -> Iterator[None]:
    """Warn at the end of keys and values that were printed as they are."""
    yield
    for part, each in decoders.items():
        if each.failed:
            text = (
                f"{each.failed} {part}s were printed as they are, since they cannot be decoded; the first: {each.first}"
            )
            print(Style.of(sys.stderr).yellow(f"ottla: {text}"), file=sys.stderr)


def _consumer(options: Options, place: str, decoders: Mapping[str, JsonText]) -> clients.Consumer:
    settings = client_settings(options, "consumer")
    settings.update({f"{part}.deserializer": each for part, each in decoders.items()})
    group = getattr(options, "group", None)
    if group:
        settings["group.id"] = group
    settings["enable.auto.commit"] = False
    settings["allow.auto.create.topics"] = False
    settings["auto.offset.reset"] = "latest" if group and place == "end" else "earliest"
    if options.isolation:
        settings["isolation.level"] = options.isolation
    # A larger response has records for several polls.
    settings.setdefault("max.partition.fetch.bytes", 4 << 20)
    return clients.Consumer(settings)


def _topics(consumer: clients.Consumer, options: Options) -> dict[str, list[int]]:
    """Return the topics and their partitions; fails within seconds if nothing listens."""
    try:
        return consumer.topics(SOON_S)
    except (BrokerUnavailable, RequestTimedOut):
        with open_admin(options):  # raises the reason if no broker can be reached
            return consumer.topics()


def _partitions(consumer: clients.Consumer, options: Options, wanted: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions to read; raises Failure for a topic or partition that does not exist."""
    known = _topics(consumer, options)
    for name in options.topics:
        if name not in known and not is_pattern(name, regex=options.regex):
            try:
                known[name] = consumer.partitions_of(name)  # internal topics are not listed
            except UnknownTopicOrPartition:
                raise Failure(*missing(name, known, "topic")) from None
    chosen = []
    for topic in choose(options.topics, known, "topic", regex=options.regex):
        for partition in wanted or known[topic]:
            if partition not in known[topic]:
                existing = f"0 to {len(known[topic]) - 1}" if len(known[topic]) > 1 else "0 only"
                raise Failure(f"topic {topic!r} has no partition {partition}; it has {existing}")
            chosen.append(TopicPartition(topic, partition))
    return chosen


def _existing(consumer: clients.Consumer, options: Options, wanted: Sequence[int]) -> list[TopicPartition]:
    """Return the partitions to read now; none if a topic was deleted, which the consumer itself reports."""
    try:
        return _partitions(consumer, options, wanted)
    except Failure:
        return []


def _pattern(text: str | None) -> re.Pattern[bytes] | None:
    return None if text is None else compiled(os.fsencode(_compiled(text, "--grep").pattern), "--grep")


def _compiled(text: str, what: str) -> re.Pattern[str]:
    return compiled(text, f"{what}: {text!r} is not a regular expression")


def _sinks(options: Options, bar: Progress) -> Callable[[bool], Sink]:
    """Return a factory of the sink, which takes whether there are several topics; raises Failure for a wrong format."""
    out = sys.stdout.buffer
    on_terminal = sys.stdout.isatty()

    def sink(lines: Callable[[Sequence[clients.Record]], bytes]) -> Sink:
        def put(records: Sequence[clients.Record]) -> None:
            data = lines(records)
            out.write(data)
            out.flush()
            bar.advance(len(records), len(data))

        return put

    if options.json or options.json_value:
        if options.format is not None:
            raise Failure("--json and -f exclude each other: both are output formats", exit_code=2)

        def as_json(records: Sequence[clients.Record]) -> bytes:
            text = write_lines(records, inline=options.json_value)
            return (for_terminal(text) if on_terminal else text).encode()

        return lambda _: sink(as_json)
    if on_terminal and options.format is None:

        def for_people(with_topic: bool) -> Sink:
            writer = PrettyWriter(Style.of(sys.stdout), with_topic=with_topic)
            return sink(lambda records: writer.lines(records).encode())

        return for_people
    parts = parse_format(r"%v\n" if options.format is None else options.format)
    writer = Writer(for_terminal_only(parts) if on_terminal else parts, null=os.fsencode(options.null))
    return lambda _: sink(writer.lines)


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
