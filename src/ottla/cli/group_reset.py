"""`ottla group reset`: move a group to other offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ottla.cli.commands import Argument, Option, Options, require_one, section, usage_error
from ottla.cli.connect import connect
from ottla.cli.names import all_topics, check_exists
from ottla.cli.output import Column, Output, number
from ottla.clients import admin as api
from ottla.clients.errors import GroupNotFound
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import TopicPartition
from ottla.tools.admin.group_offsets import read_offsets, write_offsets
from ottla.tools.admin.group_reset import Places, find_places, read_offsets_file
from ottla.tools.offsets import target_moment
from ottla.tools.suggestions import nearest

_TARGETS = (
    Option("--to-earliest", "the first record"),
    Option("--to-latest", "after the last record"),
    Option("--to-current", "the committed offset, or else the latest"),
    Option("--to-offset N", "this offset", type=int),
    Option("--shift-by N", "N records forward, or back if N is negative", type=int),
    Option("--to-datetime TIME", "the first record since then: 2026-01-31T12:00, now-1h"),
    Option("--by-duration DURATION", "the first record of the last 1h30min, PT1H30M"),
    Option("--from-file FILE", "lines of topic,partition,offset; - is standard input"),
)
PARAMETERS = [
    Argument("names", "GROUP", nargs=-1, help="the group"),
    Option("--group GROUP", name="more_names", multiple=True, hidden=True),
    Option("--topic TOPIC[:0,1]", "only this topic, or some of its partitions", multiple=True),
    Option("--all-topics", "all topics with committed offsets; the default"),
    *section("Target offset", *_TARGETS),
    Option("--execute", "change the offsets"),
    Option("--dry-run", "only show the change; the default"),
    Option("--export", "print lines for --from-file; changes nothing"),
]
EXAMPLES = """
ottla group reset billing --to-earliest              shows the change
ottla group reset billing --to-earliest --execute    makes the change
ottla group reset billing --topic orders:0,3 --to-offset 100 --execute
ottla group reset billing --shift-by -100 --execute
ottla group reset billing --to-datetime 2026-01-31T12:00+01:00
ottla group reset billing --to-current --export > saved.csv
ottla group reset billing --from-file saved.csv --execute
"""


def reset(options: Options) -> None:
    """Move a group to other offsets. Without --execute it only shows the change, as Kafka's tool does.

    The group must have no members: stop its consumers first. Without --topic it moves all topics with committed
    offsets. A time without a time zone is local (for Kafka's tool it is UTC). An offset outside a partition's log
    becomes the nearest offset inside.
    """
    require_one(options, *(target.opts[0] for target in _TARGETS))
    output = Output(options)
    group = _group_of(options)
    if options.execute and (options.dry_run or options.export):
        raise Failure("--execute changes offsets, --dry-run and --export change nothing: give one", exit_code=2)
    if options.from_file and (options.topic or options.all_topics):
        raise Failure("--from-file already names the partitions", exit_code=2)
    moment_ms = target_moment(options.to_datetime, options.by_duration)
    given = read_offsets_file(options.from_file) if options.from_file else None
    admin = connect(options)
    described = _described(admin, group, output)
    members = len(described.members) if described else 0
    if members and options.execute:
        raise Failure(*_active(group, members))
    is_share = described is not None and described.type is api.GroupType.SHARE
    committed = read_offsets(admin, group, is_share=is_share)
    partitions = list(given) if given is not None else _scope(admin, group, options.topic, committed)
    places = find_places(admin, partitions, committed)
    if moment_ms is not None:
        found = admin.list_offsets(dict.fromkeys(partitions, moment_ms))
        wanted = {p: at.offset if at.offset >= 0 else places[p].latest for p, at in found.items()}
    else:
        move = _move(options, given)
        wanted = {partition: move(partition, places[partition]) for partition in partitions}
    plan = {p: min(max(offset, places[p].earliest), places[p].latest) for p, offset in sorted(wanted.items())}
    if options.export:
        _export(output, plan)
        return
    if options.execute:
        write_offsets(admin, group, plan, is_share=is_share)
    for partition, offset in plan.items():
        if offset != wanted[partition]:
            at = places[partition]
            limits = f"offsets {at.earliest} to {at.latest}"
            output.warn(f"{partition} has {limits}: using {offset}, not {wanted[partition]}")
    _print_plan(output, group, plan, places, executed=options.execute)
    if moment_ms is not None:
        output.note(f"First records at or after {units.moment_utc(moment_ms)}; the latest offset if there is none.")
    if not options.execute:
        output.note("Nothing was changed: --execute makes the change.")
        if members:
            output.warn(f"{_active(group, members)[0]}, so --execute would fail")


def _group_of(options: Options) -> str:
    names = [*options.names, *options.more_names]
    if len(names) != 1:
        raise usage_error(f"one group at a time, not {len(names)}" if names else "which group?")
    return str(names[0])


def _move(options: Options, given: Mapping[TopicPartition, int] | None) -> Callable[[TopicPartition, Places], int]:
    """Return the function from a partition to its target offset, before it is limited to the log."""
    if given is not None:
        return lambda partition, _: given[partition]
    if options.to_earliest:
        return lambda _, places: places.earliest
    if options.to_latest:
        return lambda _, places: places.latest
    if options.to_offset is not None:
        return lambda _, __: int(options.to_offset)
    shift = options.shift_by or 0  # --to-current is a shift by 0

    def shifted(partition: TopicPartition, places: Places) -> int:
        if places.current is None and options.shift_by is not None:
            advice = "--to-offset, --to-earliest and --to-latest do not need a committed offset."
            raise Failure(f"{partition} has no committed offset to shift", advice)
        return (places.latest if places.current is None else places.current) + shift

    return shifted


def _described(admin: api.Admin, group: str, output: Output) -> api.GroupDescription | None:
    try:
        return admin.describe_group(group)
    except GroupNotFound:
        near = nearest(group, [each.group_id for each in admin.list_groups()])
        meant = f" Did you mean {near!r}?" if near else ""
        output.note(f"There is no group {group!r} yet.{meant}")
        return None


def _active(group: str, members: int) -> tuple[str, str]:
    return (
        f"{group} has {units.plural(members, 'member')}: offsets can be reset only without members",
        f"Stop its consumers first; `ottla group describe {group}` shows them.",
    )


def _scope(
    admin: api.Admin, group: str, topics: list[str], committed: Mapping[TopicPartition, object]
) -> list[TopicPartition]:
    if not topics:
        if not committed:
            raise Failure(f"{group} has no committed offsets", "--topic TOPIC names the topic to reset.")
        return sorted(committed)
    counts = {name: topic.partitions for name, topic in all_topics(admin).items()}
    return sorted({partition for word in topics for partition in _named(word, counts)})


def _named(word: str, counts: Mapping[str, int]) -> Iterator[TopicPartition]:
    """Yield the partitions of `TOPIC` or `TOPIC:0,2`."""
    name, _, numbers = word.partition(":")
    check_exists(name, counts, "topic")
    for number_text in numbers.split(",") if numbers else map(str, range(counts[name])):
        number = units.whole_number(number_text.strip())
        if number is None or number >= counts[name]:
            raise Failure(f"{name} has {units.plural(counts[name], 'partition')}, but no {number_text[:40]!r}")
        yield TopicPartition(name, number)


def _export(output: Output, plan: Mapping[TopicPartition, int]) -> None:
    for partition, offset in plan.items():
        output.done(f"{partition.topic},{partition.partition},{offset}", {**partition._asdict(), "offset": offset})


def _print_plan(
    output: Output,
    group: str,
    plan: Mapping[TopicPartition, int],
    places: Mapping[TopicPartition, Places],
    *,
    executed: bool,
) -> None:
    rows: list[dict[str, Any]] = []
    for partition, offset in plan.items():
        place = places[partition]
        rows.append(
            {
                "group": group,
                **partition._asdict(),
                "before": place.current,
                "offset": offset,
                "change": None if place.current is None else offset - place.current,
                "lag": place.latest - offset,
                "changed": executed,
            }
        )
    columns = [
        Column("topic", narrow=True),
        number("partition"),
        number("before"),
        number("offset", "NOW" if executed else "WOULD BE"),
        Column("change", right=True, show=lambda n: "-" if n is None else f"{n:+,}" if n else "0"),
        number("lag", "LAG THEN"),
    ]
    output.table(columns, rows)
