"""The letters that `ottla dlq show` and `redrive` read: the options, and the offsets of each partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import click

from ottla import clients
from ottla.cli.commands import Option, Options, section
from ottla.cli.connect import client_settings
from ottla.cli.names import missing
from ottla.clients.errors import UnknownTopicOrPartition
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.offsets import offsets_at, parse_moment, parse_partitions


class Scope(NamedTuple):
    """The offsets to read: from `starts` up to, but without, `ends`. The ends are where the letters end when
    the command starts."""

    starts: dict[TopicPartition, int]
    ends: dict[TopicPartition, int]


def filter_options() -> tuple[click.Parameter, ...]:
    """Return the options that choose letters."""
    return section(
        "Letters",
        Option("--reason TEXT", "only if the class or the message of the failure has this text, in any case"),
        Option("--origin TOPIC", "only letters of this original topic"),
        Option("--from WHERE", "only from this offset, or from a time: @2026-01-31T12:00, @-1h", name="since"),
        Option("--until WHERE", "only before this offset or time"),
        Option("-p, --partition P,..", "only these partitions of the dead letter topic", multiple=True),
    )


def open_consumer(options: Options, **more: Callable[..., bytes]) -> clients.Consumer:
    """Return a consumer of committed records without a group."""
    settings = client_settings(options, "consumer")
    settings |= {
        "isolation.level": "read_committed",
        "enable.auto.commit": False,
        "allow.auto.create.topics": False,
        "auto.offset.reset": "earliest",
    }
    settings.pop("group.id", None)
    return clients.Consumer(settings | {name.replace("_", "."): each for name, each in more.items()})


def find_scope(consumer: clients.Consumer, options: Options) -> Scope:
    """Return the offsets that the options choose, between the first letters and the ends now. Raises Failure."""
    tps = _partitions(consumer, options)
    first, end = consumer.beginning_offsets(tps), consumer.end_offsets(tps)
    starts = _places(consumer, options.since, first, end, "--from") if options.since else dict(first)
    ends = _places(consumer, options.until, first, end, "--until") if options.until else dict(end)
    return Scope(starts, {tp: max(ends[tp], starts[tp]) for tp in tps})


def _partitions(consumer: clients.Consumer, options: Options) -> list[TopicPartition]:
    topic, wanted = options.topic, parse_partitions(options.partition)
    try:
        existing = consumer.partitions_of(topic)
    except UnknownTopicOrPartition:
        raise Failure(*missing(topic, consumer.topics(), "topic")) from None
    for partition in wanted:
        if partition not in existing:
            raise Failure(
                f"topic {topic!r} has no partition {partition}; it has {units.plural(len(existing), 'partition')}"
            )
    return [TopicPartition(topic, partition) for partition in wanted or existing]


def _places(
    consumer: clients.Consumer, text: str, first: dict[TopicPartition, int], end: dict[TopicPartition, int], option: str
) -> dict[TopicPartition, int]:
    offset = units.whole_number(text)
    if offset is not None:
        return {tp: min(max(offset, first[tp]), end[tp]) for tp in end}
    if not text.startswith("@"):
        raise Failure(
            f"{option} {text!r} is not an offset", "A time begins with @: @2026-01-31T12:00, @-1h.", exit_code=2
        )
    at = offsets_at(consumer, parse_moment(text[1:]), end)
    return {tp: min(max(at[tp], first[tp]), end[tp]) for tp in end}
