"""Send records to a topic: lines of standard input or of files, whole files, JSON lines, or a format of your own.

The command ends when all records are acknowledged. If a record fails or a line does not fit the format, it prints the
line and the exit code is 1. The summary goes to standard error; -v prints the offset of each record.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator

import click

from ottla import clients
from ottla.cli.commands import Argument, Choice, Command, Option, Options, is_text, section
from ottla.cli.connect import client_settings, connection_options, open_admin
from ottla.cli.names import all_topics, missing
from ottla.cli.registry_options import json_values, open_registry, read_schema, registry_option, type_option
from ottla.clients.errors import ClientError
from ottla.common import units
from ottla.common.failure import Failure, failing_on
from ottla.common.ids import MAX_INT32
from ottla.common.style import Style
from ottla.tools.deliveries import Deliveries
from ottla.tools.formats.option import parse_format
from ottla.tools.formats.record_reader import NewRecord, Template
from ottla.tools.formats.template import FormatError
from ottla.tools.inputs import Inputs
from ottla.tools.offsets import parse_moment
from ottla.tools.progress import Progress
from ottla.tools.sending import (
    ANY_PARTITION,
    ANY_TOPIC,
    Defaults,
    Numbered,
    Sending,
    formatted,
    json_lines,
    whole_files,
)

EXAMPLES = r"""
echo hello | ottla produce greetings --create     each line is a record
echo JFK:1 | ottla produce greetings -K :         key and value
printf 'JFK\tlate\n' | ottla produce greetings -f '%k\t%v\n'
echo '{"key":"JFK","value":"1"}' | ottla produce greetings --json
ottla produce greetings -z zstd -H source=import /etc/hosts
ottla produce greetings --key hosts --file /etc/hosts    the file is one value
ottla produce greetings --key JFK --tombstone     a null value
echo '{"id":1}' | ottla produce orders --value registry --schema order.avsc
seq 1000 | ottla produce greetings --rate 500     500 records a second
"""

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def sending_settings(options: Options) -> dict[str, object]:
    """Return the settings of the producer for these options."""
    settings = client_settings(options, "producer")
    settings["allow.auto.create.topics"] = options.create
    for name, value in (("compression.type", options.compression), ("acks", options.acks)):
        if value is not None:
            settings[name] = value
    return settings


def _partition(text: str) -> int:
    if text == "any":
        return ANY_PARTITION
    partition = units.whole_number(text, MAX_INT32)
    if partition is None:
        raise click.BadParameter(f"{text[:40]!r} is neither a partition nor `any`")
    return partition


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise click.BadParameter(f"{text!r} is not a number above 0")
    return rate


def sending_options(*, with_rate: bool = True) -> list[click.Parameter]:
    """Return the options of `produce` and `bench` for sending records."""
    rate = Option("--rate N", "at most N records per second", type=_rate)
    return [
        *section(
            "Sending",
            Option("-z, --compression", "compress the batches", type=Choice(_CODECS)),
            Option("--acks", "the replicas that must have a record; default: all", type=Choice(("0", "1", "all"))),
            *([rate] if with_rate else []),
            Option("--create", "let the broker create a missing topic"),
        )
    ]


_PARAMETERS = [
    Argument("topic", "TOPIC", help="the topic; - takes the topic of each record: %t, or topic in JSON"),
    Argument("files", "FILE", nargs=-1, help="input files instead of standard input"),
    *section(
        "Record format",
        Option(
            "-f, --format FORMAT",
            "%k key %v value (or %s) %h headers %p partition %T timestamp %t topic %o ignored %K %V "
            "sizes %H number of headers; %k{hex} {base64} {escaped}; \\n \\t \\xNN; default: %v\\n",
            takes_bytes=True,
        ),
        Option("-K, --key-delimiter TEXT", "the text between key and value of a line", takes_bytes=True),
        Option("--null TEXT", "a key or value that is exactly this is null", takes_bytes=True),
        Option("-J, --json", "JSON lines: key value headers partition timestamp"),
        Option("--json-value", "like --json, but sends every value as its JSON text"),
        Option("--file FILE", "the whole file is one value; may be repeated", multiple=True),
        Option("--tombstone", "one record with the --key and a null value"),
    ),
    *section(
        "Defaults for records",
        Option("-k, --key KEY", "the key", takes_bytes=True),
        Option("--timestamp WHEN", "2026-01-31T12:00, ms since 1970, -1h; default: now"),
        Option("-H, --header NAME=VALUE", "an additional header; may be repeated", multiple=True, takes_bytes=True),
        Option(
            "-p, --partition N",
            "the partition, instead of the record's own; `any` chooses it by the key",
            type=_partition,
        ),
    ),
    *section(
        "Schemas",
        Option("--value FORMAT", "registry: values are JSON, and are sent with a schema", type=Choice(("registry",))),
        Option("--schema FILE", "the schema of the values, which is registered; default: the subject's latest"),
        Option("--schema-id N", "the schema of the values by its id in the registry", type=int),
        type_option(),
        registry_option(),
    ),
    *sending_options(),
    *section(
        "Sending",
        Option("-v, --verbose", "print topic, partition and offset of each record"),
        Option("-q, --quiet", "no summary"),
    ),
    *connection_options("producer", "registry"),
]


def run(options: Options) -> int:
    """Send all records and wait for their acknowledgements."""
    inputs = Inputs(options.file or options.files or ["-"])
    records = _records(options, inputs)
    defaults = _defaults(options)
    settings = sending_settings(options)
    serializer = _serializer(options)
    if serializer is not None:
        settings["value.serializer"] = serializer
    topics = None if options.create else existing_topics(options)
    from_terminal = _reads_a_terminal(options)
    bar = Progress("records", shown=not (options.verbose or options.quiet or from_terminal))
    bar.expect(None if options.tombstone else inputs.total(), inputs.reached)
    deliveries = Deliveries(
        sys.stdout.buffer, verbose=options.verbose, as_json=options.json or options.json_value, say=bar.say
    )
    started_s = time.monotonic()
    at_terminal = from_terminal and not options.quiet
    with clients.Producer(settings) as producer, bar.cleared():
        sending = Sending(producer, options.topic, topics, defaults, deliveries)

        def send() -> None:
            if at_terminal:
                print(Style.of(sys.stderr).dim("Records are read from this terminal; Ctrl-D ends."), file=sys.stderr)
            if _is_plain(options):
                sending.lines(inputs, bar)
            else:
                sending.all(records, options.rate, bar)

        ended = _send(producer, deliveries, send)
    interrupted = isinstance(ended, KeyboardInterrupt)
    if not options.quiet:
        if at_terminal and interrupted:
            print(file=sys.stderr)  # the terminal has shown ^C
        print(Style.of(sys.stderr).dim(deliveries.summary(time.monotonic() - started_s)), file=sys.stderr)
    if ended is not None and not interrupted:
        raise ended
    return 130 if interrupted else 1 if deliveries.failed else 0


def _serializer(options: Options) -> object:
    """Return the serializer of JSON values with a schema in a registry; None without --value. Raises Failure."""
    if options.value is None:
        if options.schema is not None or options.schema_id is not None:
            raise Failure("--schema and --schema-id need --value registry", exit_code=2)
        return None
    if options.schema is not None and options.schema_id is not None:
        raise Failure("--schema and --schema-id exclude each other", exit_code=2)
    schema = None if options.schema is None else read_schema(options.schema, options.schema_type)
    return json_values().FromJsonText(open_registry(options), "value", schema, options.schema_id)


def _send(producer: clients.Producer, deliveries: Deliveries, send: Callable[[], None]) -> BaseException | None:
    """Send, and wait for the acknowledgements; returns the exception that ended the sending early.

    Records that were read before an interrupt are still sent. A second interrupt ends the wait for them.
    """
    ended: BaseException | None = None
    try:
        send()
    except (KeyboardInterrupt, ClientError) as early:
        ended = early
    try:
        deliveries.finish()
    except KeyboardInterrupt as early:
        producer.close(1.0)
        ended = early
    return ended


def _is_plain(options: Options) -> bool:
    """Whether each line is a value without headers, timestamp or format."""
    names = ("key_delimiter", "null", "json", "json_value", "file", "tombstone", "rate", "header", "timestamp")
    return options.format is None and options.topic != ANY_TOPIC and not any(getattr(options, name) for name in names)


def _reads_a_terminal(options: Options) -> bool:
    """Whether a person types the records at a terminal."""
    elsewhere = options.files or options.file or options.tombstone
    return not elsewhere and sys.stdin.isatty() and sys.stderr.isatty()


def existing_topics(options: Options) -> set[str]:
    """Return the existing topics; raises Failure if the topic of the command does not exist."""
    with open_admin(options) as admin:
        known = set(all_topics(admin))
    if options.topic != ANY_TOPIC and options.topic not in known:
        problem, advice = missing(options.topic, known, "topic")
        raise Failure(
            problem, advice, f"`ottla topic create {options.topic}` creates it; with --create the broker does."
        )
    return known


def _defaults(options: Options) -> Defaults:
    """Return what the options give to every record. Raises Failure."""
    timestamp_ms = parse_moment(options.timestamp) if options.timestamp else None
    headers: list[tuple[str, bytes | None]] = []
    for text in options.header:
        name, equals, value = text.partition("=")
        if not is_text(name):
            raise Failure(f"--header {name!a}: the name of a header must be UTF-8", exit_code=2)
        headers.append((name, os.fsencode(value) if equals else None))
    key = None if options.key is None else os.fsencode(options.key)
    return Defaults(key, timestamp_ms, options.partition, headers)


def _records(options: Options, inputs: Inputs) -> Iterator[Numbered]:
    """Yield the records of the input with their sources. Raises Failure for options that exclude each other."""
    as_json = options.json or options.json_value
    ways = {"-f": options.format is not None, "--key-delimiter": options.key_delimiter, "--json": as_json,
            "--file": options.file, "--tombstone": options.tombstone}  # fmt: skip
    given = [name for name, value in ways.items() if value]
    if len(given) > 1:
        raise Failure(f"{given[0]} and {given[1]} exclude each other: both define the records", exit_code=2)
    if options.tombstone:
        if options.key is None:
            raise Failure("--tombstone needs the --key that it deletes", exit_code=2)
        return iter([("line ", 1, NewRecord())])
    inputs.check()  # No record is sent unless all files can be read.
    if options.file:
        return whole_files(inputs)
    if as_json:
        return json_lines(inputs, inline=options.json_value)
    text = r"%v\n" if options.format is None else options.format
    if options.key_delimiter:
        delimiter = "".join(f"\\x{byte:02x}" for byte in os.fsencode(options.key_delimiter))
        text = rf"%k{delimiter}%v\n"
    with failing_on(FormatError):
        template = Template(parse_format(text), null=None if options.null is None else os.fsencode(options.null))
    return formatted(inputs, template)


COMMAND = Command(run, _PARAMETERS, __doc__, EXAMPLES)
