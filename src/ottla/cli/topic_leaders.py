"""`ottla topic reassign` and `ottla topic elect-leaders`: which brokers have the replicas of topics, and which lead."""

from __future__ import annotations

from ottla.cli.commands import Option, Options, usage_error
from ottla.cli.connect import connect
from ottla.cli.moving import move, moving_options, show_moving
from ottla.cli.names import all_topics, choose, name_parameters, names_of
from ottla.cli.output import Output
from ottla.clients import admin as api
from ottla.common import units
from ottla.common.failure import Failure
from ottla.common.ids import MAX_INT32, TopicPartition
from ottla.tools.admin import placement
from ottla.tools.admin.outcomes import outcomes
from ottla.tools.admin.placement import Target
from ottla.tools.admin.replicas import replicas_of, targets_of

REASSIGN = [
    *name_parameters("topic", optional=True),
    Option("--brokers ID,..", "the node ids of the brokers for the replicas; default: all that are up"),
    Option("-r, --replication-factor N", "the new number of replicas; default: as many as now", type=int),
    Option("--status", "show the partitions that are moving"),
    Option("--cancel", "cancel the moves of these topics: their replicas stay where they were"),
    *moving_options(),
]
REASSIGN_EXAMPLES = """
ottla topic reassign orders --brokers 1,2,3 --dry-run
ottla topic reassign orders --replication-factor 3 --yes
ottla topic reassign --status
ottla topic reassign orders --cancel
"""
ELECT = [
    *name_parameters("topic", optional=True),
    Option("--unclean", "elect a replica that is not in sync where no other is left: records may be lost"),
    Option("-y, --yes", "do not ask before an unclean election"),
]
ELECT_EXAMPLES = """
ottla topic elect-leaders
ottla topic elect-leaders orders
"""


def reassign(options: Options) -> None:
    """Spread the replicas of topics over brokers, and show, wait for or cancel such moves."""
    admin, output = connect(options), Output(options)
    if options.status:
        show_moving(admin, output)
        return
    wanted = names_of(options, "topic", optional=True)
    if not wanted:
        raise usage_error("which topic?")
    names = choose(wanted, all_topics(admin), "topic", regex=options.regex)
    if options.cancel:
        _cancel(admin, output, names)
        return
    before = replicas_of(admin, names)
    moves = placement.spread(before, _targets(admin, options.brokers), options.replication_factor)
    move(admin, options, f"Move {units.plural(len(moves), 'partition')}?", moves, before)


def _targets(admin: api.Admin, given: str | None) -> list[Target]:
    running = {target.node_id: target for target in targets_of(admin)}
    if given is None:
        return list(running.values())
    ids = _node_ids(given)
    if down := [node_id for node_id in ids if node_id not in running]:
        raise Failure(f"broker {down[0]} is not up", f"These brokers are up: {', '.join(map(str, running))}.")
    return [running[node_id] for node_id in ids]


def _node_ids(text: str) -> list[int]:
    numbers = [units.whole_number(word.strip(), MAX_INT32) for word in text.split(",")]
    if None in numbers:
        raise Failure(f"--brokers {text[:300]!r} is not of the form ID,ID", exit_code=2)
    return list(dict.fromkeys(number for number in numbers if number is not None))


def _cancel(admin: api.Admin, output: Output, names: list[str]) -> None:
    moving = [partition for partition in admin.list_partition_reassignments() if partition.topic in names]
    if not moving:
        output.note("No partition of these topics is moving.")
        return
    admin.alter_partition_reassignments(dict.fromkeys(moving))
    text = f"{units.plural(len(moving), 'move')} cancelled"
    output.changed(text, {"cancelled": len(moving)})


def elect(options: Options) -> None:
    """Give partitions back to their preferred leaders, the first of their replicas, where these are in sync."""
    admin, output = connect(options), Output(options)
    if options.unclean and not options.yes:
        problem = "an unclean election can lose acknowledged records"
        raise Failure(problem, "--yes confirms it. Without --unclean only replicas in sync are elected.")
    names = choose(names_of(options, "topic", optional=True), all_topics(admin), "topic", regex=options.regex)
    described = admin.describe_topics(names) if names else {}
    partitions = [
        TopicPartition(name, each.partition)
        for name, topic in described.items()
        for each in topic.partitions
        if (each.leader is None if options.unclean else each.replicas and each.leader != each.replicas[0])
    ]
    if not partitions:
        leaders = "a leader" if options.unclean else "its preferred leader"
        output.note(f"Every partition has {leaders}.")
        return
    elected, errors = outcomes(admin.elect_leaders, partitions, unclean=options.unclean)
    for partition in elected:
        row = {"topic": partition.topic, "partition": partition.partition, "elected": True}
        output.changed(f"{partition}: leader elected", row)
    if errors:
        raise api.PartialFailure.of(errors, elected)
