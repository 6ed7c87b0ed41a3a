"""List topics with dead letters, show the letters with their origin and reason, and write them back (redrive).

The letters may be from Kafka Connect, Kafka Streams, share groups, Spring, SmallRye, Ottla's pipelines or its schema
validation. No command deletes a letter.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import click

from ottla import clients
from ottla.cli import late
from ottla.cli.commands import Argument, Choice, Group, Option, Options, quiet_option, section, yes_option
from ottla.cli.connect import connect, connection_options
from ottla.cli.dlq_filters import filter_options, find_scope, open_consumer
from ottla.cli.dlq_redrive import redrive
from ottla.cli.output import Column, Output, moment, number, output_options
from ottla.cli.registry_options import open_registry, registry_option
from ottla.common import units
from ottla.tools.dead_letter_topics import DeadLetterTopic, Finder
from ottla.tools.dead_letters import DeadLetter, read_letter
from ottla.tools.follow import Follower, Limits, stopping_on_interrupt
from ottla.tools.formats.escaping import escaped_text
from ottla.tools.formats.json_lines import write_lines
from ottla.tools.redrive import Filter

COMMAND = Group(
    __doc__,
    """
    ottla dlq list
    ottla dlq show orders.dlq --reason NullPointer
    ottla dlq redrive orders.dlq --dry-run
    ottla dlq redrive orders.dlq
    """,
)

_SHOWN = 100
_LONGEST = 200


@COMMAND.verb(
    "list",
    Option("--sample N", "letters of a topic that are read for the reasons", type=click.IntRange(min=1), default=1000),
    quiet_option("topics"),
    *output_options(),
    *connection_options("consumer"),
    examples="""
    ottla dlq list
    ottla dlq list --json | jq .reasons
    """,
    aliases=("ls",),
)
def _list(options: Options) -> int:
    """List the topics that have dead letters. They are found by their names (orders.dlq, orders-dlt, dlq.orders), by
    settings that name them, and by the headers of their last records.
    """
    output = Output(options)
    admin = connect(options)
    with stopping_on_interrupt() as stopping, open_consumer(options) as consumer:
        found = Finder(admin, consumer, output.warn).find(options.sample, stopping)
    columns = [
        Column("topic", narrow=True),
        number("letters"),
        moment("oldest"),
        moment("newest"),
        Column("writers", "WRITTEN BY", show=_most),
        Column("reasons", show=_most),
    ]
    output.listing("topic", columns, [_row(each) for each in found], empty="There are no topics for dead letters.")
    return 130 if stopping.asked else 0


def _row(found: DeadLetterTopic) -> dict[str, Any]:
    return {
        "topic": found.name,
        "letters": found.letters,
        "oldest": found.oldest_ms,
        "newest": found.newest_ms,
        "writers": dict(found.writers.most_common()),
        "reasons": dict(found.reasons.most_common(20)),
        "sampled": found.sampled,
    }


def _most(counts: dict[str, int]) -> str:
    most = Counter(counts).most_common(3)
    texts = [f"{units.count(count)} {name[:60]}" for name, count in most]
    return ", ".join([*texts, "..."] if len(counts) > len(most) else texts) or "-"


@COMMAND.verb(
    "show",
    Argument("topic", "TOPIC", help="a topic with dead letters"),
    *filter_options(),
    Option("-n, --limit N", f"end after N letters; default: {_SHOWN}, with --json all", type=click.IntRange(min=0)),
    *section(
        "Output",
        Option("-J, --json", "a JSON object per letter and line"),
        Option("--json-value", "like --json, but embeds values that are JSON"),
    ),
    *section(
        "Schemas",
        Option("--key FORMAT", "registry: keys are decoded to JSON by their schema", type=Choice(("registry",))),
        Option("--value FORMAT", "registry: values are decoded to JSON", type=Choice(("registry",))),
        registry_option(),
    ),
    *connection_options("consumer", "registry"),
    examples="""
    ottla dlq show orders.dlq
    ottla dlq show orders.dlq --origin orders --from @-1h
    ottla dlq show orders.dlq --reason timeout --json | jq .message
    """,
)
def _show(options: Options) -> int:
    """Show dead letters with their origin, reason, key and value. `ottla consume` prints them with all headers."""
    options.json = options.json or options.json_value
    output = Output(options)
    limit = options.limit if options.limit is not None or options.json else _SHOWN
    connect(options)
    with stopping_on_interrupt() as stopping, open_consumer(options, **_decoders(options)) as consumer:
        scope = find_scope(consumer, options)
        shown = _Letters(output, Filter(options.reason, options.origin), limit, inline=options.json_value)

        def take(records: Sequence[clients.Record]) -> None:
            shown.take(records)
            stopping.asked = stopping.asked or shown.is_full

        follower = Follower(consumer, take, Limits(ends=scope.ends), stopping)
        if limit != 0:
            follower.run(scope.starts)
        shown.finish()
    if shown.is_full:
        output.note(f"There may be more letters after these {units.plural(shown.count, 'letter')}: --limit N.")
    return 130 if stopping.asked and not shown.is_full else 1 if follower.corrupt else 0


class _Letters:
    """Prints letters: JSON at once, a table at the end."""

    _COLUMNS = (
        Column("place", "LETTER", right=True),
        moment("timestamp", "WHEN"),
        Column("origin", narrow=True),
        Column("reason", narrow=True),
        number("redrives"),
        Column("key", narrow=True),
        Column("value", narrow=True),
    )

    def __init__(self, output: Output, chosen: Filter, limit: int | None, *, inline: bool) -> None:
        self._output = output
        self._chosen = chosen
        self._limit = limit
        self._inline = inline
        self._rows: list[dict[str, Any]] = []
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached."""
        return self._limit is not None and self.count >= self._limit

    def take(self, records: Sequence[clients.Record]) -> None:
        """Print the chosen letters, up to the limit."""
        for record in records:
            letter = read_letter(record.headers)
            if self.is_full or not self._chosen.accepts(letter):
                continue
            self.count += 1
            if self._output.json:
                self._output.object(_as_json(record, letter, inline=self._inline))
            else:
                self._rows.append(_as_row(record, letter))

    def finish(self) -> None:
        """Print the table."""
        if not self._output.json:
            self._output.table(self._COLUMNS, self._rows, empty="No letter matches.")


def _as_json(record: clients.Record, letter: DeadLetter, *, inline: bool) -> dict[str, Any]:
    row: dict[str, Any] = json.loads(write_lines([record], inline=inline))
    return row | {
        "writer": letter.writer,
        "origin": {"topic": letter.topic, "partition": letter.partition, "offset": letter.offset},
        "original_timestamp": letter.timestamp_ms,
        "reason": letter.reason,
        "exception": letter.exception,
        "message": letter.message,
        "stage": letter.stage,
        "redrives": letter.redrives,
    }


def _as_row(record: clients.Record, letter: DeadLetter) -> dict[str, Any]:
    return {
        "place": f"{record.partition}:{record.offset}",
        "timestamp": record.timestamp,
        "origin": letter.origin,
        "reason": letter.reason[:_LONGEST],
        "redrives": letter.redrives,
        "key": _shown(record.key),
        "value": _shown(record.value),
    }


def _shown(data: bytes | None) -> str | None:
    return None if data is None else escaped_text(data[:_LONGEST]) + ("…" if len(data) > _LONGEST else "")


def _decoders(options: Options) -> dict[str, Callable[..., bytes]]:
    parts = [part for part in ("key", "value") if getattr(options, part) is not None]
    if not parts:
        return {}
    registry = open_registry(options)
    return {f"{part}_deserializer": late.registry_values.JsonText(registry, part) for part in parts}


COMMAND.verb(
    "redrive",
    Argument("topic", "TOPIC", help="a topic with dead letters"),
    Option("--to TOPIC", "write all letters to this topic; default: each to its original topic"),
    Option("--dry-run", "only count what would be written"),
    yes_option(),
    *filter_options(),
    Option("-n, --limit N", "end after N letters", type=click.IntRange(min=0)),
    Option("--group GROUP", "remembers which letters were redriven; default: ottla.redrive.TOPIC"),
    Option(
        "--max-replays N",
        "leave letters that were redriven N times already; default: 3",
        type=click.IntRange(min=1),
        default=3,
    ),
    *section(
        "Records",
        Option("--edit COMMAND", "pipe each value through this shell command; a letter that it fails for is left"),
        Option("--set-header NAME=VALUE", "set a header; may be repeated", multiple=True, takes_bytes=True),
        Option("--same-partition", "write to the original partition; default: by the key"),
        Option("--original-timestamp", "keep the timestamp of the original record; default: the time of the redrive"),
        Option("--keep-headers", "keep the headers with the origin and the reason"),
    ),
    *output_options(),
    *connection_options("consumer", "producer"),
    examples="""
    ottla dlq redrive orders.dlq --dry-run
    ottla dlq redrive orders.dlq --reason timeout
    ottla dlq redrive orders.dlq --edit 'jq -c .checked=true'
    ottla dlq redrive mixed.dlq --origin orders --to orders-retry --limit 10
    """,
    summary="write dead letters back to their topics, each once",
)(redrive)
